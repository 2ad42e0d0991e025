"""What a step sees: ``rng("name")`` is a stream of numbers for the step's rows."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from windrow.errors import UsageError
from windrow.random.ahead import make_shared
from windrow.random.entries import Entries, drawn_from
from windrow.random.generator import stream_key
from windrow.random.making import Wish, make
from windrow.random.poisson import LARGEST_MEAN
from windrow.random.shapes import LOW32, flat_means, shape_of, short, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from windrow.random.ahead import Block

    Words: TypeAlias = NDArray[np.uint64]


class Rng:
    """What a step's ``rng`` is: ``rng("name")`` is a stream of numbers for the step's rows."""

    __slots__ = ("_block", "_identity", "length", "seed")

    def __init__(
        self,
        seed: int,
        identity: Words | Entries | Callable[[], Words | Entries],
        length: int,
        block: Block | None = None,
    ) -> None:
        self.seed = operator.index(seed)
        self.length = length
        self._identity = identity
        self._block = block  #: of many, where the next one's numbers may be made ahead

    def __call__(self, name: str) -> Stream:
        """Return the stream of this name: the same numbers wherever it is asked for."""
        if not isinstance(name, str):
            raise UsageError(f'a random stream has a name, as in rng("jer"), but got {name!r}')
        return Stream(self, name)

    @property
    def identity(self) -> Words:
        """The 64-bit identities of the rows; loaded when a number is first drawn."""
        rows = self._rows()
        return rows.words() if isinstance(rows, Entries) else rows

    def _rows(self) -> Words | Entries:
        identity = self._identity() if callable(self._identity) else self._identity
        if isinstance(identity, Entries):
            if len(identity) != self.length:
                raise UsageError(f"an rng of {self.length} rows has {len(identity)} entries")
        elif identity.dtype != np.uint64 or identity.shape != (self.length,):
            raise UsageError(
                f"row identities must be {self.length} numbers of uint64, "
                f"but are {identity.dtype} of shape {identity.shape}"
            )
        self._identity = identity
        return identity

    def numbers(self, wish: Wish, counts: int | NDArray[np.int64]) -> NDArray[Any]:
        """Return numbers for the rows; those of a regular block may have been made ahead."""
        if self._block is not None and isinstance(counts, int):
            return self._block.numbers(wish, counts)
        rows = drawn_from(self._rows(), wish.method, counts, self.length)
        return make_shared(wish, rows, counts)


class Stream:
    """Numbers of one name. All methods share three arguments.

    ``like``: a flat column gives one number per row (as does None); a jagged one gives one per
    object in the same shape, keyed by the object's index in its row. ``size``: that many numbers
    per row, as a regular two-dimensional array. ``draw``: asking twice gives the same numbers
    twice; another draw (0, 1, 2, ...) gives new ones. Different methods of one name are
    independent; the number of a row without ``like`` is that of its object 0.

    In a step with ``each=True`` the methods give one number of the row; there, ``object`` takes the
    place of ``like`` and ``size``: the number of object i is the one the others give it.
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
        start = whole(where, "low", bounds[0], -(2**63), 2**63 - 1)
        stop = whole(where, "high", bounds[1], start + 1, 2**63)
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
            shape = shape_of(where, length, lam, None, "lam")
        else:
            shape = shape_of(where, length, like, size)
        means = flat_means(where, lam, length, shape, LARGEST_MEAN)
        wish = self._wish("poisson", (), draw)
        return shape.wrap(make(wish, self._rng.identity, shape.counts, means))

    def __repr__(self) -> str:
        return f"rng({self._name!r})"

    def _number(self, argument: str, value: float) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(
                f"{self}: {argument} must be one finite number, but is {short(value)}; for one "
                "per row or object draw standard numbers with like= and scale or shift those"
            )
        return number

    def _positive(self, argument: str, value: float) -> float:
        number = self._number(argument, value)
        if number < 0.0:
            raise UsageError(f"{self}: {argument} must not be negative, but is {number}")
        return number

    def _wish(self, method: str, parameters: tuple[Any, ...], draw: int) -> Wish:
        draw = whole(f"{self}.{method}", "draw", draw, 0, LOW32)
        return Wish(stream_key(self._rng.seed, self._name, method), method, draw, parameters)

    def _draw(self, method: str, parameters: tuple[Any, ...], like: Any, size: int | None, draw: int) -> Any:
        wish = self._wish(method, parameters, draw)
        shape = shape_of(f"{self}.{method}", self._rng.length, like, size)
        return shape.wrap(self._rng.numbers(wish, shape.counts))
