"""The batch plans of training and scoring: sequences of similar length stand together, so that little is padded."""

from collections.abc import Iterator, Sequence

import numpy as np

# Examples are sorted within a stretch of this many batches: enough for even lengths, and batches still differ from epoch
# to epoch.
STRETCH = 50


class LengthGrouped:
    """The order in which a training sees its examples: shuffled anew each epoch, batches of similar length.

    Parameters
    ----------
    lengths
        Tokens of each example.
    batch
        Examples to a batch.
    seed
        Together with the epoch it decides the order.

    Examples
    --------
    >>> order = LengthGrouped([5, 1, 4, 2], batch=2, seed=0)
    >>> sorted(order), {frozenset(list(order)[:2]), frozenset(list(order)[2:])} == {frozenset({0, 2}), frozenset({1, 3})}
    ([0, 1, 2, 3], True)
    """

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths, self.batch, self.seed, self.epoch = np.asarray(lengths), batch, seed, 0

    def __len__(self) -> int:
        """Give the number of examples."""
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0; the trainer calls this."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, self.epoch])
        # What fills no batch is set aside before the sorting: each of its examples weighs more, and that must not
        # always fall to the shortest.
        whole, rest = np.split(rng.permutation(len(self)), [len(self) // self.batch * self.batch])
        size = STRETCH * self.batch
        stretches = np.split(whole, range(size, len(whole), size))
        by_length = np.concatenate(
            [stretch[np.argsort(-self.lengths[stretch], kind="stable")] for stretch in stretches]
        )
        batches = rng.permutation(by_length.reshape(-1, self.batch))
        yield from np.concatenate([batches.ravel(), rest]).tolist()


def plan(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Group sequences into batches, longest first, so that too small a device fails at once.

    Parameters
    ----------
    lengths
        Tokens of each sequence.
    budget
        Tokens in a batch, padding included; a longer sequence gets a batch of its own.

    Yields
    ------
    list of int
        Indices of the sequences of a batch.

    Examples
    --------
    >>> list(plan([3, 9, 4, 8], budget=18))
    [[1, 3], [2, 0]]
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batch: list[int] = []
    for index in order:
        if batch and lengths[batch[0]] * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
