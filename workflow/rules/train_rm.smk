# Train the reward model of one run.
#
# REQUIRED INPUTS: the run's manifest and SFT weights; tokens and backbone (ancient, see sft.smk)
# OUTPUTS:         weights, one row a tensor; training_log, with the check scores that `score` must reproduce; trained,
#                  one row a pair that the trainer was fed
# STEPS:           backbone + SFT + adapters + reward head, TRL's RewardTrainer


rule train_rm:
    input:
        manifest=settled(run_table("manifest", "manifest")),
        sft=settled(run_table("sft", "weights")),
        tokens=ancient(rules.tokenize.output.tokens),
        backbone=ancient(rules.backbone.output.backbone),
    output:
        weights=run_table("train_rm", "weights"),
        training_log=run_table("train_rm", "training_log"),
        trained=run_table("train_rm", "trained"),
    log:
        log_of("train_rm.{run}"),
    conda:
        "../../envs/training.yaml"
    threads: THREADS
    params:
        settings=section("train_rm"),
        backbone=section("backbone"),
        device=DEVICE,
        threads=THREADS,
        record=record_of("train_rm.{run}"),
        recipe=RECIPE,
    message:
        "Training the reward model of run {wildcards.run}"
    shell:
        "rm-memorization train-rm --manifest {input.manifest:q} --tokens {input.tokens:q} --backbone {input.backbone:q}"
        " --sft {input.sft:q} --settings {params.settings:q} --weights {output.weights:q}"
        " --training-log {output.training_log:q} --trained {output.trained:q} --threads {params.threads}"
        " --device {params.device} --record {params.record:q} > {log:q} 2>&1"
