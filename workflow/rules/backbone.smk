# Bring the pretrained model into a folder of safetensors.
#
# REQUIRED INPUTS: pairs for a tiny backbone (its vocabulary), the model's folder for `path`, the network for `hub`
# OUTPUTS:         backbone, one row a file; the files lie beside it in files/
# STEPS:           build, copy or fetch; refuse pickled weights and code; check template and pad token


rule backbone:
    input:
        **backbone_inputs(),
    output:
        backbone=table("backbone", "backbone"),
    log:
        log_of("backbone"),
    conda:
        "../../envs/training.yaml"
    params:
        source=section("backbone"),
        pairs=flags(
            "--pairs", [rules.ingest.output.pairs] if EXPERIMENT.backbone.tiny else []
        ),
        record=record_of("backbone"),
        code=code("backbone"),
    message:
        "Preparing the backbone"
    shell:
        "rm-memorization backbone --source {params.source:q} {params.pairs} --backbone {output.backbone:q}"
        " --record {params.record:q} > {log:q} 2>&1"
