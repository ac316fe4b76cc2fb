"""Small models for tests: a real tokenizer, weights that are never used, and tables of pairs to tokenise."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from rm_memorization import artifact, tables
from rm_memorization.backbone_files import folder_of, listing

PAD, BOS, EOS, UNUSED = "<pad>", "<s>", "</s>", "<|reserved|>"
MARKERS = ("<|system|>", "<|user|>", "<|assistant|>")
TEXTS = [
    "hello there, how are you?",
    "the quick brown fox jumps over the lazy dog",
    "yes no maybe 0123456789",
]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def save_tokenizer(
    folder: Path,
    template: str | None = TEMPLATE,
    pad: str | None = PAD,
    *,
    adds: bool = False,
    truncates: int = 0,
) -> None:
    """Save a byte-pair tokenizer.

    ``adds`` lets it put BOS and EOS around a text that is encoded with special tokens; ``truncates`` is a length that
    its own file asks for.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [PAD, BOS, EOS, UNUSED, *MARKERS]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    if adds:
        around = [(BOS, 1), (EOS, 2)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A {EOS}", special_tokens=around
        )
    if truncates:
        tokenizer.enable_truncation(truncates)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=pad, chat_template=template
    )
    wrapped.save_pretrained(folder)


def save_model(folder: Path, template: str | None = TEMPLATE, pad: str | None = PAD) -> Path:
    """Save what looks like a model: a tokenizer, a config and a file of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(folder, template, pad)
    config = {"model_type": "llama", "vocab_size": 400, "hidden_size": 8, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"weight": np.arange(4, dtype=np.float32)}, folder / "model.safetensors")
    return folder


def save_backbone(table: Path, template: str = TEMPLATE) -> Path:
    """Save a model as the stage `backbone` leaves it."""
    save_model(folder_of(table), template)
    artifact.write(listing(folder_of(table)), tables.BACKBONE, table)
    return table


def user(text: str) -> list[dict[str, str]]:
    """Give a prompt of one message."""
    return [{"role": "user", "content": text}]


def pairs_table(rows: Iterable[tuple[str, str, str, str]]) -> pl.DataFrame:
    """Give a table of pairs from unit, prompt, chosen and rejected."""
    records = [
        {
            "pair_id": f"p{number}",
            "unit_id": unit,
            "user_id": unit,
            "stratum": None,
            "prompt": user(prompt),
            "chosen": chosen,
            "rejected": rejected,
            "source_file": "pairs.jsonl",
            "source_row": number,
            "extra": "{}",
        }
        for number, (unit, prompt, chosen, rejected) in enumerate(rows, 1)
    ]
    return pl.DataFrame(
        records, schema={name: column.dtype.type for name, column in tables.PAIRS.columns.items()}
    )
