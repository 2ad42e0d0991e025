"""Philox4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405) in NumPy, and the keys of streams.

The numbers are a contract: ``windrow.random.arrays.numba`` makes the same ones faster, and nothing may ever
change them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]


#: The counter has 32 bits for the object and 32 for the draw.
LOW32 = 0xFFFFFFFF
_LOW64 = 0xFFFFFFFFFFFFFFFF
_SHIFT32 = np.uint64(32)
#: The multipliers, the Weyl constants and the rounds of Philox4x32, from the paper.
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


def philox(key: int, first: Words, second: Words, scratch: Words | None = None) -> None:
    """Run Philox4x32-10 in place.

    Counter words 0 and 1 are the high and low halves of ``first``, words 2 and 3 those of
    ``second``, key words those of ``key``. ``scratch`` is room of shape (2, len(first)).
    """
    room = np.empty((2, len(first)), np.uint64) if scratch is None else scratch
    left, right = room[0], room[1]
    key0, key1 = key >> 32, key & LOW32
    for _ in range(ROUNDS):
        # With two words in one integer, a round's new pair is the other pair's product with the
        # old odd word and the key laid over its high half: no masks, no separate halves.
        np.right_shift(first, _SHIFT32, out=left)
        np.multiply(left, MULTIPLIERS[0], out=left)
        np.right_shift(second, _SHIFT32, out=right)
        np.multiply(right, MULTIPLIERS[1], out=right)
        np.left_shift(first, _SHIFT32, out=first)
        np.bitwise_xor(first, right, out=first)
        np.bitwise_xor(first, np.uint64(key0 << 32), out=first)
        np.left_shift(second, _SHIFT32, out=second)
        np.bitwise_xor(second, left, out=second)
        np.bitwise_xor(second, np.uint64(key1 << 32), out=second)
        key0, key1 = (key0 + WEYL[0]) & LOW32, (key1 + WEYL[1]) & LOW32


def stream_key(seed: int, name: str, method: str) -> int:
    """Return the key of one method of one stream: 64 bits of a hash."""
    text = f"{seed}\0{name}".encode()
    digest = hashlib.blake2b(text, digest_size=8, person=method.encode()).digest()
    return int.from_bytes(digest, "big")


def another_key(key: int, attempt: int) -> int:
    """Return the key for another attempt at the same number: the counter has no room for attempts.

    Attempt 0 has the key itself; later ones are steps of SplitMix64 from it.
    """
    if attempt == 0:
        return key
    value = (key + attempt * 0x9E3779B97F4A7C15) & _LOW64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _LOW64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _LOW64
    return value ^ value >> 31
