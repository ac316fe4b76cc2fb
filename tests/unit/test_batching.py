"""The batch plan of scoring."""

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from rm_memorization.batching import plan

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
