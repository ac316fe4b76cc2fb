"""The tiny backbone: made from texts and a seed, the same in every process."""

import json
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from rm_memorization import tiny
from rm_memorization.backbone_files import listing
from rm_memorization.formatting import Formatter
from rm_memorization.sources import TinyLlama

SETTINGS = {"hidden_size": 16, "layers": 1, "heads": 2, "vocabulary": 400, "seed": 3}
TEXTS = [
    f"{word} and {other}"
    for word in ("tea", "coffee", "water", "Brötchen")
    for other in ("ham", "jam", "yam")
]
CODE = """
import json, sys
from pathlib import Path
from rm_memorization import tiny
from rm_memorization.backbone_files import listing
from rm_memorization.sources import TinyLlama

settings, texts, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
folder.mkdir()
tiny.build(TinyLlama(**settings), texts, folder)
print(json.dumps(listing(folder).rows()))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    tiny.build(TinyLlama(**SETTINGS), TEXTS, folder)
    return folder


def test_every_process_builds_the_same_files_whatever_the_order_of_the_texts(tmp_path, built):
    env = os.environ | {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-c",
        CODE,
        json.dumps(SETTINGS),
        json.dumps(TEXTS[::-1]),
        str(tmp_path / "again"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert [tuple(row) for row in json.loads(done.stdout)] == listing(built).rows()


def test_another_seed_gives_other_weights_and_the_same_tokenizer(tmp_path, built):
    tiny.build(TinyLlama(**SETTINGS | {"seed": 4}), TEXTS, tmp_path)
    one, other = (dict(listing(folder).select("file", "sha256").iter_rows()) for folder in (built, tmp_path))
    assert {name for name in one if one[name] != other[name]} == {"model.safetensors"}


def test_the_vocabulary_is_learned_from_the_texts(tmp_path, built):
    tiny.build(TinyLlama(**SETTINGS), ["quite different words here"] * 9, tmp_path)
    assert Formatter(tmp_path).tokenizer.get_vocab() != Formatter(built).tokenizer.get_vocab()
    assert len(Formatter(built).encode(["coffee and jam"])[0]) < len(
        Formatter(tmp_path).encode(["coffee and jam"])[0]
    )


def test_its_tokenizer_keeps_the_rules(built):
    tokenizer = Formatter(built).tokenizer
    assert len({tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id}) == 3
    assert len(tokenizer) <= SETTINGS["vocabulary"]
    for text in ("tea and ham", "anything: 東京 \n\t 🙂", " two  spaces "):
        assert tokenizer.decode(Formatter(built).encode([text])[0]) == text


def test_a_conversation(built):
    formatter = Formatter(built)
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": "tea"}]
    found = formatter.answers([prompt], ["jam"], ["p"])[0]
    assert (
        formatter.tokenizer.decode(found.ids)
        == "<|bos|><|system|>s<|end|><|user|>tea<|end|><|assistant|>jam<|end|>"
    )
    assert formatter.tokenizer.decode(found.ids[found.n_prompt :]) == "jam<|end|>"


def test_its_model_has_the_asked_for_sizes(built):
    model = AutoModelForCausalLM.from_pretrained(built, local_files_only=True)
    config, tokenizer = model.config, Formatter(built).tokenizer
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (16, 1, 2)
    assert config.vocab_size == len(tokenizer)
    ids = (config.pad_token_id, config.bos_token_id, config.eos_token_id)
    assert ids == (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    logits = model(input_ids=torch.tensor([[1, 5, 7]])).logits
    assert logits.shape == (1, 3, len(tokenizer))
    assert torch.isfinite(logits).all()


def test_the_smallest_sizes_that_the_settings_allow(tmp_path):
    settings = TinyLlama(hidden_size=2, heads=1, layers=1, vocabulary=300)
    tiny.build(settings, ["a"], tmp_path)
    assert (
        AutoModelForCausalLM.from_pretrained(tmp_path)(input_ids=torch.tensor([[1, 2]])).logits.shape[1] == 2
    )
