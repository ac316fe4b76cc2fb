# Draw the figures and write the pages.
#
# REQUIRED INPUTS: the tables of all earlier stages
# OUTPUTS:         each figure as SVG beside its data; index.html; provenance, one row a job, as table and page
# STEPS:           bin and average for each figure, draw it; gather the run records


rule report:
    input:
        pairs=rules.ingest.output.pairs,
        dropped=[rules.ingest.output.dropped, rules.tokenize.output.dropped],
        memorization=rules.aggregate_cm.output.memorization,
        memorization_users=rules.aggregate_cm.output.memorization_users,
        summary=rules.aggregate_cm.output.summary,
        audit_length=rules.audit_length.output.audit,
        audit_factorial=rules.audit_factorial.output.audit,
        audit_refusal=rules.audit_refusal.output.audit,
        certificate=settled(table("split", "certificate")),
        training_logs=settled(run_table("train_rm", "training_log"), run=RUNS),
    output:
        data=expand(f"{RESULTS}/report/{{figure}}.parquet", figure=FIGURES),
        figures=[
            report(
                f"{RESULTS}/report/{figure}.svg",
                caption=f"../report/{figure}.rst",
                category="Figures",
                labels={"figure": figure},
            )
            for figure in FIGURES
        ],
        index=report(
            f"{RESULTS}/report/index.html",
            caption="../report/index.rst",
            category="Results",
        ),
        provenance=report(
            table("report", "provenance"),
            caption="../report/provenance.rst",
            category="Provenance",
        ),
        provenance_page=report(
            f"{RESULTS}/report/provenance.html",
            caption="../report/provenance.rst",
            category="Provenance",
        ),
    log:
        log_of("report"),
    conda:
        "../../envs/workflow.yaml"
    params:
        dropped=flags(
            "--dropped", [rules.ingest.output.dropped, rules.tokenize.output.dropped]
        ),
        runs=flags("--run", RUNS),
        training_logs=flags(
            "--training-log", of_runs(run_table("train_rm", "training_log"))
        ),
        name=EXPERIMENT.name,
        top=EXPERIMENT.report.top,
        records=f"{RESULTS}/run_records",
        folder=subpath(output.index, parent=True),
        record=record_of("report"),
        code=code("report", "templates"),
    message:
        "Drawing the figures and writing the pages"
    shell:
        "rm-memorization report --pairs {input.pairs:q} {params.dropped} --memorization {input.memorization:q}"
        " --memorization-users {input.memorization_users:q} --summary {input.summary:q}"
        " --certificate {input.certificate:q} {params.runs} {params.training_logs}"
        " --audit-length {input.audit_length:q} --audit-factorial {input.audit_factorial:q}"
        " --audit-refusal {input.audit_refusal:q} --records {params.records:q} --folder {params.folder:q}"
        " --name {params.name:q} --top {params.top} --record {params.record:q} > {log:q} 2>&1"
