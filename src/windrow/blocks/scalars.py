"""The border between columns and the scalars of one row, for ``each=True`` steps.

Numbers cross it as float64, int64, uint64 or bool, whatever their column is stored as, so that a
compiled function and a plain one see the same values. The plain loop is here too: it is what runs
where Numba cannot compile a function. Nothing here may import Numba.

Compiled code mixes signed and unsigned numbers as signed ones, so rows with unsigned numbers beyond those take the
plain loop. Where the two can still differ: Python's integers do not wrap around at 64 bits (a result that does
not fit is an error), Python's ``math`` raises where Numba gives NaN or infinity (``math.log(-1)``),
NumPy reductions may add in another order, and the type of the result is that of the values which
came, not of those which might have come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from windrow.errors import InternalError, StepResultError, UsageError
from windrow.random.each_row.python import RowRng

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.random import Rng

    Column: TypeAlias = "NDArray[Any] | Jagged | Constant"


#: Beyond it an unsigned number is no signed one of 64 bits.
LARGEST_SIGNED = 2**63 - 1


class Jagged(NamedTuple):
    """One list per row: row r has ``content[offsets[r]:offsets[r + 1]]``."""

    offsets: NDArray[Any]
    content: NDArray[Any]


class Constant(NamedTuple):
    """The same value for every row."""

    value: Any


class Unsigned(int):
    """An integer out of a uint64 column; arithmetic makes a plain (signed) one of it."""

    __slots__ = ()


class Slice(np.ndarray[Any, Any]):
    """A row's numbers; its elements are Python's, which divide and overflow like compiled ones."""

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        return _python_scalar(value) if isinstance(value, np.generic) else value

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


def _python_scalar(value: np.generic) -> Any:
    return Unsigned(value) if isinstance(value, np.uint64) else value.item()


def border_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type in which numbers of ``dtype`` reach a function; None: they are no numbers."""
    if dtype.kind == "b":
        return np.dtype(np.bool_)
    if dtype.kind == "u" and dtype.itemsize == 8:
        return np.dtype(np.uint64)
    if dtype.kind in "iu":
        return np.dtype(np.int64)
    return np.dtype(np.float64) if dtype.kind == "f" else None


