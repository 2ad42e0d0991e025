"""``each=True`` steps: a function of the scalars of one row, compiled over the rows of a selection.

A kernel takes whole-block columns and a selection vector and gathers inside the loop, so that a
late step on few survivors touches only their numbers, and reordering never recompiles. Functions
Numba cannot compile run as a plain Python loop over the same scalars. What a function reads from
closures and globals is fixed when it is compiled. A function that asks for ``*, rng`` gets the random
numbers of its row. Importing this module must not import Numba.
"""

from __future__ import annotations

import inspect
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from windrow.blocks.scalars import (
    Constant,
    Jagged,
    Unsigned,
    border_dtype,
    constant,
    has_large,
    prepare,
    python_loop,
    wrong_result,
)
from windrow.errors import DefinitionError, InternalError, nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.random import Rng

    Column: TypeAlias = NDArray[Any] | Jagged | Constant


#: Compiling changes the process's warning filters for a moment: one kernel at a time.
_COMPILING = threading.Lock()
#: Room for the numbers of one list; grows where a row has more. Few collections have more.
_FIRST_ROOM = 16
#: Numba unrolls tuples, so long ones would compile for minutes.
_LONGEST_TUPLE = 64
#: Python's rules: division by zero and indices out of range raise, nothing is reassociated.
_OPTIONS = {"nogil": True, "error_model": "python", "boundscheck": True}


class _Compiled(NamedTuple):
    run: Callable[..., int]  #: fills its first argument; the row for which None came, or -1
    dtype: np.dtype[Any]


class EachKernel:
    """One step's function over rows; threads may share it."""

    #: None until the first call; False as soon as one combination of column types is not compiled.
    compiled: bool | None
    #: Why it is not compiled.
    reason: str

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Mapping[str, object],
        *,
        name: str | None = None,
        kind: str = "column",
        use_numba: bool = True,
    ) -> None:
        # A function the user compiled himself is compiled again, by the rules of steps.
        self.function: Callable[..., Any] = getattr(function, "py_func", function)
        self.name = str(name or getattr(self.function, "__name__", repr(function)))
        self.kind = kind
        self.use_numba = use_numba
        self.compiled, self.reason = None, ""
        self.parameters = _bound(self.name, self.function, parameters)
        names = _keyword_names(self.function)
        #: Where ``rng`` stands among the keyword-only arguments; None: the function draws no numbers.
        self.rng_place = names.index("rng") if "rng" in names else None
        self._variants: dict[tuple[Any, ...], _Compiled | None] = {}
        self._jitted: Any = None

    def __reduce__(self) -> Any:
        # Compiled code stays behind: it belongs to one process.
        make = partial(EachKernel, name=self.name, kind=self.kind, use_numba=self.use_numba)
        return make, (self.function, self.parameters)

    def __call__(
        self, args: Sequence[Any], rows: NDArray[np.int64] | None, length: int, rng: Rng | None = None
    ) -> NDArray[Any]:
        """Return one value per row of ``rows`` (None: all rows) of whole-block columns; ``rng`` is theirs."""
        columns = prepare(self.name, args, length)
        chosen = self._rows(rows, length)
        compiled = self._variant(columns)
        if compiled is None:
            empty = np.dtype(np.bool_ if self.kind == "cut" else np.float64)
            return python_loop(self.name, self.function, self.parameters, columns, chosen, empty, rng)
        if any(has_large(column, chosen) for column in (*columns, *map(Constant, self.parameters.values()))):
            found = python_loop(self.name, self.function, self.parameters, columns, chosen, compiled.dtype, rng)
            return _as_type(found, compiled.dtype)
        out = np.empty(len(chosen), compiled.dtype)
        values = [_compilable(value) for value in self.parameters.values()]
        drawing = [] if self.rng_place is None else self._drawing(rng, len(chosen))
        missing = compiled.run(out, chosen, *_flattened(columns), *values, *drawing)
        if missing >= 0:
            raise wrong_result(self.name, "None", missing)
        return out

    def compile_for(self, args: Sequence[Any], length: int) -> None:
        """Compile for columns of these types now, so that the next call costs what every call costs."""
        self._variant(prepare(self.name, args, length))

    def _rows(self, rows: NDArray[np.int64] | None, length: int) -> NDArray[np.int64]:
        # All rows are a selection too: cheaper than compiling everything a second time.
        chosen = np.arange(length) if rows is None else np.ascontiguousarray(rows, np.int64).view()
        if rows is not None and len(chosen) and not 0 <= chosen.min() <= chosen.max() < length:
            raise InternalError(f"step {self.name!r}: rows {chosen.min()} to {chosen.max()} of a block of {length}")
        chosen.flags.writeable = False
        return chosen

    def _drawing(self, rng: Rng | None, rows: int) -> list[Any]:
        """Return what compiled code makes random numbers of: identities of the rows, and keys."""
        from windrow.random.each_row.numba import table

        if rng is None or rng.length != rows:
            raise InternalError(f"step {self.name!r} draws numbers for {rows} rows, but has {rng!r}")
        # Not writeable, as all arrays here: a compiled loop is for one kind of array.
        identity = np.ascontiguousarray(rng.identity).view()
        identity.flags.writeable = False
        return [identity, table(rng.seed)]

    def _variant(self, columns: Sequence[Column]) -> _Compiled | None:
        key = tuple(_key(column) for column in columns)
        if key not in self._variants:
            with _COMPILING:
                if key not in self._variants:
                    self._variants[key] = self._compile(columns)
        return self._variants[key]

    def _compile(self, columns: Sequence[Column]) -> _Compiled | None:
        """Compile for columns of these types; None if that cannot be done, with the reason."""
        try:
            if not self.use_numba:
                raise TypeError("plain Python was asked for")  # noqa: TRY301
            from numba.core.errors import NumbaWarning

            with warnings.catch_warnings():
                # They tell Numba's own users how to write faster code, or of its future.
                warnings.simplefilter("ignore", NumbaWarning)
                result = self._jit(columns)
                parameters = list(self.parameters.values())
                compiled = _loop(self._jitted, columns, parameters, self.rng_place, result)
        except Exception as error:  # noqa: BLE001
            # Nothing of the user's has run yet, so whatever was raised only says that Numba cannot
            # compile this (or is not there at all); the plain loop takes over and the reason stays.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            self.compiled, self.reason = False, f"{type(error).__name__}: {' '.join(lines)[:300]}"
            return None
        if compiled is None:
            raise wrong_result(self.name, f"a {result}")
        self.compiled = self.compiled is not False
        return compiled

    def _jit(self, columns: Sequence[Column]) -> Any:
        """Compile the function itself for one row's scalars; returns Numba's type of its result."""
        import numba

        if self._jitted is None:
            self._jitted = numba.njit(**_OPTIONS)(_positional(self.function))
        types_of_row = [_row_type(column) for column in columns]
        types_of_row += [numba.typeof(_compilable(value)) for value in self.parameters.values()]
        if self.rng_place is not None:
            from windrow.random.each_row.numba import RNG

            types_of_row.insert(len(columns) + self.rng_place, RNG)
        signature = tuple(types_of_row)
        self._jitted.compile(signature)
        result = self._jitted.overloads[signature].signature.return_type
        return numba.types.unliteral(result)


