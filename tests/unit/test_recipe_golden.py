"""Trainings run again only when RECIPE is bumped by hand: this says when that is due."""

import json

import pytest
from golden.regenerate import GOLDEN, code, measure, moved, plain

from rm_memorization.recipe import RECIPE

DUE = "bump RECIPE in recipe.py and regenerate with `python tests/unit/golden/regenerate.py`"


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


def test_the_recipe_is_the_committed_one(golden, tmp_path):
    found = measure(tmp_path)
    assert {len(losses) for losses in found["losses"].values()} == {5}
    assert not moved(found, golden), f"losses moved, so trainings give other weights: {DUE}"
    assert golden["recipe"] == RECIPE, (
        "RECIPE was bumped: regenerate with `python tests/unit/golden/regenerate.py`"
    )
    assert code() == golden["code"], (
        f"the recipe's code changed; if it can give other weights, {DUE}; else regenerate"
    )


def test_a_loss_that_moves_is_noticed(golden):
    for name, losses in golden["losses"].items():
        for at, by in ((0, 2e-4), (4, -2e-4)):
            other = [loss + by * (at == step) for step, loss in enumerate(losses)]
            assert moved(golden | {"losses": golden["losses"] | {name: other}}, golden) == [name]
    assert moved(golden | {"losses": {}}, golden) == sorted(golden["losses"])


def test_the_digest_is_of_the_code_not_of_its_looks():
    first = plain('"""One."""\n\n\ndef f(a):\n    """Two."""\n    return a + 1  # three\n')
    assert plain("def f(\n    a\n):\n    return (a + 1)\n") == first
    assert plain("def f(a):\n    return a + 2\n") != first
    assert plain("def f(a):\n    return a + '1'\n") != first
