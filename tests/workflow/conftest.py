"""Copies of the workflow: a fresh one, and one in which the small experiment has run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from checkout import Checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """Give a fresh copy without results."""
    return Checkout(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Give a copy in which the small experiment has run. Tests must not change it."""
    checkout = Checkout(tmp_path_factory.mktemp("finished"))
    checkout.snakemake("all")
    return checkout
