from snakemake.utils import min_version

min_version("9.20")

# A config file given on the command line stands alone; the embedded default fills in only where none is given.
if not workflow.overwrite_configfiles:

    configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/ingest.smk"
include: "workflow/rules/backbone.smk"
include: "workflow/rules/tokenize.smk"
include: "workflow/rules/split.smk"
include: "workflow/rules/manifest.smk"
include: "workflow/rules/sft.smk"
include: "workflow/rules/train_rm.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/score_panels.smk"
include: "workflow/rules/aggregate_cm.smk"
include: "workflow/rules/audit_length.smk"
include: "workflow/rules/audit_factorial.smk"
include: "workflow/rules/audit_refusal.smk"
include: "workflow/rules/report.smk"


localrules:
    all,


# Every product worth keeping is named: Snakemake ignores a missing file that only lies between two others.
rule all:
    default_target: True
    input:
        rules.ingest.output,
        rules.backbone.output,
        rules.tokenize.output,
        rules.split.output,
        of_runs(rules.manifest.output),
        of_runs(rules.sft.output),
        of_runs(rules.train_rm.output),
        of_runs(rules.score.output),
        of_runs(rules.score_panels.output),
        rules.aggregate_cm.output,
        rules.audit_length.output,
        rules.audit_factorial.output,
        rules.audit_refusal.output,
        rules.report.output,


onstart:
    if worth_warming():
        warm.start()
