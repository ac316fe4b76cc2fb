"""The batch plan of scoring."""

import itertools

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from rm_memorization.batching import LengthGrouped, plan

LENGTHS = st.lists(st.integers(1, 60), max_size=40)


@given(LENGTHS, st.integers(1, 200))
@example([], 10)
def test_every_sequence_once_within_the_budget(lengths, budget):
    batches = list(plan(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert batch
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget


@given(LENGTHS, st.integers(1, 200))
def test_longest_first_and_no_batch_with_room_for_the_next_sequence(lengths, budget):
    batches = list(plan(lengths, budget))
    order = [lengths[index] for batch in batches for index in batch]
    assert order == sorted(order, reverse=True)
    for batch, following in itertools.pairwise(batches):
        assert lengths[batch[0]] * (len(batch) + 1) > budget
        assert lengths[batch[-1]] >= lengths[following[0]]


def test_equal_lengths_keep_their_order():
    assert list(plan([5, 7, 5, 5, 7], budget=10)) == [[1], [4], [0, 2], [3]]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=400), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_takes_each_example_once(lengths, batch, epoch):
    order = LengthGrouped(lengths, batch, seed=1)
    order.set_epoch(epoch)
    assert sorted(order) == list(range(len(lengths)))
    assert list(order) == list(order)


def test_epochs_and_seeds_differ_and_batches_are_even():
    lengths = [(7 * at) % 101 for at in range(1000)]
    first, second, other = (
        LengthGrouped(lengths, 10, 1),
        LengthGrouped(lengths, 10, 1),
        LengthGrouped(lengths, 10, 2),
    )
    second.set_epoch(1)
    assert list(first) != list(second)
    assert list(first) != list(other)
    spread = [
        max(lengths[i] for i in b) - min(lengths[i] for i in b) for b in np.array(list(first)).reshape(-1, 10)
    ]
    assert max(spread) <= 4


def test_what_fills_no_batch_is_drawn_by_chance():
    order, last = LengthGrouped(range(25), 8, seed=1), []
    for epoch in range(60):
        order.set_epoch(epoch)
        last.append(list(order)[-1])
    assert len(set(last)) > 15
