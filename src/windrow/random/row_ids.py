"""One 64-bit identity per row: what makes a random number belong to its row, wherever the row is stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from windrow.errors import UsageError
from windrow.random.arrays import compile_later

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]


#: Rows hashed at a time: what is used over and over stays in the cache.
_HASHED_AT_ONCE = 16_384

# The finaliser and the increment of SplitMix64 (Steele et al. 2014, doi:10.1145/2660193.2660195).
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Laid over negative values, so that -1 and 2**64 - 1 (the same bits) are different identities.
NEGATIVE = np.uint64(0xD6E8FEB86659FD93)


def entry_identities(file: str, first: int, length: int, places: NDArray[np.int64] | None = None) -> Words:
    """Return the identities of rows that are known by file and entry number.

    ``places`` are the entries of the rows, counted from ``first``; None: one after the other.
    """
    digest = hashlib.blake2b(file.encode(), digest_size=8, person=b"windrow.file").digest()
    if places is None:
        entries = np.arange(first, first + length, dtype=np.uint64)
    else:
        entries = np.asarray(places, np.int64).view(np.uint64) + np.uint64(first)
    return _hash(np.uint64(int.from_bytes(digest, "big")), [entries])


def identity_hash(columns: Sequence[NDArray[Any]]) -> Words:
    """Hash integer columns to one 64-bit identity per row; equal values are equal in any dtype."""
    if not columns:
        raise UsageError("a row identity needs at least one integer column, but none was given")
    arrays = [np.asarray(column) for column in columns]
    for number, array in enumerate(arrays):
        if array.ndim != 1 or array.dtype.kind not in "iub":
            raise UsageError(
                f"identity column {number} must be one integer per row, but is {array.dtype} of {array.ndim} dimensions; "
                "choose integer columns (run, luminosityBlock, event) as the identity of a row"
            )
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) != 1:
        raise UsageError(f"identity columns must have equal lengths, but have {lengths}")
    return _hash(_GOLDEN, arrays)


def _hash(start: np.uint64, columns: Sequence[NDArray[Any]]) -> Words:
    state = np.empty(len(columns[0]), np.uint64)
    absorb = compile_later.loops.loop("identity", state.size * len(columns), _has_the_same_bits) or absorb_bits
    for begin in range(0, len(state), _HASHED_AT_ONCE):
        part = slice(begin, begin + _HASHED_AT_ONCE)
        state[part] = start
        for column in columns:
            # Equal values count the same whatever their type.
            wide = column[part].astype(np.int64 if column.dtype.kind == "i" else np.uint64)
            absorb(state[part], wide.view(np.uint64), column.dtype.kind == "i")
    return state


def _mix(values: Words) -> None:
    for shift, factor in _MIX:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)


def absorb_bits(state: Words, bits: Words, signed: bool) -> None:
    """Mix 64 bits of each row into the state; they are written over."""
    negative = bits.view(np.int64) < 0 if signed else None
    bits += _GOLDEN
    _mix(bits)
    if negative is not None:
        bits[negative] ^= NEGATIVE
    state ^= bits
    _mix(state)


def _has_the_same_bits(loop: Any) -> bool:
    for signed in (True, False):
        values = np.arange(1000, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        plain, fast = values[::-1].copy(), values[::-1].copy()
        absorb_bits(plain, values.copy(), signed)
        loop(fast, values.copy(), signed)
        if plain.tobytes() != fast.tobytes():
            return False
    return True
