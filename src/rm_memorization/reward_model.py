"""The reward model: a decoder and a linear head on the hidden state of the last token that the mask admits."""

from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .errors import UserError
from .recipe import Lora
from .weights import Tensors

HEAD = "score.weight"
POOLING_TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}


class RewardModel(PreTrainedModel):
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

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> SequenceClassifierOutput:
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
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
        pooled = hidden[torch.arange(len(hidden), device=hidden.device), last_index(attention_mask)]
        with torch.autocast(device_type=hidden.device.type, enabled=False):
            return SequenceClassifierOutput(logits=self.score(pooled.float()))


def last_index(attention_mask: torch.Tensor) -> torch.Tensor:
    """Index of the last admitted token of each row.

    Examples
    --------
    >>> last_index(torch.tensor([[1, 1, 0], [0, 1, 1]]))
    tensor([1, 2])
    """
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
    ids, mask = torch.full((len(sequences), longest), pad_id), torch.zeros(len(sequences), longest, dtype=torch.long)
    for row, sequence in enumerate(sequences):
        where = slice(0, len(sequence)) if side == "right" else slice(longest - len(sequence), longest)
        ids[row, where], mask[row, where] = torch.tensor(sequence), 1
    return ids, mask


def load_decoder(folder: Path) -> PreTrainedModel:
    """Load the backbone's decoder in float32, offline, from safetensors, without code of its own."""
    return AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, use_safetensors=True, trust_remote_code=False
    )


def empty_decoder(folder: Path) -> PreTrainedModel:
    """Build the backbone's decoder without reading its weights."""
    return AutoModel.from_config(AutoConfig.from_pretrained(folder, local_files_only=True), dtype=torch.float32)


@torch.no_grad()
def merge(decoder: nn.Module, tensors: Tensors, properties: dict[str, Any]) -> None:
    """Put trained weights into a decoder: W + alpha / rank · B A for adapters, else the tensors themselves.

    Parameters
    ----------
    decoder
        Changed in place.
    tensors
        Named relative to the decoder.
    properties
        Of the weights table: ``lora`` holds the adapter's settings or null.

    Raises
    ------
    UserError
        If a tensor does not fit.
    """
    weights = dict(decoder.named_parameters())
    lora = Lora.model_validate(properties["lora"]) if properties["lora"] else None
    try:
        for name, tensor in tensors.items():
            if name.endswith(".lora_A.weight") and lora:
                module = name.removesuffix(".lora_A.weight")
                delta = tensors[f"{module}.lora_B.weight"] @ tensor
                weights[f"{module}.weight"].add_(delta.to(weights[f"{module}.weight"]), alpha=lora.alpha / lora.rank)
            elif not lora and name != HEAD:
                weights[name].copy_(tensor)
    except (KeyError, RuntimeError) as error:
        raise UserError("weights", f"they do not fit the backbone: {error}", hint="the backbone changed; run the trainings again") from None


@torch.no_grad()
def check_pooling(model: nn.Module, pad_id: int, precision: str) -> None:
    """Check on two rows that a reward depends neither on the batch nor on the padding side.

    Raises
    ------
    UserError
        If it does.
    """
    device = next(model.parameters()).device
    vocabulary = int(model.config.vocab_size)  # type: ignore[union-attr, arg-type]
    tokens = [token for token in range(vocabulary) if token != pad_id][:7]
    rows = [tokens, tokens[:3]]

    def rewards(batch: list[list[int]], side: str) -> torch.Tensor:
        ids, mask = pad(batch, pad_id, side)
        result: torch.Tensor = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits[:, 0]
        return result

    training = model.training
    model.eval()
    alone = torch.cat([rewards([row], "right") for row in rows])
    worst = max(float((rewards(rows, side) - alone).abs().max()) for side in ("left", "right"))
    model.train(training)
    if not worst <= POOLING_TOLERANCE[precision]:
        raise UserError("reward model", f"a sequence's reward moves by {worst:.3g} when it is padded", "scores would depend on the batch", "this architecture ignores the attention mask or the position of a token")
