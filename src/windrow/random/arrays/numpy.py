"""Making the numbers of some rows: in NumPy, or by compiled loops of the same bits where there are any."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from windrow._portable import exp, high_product, log, normal_quantile, poisson_log_probability
from windrow.random.arrays import compile_later
from windrow.random.philox import another_key, philox

if TYPE_CHECKING:
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

#: Below it inversion takes fewer steps; rejection needs at least 10.
SMALL_MEAN = 10.0
#: Up to here a count and its half are exact floating-point numbers.
LARGEST_MEAN = 2.0**50
#: A probability with which nothing ever comes: only rounding is left to be searched.
NOTHING_LEFT = 2.0**-70


class DrawRequest(NamedTuple):
    """Everything that decides numbers but the rows: equal requests give equal numbers."""

    key: int
    method: str
    draw: int
    #: uniform, integers: low, high; normal: loc, scale; exponential: scale; poisson: mean, if it is one
    parameters: tuple[Any, ...] = ()


def new(request: DrawRequest, rows: int, counts: Counts) -> NDArray[Any]:
    size = rows * counts if isinstance(counts, int) else int(counts.sum())
    return np.empty(size, METHODS[request.method])


def make(
    request: DrawRequest,
    identity: Words,
    counts: Counts = 1,
    means: Floats | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return ``counts`` numbers for each row, one after the other; ``means``: one per Poisson number."""
    if out is None:
        out = new(request, len(identity), counts)
    loop = compile_later.loops.loop(request.method, len(out), partial(has_the_same_bits, request.method))
    if loop is None:
        fill(request, identity, counts, means, out)
    else:
        run_loop(loop, request, identity, counts, means, out)
    return out


def make_object(request: DrawRequest, identity: Words, index: int) -> NDArray[Any]:
    out = new(request, len(identity), 1)
    second = np.full(len(identity), index << 32 | request.draw, np.uint64)
    _transform(request, identity.copy(), second, None, out)
    return out


# -- NumPy -------------------------------------------------------------------------------------


def fill(request: DrawRequest, identity: Words, counts: Counts, means: Floats | None, out: NDArray[Any]) -> None:
    room = np.empty((4, min(_BLOCK, len(out))), np.uint64)
    for start, stop, rows, index in _counters(counts, len(out)):
        view = room[:, : stop - start]
        view[0] = identity[rows]
        view[1] = request.draw if index is None else index << _SHIFT32 | np.uint64(request.draw)
        mean = None if means is None else means[start:stop]
        _transform(request, view[0], view[1], mean, out[start:stop], view[2:])


def _counters(counts: Counts, size: int) -> Iterator[tuple[int, int, Any, Words | None]]:
    """Cut the numbers into blocks; tell row and object of each (None: object 0 of its row)."""
    ends = None if isinstance(counts, int) else np.cumsum(counts)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        if ends is None and counts == 1:
            yield start, stop, slice(start, stop), None
            continue
        numbers = np.arange(start, stop)
        if ends is None:
            rows, index = np.divmod(numbers, counts)
        else:
            rows = np.searchsorted(ends, numbers, side="right")
            index = numbers - (ends[rows] - counts[rows])  # type: ignore[index]
        yield start, stop, rows, index.astype(np.uint64)


def _transform(
    request: DrawRequest,
    first: Words,
    second: Words,
    means: Floats | None,
    out: NDArray[Any],
    scratch: Words | None = None,
) -> None:
    """Write the numbers of counters, which are written over."""
    if request.method == "poisson":
        means = np.full(len(first), *request.parameters) if means is None else means
        _fill_poisson(request.key, first, second, means, out)
    else:
        philox(request.key, first, second, scratch)
        _TRANSFORMS[request.method](first, out, *request.parameters)


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


# -- Poisson numbers -------------------------------------------------------------------------------
#
# Inversion for small means, transformed rejection for others: PTRS of Hoermann (1993, doi:10.1016/0167-6687(93)90997-4),
# with the exact probability in Loader's form. An attempt at a number takes one block of the generator; attempts have keys
# of their own, so that a number still depends on nothing but its own key and counter. ``each_row.scalars`` has the same
# algorithm for one number, compiled.


