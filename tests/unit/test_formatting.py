"""Where pairs become tokens: what the template writes, and nothing else."""

import datetime as dt
import json
from pathlib import Path

import pytest
import transformers.utils.chat_template_utils as templates
from hypothesis import given, settings
from hypothesis import strategies as st
from model_folders import BOS, EOS, PAD, TEMPLATE, UNUSED, save_tokenizer, user

from rm_memorization.errors import UserError
from rm_memorization.formatting import Answer, Formatter, TokenPair, common_prefix, pair_up

ALTERNATES = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate\nuser/assistant') }}{% endif %}{{ m.content }}{% endfor %}"
)
DATED = (
    "{% if not date_string is defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
    "{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}Today: {{ date_string }} "
    + TEMPLATE
)
IDS = st.lists(st.integers(0, 3), min_size=1, max_size=8)
WORDS = st.text(alphabet=st.sampled_from("hello th qüx 0\n."), min_size=1, max_size=12)


def build(folder: Path, template: str | None = TEMPLATE, **options) -> Formatter:
    save_tokenizer(folder, template, **options)
    return Formatter(folder)


@pytest.fixture(scope="module")
def formatter(tmp_path_factory) -> Formatter:
    return build(tmp_path_factory.mktemp("tokenizer"))


def answer(formatter: Formatter, prompt: list[dict[str, str]], reply: str) -> Answer:
    return formatter.answers([prompt], [reply], ["pair p1"])[0]


def refusal(act) -> str:
    with pytest.raises(UserError) as caught:
        act()
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.parametrize("adds", [False, True])
def test_one_bos_and_the_template_s_eos(tmp_path, adds):
    """Also if the tokenizer would put its own BOS and EOS around every text."""
    formatter = build(tmp_path, adds=adds)
    bos, eos = formatter.tokenizer.convert_tokens_to_ids([BOS, EOS])
    ids = answer(formatter, user("hello"), "yes").ids
    assert (ids[0], ids.count(bos)) == (bos, 1)
    assert (ids[-1], ids.count(eos)) == (eos, 2)  # one closes each message
    assert formatter.tokenizer.decode(ids) == f"{BOS}<|user|>hello{EOS}<|assistant|>yes{EOS}"


def test_a_template_without_bos_and_eos_gets_none(tmp_path):
    formatter = build(tmp_path, "{% for m in messages %}{{ m.content }} {% endfor %}", adds=True)
    ids = answer(formatter, user("hello"), "yes").ids
    assert not set(ids) & {formatter.tokenizer.bos_token_id, formatter.tokenizer.eos_token_id}
    assert formatter.tokenizer.decode(ids) == "hello yes "


@settings(deadline=None)
@given(prompt=WORDS, earlier=WORDS, reply=WORDS)
def test_the_prompt_is_a_prefix_and_nothing_is_lost(formatter, prompt, earlier, reply):
    messages = [*user(prompt), {"role": "assistant", "content": earlier}, *user(prompt)]
    before = f"{BOS}<|user|>{prompt}{EOS}<|assistant|>{earlier}{EOS}<|user|>{prompt}{EOS}<|assistant|>"
    found = answer(formatter, messages, reply)
    assert formatter.tokenizer.decode(found.ids) == f"{before}{reply}{EOS}"
    assert formatter.tokenizer.decode(found.ids[: found.n_prompt]) == before


