"""Making the numbers of some rows: in NumPy, or by compiled loops of the same bits where there are any."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from windrow._portable import high_product, log, normal_quantile
from windrow.random import compiling
from windrow.random.entries import Span, compiled_rows
from windrow.random.generator import philox
from windrow.random.identities import absorber
from windrow.random.poisson import fill_poisson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]
    Floats: TypeAlias = NDArray[np.float64]
    Counts: TypeAlias = int | NDArray[np.int64]  #: numbers per row: the same for all, or of each


#: Method -> the type of its numbers.
METHODS: dict[str, type] = {
    "uniform": np.float64,
    "normal": np.float64,
    "exponential": np.float64,
    "integers": np.int64,
    "poisson": np.int64,
}

#: Numbers made at a time. Four scratch arrays of this length fit a 1 MB cache, and a hundred calls
#: into NumPy per block still vanish: a million took 29 ms with 16 K, 43 with 4 K, 36 with 64 K.
_BLOCK = 16_384
_SHIFT32 = np.uint64(32)


class Wish(NamedTuple):
    """Everything that decides numbers but the rows: equal wishes give equal numbers."""

    key: int
    method: str
    draw: int
    #: uniform, integers: low, high; normal: loc, scale; exponential: scale; poisson: mean, if it is one
    parameters: tuple[Any, ...] = ()


def new(wish: Wish, identity: Words | Span, counts: Counts) -> NDArray[Any]:
    """Return room for the numbers of a wish."""
    size = len(identity) * counts if isinstance(counts, int) else int(counts.sum())
    return np.empty(size, METHODS[wish.method])


def make(
    wish: Wish, identity: Words | Span, counts: Counts = 1, means: Floats | None = None, out: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return ``counts`` numbers for each row, one after the other; ``means``: one per Poisson number.

    The identities of a span are hashed on the way where each row has one number, and before otherwise.
    """
    if isinstance(identity, Span) and not (isinstance(counts, int) and counts == 1):
        identity = identity.words()
    if out is None:
        out = new(wish, identity, counts)
    loop = compiling.loops.loop(wish.method, len(out), partial(_checked, wish.method))
    if loop is None:
        _fill(wish, identity, counts, means, out)
    else:
        _run(loop, wish, identity, counts, means, out)
    return out


def make_object(wish: Wish, identity: Words, index: int) -> NDArray[Any]:
    """Return the number of one object of each row, in NumPy."""
    first = identity.copy()
    second = np.full(len(first), index << 32 | wish.draw, np.uint64)
    out = new(wish, identity, 1)
    if wish.method == "poisson":
        fill_poisson(wish.key, first, second, np.full(len(first), *wish.parameters), out)
    else:
        philox(wish.key, first, second)
        _TRANSFORMS[wish.method](first, out, *wish.parameters)
    return out


# -- NumPy -------------------------------------------------------------------------------------


def _fill(wish: Wish, identity: Words | Span, counts: Counts, means: Floats | None, out: NDArray[Any]) -> None:
    room = np.empty((4, min(_BLOCK, len(out))), np.uint64)
    transform = _TRANSFORMS.get(wish.method)
    for start, stop, rows, index in _counters(identity, counts, len(out)):
        view = room[:, : stop - start]
        if isinstance(rows, Span):
            rows.hash_into(view[0], absorber(None))
        else:
            view[0] = rows
        view[1] = wish.draw if index is None else index << _SHIFT32 | np.uint64(wish.draw)
        if transform is None:
            mean = np.full(len(rows), *wish.parameters) if means is None else means[start:stop]
            fill_poisson(wish.key, view[0], view[1], mean, out[start:stop])
        else:
            philox(wish.key, view[0], view[1], view[2:])
            transform(view[0], out[start:stop], *wish.parameters)


def _counters(
    identity: Words | Span, counts: Counts, size: int
) -> Iterator[tuple[int, int, Words | Span, Words | None]]:
    """Cut the numbers into blocks; tell identity and object of each (None: object 0 of its row)."""
    ends = None if isinstance(counts, int) else np.cumsum(counts)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        if ends is None and counts == 1:
            yield start, stop, identity[start:stop], None
            continue
        assert not isinstance(identity, Span)
        numbers = np.arange(start, stop)
        if ends is None:
            rows, index = np.divmod(numbers, counts)
        else:
            rows = np.searchsorted(ends, numbers, side="right")
            index = numbers - (ends[rows] - counts[rows])  # type: ignore[index]
        yield start, stop, identity[rows], index.astype(np.uint64)


