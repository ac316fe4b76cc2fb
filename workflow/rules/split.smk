# Decide which run holds out whom. The only checkpoint.
#
# REQUIRED INPUTS: tokens (who has how many pairs)
# OUTPUTS:         assignment per run, the included pairs alone; design, one row a unit and a run that holds it out;
#                  certificate, one row a property of the design
# STEPS:           draw the design, take out withdrawn units, write each run's pairs to a file of its own, so that a
#                  run whose pairs stay the same is left in peace


checkpoint split:
    input:
        tokens=rules.tokenize.output.tokens,
    output:
        assignments=of_runs(run_table("split", "assignment")),
        design=table("split", "design"),
        certificate=table("split", "certificate"),
    log:
        log_of("split"),
    conda:
        "../../envs/workflow.yaml"
    params:
        runs=flags("--run", RUNS),
        held_out=EXPERIMENT.split.held_out,
        seed=EXPERIMENT.split.seed,
        excluded=flags("--exclude-user", EXPERIMENT.split.exclude_users),
        assignments=flags("--assignment", of_runs(run_table("split", "assignment"))),
        record=record_of("split"),
        code=code("split"),
    message:
        "Deciding which run holds out whom"
    shell:
        "rm-memorization split --tokens {input.tokens:q} {params.runs} {params.assignments} --design {output.design:q}"
        " --certificate {output.certificate:q} --held-out {params.held_out} --seed {params.seed} {params.excluded}"
        " --record {params.record:q} > {log:q} 2>&1"
