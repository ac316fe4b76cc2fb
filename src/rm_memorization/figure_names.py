"""Names of the figures, apart from their code: the workflow needs the names alone."""

FIGURES = (
    "memorization_map",
    "cm_histogram",
    "cm_by_stratum",
    "cm_by_unit_size",
    "training_curves",
    "audit_length",
    "audit_factorial",
    "audit_refusal",
)
