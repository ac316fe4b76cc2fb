"""The screen that `make run` ends with."""

import polars as pl

from rm_memorization.overview import numbers, slowest


def test_numbers_show_estimate_and_interval_and_leave_out_what_is_no_mean():
    rows = [
        {
            "stratum": "all",
            "metric": "cm",
            "estimate": 0.25,
            "low": 0.2,
            "high": 0.3,
            "pairs": 10,
            "units": 5,
            "reason": None,
        },
        {
            "stratum": "all",
            "metric": "tm",
            "estimate": 0.75,
            "low": None,
            "high": None,
            "pairs": 10,
            "units": 5,
            "reason": "one_unit",
        },
        {
            "stratum": "all",
            "metric": "pairs",
            "estimate": 10.0,
            "low": None,
            "high": None,
            "pairs": 10,
            "units": 5,
            "reason": None,
        },
        {
            "stratum": "a - b",
            "metric": "cm",
            "estimate": None,
            "low": None,
            "high": None,
            "pairs": 0,
            "units": 0,
            "reason": "no_pairs",
        },
    ]
    header, first, second = numbers(pl.DataFrame(rows))
    assert header.split() == ["stratum", "pairs", "units", "TM", "TG", "CM", "=", "TM", "-", "TG"]
    assert first.split() == ["all", "10", "5", "0.750", "(one_unit)", "0.250", "[0.200,", "0.300]"]
    assert second.split() == ["a", "-", "b", "0", "0", "-", "(no_pairs)"]


def test_slowest_sums_a_stages_jobs():
    jobs = pl.DataFrame({"stage": ["sft", "sft", "score"], "wall_s": [2.0, 3.0, 4.0]})
    assert slowest(jobs)[1:] == [
        "sft              2 jobs      5.0 s, longest 3.0 s",
        "score            1 jobs      4.0 s, longest 4.0 s",
    ]