def _fill_poisson(key: int, first: Words, second: Words, mean: Floats, out: NDArray[np.int64]) -> None:
    left = np.arange(len(out))
    attempt = 0
    while len(left):
        one, other = first[left], second[left]
        philox(another_key(key, attempt), one, other)
        here = mean[left]
        small = here < SMALL_MEAN  # none after the first attempt: inversion always succeeds
        values = np.empty(len(left))
        accepted = small.copy()
        values[small] = _invert(_above_zero(one[small]), here[small])
        large = np.flatnonzero(~small)
        values[large], accepted[large] = _try(one[large], other[large], here[large])
        out[left[accepted]] = values[accepted]
        left = left[~accepted]
        attempt += 1


def _above_zero(words: Words) -> Floats:
    result: Floats = ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    return result


def _invert(u: Floats, mean: Floats) -> Floats:
    """Add up probabilities until they reach u."""
    count = np.zeros(len(u))
    p = exp(0.0 - mean)
    going = np.flatnonzero(u > p)
    u, p = u[going], p[going]
    while len(going):
        u -= p
        count[going] += 1.0
        p *= mean[going] / count[going]
        on = (u > p) & (p > NOTHING_LEFT)
        going, u, p = going[on], u[on], p[on]
    return count


def _try(one: Words, other: Words, mean: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Propose a count for each mean; say which are accepted."""
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = 0.02483 * b - 0.059
    u = ((one >> np.uint64(11)).astype(np.float64) - (2.0**52 - 0.5)) * 2.0**-53
    v = _above_zero(other)
    edge = 0.5 - np.abs(u)
    count = np.floor((2.0 * a / edge + b) * u + mean + 0.43)
    accepted = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
    # Neither certainly in nor certainly out: the exact probability decides.
    asked = np.flatnonzero(~accepted & (count >= 0.0) & ((edge >= 0.013) | (v <= edge)))
    b, edge = b[asked], edge[asked]
    height = v[asked] * (1.1239 + 1.1328 / (b - 3.4)) / (a[asked] / (edge * edge) + b)
    accepted[asked] = log(height) <= poisson_log_probability(count[asked], mean[asked])
    return count, accepted


# -- compiled ----------------------------------------------------------------------------------


def run_loop(
    loop: Any, request: DrawRequest, identity: Words, counts: Counts, means: Floats | None, out: NDArray[Any]
) -> None:
    parameters: tuple[Any, ...] = request.parameters
    if request.method == "uniform":
        low, high = parameters
        parameters = (low, high - low, math.nextafter(high, low))
    elif request.method == "integers":
        low, high = parameters
        parameters = (np.uint64((high - low) % 2**64), np.uint64(low % 2**64))
    elif request.method == "poisson":
        parameters = (np.array(parameters, np.float64), 0) if means is None else (means, 1)
    same = isinstance(counts, int)
    per_row = np.array([counts], np.int64) if same else counts
    # One type for every array and number, so that a loop is compiled once.
    words = np.ascontiguousarray(identity)
    words = words if words.flags.writeable else words.copy()
    loop(np.uint64(request.key), words, per_row, 0 if same else 1, np.uint64(request.draw), out, parameters)


def has_the_same_bits(method: str, loop: Any) -> bool:
    for request, identity, counts, means in _samples(method):
        plain = new(request, len(identity), counts)
        fast = new(request, len(identity), counts)
        run_loop(loop, request, identity, counts, means, fast)
        fill(request, identity, counts, means, plain)
        if plain.tobytes() != fast.tobytes():
            return False
    return True


def _samples(method: str) -> Iterator[tuple[DrawRequest, Words, Counts, Floats | None]]:
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
        request = DrawRequest(0x0123456789ABCDEF, method, number, parameters)
        yield request, identity, 1, None
        yield request, identity[:99], 30, None
        means = np.linspace(0.0, 50.0, int(counts.sum())) if method == "poisson" else None
        yield request, identity, counts, means
