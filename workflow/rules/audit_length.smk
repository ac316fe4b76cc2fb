# Audit reward against length.
#
# REQUIRED INPUTS: every run's panel scores and scores; pairs and tokens (prompts, lengths)
# OUTPUTS:         audit, one row a metric in a stratum under one run or the mean reward of all
# STEPS:           correlate reward and response tokens, pooled and within a prompt; resample prompts


rule audit_length:
    input:
        panel_scores=settled(run_table("score_panels", "panel_scores"), run=RUNS),
        scores=settled(run_table("score", "scores"), run=RUNS),
        pairs=rules.ingest.output.pairs,
        tokens=rules.tokenize.output.tokens,
    output:
        audit=table("audit_length", "audit"),
    log:
        log_of("audit_length"),
    conda:
        "../../envs/workflow.yaml"
    params:
        runs=flags("--run", RUNS),
        panel_scores=flags(
            "--panel-scores", of_runs(run_table("score_panels", "panel_scores"))
        ),
        scores=flags("--scores", of_runs(run_table("score", "scores"))),
        resamples=EXPERIMENT.audit_length.resamples,
        seed=EXPERIMENT.audit_length.seed,
        record=record_of("audit_length"),
        code=code("audit_length"),
    message:
        "Auditing reward against length"
    shell:
        "rm-memorization audit-length {params.panel_scores} {params.scores} {params.runs} --pairs {input.pairs:q}"
        " --tokens {input.tokens:q} --audit {output.audit:q} --resamples {params.resamples} --seed {params.seed}"
        " --record {params.record:q} > {log:q} 2>&1"
