"""Lets the tests here and in the folders below import the helpers that lie here, and share one small experiment."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def experiment(tmp_path_factory):
    """Give a trained experiment, see `tiny_experiment`; tests write elsewhere."""
    from tiny_experiment import build

    return build(tmp_path_factory.mktemp("experiment"))
