"""The body of a loop: what it is called with, whether it lets go of the interpreter's lock, and its rows if it raises."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from windrow.errors import TaskError, UsageError, error_text
from windrow.loops.dependence import refuse_dependent
from windrow.loops.row_blocks import block

#: What is called with a first row and the one behind the last.
RangeFunction = Callable[[int, int], Any]

#: By compiled function, as it was given: that which lets go of the lock, and for which kinds of arguments it was compiled last
#: (asking Numba takes longer than a short loop).
_unlocked: WeakKeyDictionary[Any, tuple[Any, tuple[Any, ...]]] = WeakKeyDictionary()


class Kernel(NamedTuple):
    """A loop's body."""

    name: str
    call: RangeFunction
    releases: bool = False  #: known to let go of the interpreter's lock
    #: gives a function and its arguments that do the same in another process, for ranges of rows; None: it cannot be done there
    send: Callable[[Any, Sequence[tuple[int, int]]], tuple[Any, ...]] | None = None
    shared: Any = None  #: what all ranges need: sent to other processes once, and given to ``send``


class RowFailed(Exception):
    """A row at which a function of one row raised; the cause is what it raised."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def make_kernel(function: Any, arguments: tuple[Any, ...] = (), *, keep: bool = False) -> Kernel:
    """Look at a function ``(row, ...)`` or ``(start, stop, ...)``, of Python or compiled by Numba; ``keep``: what it returns is wanted."""
    if not callable(function):
        raise UsageError(f"the kernel of a loop is a function (start, stop) or (row), got {type(function).__name__}")
    name = getattr(function, "__name__", type(function).__name__)
    plain = getattr(function, "py_func", function)
    rows = _count_rows(name, plain, len(arguments))
    refuse_dependent(name, plain, rows)
    if rows == 1 and keep:
        raise UsageError(
            f"with reduce= a kernel gets the rows (start, stop) and returns what they give; {name} takes one row"
        )
    compiled = plain is not function and hasattr(function, "targetoptions")
    if compiled:
        called = _compiled(function, rows, arguments)
    else:
        called = function if rows == 2 else _each(function)
    call = (lambda start, stop: called(start, stop, *arguments)) if arguments else called
    send = (lambda _, ranges: (_call_ranges, function, ranges, arguments)) if keep else None
    return Kernel(name, call, compiled, send)


def block_kernel(function: Callable[[Any], Any], array: Any) -> Kernel:
    """Make a loop's body of a function of blocks of an array."""
    name = getattr(function, "__name__", type(function).__name__)

    def send(shared: Any, ranges: Sequence[tuple[int, int]]) -> tuple[Any, ...]:
        return _call_blocks, function, [block(shared, *one) for one in ranges]

    return Kernel(name, lambda start, stop: function(block(array, start, stop)), send=send, shared=array)


def _call_ranges(kernel: Callable[..., Any], ranges: Sequence[tuple[int, int]], args: tuple[Any, ...]) -> list[Any]:
    return [kernel(start, stop, *args) for start, stop in ranges]


def _call_blocks(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    return [function(one) for one in blocks]


@lru_cache(64)
def _count_rows(name: str, function: Any, others: int) -> int:
    """Count the arguments that a kernel has for rows: one for a row, two for a range of them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C
        return 2
    if any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values()):
        return 2
    for rows in (1, 2):
        with suppress(TypeError):
            signature.bind(*range(rows + others))
            return rows
    more = f" and the {others} of args=" if others else ""
    raise UsageError(
        f"a kernel takes a row, or a first row and the one behind the last{more}; {name} takes {len(signature.parameters)} arguments"
    )


def _each(function: Callable[..., Any]) -> Callable[..., None]:
    def call(start: int, stop: int, *arguments: Any) -> None:
        for row in range(start, stop):
            try:
                function(row, *arguments)
            except Exception as error:
                raise RowFailed(row) from error

    return call


def _compiled(function: Any, rows: int, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Make a function that lets go of the lock of one that Numba compiles, and compile it before any thread calls it."""
    import numba

    kinds = tuple(map(_kind, arguments))
    made, known = _unlocked.get(function) or (_unlock(function, rows), None)
    if known != kinds:
        types = (numba.int64, numba.int64, *map(numba.typeof, arguments))
        made.compile(types if rows == 2 else (*types[:2], numba.types.StarArgTuple(types[2:])))
        _unlocked[function] = made, kinds
    called: Callable[..., Any] = made
    return called


def _unlock(function: Any, rows: int) -> Any:
    import numba

    made = function
    if not function.targetoptions.get("nogil"):
        made = numba.jit(**{**function.targetoptions, "nogil": True})(function.py_func)
    if rows == 2:
        return made

    def each(start: int, stop: int, *arguments: Any) -> None:
        for row in range(start, stop):
            made(row, *arguments)

    return numba.njit(nogil=True)(each)


def _kind(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    return type(argument)


def failure_of(name: str, start: int, stop: int, error: BaseException) -> TaskError:
    """Say at which rows a kernel raised."""
    where = f"rows {start} to {stop - 1}" if stop > start + 1 else f"row {start}"
    cause = error
    if isinstance(error, RowFailed) and error.__cause__ is not None:
        where, cause = f"row {error.row}", error.__cause__
        start, stop = error.row, error.row + 1
    made = TaskError(
        f"{name} raised {type(cause).__name__} at {where}: {error_text(cause)}; other chunks that were under way were finished, "
        "and no rows were run twice",
        start=start,
        stop=stop,
    )
    made.__cause__ = cause
    return made
