# List what one run trains on.
#
# REQUIRED INPUTS: the run's assignment
# OUTPUTS:         manifest, one row a pair that the run trains on
# STEPS:           take out what the config's manifest.overrides excludes from this run


def excluded_from(wildcards):
    override = EXPERIMENT.manifest.overrides.get(wildcards.run)
    return flags("--exclude-user", override.exclude_users if override else [])


rule manifest:
    input:
        assignment=settled(run_table("split", "assignment")),
    output:
        manifest=run_table("manifest", "manifest"),
    params:
        excluded=excluded_from,
        record=record_of("manifest.{run}"),
        code=code("manifest"),
    log:
        log_of("manifest.{run}"),
    message:
        "Listing what run {wildcards.run} trains on"
    conda:
        "../../envs/workflow.yaml"
    shell:
        "rm-memorization manifest --assignment {input.assignment:q} --manifest {output.manifest:q} {params.excluded}"
        " --record {params.record:q} > {log:q} 2>&1"
