"""The batch plan of scoring: sequences of similar length together, within a budget of tokens."""

from collections.abc import Iterator, Sequence


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
