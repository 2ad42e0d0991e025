"""How results are added up: who adds which, and which leave the memory of the driver meanwhile.

Results are added in the fixed tree of units and inputs alone (``blocks/tree.py``), so that what is decided here never shows in one.
"""

from __future__ import annotations

#: Results that the driver has in memory at a time, where they are large: the two that are added next.
IN_MEMORY = 2
#: Bytes that all of them may have in any case: about what the interpreter and the libraries of the driver take.
SMALL_BYTES = 64_000_000
#: Families of inputs that each worker has at least, so that none is left alone with the last.
FAMILIES = 4
#: Inputs of a family at most: so the driver gets a sixty-fourth of the results, and a family is looked through for each of its own.
LARGEST_FAMILY = 64


def family(inputs: int, workers: int) -> int:
    """Say how many neighbouring inputs are one worker's, a power of two: it adds them up and brings the sum."""
    return min(1 << max((inputs // (FAMILIES * workers)).bit_length() - 1, 0), LARGEST_FAMILY)


def most_in_memory(largest: int) -> int:
    """Say how many bytes of results the driver has in memory at most, if the largest has so many; the others are put aside."""
    return max(SMALL_BYTES, IN_MEMORY * largest)
