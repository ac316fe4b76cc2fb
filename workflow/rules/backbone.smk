# Bring the pretrained model into a folder of safetensors.
#
# REQUIRED INPUTS: pairs for a tiny backbone (its vocabulary), the model's folder for `path`, the network for `hub`
# OUTPUTS:         backbone, one row a file; the files lie beside it in files/
# STEPS:           build, copy or fetch; refuse pickled weights and code; check template and pad token


def backbone_inputs():
    if EXPERIMENT.backbone.tiny:
        return {"pairs": rules.ingest.output.pairs}
    folder = EXPERIMENT.backbone.path
    return {"files": sorted(map(str, Path(folder).glob("*.*")))} if folder else {}


rule backbone:
    input:
        **backbone_inputs(),
    output:
        backbone=table("backbone", "backbone"),
    params:
        source=section("backbone"),
        pairs=flags("--pairs", [rules.ingest.output.pairs] if EXPERIMENT.backbone.tiny else []),
        record=record_of("backbone"),
        code=code("backbone"),
    log:
        log_of("backbone"),
    message:
        "Preparing the backbone"
    conda:
        "../../envs/training.yaml"
    shell:
        "rm-memorization backbone --source {params.source:q} {params.pairs} --backbone {output.backbone:q}"
        " --record {params.record:q} > {log:q} 2>&1"
