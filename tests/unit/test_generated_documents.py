"""What is generated from the code is up to date."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def documents() -> dict[Path, str]:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.documents()


@pytest.mark.parametrize(
    "path", ["docs/tables.md", "config/README.md", "workflow/schemas/config.schema.json"]
)
def test_a_generated_document_is_up_to_date(path):
    assert (ROOT / path).read_text(encoding="utf-8") == documents()[ROOT / path], "run `make generate`"
