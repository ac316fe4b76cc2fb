"""The reward model: pooling, head, adapters put back into the decoder."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel

from rm_memorization.errors import UserError
from rm_memorization.recipe import Lora
from rm_memorization.reward_model import (
    RewardModel,
    check_pooling,
    empty_decoder,
    last_index,
    load_decoder,
    merge,
    pad,
)
from rm_memorization.training import adapt, trained_tensors

PAD = 0
SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
CONFIG = LlamaConfig(**SIZES, pad_token_id=PAD, bos_token_id=1, eos_token_id=2)


def decoder(seed=0):
    torch.manual_seed(seed)
    return LlamaModel(CONFIG).eval()


def reward_model(head_std=0.5, kind=RewardModel):
    base = decoder()
    return kind(base, head_std).eval()


def by_hand(model, ids):
    """Give the reward of one sequence from the decoder's last hidden state, no batch and no mask."""
    with torch.no_grad():
        hidden = model.decoder(input_ids=torch.tensor([ids])).last_hidden_state
    return (hidden[0, -1] @ model.score.weight[0].detach()).item()


def rewards(model, rows, side="right", filler=PAD):
    ids, mask = pad(rows, filler, side)
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask).logits[:, 0].tolist()


ROWS = [[1, 7, 9, 30, 4, 2], [1, PAD, 5], [1, 6, PAD], [PAD], [2, 2, 2, PAD, PAD]]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("filler", [PAD, 2, 41])
def test_neither_padding_nor_its_side_nor_a_real_pad_token_changes_a_reward(side, filler):
    model = reward_model()
    expected = [by_hand(model, row) for row in ROWS]
    assert rewards(model, ROWS, side, filler) == pytest.approx(expected, abs=1e-5)
    assert max(expected) - min(expected) > 0.1


def test_the_pad_token_at_the_end_is_the_one_that_is_pooled():
    model = reward_model()
    assert abs(by_hand(model, [1, 6, PAD]) - by_hand(model, [1, 6])) > 0.01
    assert rewards(model, [[1, 6, PAD], [1, 6]]) == pytest.approx(
        [by_hand(model, [1, 6, PAD]), by_hand(model, [1, 6])], abs=1e-5
    )


def test_a_row_without_a_token_is_refused():
    model = reward_model()
    with pytest.raises(ValueError, match="admits no token of a row"):
        model(input_ids=torch.tensor([[1, 2], [PAD, PAD]]), attention_mask=torch.tensor([[1, 1], [0, 0]]))
    with pytest.raises(ValueError, match="admits no token of a row"):
        rewards(model, [[1, 2], []])


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5).filter(any), min_size=1, max_size=6))
def test_last_index(rows):
    expected = [max(at for at, admitted in enumerate(row) if admitted) for row in rows]
    for dtype in (torch.long, torch.bool, torch.float32):
        assert last_index(torch.tensor(rows, dtype=dtype)).tolist() == expected


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=5), st.integers(0, 9)
)
def test_pad_keeps_every_sequence(rows, pad_id):
    for side in ("left", "right"):
        ids, mask = pad(rows, pad_id, side)
        assert [ids[at][mask[at] == 1].tolist() for at in range(len(rows))] == rows
        assert (ids[mask == 0] == pad_id).all()
        assert ids.shape == (len(rows), max(map(len, rows)))
    assert (pad(rows, pad_id)[1].diff(dim=1) <= 0).all()
    assert (pad(rows, pad_id, "left")[1].diff(dim=1) >= 0).all()


def test_head_is_float32_under_bfloat16_autocast():
    model = reward_model()
    ids, mask = pad(ROWS, PAD)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(input_ids=ids, attention_mask=mask).logits
        pooled = model.pool(ids, mask)
    assert (logits.dtype, pooled.dtype, model.score.weight.dtype) == (torch.float32,) * 3
    assert torch.allclose(logits, pooled @ model.score.weight.T, atol=1e-6)
    assert not torch.equal(logits, logits.bfloat16().float())


def test_a_head_of_zeros_starts_at_log_2_and_leaves_the_decoder_alone():
    model = reward_model(head_std=0.0).train()
    ids, mask = pad(ROWS[:4], PAD)
    chosen, rejected = model(input_ids=ids, attention_mask=mask).logits.chunk(2)
    loss = -nn.functional.logsigmoid(chosen - rejected).mean()
    loss.backward()
    assert loss.item() == pytest.approx(0.6931471805599453, abs=1e-7)
    assert all((p.grad == 0).all() for p in model.decoder.parameters())
    assert model.score.weight.grad.abs().max() > 1e-3


def test_head_std():
    torch.manual_seed(0)
    base = LlamaModel(LlamaConfig(**SIZES | {"hidden_size": 4096, "num_hidden_layers": 0}))
    assert RewardModel(base, 0.02).score.weight.std().item() == pytest.approx(0.02, rel=0.05)


class Bag(nn.Module):
    """Adds the mean over a row, mask or no mask, to each token."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, **inputs):
        out = self.inner(**inputs)
        out.last_hidden_state = out.last_hidden_state + out.last_hidden_state.mean(dim=1, keepdim=True)
        return out


class Unmasked(nn.Module):
    """Attends to padding."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.config = inner, inner.config

    def forward(self, input_ids, attention_mask, **inputs):
        return self.inner(input_ids=input_ids, attention_mask=torch.ones_like(attention_mask), **inputs)


class Broken(Bag):
    """Gives NaN."""

    def forward(self, **inputs):
        out = self.inner(**inputs)
        out.last_hidden_state = out.last_hidden_state * float("nan")
        return out


