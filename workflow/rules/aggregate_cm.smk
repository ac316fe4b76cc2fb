# Compute TM, TG and CM = TM - TG.
#
# REQUIRED INPUTS: pairs, both ledgers, every run's scores, manifest and list of pairs that the trainer was fed
# OUTPUTS:         memorization, one row a pair; memorization_users, one row a unit; summary, one row a quantity
# STEPS:           check that every run scored every pair and trained on its manifest; estimate


rule aggregate_cm:
    input:
        pairs=rules.ingest.output.pairs,
        dropped=[rules.ingest.output.dropped, rules.tokenize.output.dropped],
        scores=settled(run_table("score", "scores"), run=RUNS),
        manifests=settled(run_table("manifest", "manifest"), run=RUNS),
        trained=settled(run_table("train_rm", "trained"), run=RUNS),
    output:
        memorization=report(
            table("aggregate_cm", "memorization"),
            caption="../report/memorization.rst",
            category="Tables",
        ),
        memorization_users=table("aggregate_cm", "memorization_users"),
        summary=report(
            table("aggregate_cm", "summary"),
            caption="../report/summary.rst",
            category="Tables",
        ),
    log:
        log_of("aggregate_cm"),
    conda:
        "../../envs/workflow.yaml"
    params:
        dropped=flags(
            "--dropped", [rules.ingest.output.dropped, rules.tokenize.output.dropped]
        ),
        runs=flags("--run", RUNS),
        scores=flags("--scores", of_runs(run_table("score", "scores"))),
        manifests=flags("--manifest", of_runs(run_table("manifest", "manifest"))),
        trained=flags("--trained", of_runs(run_table("train_rm", "trained"))),
        resamples=EXPERIMENT.aggregate_cm.resamples,
        seed=EXPERIMENT.aggregate_cm.seed,
        record=record_of("aggregate_cm"),
        code=code("aggregate_cm"),
    message:
        "Computing TM, TG and CM"
    shell:
        "rm-memorization aggregate-cm --pairs {input.pairs:q} {params.dropped} {params.runs} {params.scores}"
        " {params.manifests} {params.trained} --memorization {output.memorization:q}"
        " --memorization-users {output.memorization_users:q} --summary {output.summary:q}"
        " --resamples {params.resamples} --seed {params.seed} --record {params.record:q} > {log:q} 2>&1"
