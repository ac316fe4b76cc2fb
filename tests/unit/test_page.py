"""The report's pages."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import polars as pl
import pytest
from fake_findings import PROMPT, STRATA, findings, table, without_cm

from rm_memorization import tables
from rm_memorization.errors import UserError
from rm_memorization.page import index_page, inline, interval, provenance_page, real

HOSTILE = "</svg></div><script>alert('1')</script>\" onload=\"x\u202e\x00😀 {{ 7 * 7 }} &amp; שלום"
SEEN = "</svg></div><script>alert('1')</script>\" onload=\"x⟨U+202E⟩⟨U+0000⟩😀 {{ 7 * 7 }} &amp; שלום"
FOUND = findings()


SEPARATE = {"a", "h3", "h4", "li", "summary", "td", "th"}


class Page(HTMLParser):
    """Collects tags, attributes and the text outside of style."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.inside = [], "", []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop() != tag:
            pass
        self.text += " " if tag in SEPARATE else ""

    def handle_data(self, data):
        if "style" not in self.inside:
            self.text += data

    def words(self):
        return " ".join(self.text.split())


def index(found, top=2, figures=None):
    return index_page("prism-1b", found, figures or {}, top)


def test_the_main_numbers():
    page = Page(index(FOUND)).words()
    row = FOUND.summary.row(
        by_predicate=(pl.col("stratum") == "unguided") & (pl.col("metric") == "cm"), named=True
    )
    assert f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" in page
    assert "400 pairs read and kept, 400 of them scored, 400 with a CM." in page
    assert "too_long 2 no_user_id 1" in page
    assert "held out pairs worst deviation 0 0.0125" in page
    assert "held out runs per unit max — (none known) 2" in page


def test_every_stratum_and_difference_stands_there():
    page = Page(index(FOUND)).words()
    for name in STRATA:
        assert f"{name} 100 10 0." in page
    assert f"{STRATA[0]} - {STRATA[1]} 0.003 [" in page
    assert page.count(" - ") == 6


def test_top_pairs_are_those_of_the_highest_and_the_lowest_cm():
    ranked = FOUND.memorization.sort("cm", descending=True)["pair_id"].to_list()
    shown = re.findall(r"pair <code>(\w+)</code>", index(FOUND, top=3))
    assert shown == [*ranked[:3], *ranked[:-4:-1]]
    assert re.findall("pair <code>", index(FOUND, top=0)) == []


def test_audits_stand_in_the_order_of_their_words():
    page = Page(index(FOUND)).words()
    assert (
        "all mean centred reward, correct concise mean_reward_correct_concise 0.100 [0.000, 0.200] 30 30"
        in page
    )
    assert page.index("share_trap_won") > page.index("correct concise − incorrect expanded trap")
    assert "Single runs (120 rows)" in page
    assert "[—] (not_resampled)" in page


def hostile(text):
    """Put a text wherever the page shows some."""
    n = FOUND.memorization.height
    texts = FOUND.pairs.with_columns(
        prompt=pl.Series([[*PROMPT[:2], {"role": "user", "content": text}]] * n),
        chosen=pl.lit(text),
        rejected=pl.lit(text),
    )
    names = {name: pl.lit(text) for name in ("unit_id", "user_id", "stratum")}
    return replace(
        FOUND,
        pairs=texts,
        memorization=FOUND.memorization.with_columns(**names),
        summary=FOUND.summary.with_columns(stratum=pl.col("stratum").replace("unguided", text)),
        certificate=FOUND.certificate.with_columns(property=pl.lit(text)),
        dropped=FOUND.dropped.with_columns(reason=pl.lit(text)),
        audit_refusal=FOUND.audit_refusal.with_columns(
            run=pl.lit(text), stratum=pl.lit(text), metric=pl.lit(text), reason=pl.lit(text)
        ),
    )


def test_hostile_text_is_escaped_and_visible_everywhere():
    page = Page(index_page(HOSTILE, hostile(HOSTILE), {}, 1))
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "svg", "iframe", "img", "link", "object"}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert page.text.count(SEEN.replace("_", " ")) > 10
    assert not set("\u202e\x00") & set(page.text)


def test_white_space_and_emoji_are_kept():
    html = index(hostile("a\n\n  b\t👩\u200d🔬"), top=1)
    assert html.count('<div class="text data" dir="auto">a\n\n  b\t👩\u200d🔬</div>') == 6


def test_long_text_says_how_much_is_left_out():
    page = Page(index(hostile("x" * 10_000), top=1))
    assert page.words().count("… 8,800 characters left out") == 6
    assert page.text.count("x" * 1200) >= 6
    assert "… 1 character left out" in Page(index(hostile("x" * 1201), top=1)).words()


def test_no_strata():
    page = Page(index(findings(strata=None))).words()
    assert "The data set has no strata." in page
    assert "Differences between strata" not in page
    assert "stratum —" in page


