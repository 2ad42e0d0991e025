"""What a step sees: ``rng("name")`` is a stream of numbers for the step's rows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from windrow.errors import UsageError
from windrow.random.arrays.numpy import LARGEST_MEAN, DrawRequest, make
from windrow.random.philox import LOW32, stream_key
from windrow.random.spare_cores import make_shared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]


class Rng:
    """What a step's ``rng`` is: ``rng("name")`` is a stream of numbers for the step's rows."""

    __slots__ = ("_rows", "length", "seed")

    def __init__(self, seed: int, rows: Words | Callable[[], Words], length: int) -> None:
        self.seed = operator.index(seed)
        self.length = length
        self._rows = rows

    def __call__(self, name: str) -> Stream:
        """Return the stream of this name: the same numbers wherever it is asked for."""
        if not isinstance(name, str):
            raise UsageError(f'a random stream has a name, as in rng("jer"), but got {name!r}')
        return Stream(self, name)

    @property
    def identity(self) -> Words:
        """The 64-bit identities of the rows; identity columns are loaded when a number is first drawn."""
        rows = self._rows() if callable(self._rows) else self._rows
        if rows.dtype != np.uint64 or rows.shape != (self.length,):
            raise UsageError(
                f"row identities must be {self.length} numbers of uint64, but are {rows.dtype} of shape {rows.shape}"
            )
        self._rows = rows
        return rows


class Stream:
    """Numbers of one name. All methods share three arguments.

    ``like``: a flat column gives one number per row (as does None); a jagged one gives one per
    object in the same shape, keyed by the object's index in its row. ``size``: that many numbers
    per row, as a regular two-dimensional array. ``draw``: asking twice gives the same numbers
    twice; another draw (0, 1, 2, ...) gives new ones. Different methods of one name are
    independent; the number of a row without ``like`` is that of its object 0.

    In a step with ``each=True`` the methods give one number of the row; there, ``object`` takes the
    place of ``like`` and ``size``: the number of object i is the one that they give it.
    """

    __slots__ = ("_name", "_rng")

    def __init__(self, rng: Rng, name: str) -> None:
        self._rng = rng
        self._name = name

    def uniform(
        self, low: float = 0.0, high: float = 1.0, *, like: Any = None, size: int | None = None, draw: int = 0
    ) -> Any:
        """Draw from [low, high), with 53 bits; ``high`` itself never comes."""
        low, high = self._number("low", low), self._number("high", high)
        if not (low < high and math.isfinite(high - low)):
            raise UsageError(f"{self}.uniform needs low < high, but got low={low}, high={high}")
        return self._draw("uniform", (low, high), like, size, draw)

    def normal(
        self, loc: float = 0.0, scale: float = 1.0, *, like: Any = None, size: int | None = None, draw: int = 0
    ) -> Any:
        """Draw from a normal distribution by inversion of 53 bits (up to 8.3 sigma)."""
        loc, scale = self._number("loc", loc), self._positive("scale", scale)
        return self._draw("normal", (loc, scale), like, size, draw)

    def exponential(self, scale: float = 1.0, *, like: Any = None, size: int | None = None, draw: int = 0) -> Any:
        """Draw from an exponential distribution of mean ``scale``, by inversion of 53 bits."""
        return self._draw("exponential", (self._positive("scale", scale),), like, size, draw)

    def integers(
        self, low: int, high: int | None = None, *, like: Any = None, size: int | None = None, draw: int = 0
    ) -> Any:
        """Draw integers from [low, high), or from [0, low) if there is no ``high``.

        64 random bits are multiplied by the width of the range: a value's probability is off by at
        most width / 2**64 of itself, under 2**-32 for every range below 2**32.
        """
        where = f"{self}.integers"
        bounds = (0, low) if high is None else (low, high)
        start = _whole(where, "low", bounds[0], -(2**63), 2**63 - 1)
        stop = _whole(where, "high", bounds[1], start + 1, 2**63)
        return self._draw("integers", (start, stop), like, size, draw)

    def poisson(self, lam: Any, *, like: Any = None, size: int | None = None, draw: int = 0) -> Any:
        """Draw counts from a Poisson distribution of mean ``lam``, by inversion or exact rejection.

        ``lam`` is a number, one per row, or one per object; in the last case ``like`` may be left
        out. The bits of a count depend on its own mean and on no other.
        """
        where = f"{self}.poisson"
        if not hasattr(lam, "layout") and np.ndim(lam) == 0:
            mean = self._positive("lam", lam)
            if mean > LARGEST_MEAN:
                raise UsageError(f"{where}: lam must be at most {LARGEST_MEAN:.4g}, but is {mean}")
            return self._draw("poisson", (mean,), like, size, draw)
        length = self._rng.length
        if like is None and size is None:
            shape = _shape_of(where, length, lam, None, "lam")
        else:
            shape = _shape_of(where, length, like, size)
        means = _flat_means(where, lam, length, shape)
        return shape.wrap(make(self._request("poisson", (), draw), self._rng.identity, shape.counts, means))

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

    def _request(self, method: str, parameters: tuple[Any, ...], draw: int) -> DrawRequest:
        draw = _whole(f"{self}.{method}", "draw", draw, 0, LOW32)
        return DrawRequest(stream_key(self._rng.seed, self._name, method), method, draw, parameters)

    def _draw(self, method: str, parameters: tuple[Any, ...], like: Any, size: int | None, draw: int) -> Any:
        request = self._request(method, parameters, draw)
        shape = _shape_of(f"{self}.{method}", self._rng.length, like, size)
        return shape.wrap(make_shared(request, self._rng.identity, shape.counts))


# -- shapes: one number per row, a fixed number, or one per object ----------------------------------------


class _Shape(NamedTuple):
    """Numbers per row, and what makes a result of them."""

    counts: int | NDArray[np.int64]
    wrap: Callable[[NDArray[Any]], Any]


def _short(value: object) -> str:
    """Name a value in a message: itself if it is small, else what it is."""
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"


def _whole(where: str, argument: str, value: int, lowest: int, highest: int) -> int:
    """Return an integer argument, if it is one and within its bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise UsageError(f"{where}: {argument} must be an integer from {lowest} to {highest}, but is {_short(value)}")
    return number


