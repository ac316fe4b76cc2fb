"""Minutes of each suite, and the folder of real data."""

import os
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of third-party data that some tests run on."""
    folder = Path(os.environ.get("RM_MEMORIZATION_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no data in {folder}; set RM_MEMORIZATION_DATA")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long each suite took, all its phases together."""
    seconds: dict[str, float] = defaultdict(float)
    tests: dict[str, int] = defaultdict(int)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                suite = report.nodeid.split("/")[1] if report.nodeid.count("/") > 1 else "other"
                seconds[suite] += report.duration
                tests[suite] += report.when == "call"
    terminalreporter.section("minutes of each suite")
    for suite in sorted(seconds):
        terminalreporter.write_line(f"{suite:<12} {tests[suite]:>5} tests {seconds[suite] / 60:>7.2f} min")
