# Fine-tune the backbone on the chosen replies of the run's included units.
#
# REQUIRED INPUTS: the run's manifest; tokens and backbone (ancient: the manifest carries each pair's token hash, so it
#                  alone decides whether a training is due)
# OUTPUTS:         weights, one row a tensor; training_log, one row a logged value
# STEPS:           TRL's SFTTrainer on the distinct (prompt, chosen) sequences


rule sft:
    input:
        manifest=settled(run_table("manifest", "manifest")),
        tokens=ancient(rules.tokenize.output.tokens),
        backbone=ancient(rules.backbone.output.backbone),
    output:
        weights=run_table("sft", "weights"),
        training_log=run_table("sft", "training_log"),
    log:
        log_of("sft.{run}"),
    conda:
        "../../envs/training.yaml"
    threads: THREADS
    params:
        settings=section("sft"),
        backbone=section("backbone"),
        device=DEVICE,
        threads=THREADS,
        record=record_of("sft.{run}"),
        recipe=RECIPE,
    message:
        "Fine-tuning run {wildcards.run}"
    shell:
        "rm-memorization sft --manifest {input.manifest:q} --tokens {input.tokens:q} --backbone {input.backbone:q}"
        " --settings {params.settings:q} --weights {output.weights:q} --training-log {output.training_log:q}"
        " --threads {params.threads} --device {params.device} --record {params.record:q} > {log:q} 2>&1"