def _as_type(found: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert numbers to the type that other rows have, unless one of them would be another number then."""
    exact = dtype.kind != "f" or found.dtype.kind not in "iu" or int(found.max()) <= 2**53
    same = found.astype(dtype)
    return same if exact and np.array_equal(same, found, equal_nan=True) else found


def _bound(step: str, function: Callable[..., Any], parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return the values of all keyword-only arguments, in the order of the function."""
    given = {key: constant(value) for key, value in parameters.items()}
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARKEYWORDS:
        return given
    names = [name for name in _keyword_names(function) if name != "rng"]
    defaults = getattr(function, "__kwdefaults__", None) or {}
    for key in given:
        if key not in names:
            raise DefinitionError(
                f"step {step!r} has no parameter {key!r} (it has {', '.join(names) or 'none'})" + nearest(key, names)
            )
    for key in names:
        if key not in given and key not in defaults:
            raise DefinitionError(f"step {step!r}: parameter {key!r} has neither value nor default")
    return {key: given[key] if key in given else constant(defaults[key]) for key in names}


def _keyword_names(function: Callable[..., Any]) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    if code is None:
        return ()
    names: tuple[str, ...] = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    return names


def _positional(function: Callable[..., Any]) -> types.FunctionType:
    """Return the function with its keyword-only arguments as the last positional ones."""
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"a {type(function).__name__} is not a plain function")
    code = function.__code__
    if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        raise TypeError("it takes *args or **kwargs, for instance because of a decorator")
    # Their local variables follow those of the positional arguments already, so only the counts
    # change. Defaults are not needed: every argument is always given.
    code = code.replace(co_argcount=code.co_argcount + code.co_kwonlyargcount, co_kwonlyargcount=0)
    return types.FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)


def _compilable(value: Any) -> Any:
    """Return a constant in the form Numba takes without reflecting changes back."""
    if isinstance(value, Unsigned):
        return np.uint64(value)
    if isinstance(value, set | frozenset | dict):
        raise TypeError(f"Numba has no constant {type(value).__name__}")
    if type(value) in (list, tuple):
        if len(value) > _LONGEST_TUPLE:
            raise TypeError(f"{len(value)} values in a {type(value).__name__}: use a NumPy array")
        return tuple(_compilable(constant(element)) for element in value)
    return value


def _key(column: Column) -> Any:
    """Return what of a column decides the code that is compiled for it."""
    if isinstance(column, Constant):
        return _constant_key(column.value)
    return (type(column), column.content.dtype if isinstance(column, Jagged) else column.dtype)