def test_a_token_across_the_border_belongs_to_the_reply(tmp_path):
    """With nothing between prompt and reply, `h` and `e` become one token."""
    formatter = build(tmp_path, "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
    whole = formatter.encode([f"{BOS}he"])[0]
    found = answer(formatter, user("h"), "e")
    assert found.ids == whole
    assert len(whole) == 2
    assert found.n_prompt == 1


def test_a_system_message_and_the_order_of_the_answers(formatter):
    prompts = [[{"role": "system", "content": "be brief"}, *user("a")], user("b")]
    first, second = formatter.answers(prompts, ["x", "y"], ["1", "2"])
    assert (
        formatter.tokenizer.decode(first.ids)
        == f"{BOS}<|system|>be brief{EOS}<|user|>a{EOS}<|assistant|>x{EOS}"
    )
    assert formatter.tokenizer.decode(second.ids) == f"{BOS}<|user|>b{EOS}<|assistant|>y{EOS}"
    assert formatter.answers([], [], []) == []


def test_batching_does_not_change_the_tokens(formatter):
    prompts, replies = [user("hello " * n) for n in range(1, 6)], ["yes " * n for n in range(5, 0, -1)]
    together = formatter.answers(prompts, replies, list("abcde"))
    assert together == [answer(formatter, *row) for row in zip(prompts, replies, strict=True)]


def test_nothing_is_truncated_or_padded(tmp_path):
    """Although the tokenizer's own file asks for it."""
    formatter = build(tmp_path, truncates=3)
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    assert file["truncation"]["max_length"] == 3
    short, long = formatter.answers([user("a")] * 2, ["b", "hello " * 3000], ["1", "2"])
    assert formatter.tokenizer.decode(long.ids).count("hello") == 3000
    assert formatter.pad_id not in short.ids


@settings(deadline=None)
@given(IDS, IDS)
def test_the_common_prefix_is_the_longest(first, second):
    at = common_prefix(first, second)
    assert first[:at] == second[:at]
    assert at < min(len(first), len(second))
    assert at == min(len(first), len(second)) - 1 or first[at] != second[at]


@settings(deadline=None)
@given(IDS, IDS, IDS)
def test_a_pair_holds_both_sequences(prompt, chosen, rejected):
    pair = pair_up(Answer(prompt + chosen, len(prompt)), Answer(prompt + rejected, len(prompt)))
    assert pair.prefix_ids + pair.chosen_ids == prompt + chosen
    assert pair.prefix_ids + pair.rejected_ids == prompt + rejected
    assert pair.chosen_ids
    assert pair.rejected_ids
    assert 1 <= pair.n_prompt <= len(pair.prefix_ids)
    assert pair.longest == len(prompt) + max(len(chosen), len(rejected))


@settings(deadline=None)
@given(st.tuples(IDS, IDS, IDS), st.tuples(IDS, IDS, IDS))
def test_token_hashes_are_equal_where_the_ids_are(first, second):
    assert (TokenPair(*first, 1).token_hash == TokenPair(*second, 1).token_hash) == (first == second)


def test_a_token_hash_knows_where_one_part_ends():
    parts = [([1, 2], [3], [4]), ([1], [2, 3], [4]), ([1], [2], [3, 4]), ([12], [3], [4]), ([1], [23], [4])]
    assert len({TokenPair(*part, 1).token_hash for part in parts}) == len(parts)
    assert TokenPair([1, 2], [3], [4], 1).token_hash != TokenPair([1, 2], [4], [3], 1).token_hash


@pytest.mark.parametrize("token", [PAD, BOS, EOS, UNUSED, "<|assistant|>"])
def test_special_tokens_in_a_text_are_found_whatever_their_role(formatter, token):
    assert formatter.special_token_in("plain", f"a{token}b") == token
    assert formatter.special_token_in("plain", token[:-1], token[1:]) is None


def test_a_special_token_is_found_where_the_tokenizer_sees_it(formatter):
    """Text that would become a special token's id is exactly the text that is found."""
    for text in ("<s>", "< s>", "<S>", "<|user|>", "<|user |>", "</s", "<|other|>"):
        inside = set(formatter.encode([text])[0]) & set(formatter.tokenizer.added_tokens_decoder)
        assert bool(inside) == (formatter.special_token_in(text) is not None)


def test_no_template(tmp_path):
    message = refusal(lambda: build(tmp_path, None))
    assert message.startswith(
        "the backbone's tokenizer: it has no chat template. Hint: set backbone.chat_template"
    )


@pytest.mark.parametrize("pad", [None, EOS])
def test_a_pad_token_that_is_missing_or_ends_replies(tmp_path, pad):
    message = refusal(lambda: build(tmp_path, pad=pad))
    assert f"pad token {pad!r}, EOS token '{EOS}'" in message
    assert "Hint: set backbone.pad_token" in message


def test_no_tokenizer(tmp_path):
    assert refusal(lambda: Formatter(tmp_path)).startswith("the backbone's tokenizer: it cannot be loaded: ")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    assert refusal(lambda: Formatter(tmp_path)).startswith("the backbone's tokenizer: it cannot be loaded: ")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (ALTERNATES, "Roles must alternate user/assistant"),
        ("{{ messages[9].content.strip() }}", "has no element 9"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% for m in messages %}", "Unexpected end of template"),
        ("{{ messages | nofilter }}", "No filter named 'nofilter'"),
        ("{{ strftime_now('%Y') }}", "not callable"),
    ],
)
def test_a_template_that_fails_names_the_pair(tmp_path, template, reason):
    formatter = build(tmp_path, template)
    prompt = [*user("a"), *user("b")]
    message = refusal(lambda: formatter.answers([user("a"), prompt], ["x", "y"], ["pair p1", "pair p2"]))
    assert message.startswith("pair p2: " if template == ALTERNATES else "pair p1: ")
    assert "the chat template fails: " in message
    assert reason in message
    assert "Hint: set backbone.chat_template" in message


def test_a_template_that_writes_the_prompt_differently_before_a_reply(tmp_path):
    formatter = build(tmp_path, "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}")
    message = refusal(lambda: answer(formatter, user("a"), "b"))
    assert message.startswith("pair p1: the chat template writes the prompt differently once a reply follows")


def on(day: dt.datetime, monkeypatch, formatter: Formatter) -> list[int]:
    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return day

    monkeypatch.setattr(templates, "datetime", Clock)
    return answer(formatter, user("a"), "b").ids


def test_the_tokens_do_not_depend_on_the_day(tmp_path, monkeypatch):
    formatter = build(tmp_path, DATED)
    days = [
        dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 5, 6, tzinfo=dt.UTC),
    ]
    assert "26 Jul 2024" not in formatter.tokenizer.apply_chat_template(user("a"), tokenize=False)
    first, second = (on(day, monkeypatch, formatter) for day in days)
    assert first == second
    assert formatter.tokenizer.decode(first).startswith(f"Today: 26 Jul 2024 {BOS}")


def test_the_shipped_template_for_llama_3(tmp_path):
    root = Path(__file__).parents[2]
    formatter = build(tmp_path, (root / "config" / "templates" / "llama3.jinja").read_text())
    text = formatter.tokenizer.decode(answer(formatter, user("hello"), "yes").ids)
    head = "<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>"
    assert text == BOS + head.format("user", "hello") + head.format("assistant", "yes")