def _uniform(words: Words, out: Floats, low: float, high: float) -> None:
    np.right_shift(words, np.uint64(11), out=words)
    np.multiply(words, 2.0**-53, out=out)
    if low != 0.0 or high != 1.0:
        out *= high - low
        out += low
        np.minimum(out, math.nextafter(high, low), out=out)  # the sum may round up to high


def _normal(words: Words, out: Floats, loc: float, scale: float) -> None:
    np.right_shift(words, np.uint64(11), out=words)
    # Centres of 2**53 equal cells of (-1/2, 1/2): symmetric, exact, and never an end.
    q = words.view(np.int64).astype(np.float64)
    q -= 2.0**52 - 0.5
    q *= 2.0**-53
    normal_quantile(q, out)
    if loc != 0.0 or scale != 1.0:
        out *= scale
        out += loc


def _exponential(words: Words, out: Floats, scale: float) -> None:
    np.right_shift(words, np.uint64(11), out=words)
    u = words.astype(np.float64)
    u += 1.0  # (0, 1]: the logarithm of 0 never comes, and 2**53 is still exact
    u *= 2.0**-53
    np.subtract(0.0, log(u), out=out)
    out *= scale


def _integers(words: Words, out: NDArray[np.int64], low: int, high: int) -> None:
    span = high - low
    values = words if span == 2**64 else high_product(words, span)
    # Modulo 2**64: right for negative starts too.
    np.add(values, np.uint64(low % 2**64), out=out.view(np.uint64))


_TRANSFORMS: dict[str, Callable[..., None]] = {
    "uniform": _uniform,
    "normal": _normal,
    "exponential": _exponential,
    "integers": _integers,
}


# -- compiled ----------------------------------------------------------------------------------


def _run(
    loop: Any, wish: Wish, identity: Words | Span, counts: Counts, means: Floats | None, out: NDArray[Any]
) -> None:
    parameters: tuple[Any, ...] = wish.parameters
    if wish.method == "uniform":
        low, high = parameters
        parameters = (low, high - low, math.nextafter(high, low))
    elif wish.method == "integers":
        low, high = parameters
        parameters = (np.uint64((high - low) % 2**64), np.uint64(low % 2**64))
    elif wish.method == "poisson":
        one = np.array(parameters, np.float64)
        parameters = (one, 0) if means is None else (means, 1)
    same = isinstance(counts, int)
    per_row = np.array([counts], np.int64) if same else counts
    # One type for every array and number, so that a loop is compiled once.
    loop(
        np.uint64(wish.key), compiled_rows(identity), per_row, 0 if same else 1,
        np.uint64(wish.draw), out, *parameters,
    )  # fmt: skip


def _checked(method: str, loop: Any) -> bool:
    """Say whether a compiled loop gives NumPy's bits."""
    for wish, identity, counts, means in _samples(method):
        plain = new(wish, identity, counts)
        fast = new(wish, identity, counts)
        _fill(wish, identity, counts, means, plain)
        _run(loop, wish, identity, counts, means, fast)
        if plain.tobytes() != fast.tobytes():
            return False
    return True


def _samples(method: str) -> Iterator[tuple[Wish, Words | Span, Counts, Floats | None]]:
    identity = np.arange(1, 2048, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    counts = np.arange(len(identity)) % 4
    cases: dict[str, list[tuple[Any, ...]]] = {
        "uniform": [(0.0, 1.0), (-3.0, 0.1)],
        "normal": [(0.0, 1.0), (5.0, 0.3)],
        "exponential": [(1.0,), (0.7,)],
        "integers": [(-5, 1000), (-(2**63), 2**63)],
        "poisson": [(3.0,), (33.3,)],
    }
    for number, parameters in enumerate(cases[method]):
        wish = Wish(0x0123456789ABCDEF, method, number, parameters)
        yield wish, identity, 1, None
        yield wish, Span(identity[5], 2**33 + 7, 1500, None), 1, None
        yield wish, Span(identity[6], 11, 1500, identity[:1500] >> np.uint64(20)), 1, None
        yield wish, identity[:99], 30, None
        means = np.linspace(0.0, 50.0, int(counts.sum())) if method == "poisson" else None
        yield wish, identity, counts, means
