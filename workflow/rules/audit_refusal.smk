# Audit refusals against helpful answers.
#
# REQUIRED INPUTS: every run's panel scores
# OUTPUTS:         audit, one row a metric in a stratum under one run or the mean reward of all
# STEPS:           reward of the refusal minus that of the helpful answer, by stratum; resample prompts


rule audit_refusal:
    input:
        panel_scores=settled(run_table("score_panels", "panel_scores"), run=RUNS),
    output:
        audit=table("audit_refusal", "audit"),
    log:
        log_of("audit_refusal"),
    conda:
        "../../envs/workflow.yaml"
    params:
        runs=flags("--run", RUNS),
        panel_scores=flags(
            "--panel-scores", of_runs(run_table("score_panels", "panel_scores"))
        ),
        resamples=EXPERIMENT.audit_refusal.resamples,
        seed=EXPERIMENT.audit_refusal.seed,
        record=record_of("audit_refusal"),
        code=code("audit_refusal"),
    message:
        "Auditing refusals against helpful answers"
    shell:
        "rm-memorization audit-refusal {params.panel_scores} {params.runs} --audit {output.audit:q}"
        " --resamples {params.resamples} --seed {params.seed} --record {params.record:q} > {log:q} 2>&1"