def _constant_key(value: Any) -> Any:
    if type(value) in (list, tuple):
        return tuple(_constant_key(element) for element in value)
    if isinstance(value, np.ndarray):
        return (value.dtype, value.ndim)
    return (type(value), isinstance(value, int) and not -(2**63) <= value < 2**63)


def _border(dtype: np.dtype[Any]) -> Any:
    import numba

    return numba.from_dtype(border_dtype(dtype))


def _row_type(column: Column) -> Any:
    """Return Numba's type of what one row gives to the function."""
    import numba

    if isinstance(column, Constant):
        return numba.typeof(_compilable(column.value))
    if isinstance(column, Jagged):
        return numba.types.Array(_border(column.content.dtype), 1, "C")
    return _border(column.dtype)


def _flattened(columns: Sequence[Column]) -> list[Any]:
    """Return the arguments of a compiled loop that stand for the columns."""
    values: list[Any] = []
    for column in columns:
        if isinstance(column, Jagged):
            values += [column.offsets, column.content]
        else:
            values.append(_compilable(column.value) if isinstance(column, Constant) else column)
    return values


def _result_dtype(result: Any) -> np.dtype[Any] | None:
    """Return the type of the column made of results; None if they are not numbers."""
    from numba import types as nb

    if isinstance(result, nb.Optional):
        return _result_dtype(nb.unliteral(result.type))
    if isinstance(result, nb.Boolean | nb.Integer | nb.Float):
        return border_dtype(np.dtype(str(result)))
    return None


def _loop(
    jitted: Any, columns: Sequence[Column], parameters: Sequence[Any], rng_place: int | None, result: Any
) -> _Compiled | None:
    """Compile the loop over rows around a compiled function; None if its results are no numbers."""
    import numba

    dtype = _result_dtype(result)
    if dtype is None:
        return None
    source, names = _loop_source(columns, len(parameters), rng_place)
    namespace: dict[str, Any] = {"function": jitted, "empty": np.empty, **names}
    # Numba needs one argument per column, and their number is known only now; the text is made of
    # nothing but counters.
    exec(compile(source, "<rows of a step>", "exec"), namespace)  # noqa: S102
    run = numba.njit(**_OPTIONS)(namespace["run"])
    out, rows = np.empty(0, dtype), np.empty(0, np.int64)
    rows.flags.writeable = False
    values = [*_flattened(columns), *map(_compilable, parameters)]
    if rng_place is not None:
        identity = np.empty(0, np.uint64)
        identity.flags.writeable = False
        values += [identity, np.empty(0, np.uint64)]
    run.compile(tuple(numba.typeof(value) for value in (out, rows, *values)))
    return _Compiled(run, dtype)


def _loop_source(columns: Sequence[Column], parameters: int, rng_place: int | None) -> tuple[str, dict[str, Any]]:
    """Return the text of a loop over rows and the names it needs."""
    names: dict[str, Any] = {}
    head: list[str] = []
    body: list[str] = []
    arguments: list[str] = []
    call: list[str] = []
    for i, column in enumerate(columns):
        if isinstance(column, Constant):
            arguments.append(f"c{i}")
            call.append(f"c{i}")
        elif isinstance(column, Jagged):
            # Numbers are converted row by row into room that is used again: a block's whole
            # content would be too much for a few survivors, and an array per row too slow. The
            # function may change its numbers without anybody noticing.
            names[f"type{i}"] = border_dtype(column.content.dtype).type  # type: ignore[union-attr]
            arguments += [f"o{i}", f"c{i}"]
            head.append(f"room{i} = empty({_FIRST_ROOM}, type{i})")
            body += [
                f"first{i} = o{i}[row]",
                f"count{i} = o{i}[row + 1] - first{i}",
                f"if count{i} > room{i}.size:",
                f"    room{i} = empty(2 * count{i}, type{i})",
                f"for k in range(count{i}):",
                f"    room{i}[k] = c{i}[first{i} + k]",
            ]
            call.append(f"room{i}[:count{i}]")
        else:
            names[f"type{i}"] = _border(column.dtype)
            arguments.append(f"c{i}")
            call.append(f"type{i}(c{i}[row])")
    bound = [f"p{i}" for i in range(parameters)]
    arguments += bound
    if rng_place is not None:
        from windrow.random.each_row.numba import row_rng

        names["row_rng"] = row_rng
        arguments += ["identity", "keys"]
        bound.insert(rng_place, "row_rng(identity[i], keys)")
    lines = [
        f"def run({', '.join(['out', 'rows', *arguments])}):",
        *(f"    {line}" for line in head),
        "    for i in range(rows.size):",
        "        row = rows[i]",
        *(f"        {line}" for line in body),
        f"        value = function({', '.join([*call, *bound])})",
        "        if value is None:",
        "            return row",
        "        out[i] = value",
        "    return -1",
    ]
    return "\n".join(lines), names
