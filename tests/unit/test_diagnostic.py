"""The diagnostic passes on the right estimators and fails on wrong ones."""

import numpy as np
import pytest

from rm_memorization import artifact, diagnostic, tables
from rm_memorization.errors import UserError


def test_every_check_passes_for_three_seeds_and_the_receipt_says_so(tmp_path):
    receipt = tmp_path / "diagnostic.parquet"
    diagnostic.diagnostic([42], [43, 44], "cpu", receipt)
    table = artifact.read(receipt, tables.DIAGNOSTIC)
    assert table["passed"].all()
    assert set(table["seed"]) == {42, 43, 44}
    assert table["code"].n_unique() == 1
    assert set(table["device"]) == {"cpu"}


def wrong(change):
    right = diagnostic.means

    def means(p, member):
        return change(*right(p, member))

    return means


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("tm_against_tensors", lambda tm, tg, cm: (tm + 0.01, tg, cm + 0.01)),
        ("tg_against_tensors", lambda tm, tg, cm: (tm, tg - 0.01, cm + 0.01)),
        ("cm_is_tm_minus_tg", lambda tm, tg, cm: (tm, tg, np.clip(cm, 0, None))),
        ("planted_effect_shortfall", lambda tm, tg, cm: (tm, tg, cm * 0)),
        ("cm_without_effect", lambda tm, tg, cm: (tm, tg, cm + 0.05)),
        ("cm_with_labels_swapped", lambda tm, tg, cm: (tm, tg, np.abs(cm))),
        ("isolation_of_other_units", lambda tm, tg, cm: (tm, tg, cm - cm.mean())),
    ],
)
def test_a_wrong_estimator_fails_its_check(monkeypatch, tmp_path, fault, change):
    monkeypatch.setattr(diagnostic, "means", wrong(change))
    table = diagnostic.checks([42], "cpu")
    failed = set(table.filter(~table["passed"])["check"])
    assert fault in failed
    with pytest.raises(UserError, match="checks fail"):
        diagnostic.diagnostic([42], None, "cpu", tmp_path / "d.parquet")
