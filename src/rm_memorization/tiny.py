"""A small Llama and its tokenizer, made from nothing but the pairs' texts and a seed."""

from collections.abc import Iterable
from pathlib import Path

from .sources import TinyLlama

PAD, BOS, END = "<|pad|>", "<|bos|>", "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
POSITIONS = 4096
TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build(settings: TinyLlama, texts: Iterable[str], folder: Path) -> None:
    """Learn a byte-pair vocabulary, draw the weights and save both.

    Parameters
    ----------
    settings
        Sizes and seed.
    texts
        What the vocabulary is learned from; the order does not matter.
    folder
        An existing folder for the files.
    """
    size = _save_tokenizer(settings, texts, folder)
    _save_model(settings, size, folder)


def _save_tokenizer(settings: TinyLlama, texts: Iterable[str], folder: Path) -> int:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=[PAD, BOS, END, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sorted(texts), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, bos_token=BOS, eos_token=END,
        additional_special_tokens=list(ROLES), chat_template=TEMPLATE, model_max_length=POSITIONS, clean_up_tokenization_spaces=False,
    )  # fmt: skip
    wrapped.save_pretrained(folder)
    return int(tokenizer.get_vocab_size())


def _save_model(settings: TinyLlama, vocabulary: int, folder: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=settings.hidden_size, intermediate_size=4 * settings.hidden_size,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads, num_key_value_heads=settings.heads,
        max_position_embeddings=POSITIONS, tie_word_embeddings=True,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(settings.seed)
    LlamaForCausalLM(config).save_pretrained(folder)
