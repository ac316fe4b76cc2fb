# Audit correctness against verbosity, 2x2.
#
# REQUIRED INPUTS: every run's panel scores
# OUTPUTS:         audit, one row a metric in a stratum under one run or the mean reward of all
# STEPS:           five contrasts of the four answers to each prompt; resample prompts


rule audit_factorial:
    input:
        panel_scores=settled(run_table("score_panels", "panel_scores"), run=RUNS),
    output:
        audit=table("audit_factorial", "audit"),
    log:
        log_of("audit_factorial"),
    conda:
        "../../envs/workflow.yaml"
    params:
        runs=flags("--run", RUNS),
        panel_scores=flags(
            "--panel-scores", of_runs(run_table("score_panels", "panel_scores"))
        ),
        resamples=EXPERIMENT.audit_factorial.resamples,
        seed=EXPERIMENT.audit_factorial.seed,
        record=record_of("audit_factorial"),
        code=code("audit_factorial"),
    message:
        "Auditing correctness against verbosity"
    shell:
        "rm-memorization audit-factorial {params.panel_scores} {params.runs} --audit {output.audit:q}"
        " --resamples {params.resamples} --seed {params.seed} --record {params.record:q} > {log:q} 2>&1"
