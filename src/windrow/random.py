"""Random numbers that depend on nothing but seed, name, row and object.

A number is a function of (seed, stream name, method, row identity, index of the object in its row,
draw number): never of the order of calls, of chunks, of workers or of which other rows are there.
The generator is Philox4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405); its key is a hash
of seed, name and method, its counter is (identity, object, draw).

There is no global state, names - not call order - key the numbers, and values are made of
correctly rounded operations only (``windrow._portable``).
"""

from __future__ import annotations

import hashlib
import math
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from windrow._portable import high_product, log, normal_quantile
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]
    Floats: TypeAlias = NDArray[np.float64]
    Transform: TypeAlias = Callable[[Words, NDArray[Any]], None]

__all__ = ["Rng", "Stream", "entry_identity", "identity_hash", "philox"]

#: Numbers made at a time. Four scratch arrays of this length fit a 1 MB cache, and a hundred calls
#: into NumPy per block still vanish: a million took 29 ms with 16 K, 43 with 4 K, 36 with 64 K.
_BLOCK = 16_384

_LOW32 = 0xFFFFFFFF
_SHIFT32 = np.uint64(32)
# The multipliers and Weyl constants of Philox4x32, from the paper.
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(key: int, first: Words, second: Words, scratch: Words | None = None) -> None:
    """Run Philox4x32-10 in place.

    Counter words 0 and 1 are the high and low halves of ``first``, words 2 and 3 those of
    ``second``, key words those of ``key``. ``scratch`` is room of shape (2, len(first)).
    """
    room = np.empty((2, len(first)), np.uint64) if scratch is None else scratch
    left, right = room[0], room[1]
    key0, key1 = key >> 32, key & _LOW32
    for _ in range(_ROUNDS):
        # With two words in one integer, a round's new pair is the other pair's product with the
        # old odd word and the key laid over its high half: no masks, no separate halves.
        np.right_shift(first, _SHIFT32, out=left)
        np.multiply(left, _MULTIPLIERS[0], out=left)
        np.right_shift(second, _SHIFT32, out=right)
        np.multiply(right, _MULTIPLIERS[1], out=right)
        np.left_shift(first, _SHIFT32, out=first)
        np.bitwise_xor(first, right, out=first)
        np.bitwise_xor(first, np.uint64(key0 << 32), out=first)
        np.left_shift(second, _SHIFT32, out=second)
        np.bitwise_xor(second, left, out=second)
        np.bitwise_xor(second, np.uint64(key1 << 32), out=second)
        key0, key1 = (key0 + _WEYL[0]) & _LOW32, (key1 + _WEYL[1]) & _LOW32


# -- identities --------------------------------------------------------------------------------

# The finaliser and the increment of SplitMix64 (Steele et al. 2014, doi:10.1145/2660193.2660195).
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Laid over negative values, so that -1 and 2**64 - 1 (the same bits) are different identities.
_NEGATIVE = np.uint64(0xD6E8FEB86659FD93)


def _mix(values: Words) -> None:
    for shift, factor in _MIX:
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    values ^= values >> np.uint64(31)


def _hash(start: np.uint64, columns: Sequence[NDArray[Any]]) -> Words:
    state = np.full(len(columns[0]), start)
    for begin in range(0, len(state), _BLOCK):
        part = slice(begin, begin + _BLOCK)
        for column in columns:
            _absorb(state[part], column[part])
    return state


def _absorb(state: Words, column: NDArray[Any]) -> None:
    """Mix one integer column into the state; equal values count the same whatever their dtype."""
    bits = column.astype(np.uint64 if column.dtype.kind in "bu" else np.int64).view(np.uint64)
    bits += _GOLDEN
    _mix(bits)
    if column.dtype.kind == "i":
        bits[column < 0] ^= _NEGATIVE
    state ^= bits
    _mix(state)


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
    digest = hashlib.blake2b(file_identity.encode(), digest_size=8, person=b"windrow.file")
    start = np.uint64(int.from_bytes(digest.digest(), "big"))
    return _hash(start, [_integer_column(entries, "entries")])


# -- what a step sees --------------------------------------------------------------------------


