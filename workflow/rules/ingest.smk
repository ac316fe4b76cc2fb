# Read the source files into pairs.
#
# REQUIRED INPUTS: the files that the config's section `ingest` names (none for `planted`)
# OUTPUTS:         pairs, one row a preference pair; dropped, one row a refused source row with its reason
# STEPS:           read, check row by row, give each pair an id that follows from its content


rule ingest:
    input:
        EXPERIMENT.ingest.files,
    output:
        pairs=table("ingest", "pairs"),
        dropped=table("ingest", "dropped"),
    log:
        log_of("ingest"),
    conda:
        "../../envs/workflow.yaml"
    params:
        source=section("ingest"),
        record=record_of("ingest"),
        code=code("ingest"),
    message:
        "Reading the preference pairs"
    shell:
        "rm-memorization ingest --source {params.source:q} --pairs {output.pairs:q} --dropped {output.dropped:q}"
        " --record {params.record:q} > {log:q} 2>&1"
