"""Tensors as a table."""

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rm_memorization import artifact, tables
from rm_memorization.errors import UserError
from rm_memorization.weights import from_table, load, save, to_table

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@given(st.sampled_from(DTYPES), st.lists(st.integers(1, 4), max_size=3), st.integers(0, 99))
def test_every_bit_comes_back(dtype, shape, seed):
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    back = from_table(to_table({"a": tensor}))["a"]
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    assert bits(back) == bits(tensor)


def test_signed_zero_subnormal_and_largest_keep_their_bits(tmp_path):
    extreme = torch.tensor([-0.0, 1e-45, torch.finfo(torch.float32).max])
    save({"a": extreme}, tmp_path / "w.parquet", {})
    assert bits(load(tmp_path / "w.parquet", "sft")[0]["a"]) == bits(extreme)


def test_the_hash_is_of_the_values_not_of_their_order_in_memory(tmp_path):
    matrix = torch.arange(6.0).reshape(2, 3)
    for name, tensors in {
        "plain": {"a": matrix, "b": matrix + 1},
        "strided": {"b": (matrix + 1).t().contiguous().t(), "a": matrix.t().contiguous().t()},
        "transposed": {"a": matrix.t(), "b": matrix + 1},
    }.items():
        save(tensors, tmp_path / f"{name}.parquet", {"lora": None})
    plain, strided, transposed = (
        artifact.footer(tmp_path / f"{n}.parquet")["content_hash"] for n in ("plain", "strided", "transposed")
    )
    assert plain == strided != transposed
    assert (tmp_path / "plain.parquet").read_bytes() == (tmp_path / "strided.parquet").read_bytes()


def test_properties_come_back(tmp_path):
    properties = {"lora": {"rank": 4}, "precision": "float32", "recipe": 1}
    save({"a": torch.zeros(1)}, tmp_path / "w.parquet", properties)
    assert load(tmp_path / "w.parquet", "sft")[1] == properties


def test_integers_are_no_weights(tmp_path):
    with pytest.raises(UserError, match=r"'dtype'.*'int64'"):
        save({"a": torch.zeros(2, dtype=torch.int64)}, tmp_path / "w.parquet", {})


def test_weights_know_what_they_were_trained_on(tmp_path):
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    save({"a": torch.zeros(1)}, first, {})
    save({"a": torch.ones(1)}, second, {})
    path = tmp_path / "weights.parquet"
    save({"b": torch.zeros(1)}, path, {"sft": artifact.footer(first)["content_hash"]})
    assert load(path, "train_rm", sft=first)[0]["b"] == 0
    with pytest.raises(
        UserError, match=r"weights.parquet: not trained on top of .*second.parquet.*run train_rm again"
    ):
        load(path, "train_rm", sft=second)
    with pytest.raises(UserError, match="The backbone it was trained on has None"):
        load(path, "train_rm", sft=first, backbone=second)


def test_another_table_is_refused(tmp_path):
    artifact.write(pl.DataFrame({"pair_id": ["a"], "seen": [1]}), tables.TRAINED, tmp_path / "t.parquet")
    with pytest.raises(UserError, match="contract trained v1, expected weights v1"):
        load(tmp_path / "t.parquet", "sft")