def test_pairs_without_cm_are_counted_by_reason():
    some = without_cm(FOUND, pl.col("unit_id") == "user001")
    page = Page(index(some)).words()
    assert "400 of them scored, 390 with a CM" in page
    assert "scored but without CM, by reason number fewer_than_2_runs_out 10" in page


@pytest.mark.parametrize("summary", [None, FOUND.summary.clear()])
def test_no_pair_has_a_cm(summary):
    none = without_cm(FOUND, pl.lit(value=True))
    page = Page(index(none if summary is None else replace(none, summary=summary))).words()
    assert page.count("No pair has a CM.") == 2
    assert ("— (not_estimated)" if summary is not None else "— (no_pairs)") in page


def test_an_audit_without_values():
    nothing = {name: pl.lit(None, pl.Float64) for name in ("estimate", "low", "high")}
    audit = FOUND.audit_length.with_columns(**nothing, reason=pl.lit("constant_length"))
    assert "— (constant_length) 120 40" in Page(index(replace(FOUND, audit_length=audit))).words()


def test_a_shown_pair_must_be_known():
    with pytest.raises(UserError, match="is not there"):
        index(replace(FOUND, pairs=FOUND.pairs.clear()))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0.000"),
        (-0.0, "0.000"),
        (-0.0004, "−4.0e−04"),
        (0.00012, "1.2e−04"),
        (1.2345, "1.234"),
        (None, "—"),
    ],
)
def test_real(value, written):
    assert real(value) == written


def test_an_interval_gives_its_reason():
    row = {"estimate": None, "low": None, "high": None, "reason": "undefined"}
    assert interval(row) == "— (undefined)"
    assert (
        interval(row | {"estimate": -0.5, "low": -1.0, "high": 0.25, "reason": None})
        == "−0.500 [−1.000, 0.250]"
    )


SVG = """<?xml version="1.0"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><g id="a"><text>&lt;script&gt; id="a" #a</text></g>
<use xlink:href="#a" clip-path="url(#b)" fill="#a0a0a0"/></svg>"""


def test_ids_of_two_figures_do_not_meet():
    svg = str(inline(SVG, "one", 'its "name"'))
    assert '<g id="one-a">' in svg
    assert 'xlink:href="#one-a" clip-path="url(#one-b)" fill="#a0a0a0"' in svg
    assert '<text>&lt;script&gt; id="a" #a</text>' in svg
    assert 'role="img" aria-label="its &quot;name&quot;"' in svg
    assert svg.startswith("<svg")


def test_a_figure_stands_in_the_page_with_its_caption():
    html = index(FOUND, figures={"cm_histogram": SVG})
    assert '<figure id="cm_histogram">\n<svg xmlns' in html
    assert "Distribution of CM" in html
    assert 'href="cm_histogram.parquet"' in html


def jobs(**changes):
    row = {
        "job": "train_rm.r01", "stage": "train_rm", "started": "2026-01-02T03:04:05+00:00", "wall_s": 12.34, "cpu_s": 1000.0,
        "peak_memory_mb": 512.7, "host": "node1", "device": "cpu", "threads": 2, "git_commit": "a" * 40, "git_dirty": True,
        "versions": json.dumps({"torch": "2.6.0", "peft": None}), "params": json.dumps({"epochs": 1, "lora": {"rank": 8}}),
        "inputs": json.dumps({"tokens.parquet": "b" * 64}), "outputs": json.dumps({"w.parquet": {"content_hash": "c" * 64, "sha256": "d" * 64}}),
    } | changes  # fmt: skip
    return table({name: [value] for name, value in row.items() if value is not None}, tables.PROVENANCE)


def test_a_job_is_a_row():
    page = Page(provenance_page("prism-1b", jobs())).words()
    assert "train_rm r01 2026-01-02 03:04:05 12.3 1,000.0 513 node1 cpu 2 aaaaaaaaaaaa with changes" in page
    assert "versions torch 2.6.0 peft —" in page
    assert 'parameters epochs 1 lora {"rank":8}' in page
    assert "1 read tokens.parquet bbbbbbbbbbbb 1 written w.parquet cccccccccccc" in page


def test_what_a_job_does_not_know_is_a_dash():
    page = Page(
        provenance_page(
            "prism-1b",
            jobs(job="ingest", stage="ingest", threads=None, git_commit=None, git_dirty=None, inputs="{}"),
        )
    ).words()
    assert "ingest — 2026-01-02 03:04:05 12.3 1,000.0 513 node1 cpu — — versions" in page


def test_a_hostile_host_is_text():
    page = Page(provenance_page(HOSTILE, jobs(host=HOSTILE, params=json.dumps({HOSTILE: HOSTILE}))))
    assert not {"script", "svg"} & {tag for tag, _ in page.tags}
    assert page.text.count(SEEN) >= 4


def test_no_jobs():
    assert "There are no run records." in provenance_page("prism-1b", jobs().clear())