def _shape_of(where: str, length: int, like: Any, size: int | None, argument: str = "like") -> _Shape:
    """Return the shape that ``like`` and ``size`` ask for; ``argument`` is what the user calls ``like``."""
    if size is not None:
        if like is not None:
            raise UsageError(f"{where}: give like= or size=, not both")
        width = _whole(where, "size", size, 0, LOW32)
        return _Shape(width, lambda values: values.reshape(length, width))
    if like is None:
        return _Shape(1, lambda values: values)
    depth = _depth(where, argument, like, length)
    if depth == 1:
        return _Shape(1, lambda values: values)
    if isinstance(like, np.ndarray):
        return _Shape(like.shape[1], lambda values: values.reshape(like.shape))
    return _jagged(like)


def _depth(where: str, argument: str, column: Any, length: int) -> int:
    import awkward as ak  # only now: it is slow to import, and most streams do not need it

    if not isinstance(column, (np.ndarray, ak.Array)):
        raise UsageError(f"{where}: {argument} must be a column, but is a {type(column).__name__}")
    depth = column.ndim if isinstance(column, np.ndarray) else column.layout.purelist_depth
    if depth not in (1, 2):
        raise UsageError(
            f"{where}: {argument} must have one number or one list per row, but has {depth} "
            "dimensions; flatten its inner lists first"
        )
    if len(column) != length:
        raise UsageError(
            f"{where}: {argument} has {len(column)} rows, but the step was given {length}; "
            "pass a column of this step's rows"
        )
    return int(depth)


def _jagged(like: Any) -> _Shape:
    import awkward as ak

    missing = ak.to_numpy(ak.is_none(like))
    counts = ak.to_numpy(ak.fill_none(ak.num(like, axis=1), 0)).astype(np.int64)

    def wrap(values: NDArray[Any]) -> Any:
        offsets = ak.index.Index64(np.append(0, np.cumsum(counts)))
        lists = ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(values)))
        return ak.mask(lists, ~missing) if missing.any() else lists

    return _Shape(counts, wrap)


def _flat_means(where: str, column: Any, length: int, shape: _Shape) -> NDArray[np.float64]:
    """Return one mean per number out of one per row or one per object."""
    import awkward as ak

    depth = _depth(where, "lam", column, length)
    counts = np.broadcast_to(shape.counts, length)
    try:
        if isinstance(column, ak.Array):
            own = ak.num(column, axis=1) if depth == 2 else np.ones(length, np.int64)
            own = ak.to_numpy(ak.fill_none(own, 0))
            flat = ak.flatten(column, axis=1) if depth == 2 else column
            column = ak.to_numpy(flat, allow_missing=False)
        else:
            own = np.broadcast_to(column.shape[1] if depth == 2 else 1, length)
        values = np.asarray(column, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: lam must be numbers, none of them missing ({error})") from error
    if depth == 1:
        values = np.repeat(values, counts) if np.any(counts != 1) else values
    elif not np.array_equal(own, counts):
        raise UsageError(f"{where}: lam must have as many objects in each row as numbers are drawn")
    good = (values >= 0.0) & (values <= LARGEST_MEAN)
    if not good.all():
        wrong = values[~good][0]
        raise UsageError(f"{where}: lam must be from 0 to {LARGEST_MEAN:.4g}, but is {wrong} somewhere")
    return np.ascontiguousarray(values)
