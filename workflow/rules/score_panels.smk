# Score the audit panels with one run's reward model.
#
# REQUIRED INPUTS: the panels' files, backbone, the run's SFT and reward-model weights
# OUTPUTS:         panel_scores, one row an answer
# STEPS:           check the panels, rebuild the model, score


rule score_panels:
    input:
        panels=EXPERIMENT.score_panels.files,
        backbone=ancient(rules.backbone.output.backbone),
        sft=settled(run_table("sft", "weights")),
        train_rm=settled(run_table("train_rm", "weights")),
    output:
        panel_scores=run_table("score_panels", "panel_scores"),
    log:
        log_of("score_panels.{run}"),
    conda:
        "../../envs/training.yaml"
    threads: THREADS
    params:
        panels=flags("--panel", EXPERIMENT.score_panels.files),
        batch_tokens=EXPERIMENT.score.batch_tokens,
        device=DEVICE,
        threads=THREADS,
        record=record_of("score_panels.{run}"),
        code=code("score_panels"),
    message:
        "Scoring the audit panels with run {wildcards.run}"
    shell:
        "rm-memorization score-panels {params.panels} --backbone {input.backbone:q} --sft {input.sft:q}"
        " --train-rm {input.train_rm:q} --panel-scores {output.panel_scores:q} --batch-tokens {params.batch_tokens}"
        " --threads {params.threads} --device {params.device} --record {params.record:q} > {log:q} 2>&1"
