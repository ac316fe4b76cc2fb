# Turn pairs into token ids, once for all that follows.
#
# REQUIRED INPUTS: pairs; the backbone with its tokenizer
# OUTPUTS:         tokens, one row a pair; dropped, one row a refused pair with its reason
# STEPS:           render the chat template, tokenise, split off the shared prefix, refuse what is overlong


rule tokenize:
    input:
        pairs=rules.ingest.output.pairs,
        backbone=rules.backbone.output.backbone,
    output:
        tokens=table("tokenize", "tokens"),
        dropped=table("tokenize", "dropped"),
    log:
        log_of("tokenize"),
    conda:
        "../../envs/training.yaml"
    params:
        max_length=EXPERIMENT.tokenize.max_length,
        record=record_of("tokenize"),
        code=code("tokenize"),
    message:
        "Tokenising the pairs"
    shell:
        "rm-memorization tokenize --pairs {input.pairs:q} --backbone {input.backbone:q} --tokens {output.tokens:q}"
        " --dropped {output.dropped:q} --max-length {params.max_length} --record {params.record:q} > {log:q} 2>&1"