class Rng:
    """What a step's ``rng`` is: ``rng("name")`` is a stream of numbers for the step's rows."""

    __slots__ = ("_identity", "length", "seed")

    def __init__(self, seed: int, identity: Words | Callable[[], Words], length: int) -> None:
        self.seed = operator.index(seed)
        self.length = length
        self._identity = identity

    def __call__(self, name: str) -> Stream:
        """Return the stream of this name: the same numbers wherever it is asked for."""
        if not isinstance(name, str):
            raise UsageError(f'a random stream has a name, as in rng("jer"), but got {name!r}')
        return Stream(self, name)

    @property
    def identity(self) -> Words:
        """The 64-bit identities of the rows; loaded when a number is first drawn."""
        identity = self._identity() if callable(self._identity) else self._identity
        if identity.dtype != np.uint64 or identity.shape != (self.length,):
            raise UsageError(
                f"row identities must be {self.length} numbers of uint64, "
                f"but are {identity.dtype} of shape {identity.shape}"
            )
        self._identity = identity
        return identity


class Stream:
    """Numbers of one name. All methods share three arguments.

    ``like``: a flat column gives one number per row (as does None); a jagged one gives one per
    object in the same shape, keyed by the object's index in its row. ``size``: that many numbers
    per row, as a regular two-dimensional array. ``draw``: asking twice gives the same numbers
    twice; another draw (0, 1, 2, ...) gives new ones. Different methods of one name are
    independent; the number of a row without ``like`` is that of its object 0.
    """

    __slots__ = ("_name", "_rng")

    def __init__(self, rng: Rng, name: str) -> None:
        self._rng = rng
        self._name = name

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        *,
        like: Any = None,
        size: int | None = None,
        draw: int = 0,
    ) -> Any:
        """Draw from [low, high), with 53 bits; ``high`` itself never comes."""
        low, high = self._number("low", low), self._number("high", high)
        span = high - low
        if not (low < high and math.isfinite(span)):
            raise UsageError(f"{self}.uniform needs low < high, but got low={low}, high={high}")
        highest = math.nextafter(high, low)

        def transform(words: Words, out: Floats) -> None:
            np.right_shift(words, np.uint64(11), out=words)
            np.multiply(words, 2.0**-53, out=out)
            if low != 0.0 or high != 1.0:
                out *= span
                out += low
                np.minimum(out, highest, out=out)  # the sum may round up to high

        return self._draw("uniform", transform, np.float64, like, size, draw)

    def normal(
        self,
        loc: float = 0.0,
        scale: float = 1.0,
        *,
        like: Any = None,
        size: int | None = None,
        draw: int = 0,
    ) -> Any:
        """Draw from a normal distribution by inversion of 53 bits (up to 8.3 sigma)."""
        loc, scale = self._number("loc", loc), self._positive("scale", scale)

        def transform(words: Words, out: Floats) -> None:
            np.right_shift(words, np.uint64(11), out=words)
            # Centres of 2**53 equal cells of (-1/2, 1/2): symmetric, exact, and never an end.
            q = words.view(np.int64).astype(np.float64)
            q -= 2.0**52 - 0.5
            q *= 2.0**-53
            normal_quantile(q, out)
            if loc != 0.0 or scale != 1.0:
                out *= scale
                out += loc

        return self._draw("normal", transform, np.float64, like, size, draw)

    def exponential(
        self, scale: float = 1.0, *, like: Any = None, size: int | None = None, draw: int = 0
    ) -> Any:
        """Draw from an exponential distribution of mean ``scale``, by inversion of 53 bits."""
        scale = self._positive("scale", scale)

        def transform(words: Words, out: Floats) -> None:
            np.right_shift(words, np.uint64(11), out=words)
            u = words.astype(np.float64)
            u += 1.0  # (0, 1]: the logarithm of 0 never comes, and 2**53 is still exact
            u *= 2.0**-53
            np.subtract(0.0, log(u), out=out)
            out *= scale

        return self._draw("exponential", transform, np.float64, like, size, draw)

    def integers(
        self,
        low: int,
        high: int | None = None,
        *,
        like: Any = None,
        size: int | None = None,
        draw: int = 0,
    ) -> Any:
        """Draw integers from [low, high), or from [0, low) if there is no ``high``.

        64 random bits are multiplied by the width of the range: a value's probability is off by at
        most width / 2**64 of itself, under 2**-32 for every range below 2**32.
        """
        where = f"{self}.integers"
        bounds = (0, low) if high is None else (low, high)
        start = _whole(where, "low", bounds[0], -(2**63), 2**63 - 1)
        stop = _whole(where, "high", bounds[1], start + 1, 2**63)
        span, offset = stop - start, np.uint64(start % 2**64)

        def transform(words: Words, out: NDArray[np.int64]) -> None:
            values = words if span == 2**64 else high_product(words, span)
            # Modulo 2**64: right for negative starts too.
            np.add(values, offset, out=out.view(np.uint64))

        return self._draw("integers", transform, np.int64, like, size, draw)

    def __repr__(self) -> str:
        return f"rng({self._name!r})"

    def _number(self, argument: str, value: float) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(
                f"{self}: {argument} must be one finite number, but is {_short(value)}; for one "
                "per row or object draw standard numbers with like= and scale or shift those"
            )
        return number

    def _positive(self, argument: str, value: float) -> float:
        number = self._number(argument, value)
        if number < 0.0:
            raise UsageError(f"{self}: {argument} must not be negative, but is {number}")
        return number

    def _draw(
        self, method: str, transform: Transform, dtype: Any, like: Any, size: int | None, draw: int
    ) -> Any:
        where = f"{self}.{method}"
        draw = _whole(where, "draw", draw, 0, _LOW32)
        objects = _objects(where, self._rng.length, like, size)
        text = f"{self._rng.seed}\0{self._name}".encode()
        digest = hashlib.blake2b(text, digest_size=8, person=method.encode()).digest()
        key = int.from_bytes(digest, "big")
        if objects is None:
            return _fill(key, self._rng.identity, np.uint64(draw), transform, dtype)
        counts, wrap = objects
        starts = np.cumsum(counts) - counts
        index = np.arange(counts.sum()) - np.repeat(starts, counts)
        second = index.astype(np.uint64) << _SHIFT32 | np.uint64(draw)
        return wrap(_fill(key, np.repeat(self._rng.identity, counts), second, transform, dtype))


