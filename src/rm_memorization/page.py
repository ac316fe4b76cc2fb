"""The report's pages. They need no network and hold no script; every text from data is escaped and made visible."""

import io
import json
import re
from typing import Any
from xml.etree import ElementTree as ET

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .errors import UserError
from .figures import PLOTS, Findings
from .figures.audits import METRICS
from .figures.plot import ALL
from .hashing import canonical_json
from .visible import shorten, visible

AUDITS = ("audit_length", "audit_factorial", "audit_refusal")
NONE = "—"
LONGEST_TEXT = 1200
SHORT_DIGEST = 12
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
Row = dict[str, Any]


def index_page(name: str, findings: Findings, figures: dict[str, str], top: int) -> str:
    """Give the page of results; it holds nothing that differs between two builds from equal tables.

    Parameters
    ----------
    name
        Of the experiment.
    findings
        All tables.
    figures
        SVG by figure.
    top
        How many pairs of the highest and of the lowest CM are shown.

    Raises
    ------
    UserError
        If one of these pairs is not among the pairs.
    """
    known = findings.memorization.filter(pl.col("cm").is_not_null()).sort("cm", "pair_id")
    audits = {PLOTS[key].title: _audit(getattr(findings, key)) for key in AUDITS}
    return _render(
        "report.html.jinja",
        name=name,
        runs=len(findings.training_logs),
        known=known.height,
        counts=_counts(findings),
        ledger=_tally(findings.dropped),
        without_cm=_tally(findings.memorization.filter(pl.col("cm").is_null())),
        strata=_strata(findings),
        differences=_differences(findings),
        certificate=findings.certificate.to_dicts(),
        figures=[{"name": key, "plot": PLOTS[key], "svg": inline(svg, key, PLOTS[key].title)} for key, svg in figures.items()],
        top=[("Highest CM", _pairs(known.reverse().head(top), findings)), ("Lowest CM", _pairs(known.head(top), findings))],
        audits=audits,
    )  # fmt: skip


def provenance_page(name: str, provenance: pl.DataFrame) -> str:
    """Give the page of jobs.

    Parameters
    ----------
    name
        Of the experiment.
    provenance
        A table of the contract ``provenance``.
    """
    return _render(
        "provenance.html.jinja",
        name=name,
        jobs=[_job(row) for row in provenance.sort("started", "job").iter_rows(named=True)],
    )


def inline(svg: str, prefix: str, title: str) -> Markup:
    """Make an SVG fit to stand in a page: a name for those who cannot see it, and ids that no other figure has.

    Parameters
    ----------
    svg
        As `figures.save` wrote it.
    prefix
        Put before every id.
    title
        Its name.
    """
    ET.register_namespace("", SVG)
    ET.register_namespace("xlink", XLINK)
    tree = ET.parse(io.StringIO(svg))  # noqa: S314 - our own file
    for element in tree.iter():
        for key, value in element.attrib.items():
            element.set(key, _prefixed(key, value, prefix))
    root = tree.getroot()
    root.attrib |= {"role": "img", "aria-label": title}
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - text is escaped in it


def _prefixed(key: str, value: str, prefix: str) -> str:
    """Put the prefix before an id, where it is given and where it is referred to."""
    if key == "id":
        return f"{prefix}-{value}"
    reference = "^#" if key == f"{{{XLINK}}}href" else r"url\(#"
    return re.sub(reference, rf"\g<0>{prefix}-", value)


def _render(template: str, **content: Any) -> str:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "real": real,
        "interval": interval,
        "text": _text,
        "digest": _digest,
        "json": canonical_json,
    }
    return environment.get_template(template).render(content)


def _shown(value: Any) -> Any:
    """Whatever the page prints comes through here before it is escaped."""
    if value is None:
        return NONE
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def real(value: float | None) -> str:
    """Write a number with three decimals; a small one in powers of ten rather than as zero.

    Examples
    --------
    >>> real(-0.25), real(0.00012), real(None)
    ('−0.250', '1.2e−04', '—')
    """
    if value is None:
        return NONE
    plain = f"{value:z.3f}"
    return (plain if value == 0 or float(plain) else f"{value:.1e}").replace("-", "−")


