# Score every pair, held out or not, with one run's reward model.
#
# REQUIRED INPUTS: tokens, backbone, the run's SFT and reward-model weights, its training log
# OUTPUTS:         scores, one row a pair: two rewards in float32
# STEPS:           rebuild the model in a fresh process, reproduce the check scores or stop, score


rule score:
    input:
        tokens=rules.tokenize.output.tokens,
        backbone=ancient(rules.backbone.output.backbone),
        sft=settled(run_table("sft", "weights")),
        train_rm=settled(run_table("train_rm", "weights")),
        training_log=settled(run_table("train_rm", "training_log")),
    output:
        scores=run_table("score", "scores"),
    log:
        log_of("score.{run}"),
    conda:
        "../../envs/training.yaml"
    threads: THREADS
    params:
        batch_tokens=EXPERIMENT.score.batch_tokens,
        device=DEVICE,
        threads=THREADS,
        record=record_of("score.{run}"),
        code=code("score"),
    message:
        "Scoring all pairs with run {wildcards.run}"
    shell:
        "rm-memorization score --tokens {input.tokens:q} --backbone {input.backbone:q} --sft {input.sft:q}"
        " --train-rm {input.train_rm:q} --training-log {input.training_log:q} --scores {output.scores:q}"
        " --batch-tokens {params.batch_tokens} --threads {params.threads} --device {params.device}"
        " --record {params.record:q} > {log:q} 2>&1"