class ById(RewardModel):
    """Pools as transformers' own classifiers do: at the last token that is not the pad id."""

    def pool(self, input_ids, attention_mask):
        return super().pool(input_ids, (input_ids != PAD).long())


class Last(RewardModel):
    """Pools at the end of the row, padding or not."""

    def pool(self, input_ids, attention_mask):
        hidden = self.decoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return hidden[:, -1]


@pytest.mark.parametrize("head_std", [0.0, 0.02])
def test_check_pooling_passes_a_sound_model_and_keeps_its_mode(head_std):
    model = reward_model(head_std)
    for training in (True, False):
        model.train(training)
        check_pooling(model, PAD)
        assert model.training is training


@pytest.mark.parametrize("head_std", [0.0, 0.02])
@pytest.mark.parametrize("wrap", [Bag, Unmasked, Broken])
def test_check_pooling_stops_a_decoder_that_ignores_the_mask(wrap, head_std):
    model = reward_model(head_std)
    model.decoder = wrap(model.decoder)
    with pytest.raises(UserError, match=r"a sequence's hidden state moves by .* when it is padded"):
        check_pooling(model, PAD)


@pytest.mark.parametrize("kind", [ById, Last])
def test_check_pooling_stops_other_pooling(kind):
    with pytest.raises(UserError, match="scores would depend on the batch"):
        check_pooling(reward_model(0.0, kind), PAD)


def test_check_pooling_stops_absolute_positions():
    base = GPT2Model(GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(UserError, match="the position of a token"):
        check_pooling(RewardModel(base, 0.02), PAD)


LORA = Lora(rank=4, alpha=6)


def adapted():
    """Give a reward model with adapters that do something."""
    torch.manual_seed(1)
    model = adapt(reward_model(), LORA, head=True)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def test_merge_is_pefts_own_merge():
    model = adapted()
    tensors = trained_tensors(model, LORA)
    unmerged = rewards(model, ROWS)
    merged = decoder()
    plain = rewards(RewardModel(merged, 0.0), ROWS)
    merge(merged, tensors, {"lora": LORA.model_dump()})
    rebuilt = RewardModel(merged, 0.0).eval()
    rebuilt.score.weight.data.copy_(tensors["score.weight"])
    theirs = copy.deepcopy(model).merge_and_unload()
    assert rewards(rebuilt, ROWS) == pytest.approx(unmerged, abs=1e-5)
    assert rewards(rebuilt, ROWS) == pytest.approx(rewards(theirs, ROWS), abs=1e-5)
    assert max(abs(a - b) for a, b in zip(plain, unmerged, strict=True)) > 0.05
    for name, parameter in theirs.decoder.named_parameters():
        assert torch.allclose(merged.get_parameter(name), parameter, atol=1e-6), name


def test_merge_of_all_weights():
    trained = decoder(seed=5)
    base = decoder()
    merge(base, dict(trained.named_parameters()) | {"score.weight": torch.zeros(1, 16)}, {"lora": None})
    assert all(torch.equal(base.get_parameter(name), p) for name, p in trained.named_parameters())


Q = "layers.1.self_attn.q_proj"
PAIR = {f"{Q}.lora_A.weight": torch.ones(4, 16), f"{Q}.lora_B.weight": torch.ones(16, 4)}
WHOLE = {name: p.detach() for name, p in decoder().named_parameters()}


@pytest.mark.parametrize(
    ("tensors", "lora", "message"),
    [
        ({f"{Q}.lora_A.weight": torch.ones(4, 16)}, LORA, f"'{Q}.lora_A/B.weight': missing"),
        ({f"{Q}.lora_B.weight": torch.ones(16, 4)}, LORA, f"'{Q}.lora_A/B.weight': missing"),
        (PAIR | {f"{Q}.weight": torch.ones(16, 16)}, LORA, "missing or of another kind"),
        (PAIR | {f"{Q}.lora_A.weight": torch.ones(4, 1)}, LORA, r"shape \[16, 1\], but \[16, 16\]"),
        ({k.replace("layers.1", "layers.9"): v for k, v in PAIR.items()}, LORA, "no such parameter"),
        (WHOLE | {"norm.weight": torch.ones(1)}, None, r"'norm.weight': shape \[1\], but \[16\]"),
        (WHOLE | {"norm.bias": torch.ones(16)}, None, "'norm.bias': the backbone has no such parameter"),
        ({name: t for name, t in WHOLE.items() if name != "norm.weight"}, None, "'norm.weight': missing"),
        (PAIR, None, "no such parameter"),
    ],
)
def test_merge_refuses_what_does_not_fit(tensors, lora, message):
    with pytest.raises(UserError, match=message):
        merge(decoder(), tensors, {"lora": lora and lora.model_dump()})


def test_a_backbone_is_loaded_whole_in_float32_and_without_dropout(tmp_path):
    noisy = LlamaModel(LlamaConfig(**SIZES, attention_dropout=0.5)).bfloat16()
    noisy.save_pretrained(tmp_path)
    loaded = load_decoder(tmp_path).train()
    ids = torch.tensor([ROWS[0]])
    first, second = (loaded(input_ids=ids).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)
    assert loaded.dtype == torch.float32
    assert all(torch.equal(p, noisy.get_parameter(name).float()) for name, p in loaded.named_parameters())
    assert {n: p.shape for n, p in empty_decoder(tmp_path).named_parameters()} == {
        n: p.shape for n, p in loaded.named_parameters()
    }


def test_pickled_weights_are_not_opened(tmp_path):
    base = decoder()
    base.config.save_pretrained(tmp_path)
    torch.save(base.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        load_decoder(tmp_path)
