"""The body of a loop: what it is called with, whether it lets go of the interpreter's lock, and at which rows it raises."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from windrow.errors import UsageError
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
    releases: bool  #: known to let go of the interpreter's lock
    function: Callable[..., Any]  #: as users gave it, for other processes
    #: gives the arguments of the function for some rows, of ``shared``; None: what it does in another process is lost
    send: Callable[[Any, int, int], tuple[Any, ...]] | None
    shared: Any = None  #: what all rows need: it is sent to other processes once


class Failed(Exception):
    """Rows at which a kernel raised, the first and the one behind the last; the cause is what it raised."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__(start, stop)
        self.start, self.stop = start, stop


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
    send = (lambda _, start, stop: (start, stop, *arguments)) if keep else None
    return Kernel(name, call, compiled, function, send)


def block_kernel(function: Callable[[Any], Any], array: Any) -> Kernel:
    """Make a loop's body of a function of blocks of an array."""
    name = getattr(function, "__name__", type(function).__name__)
    call = lambda start, stop: function(block(array, start, stop))  # noqa: E731
    return Kernel(name, call, False, function, lambda shared, *rows: (block(shared, *rows),), array)


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
                raise Failed(row, row + 1) from error

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