def interval(row: Row | None) -> str:
    """Write an estimate with its interval; a null is a dash with its reason.

    Examples
    --------
    >>> interval({"estimate": 0.1, "low": 0.05, "high": 0.15, "reason": None})
    '0.100 [0.050, 0.150]'
    >>> interval({"estimate": 0.1, "low": None, "high": None, "reason": "one_unit"})
    '0.100 [—] (one_unit)'
    """
    if row is None:
        return f"{NONE} (not_estimated)"
    ends = NONE if row["low"] is None else f"{real(row['low'])}, {real(row['high'])}"
    written = NONE if row["estimate"] is None else f"{real(row['estimate'])} [{ends}]"
    return f"{written} ({row['reason']})" if row["reason"] else written


def _text(text: str) -> Row:
    shown, left_out = shorten(text, LONGEST_TEXT)
    return {"shown": shown, "left_out": left_out}


def _digest(value: str | None) -> str | None:
    return value if value is None else value[:SHORT_DIGEST]


def _summary(findings: Findings) -> dict[tuple[str, str], Row]:
    return {(row["stratum"], row["metric"]): row for row in findings.summary.iter_rows(named=True)}


def _strata(findings: Findings) -> list[Row]:
    """Give `all` and each stratum with its three means."""
    rows = _summary(findings)
    return [
        {"stratum": name, **{metric: rows.get((name, metric)) for metric in ("tm", "tg", "cm")}}
        for name in (ALL, *findings.strata)
    ]


def _differences(findings: Findings) -> list[Row]:
    names = [ALL, *findings.strata]
    return findings.summary.filter((pl.col("metric") == "cm") & ~pl.col("stratum").is_in(names)).to_dicts()


def _counts(findings: Findings) -> Row:
    memorized = findings.memorization
    return {
        "ingested": findings.pairs.height,
        "scored": memorized.height,
        "units": memorized["unit_id"].n_unique(),
    }


def _tally(rows: pl.DataFrame) -> list[tuple[str, int]]:
    return rows.group_by("reason").len().sort("len", "reason", descending=[True, False]).rows()


def _audit(audit: pl.DataFrame) -> dict[str, list[Row]]:
    """Give the rows of the mean reward, and those of single runs, with the metrics in words and in the order of these."""
    order = pl.col("metric").replace_strict(list(METRICS), range(len(METRICS)), default=len(METRICS))
    rows = audit.sort("stratum", order, "metric", "run").with_columns(words=pl.col("metric").replace(METRICS))
    return {
        "mean": rows.filter(pl.col("run") == ALL).to_dicts(),
        "single": rows.filter(pl.col("run") != ALL).to_dicts(),
    }


def _pairs(chosen: pl.DataFrame, findings: Findings) -> list[Row]:
    texts = findings.pairs.select("pair_id", "prompt", "chosen", "rejected")
    rows = chosen.join(texts, on="pair_id", how="left", maintain_order="left", suffix="_text")
    for pair_id in rows.filter(pl.col("chosen").is_null())["pair_id"].head(1):
        raise UserError(
            "pairs", f"pair {pair_id!r} of the memorization table is not there", hint="run aggregate_cm again"
        )
    return [
        row
        | {
            "last": row["prompt"][-1]["content"] if row["prompt"] else "",
            "earlier": max(0, len(row["prompt"]) - 1),
        }
        for row in rows.rename({"cm": "estimate"}).to_dicts()
    ]


def _job(row: Row) -> Row:
    decoded = {name: json.loads(row[name]) for name in ("versions", "params", "inputs", "outputs")}
    _, _, run = row["job"].partition(".")
    return row | decoded | {"run": run or None}
