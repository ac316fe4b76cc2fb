"""What holds for all readers."""

from pathlib import Path

import pytest

from rm_memorization.errors import UserError
from rm_memorization.readers import read_source
from rm_memorization.sources import Source


@pytest.mark.parametrize("reader", ["table", "hh_rlhf"])
@pytest.mark.parametrize("folders", [("a", "b"), ("a", "a")])
def test_two_files_of_one_name_are_refused(tmp_path: Path, reader, folders):
    files = [str(tmp_path / folder / "train.jsonl") for folder in folders]
    with pytest.raises(UserError, match=r"a/train\.jsonl: another source file has the same name"):
        read_source(Source.model_validate({reader: {"files": files}}))
