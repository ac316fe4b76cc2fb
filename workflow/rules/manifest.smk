# List what one run trains on.
#
# REQUIRED INPUTS: the run's assignment; tokens (ancient: who there is, so that a misspelt user is noticed)
# OUTPUTS:         manifest, one row a pair that the run trains on
# STEPS:           take out what the config's manifest.overrides excludes from this run


rule manifest:
    input:
        assignment=settled(run_table("split", "assignment")),
        tokens=ancient(rules.tokenize.output.tokens),
    output:
        manifest=run_table("manifest", "manifest"),
    log:
        log_of("manifest.{run}"),
    conda:
        "../../envs/workflow.yaml"
    params:
        excluded=lambda wildcards: repeated(
            "--exclude-user", excluded_from(wildcards.run)
        ),
        record=record_of("manifest.{run}"),
        code=code("manifest"),
    message:
        "Listing what run {wildcards.run} trains on"
    shell:
        "rm-memorization manifest --assignment {input.assignment:q} --tokens {input.tokens:q} --manifest {output.manifest:q} {params.excluded}"
        " --record {params.record:q} > {log:q} 2>&1"
