"""``rng`` in a step with ``each=True``: the numbers of one row after the other, in plain Python.

This is what runs where Numba cannot compile the step; ``windrow.random.each_row.numba`` is the compiled form.
Both give the numbers of the array form: ``rng("jer").normal(object=i)`` of a row is what
``rng("jer").normal(like=jets)`` gives to its object i.
"""

# ruff: noqa: A002 - users write object=, and it is one

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, TypeAlias

from windrow.errors import UsageError
from windrow.random.arrays.numpy import LARGEST_MEAN, DrawRequest, make_object
from windrow.random.philox import LOW32, stream_key

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from windrow.random.rng import Rng

    Words: TypeAlias = NDArray[np.uint64]


#: Rows whose numbers are made together when one of them asks.
_ROWS = 2_048

_STANDARD: dict[str, tuple[Any, ...]] = {
    "uniform": (0.0, 1.0),
    "normal": (0.0, 1.0),
    "exponential": (1.0,),
    "integers": (-(2**63), 2**63),
}

# What compiled code can say has no values in it, so neither has what plain code says.
WRONG_UNIFORM = "rng(...).uniform needs low < high, both finite"
WRONG_NORMAL = "rng(...).normal needs a finite loc and a finite scale that is not negative"
WRONG_SCALE = "rng(...).exponential needs a finite scale that is not negative"
WRONG_INTEGERS = "rng(...).integers needs low < high, both within 64 bits"
WRONG_MEAN = "rng(...).poisson needs a lam from 0 to 2**50"
WRONG_NUMBER = "rng(...): object and draw must be from 0 to 2**32 - 1"


class RowRng:
    """``rng`` of the row that ``move`` named last."""

    __slots__ = ("_first", "_identity", "_made", "_seed", "_streams", "row")

    def __init__(self, rng: Rng) -> None:
        self._seed = rng.seed
        self._identity = rng.identity
        self._first = 0
        self._made: dict[tuple[str, str, int, int], list[Any]] = {}
        self._streams: dict[str, RowStream] = {}
        self.row = 0

    def move(self, row: int) -> None:
        """Go to another row, by its number among those of the step."""
        self.row = row
        if not self._first <= row < self._first + _ROWS:
            self._first = row
            self._made.clear()

    def __call__(self, name: str) -> RowStream:
        if name not in self._streams:
            if not isinstance(name, str):
                raise UsageError(f'a random stream has a name, as in rng("jer"), but got {name!r}')
            self._streams[name] = RowStream(self, name)
        return self._streams[name]

    def standard(self, name: str, method: str, index: int, draw: int) -> Any:
        """Return the row's standard number: of the unit interval, of scale 1, of all 64 bits."""
        key = (name, method, index, draw)
        if key not in self._made:
            # Its neighbours will most likely ask for the same, and one costs as much as hundreds.
            rows = self._identity[self._first : self._first + _ROWS]
            self._made[key] = self._numbers(rows, key, _STANDARD[method]).tolist()
        return self._made[key][self.row - self._first]

    def poisson(self, name: str, mean: float, index: int, draw: int) -> int:
        """Return a Poisson number of the row; its neighbours may have other means."""
        row = self._identity[self.row : self.row + 1]
        return int(self._numbers(row, (name, "poisson", index, draw), (mean,))[0])

    def _numbers(self, rows: Words, key: tuple[str, str, int, int], parameters: tuple[Any, ...]) -> NDArray[Any]:
        name, method, index, draw = key
        if not (0 <= operator.index(index) <= LOW32 and 0 <= operator.index(draw) <= LOW32):
            raise UsageError(WRONG_NUMBER)
        request = DrawRequest(stream_key(self._seed, name, method), method, draw, parameters)
        return make_object(request, rows, index)


class RowStream:
    """Numbers of one name for one row: the methods of ``windrow.random.Stream``."""

    __slots__ = ("_name", "_rng")

    def __init__(self, rng: RowRng, name: str) -> None:
        self._rng = rng
        self._name = name

    def uniform(self, low: float = 0.0, high: float = 1.0, object: int = 0, draw: int = 0) -> float:
        if not (low < high and math.isfinite(high - low)):
            raise UsageError(WRONG_UNIFORM)
        value: float = self._rng.standard(self._name, "uniform", object, draw)
        if low == 0.0 and high == 1.0:
            return value
        return min(value * (high - low) + low, math.nextafter(high, low))

    def normal(self, loc: float = 0.0, scale: float = 1.0, object: int = 0, draw: int = 0) -> float:
        if not (math.isfinite(loc) and math.isfinite(scale) and scale >= 0.0):
            raise UsageError(WRONG_NORMAL)
        value: float = self._rng.standard(self._name, "normal", object, draw)
        return value if loc == 0.0 and scale == 1.0 else value * scale + loc

    def exponential(self, scale: float = 1.0, object: int = 0, draw: int = 0) -> float:
        if not (math.isfinite(scale) and scale >= 0.0):
            raise UsageError(WRONG_SCALE)
        value: float = self._rng.standard(self._name, "exponential", object, draw)
        return value * scale

    def integers(self, low: int, high: int | None = None, object: int = 0, draw: int = 0) -> int:
        start, stop = (0, low) if high is None else (low, high)
        if not -(2**63) <= operator.index(start) < operator.index(stop) <= 2**63:
            raise UsageError(WRONG_INTEGERS)
        word: int = self._rng.standard(self._name, "integers", object, draw) + 2**63
        return (word * (stop - start) >> 64) + start

    def poisson(self, lam: float, object: int = 0, draw: int = 0) -> int:
        if not 0.0 <= lam <= LARGEST_MEAN:
            raise UsageError(WRONG_MEAN)
        return self._rng.poisson(self._name, float(lam), object, draw)
