"""How results are added up: which leave the memory of the driver meanwhile, and which are added next.

Sums of floats are added in the fixed tree of units and inputs alone (``blocks/tree.py``), so that what is decided here
never shows in a result; where addition is exact ``by_size`` may choose what comes next instead.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Results that the driver has in memory at a time, where they are large: the two that are added next.
IN_MEMORY = 2
#: Bytes that all of them may have in any case: about what the interpreter and the libraries of the driver take.
SMALL_BYTES = 64_000_000
#: Blocks of inputs that each worker has at least, so that none is left alone with the last.
BLOCKS = 4
#: Results that are added up at once in coffea ("treereduction").
FAN_IN = 20


def block(inputs: int, workers: int) -> int:
    """Say how many neighbouring inputs are one worker's, a power of two: it adds them up and brings the sum."""
    return 1 << max((inputs // (BLOCKS * workers)).bit_length() - 1, 0)


def room(largest: int) -> int:
    """Say how many bytes of results may be in memory, if the largest of them has so many."""
    return max(SMALL_BYTES, IN_MEMORY * largest)


def put_aside(held: Sequence[tuple[int, int]]) -> list[int]:
    """Choose which of the results in memory, each with its level in the tree and its bytes, are put aside on disk.

    What is high in the tree is needed last, and among equals what came first.
    """
    total = sum(size for _, size in held)
    most = room(max((size for _, size in held), default=0))
    chosen = []
    for number in sorted(range(len(held)), key=lambda n: -held[n][0]):
        if total <= most:
            break
        if held[number][1]:
            chosen.append(number)
            total -= held[number][1]
    return chosen


def by_size(sizes: Sequence[int], *, last: bool, fan_in: int = FAN_IN) -> list[list[int]]:
    """Choose which results are added up now, as coffea does: the smallest first, when there are enough for two groups.

    ``last``: nothing more is to come. For accumulators whose addition is exact, whatever the order.
    """
    waiting = sorted(range(len(sizes)), key=sizes.__getitem__)
    groups: list[list[int]] = []
    if last or len(waiting) >= 2 * fan_in - 1:
        while len(waiting) >= (2 if last else fan_in):
            groups.append(waiting[:fan_in])
            waiting = waiting[fan_in:]
    return groups
