"""The only place where text becomes tokens: for SFT, reward training, scoring and panels alike.

A sequence is the chat template's rendering of the prompt's messages and the reply, tokenised as a whole, without any
further BOS or EOS: what the template writes is what the models see.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UserError
from .hashing import text_digest

Messages = list[dict[str, str]]
TOKENIZER = "the backbone's tokenizer"

# The tokens must not depend on the day: Llama-3.2's own template writes today's date unless it is told one, and a template
# that asks for it all the same fails, for text in the function's place cannot be called.
TEMPLATE_VARIABLES = {"date_string": "26 Jul 2024", "strftime_now": "the date is fixed"}


@dataclass(frozen=True)
class Answer:
    """A rendered and tokenised conversation: prompt and reply.

    Parameters
    ----------
    ids
        Token ids of the whole sequence.
    n_prompt
        How many of them belong to the prompt alone.
    """

    ids: list[int]
    n_prompt: int


@dataclass(frozen=True)
class TokenPair:
    """A pair as token ids: one shared prefix, two remainders, each of one token at least."""

    prefix_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    n_prompt: int

    @property
    def longest(self) -> int:
        """Tokens in the longer of the two sequences."""
        return len(self.prefix_ids) + max(len(self.chosen_ids), len(self.rejected_ids))

    @property
    def token_hash(self) -> str:
        """Digest of the ids: equal for pairs that a model cannot tell apart."""
        parts = (self.prefix_ids, self.chosen_ids, self.rejected_ids)
        return text_digest(*(" ".join(map(str, ids)) for ids in parts))[:16]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix that leaves each sequence one token at least.

    Examples
    --------
    >>> common_prefix([1, 2, 3], [1, 2, 4, 5]), common_prefix([1, 2], [1, 2, 3])
    (2, 1)
    """
    longest = min(len(first), len(second)) - 1
    return next((at for at in range(longest) if first[at] != second[at]), longest)


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer, offline and without code of its own.

    Raises
    ------
    UserError
        If there is none that transformers knows.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - what is wrong with foreign files has no common class
        raise UserError(
            TOKENIZER, f"it cannot be loaded: {error}", hint="save the model with its tokenizer"
        ) from None


class Formatter:
    """Renders and tokenises with a backbone's tokenizer.

    Parameters
    ----------
    folder
        The backbone's files.

    Raises
    ------
    UserError
        If the tokenizer cannot be loaded, has no chat template, no pad token or one that equals EOS.
    """

    def __init__(self, folder: Path) -> None:
        self.tokenizer = load_tokenizer(folder)
        if not self.tokenizer.chat_template:
            raise UserError(
                TOKENIZER, "it has no chat template", hint="set backbone.chat_template to a file with one"
            )
        if self.tokenizer.pad_token_id is None or self.tokenizer.pad_token_id == self.tokenizer.eos_token_id:
            raise UserError(
                TOKENIZER,
                f"pad token {self.tokenizer.pad_token!r}, EOS token {self.tokenizer.eos_token!r}",
                "padding must be told from the end of a reply",
                "set backbone.pad_token to a token that is reserved for it",
            )
        self.special = re.compile("|".join(map(re.escape, _special_tokens(self.tokenizer))))

    @property
    def pad_id(self) -> int:
        """Id of the pad token."""
        return int(self.tokenizer.pad_token_id)

    def special_token_in(self, *texts: str) -> str | None:
        """Find a special token that stands in a text as text: it would act as the real one."""
        found = (self.special.search(text) for text in texts)
        return next((match.group() for match in found if match), None)

    def render(self, prompt: Messages, reply: str, where: str) -> tuple[str, str]:
        """Give the text of the prompt alone, ready for a reply, and of the whole conversation.

        Raises
        ------
        UserError
            If the template fails, or if the conversation does not begin with the prompt.
        """
        before = self._apply(prompt, where, add_generation_prompt=True)
        whole = self._apply(
            [*prompt, {"role": "assistant", "content": reply}], where, add_generation_prompt=False
        )
        if not whole.startswith(before):
            raise UserError(
                where,
                "the chat template writes the prompt differently once a reply follows",
                hint="use a template that is stable under added messages",
            )
        return before, whole

    def _apply(self, messages: Messages, where: str, **options: Any) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(messages, tokenize=False, **options, **TEMPLATE_VARIABLES)
            )
        except Exception as error:  # noqa: BLE001 - a template is a program, and can fail like one
            raise UserError(
                where,
                f"the chat template fails: {error}",
                hint="set backbone.chat_template to one that takes these roles and does not ask for today's date",
            ) from None

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Tokenise rendered texts; the template has written every special token."""
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        return ids

    def answers(self, prompts: list[Messages], replies: list[str], names: list[str]) -> list[Answer]:
        """Render and tokenise conversations.

        Parameters
        ----------
        prompts, replies
            The messages before each reply, and the reply.
        names
            What to call each in an error.
        """
        rendered = [self.render(*row) for row in zip(prompts, replies, names, strict=True)]
        before = self.encode([prompt for prompt, _ in rendered])
        whole = self.encode([text for _, text in rendered])
        return [Answer(ids, _shared(prompt, ids)) for prompt, ids in zip(before, whole, strict=True)]


def _special_tokens(tokenizer: Any) -> list[str]:
    """Tokens that are no text, those without a role (such as the markers of a template) included; longest first."""
    added = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted((added | set(tokenizer.all_special_tokens)) - {""}, key=lambda token: (-len(token), token))


def _shared(prompt: list[int], whole: list[int]) -> int:
    """Tokens of the prompt that stay as they are when the reply follows; a token across the border counts as reply."""
    return next(
        (at for at, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b),
        min(len(prompt), len(whole) - 1),
    )


def pair_up(chosen: Answer, rejected: Answer) -> TokenPair:
    """Join two answers to one prompt into a pair with a shared prefix.

    Examples
    --------
    >>> pair_up(Answer([1, 5, 7, 2], 2), Answer([1, 5, 8, 9, 2], 2))
    TokenPair(prefix_ids=[1, 5], chosen_ids=[7, 2], rejected_ids=[8, 9, 2], n_prompt=2)
    """
    at = common_prefix(chosen.ids, rejected.ids)
    return TokenPair(
        chosen.ids[:at], chosen.ids[at:], rejected.ids[at:], min(chosen.n_prompt, rejected.n_prompt)
    )
