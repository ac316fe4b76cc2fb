"""The reward model: a decoder and a linear head on the hidden state of the last token that the mask admits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .errors import UserError
from .recipe import Lora
from .weights import Tensors

HEAD = "score.weight"
# Padding may reorder sums; more than this share of the largest hidden value is another token or another position.
POOLING_TOLERANCE = 1e-3


class RewardModel(PreTrainedModel):  # type: ignore[misc]
    """A decoder with a reward head in float32.

    Transformers' own sequence classifiers pool at the last token that is not the pad *id*; this one pools by the
    attention mask, so that neither the pad token nor the padding side can change a reward.

    Parameters
    ----------
    decoder
        A model that gives hidden states.
    head_std
        Standard deviation of the head's initial weights.
    """

    base_model_prefix = "decoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, decoder: PreTrainedModel, head_std: float) -> None:
        config = decoder.config
        config.num_labels = 1
        super().__init__(config)
        self.decoder = decoder
        self.score = nn.Linear(config.hidden_size, 1, bias=False, dtype=torch.float32)
        nn.init.normal_(self.score.weight, std=head_std)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any
    ) -> SequenceClassifierOutput:
        """Give the rewards.

        Parameters
        ----------
        input_ids, attention_mask
            Shape (B, T), padded on either side.

        Returns
        -------
        SequenceClassifierOutput
            ``logits`` of shape (B, 1), float32.
        """
        pooled = self.pool(input_ids, attention_mask)
        with torch.autocast(device_type=pooled.device.type, enabled=False):
            return SequenceClassifierOutput(logits=self.score(pooled))

    def pool(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Give what the head sees: the hidden state of each row's last admitted token.

        Returns
        -------
        torch.Tensor
            Shape (B, hidden size), float32.

        Raises
        ------
        ValueError
            If the mask admits no token of a row.
        """
        last = last_index(attention_mask)
        hidden: torch.Tensor = self.decoder(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False
        ).last_hidden_state
        return hidden[torch.arange(len(hidden), device=hidden.device), last].float()


def last_index(attention_mask: torch.Tensor) -> torch.Tensor:
    """Index of the last admitted token of each row.

    Raises
    ------
    ValueError
        If a row has none.

    Examples
    --------
    >>> last_index(torch.tensor([[1, 1, 0], [0, 1, 1]]))
    tensor([1, 2])
    """
    if not attention_mask.any(dim=1).all():
        raise ValueError("the attention mask admits no token of a row: there is nothing to score")
    positions = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    return (positions * attention_mask).argmax(dim=1)


def pad(sequences: list[list[int]], pad_id: int, side: str = "right") -> tuple[torch.Tensor, torch.Tensor]:
    """Pad sequences to one length.

    Returns
    -------
    input_ids, attention_mask
        Shape (B, T), int64.
    """
    longest = max(map(len, sequences))
    ids = torch.full((len(sequences), longest), pad_id)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        where = slice(0, len(sequence)) if side == "right" else slice(longest - len(sequence), longest)
        ids[row, where], mask[row, where] = torch.tensor(sequence), 1
    return ids, mask


def load_config(folder: Path) -> PretrainedConfig:
    """Load the backbone's settings with every dropout off: TRL turns off the modules, not the attention's own."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    for name, value in config.to_dict().items():
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
    return config


def load_decoder(folder: Path, auto_class: Any = AutoModel) -> PreTrainedModel:
    """Load the backbone in float32, offline, from safetensors, without code of its own.

    Parameters
    ----------
    folder
        The backbone's files.
    auto_class
        Of transformers: ``AutoModel`` gives the decoder, ``AutoModelForCausalLM`` the whole language model.
    """
    return auto_class.from_pretrained(
        folder,
        config=load_config(folder),
        dtype=torch.float32,
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
    )


def empty_decoder(folder: Path) -> PreTrainedModel:
    """Build the backbone's decoder without reading its weights."""
    return AutoModel.from_config(load_config(folder), dtype=torch.float32)


@torch.no_grad()
def merge(decoder: nn.Module, tensors: Tensors, properties: dict[str, Any]) -> None:
    """Put trained weights into a decoder: W + alpha / rank · B A for adapters, else the tensors themselves.

    Parameters
    ----------
    decoder
        Changed in place.
    tensors
        Named relative to the decoder; the reward head among them is left aside.
    properties
        Of the weights table: ``lora`` holds the adapter's settings or null.

    Raises
    ------
    UserError
        If a tensor does not fit, or if one of the decoder's is missing where all weights were trained.
    """
    parameters = dict(decoder.named_parameters())
    lora = Lora.model_validate(properties["lora"]) if properties["lora"] else None
    merged = set()
    for name, update in _updates(tensors, lora):
        target = parameters.get(name)
        if target is None:
            raise _misfit(name, "the backbone has no such parameter")
        if target.shape != update.shape:
            raise _misfit(name, f"shape {list(update.shape)}, but {list(target.shape)} in the backbone")
        (target.add_ if lora else target.copy_)(update.to(target))
        merged.add(name)
    for name in sorted(set(parameters) - merged) if lora is None else ():
        raise _misfit(name, "missing")


def _updates(tensors: Tensors, lora: Lora | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Give for each trained parameter of the decoder what is added to it (adapters) or replaces it, one at a time."""
    own = {name: tensor for name, tensor in tensors.items() if name != HEAD}
    if lora is None:
        yield from own.items()
        return
    for module in sorted({name.rpartition(".lora_")[0] for name in own}):
        down, up = (own.get(f"{module}.lora_{side}.weight") for side in "AB")
        if down is None or up is None:
            raise _misfit(f"{module}.lora_A/B.weight", "missing or of another kind")
        yield f"{module}.weight", (up @ down) * (lora.alpha / lora.rank)


def _misfit(name: str, found: str) -> UserError:
    return UserError(
        "weights",
        f"tensor {name!r}: {found}",
        "the weights do not fit the backbone",
        "run sft and train_rm again",
    )


@torch.no_grad()
def check_pooling(model: RewardModel, pad_id: int) -> None:
    """Check on two rows that what the head sees depends neither on the batch, nor the padding side, nor the pad token.

    The head is left out, since one that starts at zero would hide any difference, and so is bfloat16's rounding. One
    of the rows holds the pad token as if it were a word.

    Parameters
    ----------
    model
        On the device that it will be used on.
    pad_id
        The pad token.

    Raises
    ------
    UserError
        If it does depend on one of them.
    """
    words = [token for token in range(model.config.vocab_size) if token != pad_id][:7]
    rows = [[*words[:4], pad_id, *words[4:]], words[:3]]

    def pooled(batch: list[list[int]], side: str, filler: int) -> torch.Tensor:
        return model.pool(*(tensor.to(model.device) for tensor in pad(batch, filler, side)))

    training = model.training
    model.eval()
    alone = torch.cat([pooled([row], "right", pad_id) for row in rows])
    padded = [pooled(rows, side, filler) for side in ("left", "right") for filler in (pad_id, words[-1])]
    model.train(training)
    worst = float((torch.stack(padded) - alone).abs().max() / alone.abs().max())
    if not worst <= POOLING_TOLERANCE:
        raise UserError(
            "reward model",
            f"a sequence's hidden state moves by {worst:.3g} of its size when it is padded",
            "scores would depend on the batch",
            "this architecture ignores the attention mask or the position of a token",
        )
