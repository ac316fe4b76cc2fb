"""The backbone's files are those that its table lists, and no others."""

import hashlib

import pytest
from model_folders import save_backbone

from rm_memorization.backbone_files import checked_files, folder_of, listing
from rm_memorization.errors import UserError


@pytest.fixture
def table(tmp_path):
    return save_backbone(tmp_path / "backbone" / "backbone.parquet")


def refusal(table) -> str:
    with pytest.raises(UserError) as caught:
        checked_files(table)
    text = str(caught.value)
    assert text.endswith(f"Hint: run `snakemake --force {table}`")
    return text


def test_the_folder_lies_beside_the_table(tmp_path):
    assert folder_of(tmp_path / "backbone" / "backbone.parquet") == tmp_path / "backbone" / "files"


def test_a_listing_has_size_and_digest(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"two")
    (tmp_path / "a.txt").write_bytes(b"")
    assert listing(tmp_path).rows() == [
        ("a.txt", 0, hashlib.sha256(b"").hexdigest()),
        ("b.txt", 3, hashlib.sha256(b"two").hexdigest()),
    ]


def test_files_as_they_were_listed(table):
    assert checked_files(table) == folder_of(table)


@pytest.mark.parametrize("content", [b"", b"x" * 10_000])
def test_a_file_that_changed_its_size(table, content):
    path = folder_of(table) / "model.safetensors"
    path.write_bytes(content)
    assert refusal(table).startswith(f"{path}: the backbone's file is not the one that was listed")


def test_a_single_flipped_bit(table):
    path = folder_of(table) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert refusal(table).startswith(f"{path}: the backbone's file is not the one that was listed")


def test_a_file_that_is_gone(table):
    path = folder_of(table) / "tokenizer.json"
    path.unlink()
    assert refusal(table).startswith(f"{path}: the backbone's file is missing")


def test_a_file_that_somebody_added(table):
    path = folder_of(table) / "chat_template2.jinja"
    path.write_text("")
    assert refusal(table).startswith(f"{path}: it is not among the backbone's files")