def constant(value: Any) -> Any:
    """Return a bound value as a function gets it: NumPy's scalars as Python's, arrays converted."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.generic):
        return _python_scalar(value)
    if type(value) is tuple:
        return tuple(constant(element) for element in value)
    if type(value) is np.ndarray and (dtype := border_dtype(value.dtype)) is not None:
        converted = np.ascontiguousarray(value, dtype).view()
        converted.flags.writeable = False
        return converted
    return value


def prepare(step: str, arguments: Sequence[Any], length: int) -> list[Column]:
    """Check whole-block columns and bring them into the one memory layout kernels know."""
    return [_column(step, i, argument, length) for i, argument in enumerate(arguments)]


def _column(step: str, place: int, argument: Any, length: int) -> Column:
    where = f"step {step!r} with each=True, argument {place}"
    if isinstance(argument, np.ndarray) and argument.ndim == 2:
        # A fixed number of values per row is a list of that length.
        offsets = np.arange(argument.shape[0] + 1) * argument.shape[1]
        argument = Jagged(offsets, argument.reshape(-1))
    if isinstance(argument, Jagged):
        offsets = np.ascontiguousarray(argument.offsets, np.int64).view()
        offsets.flags.writeable = False
        content = _numbers(where, argument.content)
        if len(offsets) != length + 1 or offsets[0] < 0 or offsets[-1] > len(content):
            raise InternalError(
                f"{where}: {len(offsets)} offsets from {offsets[:1]} to {offsets[-1:]} "
                f"do not describe {length} lists in {len(content)} values"
            )
        return Jagged(offsets, content)
    if not isinstance(argument, np.ndarray) or argument.ndim == 0:
        return Constant(constant(argument))
    flat = _numbers(where, argument)
    if len(flat) != length:
        raise InternalError(f"{where}: {len(flat)} values for a block of {length} rows")
    return flat


def _numbers(where: str, array: NDArray[Any]) -> NDArray[Any]:
    dtype = border_dtype(array.dtype)
    if dtype is None or array.ndim != 1:
        raise UsageError(
            f"{where} has {array.ndim} dimensions of {array.dtype}, but such steps take one "
            "number, one boolean or one list of them per row; make a column of numbers first"
        )
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(array):
        raise UsageError(f"{where} has missing values: fill them, or leave those rows out before")
    if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
        array = array.astype(dtype)  # half and long double: Numba has no such columns
    native = array.dtype.newbyteorder("=")
    view = np.require(array, native, ["C_CONTIGUOUS", "ALIGNED"]).view(np.ndarray)
    # One memory layout for all columns, so that a function is compiled once per type of number.
    view.flags.writeable = False
    return view


def _scalars(column: Column, rows: NDArray[np.int64]) -> Iterable[Any]:
    if isinstance(column, Constant):
        return repeat(column.value)
    if isinstance(column, Jagged):
        return _slices(column, rows)
    dtype = border_dtype(column.dtype)
    values = column[rows].astype(dtype).tolist()
    return map(Unsigned, values) if dtype == np.uint64 else values


def _slices(column: Jagged, rows: NDArray[np.int64]) -> Iterator[Slice]:
    dtype = border_dtype(column.content.dtype)
    first, last = column.offsets[rows].tolist(), column.offsets[rows + 1].tolist()
    for start, stop in zip(first, last, strict=True):
        # A copy: the function may do with its numbers what it likes, as in the compiled form.
        yield column.content[start:stop].astype(dtype).view(Slice)


def has_large(column: Column, rows: NDArray[np.int64]) -> bool:
    """Say whether rows have unsigned numbers that are no signed ones: compiled code would wrap them around."""
    if isinstance(column, Constant):
        return isinstance(column.value, int) and column.value > LARGEST_SIGNED
    content = column.content if isinstance(column, Jagged) else column
    if content.dtype != np.uint64:
        return False
    numbers = content if isinstance(column, Jagged) else content[rows]
    return bool(len(numbers)) and int(numbers.max()) > LARGEST_SIGNED


def python_loop(
    step: str,
    function: Callable[..., Any],
    parameters: Mapping[str, Any],
    columns: Sequence[Column],
    rows: NDArray[np.int64],
    empty: np.dtype[Any],
    rng: Rng | None = None,
) -> NDArray[Any]:
    """Call a function row by row; ``empty`` is the type of no results, ``rng`` belongs to the rows."""
    iterators = [_scalars(column, rows) for column in columns]
    drawing: dict[str, Any] = {} if rng is None else {"rng": RowRng(rng)}
    values = []
    # Array expressions in compiled functions do not warn, so neither do they here.
    with np.errstate(all="ignore"):
        for number, (_, *numbers) in enumerate(zip(rows, *iterators, strict=False)):
            if drawing:
                drawing["rng"].move(number)
            values.append(function(*numbers, **parameters, **drawing))
    if not values:
        return np.empty(0, empty)
    kinds = {kind: _result_kind(kind) for kind in set(map(type, values))}
    for kind, dtype in kinds.items():
        if dtype is None:
            row = next(i for i, value in enumerate(values) if type(value) is kind)
            raise wrong_result(step, kind.__name__, int(rows[row]))
    dtype = _common({dtype for dtype in kinds.values() if dtype is not None})
    try:
        if dtype == np.int64 and max(values) > LARGEST_SIGNED:
            dtype = np.dtype(np.uint64)
        return np.array(values, dtype)
    except OverflowError as error:
        raise StepResultError(
            f"step {step!r} with each=True returned an integer that does not fit 64 bits: {error}", step=step
        ) from error


def _result_kind(kind: type) -> np.dtype[Any] | None:
    if issubclass(kind, Unsigned):
        return np.dtype(np.uint64)
    if issubclass(kind, (bool, np.bool_)):
        return np.dtype(np.bool_)
    if issubclass(kind, np.generic):
        return border_dtype(np.dtype(kind))
    if issubclass(kind, int):
        return np.dtype(np.int64)
    return np.dtype(np.float64) if issubclass(kind, float) else None


def _common(dtypes: set[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the type all results fit, as Numba unifies the branches of a function."""
    if len(dtypes) == 1:
        return next(iter(dtypes))
    return np.dtype(np.float64 if np.dtype(np.float64) in dtypes else np.int64)


def wrong_result(step: str, what: str, row: SupportsIndex | None = None) -> StepResultError:
    """Return the error for a function that gives something else than a number."""
    place = "" if row is None else f" for row {row} of its block"
    hint = "; does every branch return?" if "None" in what or "none" in what else ""
    return StepResultError(
        f"step {step!r} with each=True must return one number or boolean per row, but returned {what}{place}{hint}",
        step=step,
    )