def _short(value: object) -> str:
    """Name a value in a message: itself if it is small, else what it is."""
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"


def _whole(where: str, argument: str, value: int, lowest: int, highest: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise UsageError(
            f"{where}: {argument} must be an integer from {lowest} to {highest}, "
            f"but is {_short(value)}"
        )
    return number


def _fill(
    key: int, first: Words, second: Words | np.uint64, transform: Transform, dtype: Any
) -> NDArray[Any]:
    """Make one value per counter (first, second), block by block."""
    out = np.empty(len(first), dtype)
    room = np.empty((4, min(_BLOCK, len(out))), np.uint64)
    for start in range(0, len(out), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(out)))
        view = room[:, : part.stop - start]
        view[0] = first[part]
        view[1] = second[part] if isinstance(second, np.ndarray) else second
        philox(key, view[0], view[1], view[2:])
        transform(view[0], out[part])
    return out


def _objects(
    where: str, length: int, like: Any, size: int | None
) -> tuple[NDArray[np.int64], Callable[[NDArray[Any]], Any]] | None:
    """Return the numbers wanted per row and what gives them their shape; None: one per row."""
    if size is not None:
        if like is not None:
            raise UsageError(f"{where}: give like= or size=, not both")
        width = _whole(where, "size", size, 0, _LOW32)
        return np.full(length, width), lambda values: values.reshape(length, width)
    if like is None:
        return None
    import awkward as ak  # only now: it is slow to import, and most streams do not need it

    if not isinstance(like, (np.ndarray, ak.Array)):
        raise UsageError(f"{where}: like must be a column, but is a {type(like).__name__}")
    depth = like.ndim if isinstance(like, np.ndarray) else like.layout.purelist_depth
    if depth not in (1, 2):
        raise UsageError(
            f"{where}: like must have one number or one list per row, but has {depth} dimensions; "
            "flatten its inner lists first"
        )
    if len(like) != length:
        raise UsageError(
            f"{where}: like has {len(like)} rows, but the step was given {length}; "
            "pass a column of this step's rows"
        )
    if depth == 1:
        return None
    if isinstance(like, np.ndarray):
        return np.full(length, like.shape[1]), lambda values: values.reshape(like.shape)
    missing = ak.to_numpy(ak.is_none(like))
    counts = ak.to_numpy(ak.fill_none(ak.num(like, axis=1), 0)).astype(np.int64)

    def jagged(values: NDArray[Any]) -> Any:
        offsets = ak.index.Index64(np.append(0, np.cumsum(counts)))
        lists = ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(values)))
        return ak.mask(lists, ~missing) if missing.any() else lists

    return counts, jagged
