"""One 64-bit identity per row: what makes a random number belong to its row, wherever the row is stored."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from windrow.errors import UsageError
from windrow.random import compiling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]


#: Rows hashed at a time: what is used over and over stays in the cache.
HASHED_AT_ONCE = 16_384

# The finaliser and the increment of SplitMix64 (Steele et al. 2014, doi:10.1145/2660193.2660195).
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Laid over negative values, so that -1 and 2**64 - 1 (the same bits) are different identities.
NEGATIVE = np.uint64(0xD6E8FEB86659FD93)


def _mix(values: Words) -> None:
    for shift, factor in _MIX:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)


def _hash(start: np.uint64, columns: Sequence[NDArray[Any]]) -> Words:
    state = np.empty(len(columns[0]), np.uint64)
    absorb = absorber(state.size * len(columns))
    for begin in range(0, len(state), HASHED_AT_ONCE):
        part = slice(begin, begin + HASHED_AT_ONCE)
        state[part] = start
        for column in columns:
            # Equal values count the same whatever their type.
            wide = column[part].astype(np.int64 if column.dtype.kind == "i" else np.uint64)
            absorb(state[part], wide.view(np.uint64), column.dtype.kind == "i")
    return state


def absorber(size: int | None) -> Callable[[Words, Words, bool], None]:
    """Return what mixes bits into the state of so many rows and may write over them; None: in NumPy."""
    loop = None if size is None else compiling.loops.loop("identity", size, _checked)
    return loop or _absorb


def _absorb(state: Words, bits: Words, signed: bool) -> None:
    """Mix 64 bits of each row into the state."""
    negative = bits.view(np.int64) < 0 if signed else None
    bits += _GOLDEN
    _mix(bits)
    if negative is not None:
        bits[negative] ^= NEGATIVE
    state ^= bits
    _mix(state)


def _checked(loop: Any) -> bool:
    """Say whether a compiled loop gives NumPy's bits."""
    for signed in (True, False):
        values = np.arange(1000, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        plain, fast = values[::-1].copy(), values[::-1].copy()
        _absorb(plain, values.copy(), signed)
        loop(fast, values.copy(), signed)
        if plain.tobytes() != fast.tobytes():
            return False
    return True


def _integer_column(column: NDArray[Any], what: str) -> NDArray[Any]:
    array = np.asarray(column)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise UsageError(
            f"{what} must be one integer per row, but is {array.dtype} of {array.ndim} dimensions; "
            "choose integer columns (run, luminosityBlock, event) as the identity of a row"
        )
    return array


def identity_hash(columns: Sequence[NDArray[Any]]) -> Words:
    """Hash integer columns to one 64-bit identity per row; equal values are equal in any dtype."""
    if not columns:
        raise UsageError("a row identity needs at least one integer column, but none was given")
    arrays = [_integer_column(column, f"identity column {i}") for i, column in enumerate(columns)]
    lengths = [len(array) for array in arrays]
    if len(set(lengths)) != 1:
        raise UsageError(f"identity columns must have equal lengths, but have {lengths}")
    return _hash(_GOLDEN, arrays)


def entry_identity(file_identity: str, entries: NDArray[Any]) -> Words:
    """Hash (file, entry number) to one 64-bit identity per row."""
    return _hash(file_hash(file_identity), [_integer_column(entries, "entries")])


def file_hash(file_identity: str) -> np.uint64:
    """Hash what a file is known by: the state that the entries of the file are mixed into."""
    digest = hashlib.blake2b(file_identity.encode(), digest_size=8, person=b"windrow.file")
    return np.uint64(int.from_bytes(digest.digest(), "big"))
