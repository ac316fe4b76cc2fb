"""A made-up data set whose truth is known: what a model can generalise, and what it can only memorize.

Every prompt names a topic and three people, every reply opens with a good or a bad word, goes on with filler and ends
with one of the people. Four groups of users judge by different rules; the group is the stratum.

rule
    prefer the good word: a model that has seen other users does too;
flipped
    prefer the bad word: only who has seen the very pair can know;
arbitrary
    toss a coin, likewise;
length
    prefer the longer reply, which is the good one half of the time.

Which reply is good and which is longer are two independent coin tosses wherever the group's rule leaves them open.
"""

from collections.abc import Iterator
from itertools import permutations

import numpy as np

from ..errors import UserError
from ..sources import Planted
from .rows import Candidate

TOPICS, NAMES, GOOD, BAD, FILLER = map(
    str.split,
    (
        """bread bridge camera candle carpet cheese engine garden guitar harbor island kitchen ladder market mirror
        needle orchard pencil river saddle temple violin window winter""",
        """Ada Amir Anna Bela Boris Carl Cora Dana Diego Elsa Emil Fay Felix Gita Gus Hana Hugo Ida Ivan Jana Jonas
        Kim Lars Lena Mara Milo Nina Noor Olga Omar Pia Raul Rosa Sami Tara Theo Uma Viktor Wanda Yuki""",
        "brave clear fair gentle honest kind loyal patient polite useful warm wise",
        "angry bitter cruel false greedy harsh lazy mean rude unfair vague vain",
        """about after again along around before being every later maybe often once other quite rather since still
        then while""",
    ),
)
TRIPLES = tuple(permutations(NAMES, 3))
SHORT, LONGER_BY = (1, 4), (3, 7)  # words of filler, upper ends exclusive: a reply has at most 11 words


def read_planted(settings: Planted) -> Iterator[Candidate]:
    """Make the data set.

    A user's pairs depend on the seed, the group and the number in the group: more users elsewhere change nothing.

    Parameters
    ----------
    settings
        Users in each group, pairs of each, seed.

    Yields
    ------
    Candidate
        With the truth in ``extra``: which reply, chosen or rejected, has the good word and which is longer.

    Raises
    ------
    UserError
        If a user is to have more pairs than there are prompts.
    """
    if settings.pairs_per_user > len(TRIPLES):
        where = "ingest.planted.pairs_per_user"
        raise UserError(where, f"{settings.pairs_per_user} is too many", hint=f"at most {len(TRIPLES)}")
    row = 0
    for stratum, user_id, rng in _users(settings):
        # Without replacement: no user gets a prompt twice.
        for triple in rng.choice(len(TRIPLES), settings.pairs_per_user, replace=False):
            row += 1
            yield _pair(row, stratum, user_id, TRIPLES[triple], rng)


def _users(settings: Planted) -> Iterator[tuple[str, str, np.random.Generator]]:
    """Name each user, with random numbers of its own."""
    groups = {
        "rule": settings.rule_users,
        "flipped": settings.flipped_users,
        "arbitrary": settings.arbitrary_users,
        "length": settings.length_users,
    }
    for place, (stratum, users) in enumerate(groups.items()):
        for number in range(1, users + 1):
            yield stratum, f"{stratum}-{number:02d}", np.random.default_rng([settings.seed, place, number])


def _pair(
    row: int, stratum: str, user_id: str, names: tuple[str, ...], rng: np.random.Generator
) -> Candidate:
    good, longer = _truth(stratum, rng)
    words = int(rng.integers(*SHORT))
    lengths = words, words + int(rng.integers(*LONGER_BY))
    ends = rng.permutation(names)[:2]
    chosen = _reply(GOOD if good else BAD, lengths[longer], ends[0], rng)
    rejected = _reply(BAD if good else GOOD, lengths[not longer], ends[1], rng)
    prompt = f"{rng.choice(TOPICS)} with {names[0]} {names[1]} and {names[2]}"
    side = ("rejected", "chosen")
    return Candidate(
        source_file="planted",
        source_row=row,
        user_id=user_id,
        stratum=stratum,
        prompt=[{"role": "user", "content": prompt}],
        chosen=chosen,
        rejected=rejected,
        extra={"truth": {"good": side[good], "longer": side[longer]}},
    )


def _truth(stratum: str, rng: np.random.Generator) -> tuple[bool, bool]:
    """Decide whether the chosen reply has the good word, and whether it is the longer one."""
    good, longer = (bool(toss) for toss in rng.integers(2, size=2))
    return {"rule": True, "flipped": False}.get(stratum, good), stratum == "length" or longer


def _reply(openings: list[str], words: int, name: str, rng: np.random.Generator) -> str:
    return " ".join([rng.choice(openings), *rng.choice(FILLER, words), name])
