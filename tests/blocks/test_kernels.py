"""each=True kernels: the same bits compiled and plain, on any column type and selection."""

from __future__ import annotations

import functools
import math
import pickle
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples, few_by_day
from windrow.blocks.kernels import EachKernel
from windrow.blocks.scalars import Jagged
from windrow.errors import DefinitionError, InternalError, StepResultError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]


def run(
    function: Callable[..., Any],
    args: list[Any],
    rows: Array | None = None,
    length: int | None = None,
    **parameters: Any,
) -> Array:
    """Run a function both ways, check that they agree, and return the result."""
    if length is None:
        length = len(args[0].offsets) - 1 if isinstance(args[0], Jagged) else len(args[0])
    compiled = EachKernel(function, parameters)
    fast = compiled(args, rows, length)
    assert compiled.compiled is True, compiled.reason
    slow = EachKernel(function, parameters, use_numba=False)(args, rows, length)
    assert_same(fast, slow)
    return fast


def assert_same(fast: Array, slow: Array) -> None:
    assert len(fast) == len(slow)
    if len(fast) == 0:
        return  # the plain loop cannot know the type of no results
    assert fast.dtype == slow.dtype
    # Which of two NaNs a sum keeps is left open by IEEE 754: all NaNs are one here.
    bits = [np.where(x != x, x.dtype.type(math.nan), x) if x.dtype.kind == "f" else x for x in (fast, slow)]
    assert bits[0].tobytes() == bits[1].tobytes()


def jagged(lists: list[list[Any]], dtype: Any) -> Jagged:
    offsets = np.cumsum([0, *map(len, lists)])
    return Jagged(offsets, np.array([x for part in lists for x in part], dtype))


# -- compiled == plain ---------------------------------------------------------------------------


def floats(x: float, y: float, *, factor: float = 1.1) -> float:
    if x > y:
        return (x * factor - y) * x
    return x * x + y * factor


def integers(x: int, y: int) -> int:
    return (x - y) * 3 + x


def mixed(x: float, n: int, flag: bool) -> float:
    return x * n if flag else x + n / 4


def divide(x: float, y: float) -> float:
    return x / y if y != 0 else -1.0


def same(x: Any) -> Any:
    return x


def above(x: float, *, low: float = 2.0) -> bool:
    return x > low


def total(pt: Array, eta: Array, x: float) -> float:
    result = 0.0
    for k in range(len(pt)):
        if abs(eta[k]) < 2.4:
            result += pt[k] * x - pt[k] / 3.0
    return result


def count(n: Array) -> int:
    result = 0
    for value in n:
        if value > 1:
            result += 1
    return result


FLOATS = [np.float32, np.float64, np.float16, np.longdouble]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32]
VALUES = st.floats(width=16) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e-5])


@functools.cache
def pair(function: Callable[..., Any]) -> tuple[EachKernel, EachKernel]:
    # Kept over the examples of a property, so that each combination is compiled once.
    return EachKernel(function, {}), EachKernel(function, {}, use_numba=False)


def agree(function: Callable[..., Any], args: list[Any], rows: Array | None, length: int) -> Array:
    fast, slow = (kernel(args, rows, length) for kernel in pair(function))
    assert pair(function)[0].compiled is True, pair(function)[0].reason
    assert_same(fast, slow)
    return fast


@st.composite
def selections(draw: st.DrawFn, length: int) -> Array | None:
    if draw(st.booleans()):
        return None
    chosen = draw(st.lists(st.integers(0, length - 1), max_size=length)) if length else []
    return np.array(chosen, np.int64)


@pytest.mark.slow
@given(data=st.data(), values=st.lists(st.tuples(VALUES, VALUES), max_size=12))
@settings(max_examples=examples(60))
def test_flat_floats_agree(data: st.DataObject, values: list[tuple[float, float]]) -> None:
    dtype = data.draw(st.sampled_from(FLOATS))
    x = np.array([v[0] for v in values], dtype)
    y = np.array([v[1] for v in values])
    rows = data.draw(selections(len(values)))
    for function in (floats, divide):
        got = agree(function, [x, y], rows, len(values))
        assert got.dtype == np.float64
        assert len(got) == (len(values) if rows is None else len(rows))


@pytest.mark.slow
@given(data=st.data(), dtype=st.sampled_from(INTEGERS))
@settings(max_examples=examples(60))
def test_flat_integers_agree(data: st.DataObject, dtype: Any) -> None:
    info = np.iinfo(dtype)
    # Sixty bits, so that nothing overflows: there Python and machines part.
    limits = st.integers(max(int(info.min), -(2**58)), min(int(info.max), 2**58))
    values = data.draw(st.lists(limits, max_size=12))
    x = np.array(values, dtype)
    rows = data.draw(selections(len(values)))
    got = agree(integers, [x, x[::-1]], rows, len(values))
    assert got.dtype == np.int64
    agree(mixed, [x.astype(np.float32), x.astype(np.int64), x > 3], rows, len(values))


@pytest.mark.slow
@given(data=st.data(), dtype=st.sampled_from([np.float32, np.float64, np.int16, np.uint64]))
@settings(max_examples=examples(60))
def test_jagged_columns_agree(data: st.DataObject, dtype: Any) -> None:
    value: Any = VALUES if np.dtype(dtype).kind == "f" else st.integers(0, 1000)
    lists = data.draw(st.lists(st.lists(value, max_size=25), max_size=8))
    column = jagged(lists, dtype)
    eta = Jagged(column.offsets.astype(np.uint32), np.cos(np.arange(len(column.content))) * 4)
    x = np.linspace(0, 1, len(lists), dtype=np.float32)
    rows = data.draw(selections(len(lists)))
    if np.dtype(dtype).kind == "f":
        agree(total, [column, eta, x], rows, len(lists))
    else:
        agree(count, [column], rows, len(lists))


@pytest.mark.slow
def test_types_of_results() -> None:
    big = np.array([0, 2**63, 2**64 - 1], np.uint64)
    assert run(same, [big]).tolist() == [0, 2**63, 2**64 - 1]
    assert run(same, [big]).dtype == np.uint64
    assert run(same, [np.array([True, False])]).dtype == np.bool_
    assert run(same, [np.array([1.5, 2.5], np.float32)]).dtype == np.float64
    assert run(above, [np.array([1, 3], np.int8)]).tolist() == [False, True]
    assert run(lambda x: x + 1, [big[:1]]).dtype == np.int64
    assert run(lambda x: x > 5, [big]).tolist() == [False, True, True]
    assert run(lambda x: 1 if x > 0 else 0.5, [np.array([1.0, -1.0])]).tolist() == [1.0, 0.5]
    assert run(lambda x: True if x > 1 else 2, [np.array([2, 0])]).tolist() == [1, 2]
    assert run(lambda n: n[0], [jagged([[2**64 - 1]], np.uint64)]).tolist() == [2**64 - 1]
    assert run(lambda n: n[0], [jagged([[True]], np.bool_)]).dtype == np.bool_
    assert run(lambda x: 7, [np.zeros(2)]).tolist() == [7, 7]


def test_float32_arrives_as_float64() -> None:
    x = np.array([0.1], np.float32)
    wide = float(x[0]) * 0.1
    assert run(lambda x: x * 0.1, [x]).tolist() == [wide]
    assert run(lambda x: x[0] * 0.1, [jagged([[0.1]], np.float32)]).tolist() == [wide]


def test_small_integers_do_not_overflow() -> None:
    assert run(lambda x: x * x, [np.array([100], np.int8)]).tolist() == [10_000]
    assert run(lambda x: x[0] - x[1], [jagged([[1, 2]], np.uint8)]).tolist() == [-1]


def test_rows_are_gathered_inside() -> None:
    column = jagged([[1.0], [], [2.0, 3.0], [4.0]], np.float32)
    flat = np.array([10, 20, 30, 40], np.int16)

    def size_and_value(pt: Array, x: int) -> int:
        return len(pt) * 1000 + x

    got = run(size_and_value, [column, flat], np.array([3, 2, 2, 0], np.int64), 4)
    assert got.tolist() == [1040, 2030, 2030, 1010]
    assert run(size_and_value, [column, flat]).tolist() == [1010, 20, 2030, 1040]
    every_other = np.arange(4)[::2]
    assert run(size_and_value, [column, flat], every_other, 4).tolist() == [1010, 2030]


def test_no_rows() -> None:
    none = np.empty(0, np.int64)
    x = np.array([1.0, 2.0])
    assert EachKernel(above, {})([x], none, 2).dtype == np.bool_
    assert EachKernel(floats, {})([x[:0], x[:0]], None, 0).dtype == np.float64
    assert EachKernel(count, {})([jagged([], np.float32)], None, 0).dtype == np.int64
    plain = EachKernel(above, {}, use_numba=False)
    assert plain([x], none, 2).dtype == np.float64
    assert EachKernel(above, {}, kind="cut", use_numba=False)([x], none, 2).dtype == np.bool_


def test_odd_memory() -> None:
    base = np.arange(10.0)
    big_endian = base.astype(">f4")
    strided = base[::2]
    read_only = base.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + base.tobytes(), np.float64, offset=1)
    kernel = EachKernel(lambda x: x + 0.5, {})
    for column in (base, big_endian, strided, read_only, unaligned):
        assert kernel([column], None, len(column)).tolist() == (column + 0.5).tolist()
    assert kernel.compiled is True
    assert len(kernel._variants) == 2  # float32 and float64: layouts are not compiled apart
    assert base.flags.writeable
    table = np.arange(6.0).reshape(3, 2)
    assert run(lambda v: v[0] * 10 + v[1], [table]).tolist() == [1.0, 23.0, 45.0]
    assert run(lambda v: v[0] * 10 + v[1], [np.asfortranarray(table)]).tolist() == [1.0, 23.0, 45.0]


def test_a_function_may_change_its_numbers() -> None:
    column = jagged([[3.0, 1.0, 2.0], [5.0, 4.0]], np.float64)

    def median(pt: Array) -> float:
        pt.sort()
        pt[0] = -1.0
        return float(pt[1])

    assert run(median, [column]).tolist() == [2.0, 5.0]
    assert column.content.tolist() == [3.0, 1.0, 2.0, 5.0, 4.0]


# -- parameters, constants, closures -------------------------------------------------------------


OFFSET = 100.0


def test_parameters_closures_and_globals() -> None:
    inner = 7.0

    def function(x: float, y: float = 3.0, *, low: float, high: float = 5.0, name: str = "a") -> float:
        return x + y * low + high + inner + OFFSET + len(name)

    x = np.array([1.0, 2.0])
    got = run(function, [x, x], low=np.float32(0.5), name="abc")
    assert got.tolist() == [116.5, 118.0]
    assert EachKernel(function, {"low": 1}).parameters == {"low": 1, "high": 5.0, "name": "a"}


def test_parameters_of_many_kinds() -> None:
    def function(x: float, *, cuts: Any, table: Any, scale: Any = None) -> float:
        result = 0.0
        for cut in cuts:
            if x > cut:
                result += table[1]
        return result if scale is None else result * scale

    x = np.array([0.0, 1.5, 9.0], np.float32)
    table = np.array([1.0, 0.1], np.float32)
    expected = [0.0, float(table[1]), 2 * float(table[1])]
    assert run(function, [x], cuts=[1.0, 2.0], table=table).tolist() == expected
    assert run(function, [x], cuts=(1, 2), table=table, scale=np.int8(2)).tolist() == [value * 2 for value in expected]


def test_constants_among_the_columns() -> None:
    def function(x: float, trigger: bool, scale: float, missing: Any) -> float:
        return x * scale if trigger and missing is None else 0.0

    x = np.array([1.0, 2.0])
    assert run(function, [x, np.True_, np.float32(0.5), None]).tolist() == [0.5, 1.0]
    assert run(function, [x, False, 2, None]).tolist() == [0.0, 0.0]
    assert run(lambda n: n, [np.uint64(2**64 - 1)], length=2).tolist() == [2**64 - 1] * 2
    assert run(lambda: 4, [], length=3).tolist() == [4, 4, 4]
    assert run(lambda c: c, [np.array(2.5)], length=1).tolist() == [2.5]


def test_a_kernel_compiles_once_per_type() -> None:
    kernel = EachKernel(above, {"low": 1.5})
    x = np.array([1.0, 2.0])
    for values in (x, x + 1, x[:1]):
        kernel([values], None, len(values))
    assert len(kernel._variants) == 1
    kernel([x.astype(np.float32)], None, 2)
    assert len(kernel._variants) == 2
    # Both reach the function as float64, so that itself is compiled once.
    assert len(kernel._jitted.overloads) == 1


def test_wrong_parameters() -> None:
    with pytest.raises(DefinitionError, match=r"'above' has no parameter 'lwo'.*'low'"):
        EachKernel(above, {"lwo": 3})

    def needs(x: float, *, low: float) -> bool:
        return x > low

    with pytest.raises(DefinitionError, match=r"'needs'.*'low' has neither value nor default"):
        EachKernel(needs, {})


# -- functions Numba cannot compile --------------------------------------------------------------


class Point:
    def __init__(self, x: float) -> None:
        self.x = x


def test_what_cannot_be_compiled_runs_as_python() -> None:
    kernel = EachKernel(lambda x: Point(x).x * 2, {})
    assert kernel.compiled is None
    assert kernel.reason == ""
    assert kernel([np.array([0.1], np.float32)], None, 1).tolist() == [float(np.float32(0.1)) * 2]
    assert kernel.compiled is False
    assert "Point" in kernel.reason
    assert "\n" not in kernel.reason


def test_python_gets_python_numbers_and_slices() -> None:
    seen: list[Any] = []

    def function(f: Any, i: Any, b: Any, u: Any, pt: Any) -> float:
        seen[:] = [f, i, b, u, pt, pt[0], list(pt)[1]]
        return 1.0

    args = [np.ones(1, np.float32), np.ones(1, np.int8), np.ones(1, bool), np.ones(1, np.uint64)]
    kernel = EachKernel(function, {}, use_numba=False)
    kernel([*args, jagged([[1, 2]], np.float32)], None, 1)
    assert [type(value) for value in (*seen[:3], *seen[5:])] == [float, int, bool, float, float]
    assert isinstance(seen[3], int)
    assert isinstance(seen[4], np.ndarray)
    assert seen[4].dtype == np.float64


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [({"table": {"a": 1.0}}, "dict"), ({"table": {1.0, 2.0}}, "set"), ({"table": [1.0] * 99}, "99")],
)
def test_parameters_that_cannot_be_compiled(parameters: dict[str, Any], reason: str) -> None:
    def function(x: float, *, table: Any) -> float:
        return x * len(table)

    kernel = EachKernel(function, parameters)
    got = kernel([np.array([2.0])], None, 1)
    assert got.tolist() == [2.0 * len(parameters["table"])]
    assert kernel.compiled is False
    assert reason in kernel.reason


def test_callables_that_are_no_plain_functions() -> None:
    def twice(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **keywords: Any) -> Any:
            return 2 * function(*args, **keywords)

        return wrapper

    x = np.array([1.0])
    decorated = EachKernel(twice(floats), {"factor": 2.0})
    assert decorated([x, x], None, 1).tolist() == [2 * floats(1.0, 1.0, factor=2.0)]
    assert "decorator" in decorated.reason
    partial = EachKernel(functools.partial(floats, factor=3.0), {}, name="partial")
    assert partial([x, x], None, 1).tolist() == [floats(1.0, 1.0, factor=3.0)]
    assert "partial" in partial.reason
    jitted = EachKernel(numba.njit(lambda x: x + 1), {})
    assert jitted([x], None, 1).tolist() == [2.0]
    assert jitted.compiled is True


# -- errors --------------------------------------------------------------------------------------


def refuse(x: float) -> float:
    if x < 0:
        raise ValueError("negative")
    return x


@pytest.mark.parametrize("use_numba", [True, False])
@pytest.mark.parametrize(
    ("function", "column", "error"),
    [
        (refuse, np.array([1.0, -1.0]), ValueError),
        (lambda x: 1.0 / x, np.array([1.0, 0.0]), ZeroDivisionError),
        (lambda x: 1 // x, np.array([1, 0]), ZeroDivisionError),
        (lambda x: 1 % x, np.array([1, 0]), ZeroDivisionError),
        (lambda pt: pt[0], jagged([[1.0], []], np.float32), IndexError),
        (lambda pt: pt[-1], jagged([[1.0], []], np.float64), IndexError),
        (lambda pt: pt[1], jagged([[1.0, 2.0], [1.0]], np.float32), IndexError),
        (lambda pt: pt[0] / pt[1], jagged([[1.0, 2.0], [1.0, 0.0]], np.float32), ZeroDivisionError),
    ],
)
def test_exceptions_pass_as_they_are(function: Any, column: Any, error: type[Exception], use_numba: bool) -> None:
    kernel = EachKernel(function, {}, use_numba=use_numba)
    # The first row is fine: only the rows of the selection count.
    assert len(kernel([column], np.array([0]), 2)) == 1
    with pytest.raises(error) as caught:
        kernel([column], None, 2)
    assert type(caught.value) is error
    assert kernel.compiled is use_numba


def sometimes(x: float) -> Any:
    if x > 0:
        return x
    return None


@pytest.mark.parametrize("use_numba", [True, False])
def test_none_is_an_error_only_where_it_comes(use_numba: bool) -> None:
    kernel = EachKernel(sometimes, {}, use_numba=use_numba)
    column = np.array([1.0, 2.0, 0.0])
    assert kernel([column], np.array([1, 0]), 3).tolist() == [2.0, 1.0]
    with pytest.raises(StepResultError, match=r"'sometimes'.*None.*row 2.*every branch"):
        kernel([column], np.array([1, 2]), 3)


@pytest.mark.parametrize("use_numba", [True, False])
@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda x: None, "[Nn]one"),
        (lambda x: (x, 1), "[Tt]uple"),
        (lambda x: np.zeros(3) + x, "array"),
        (lambda x: "text" if x > 0 else "other", "str|unicode"),
        (lambda x: x * 1j, "complex"),
    ],
)
def test_results_that_are_no_numbers(function: Any, what: str, use_numba: bool) -> None:
    kernel = EachKernel(function, {}, name="mystep", use_numba=use_numba)
    with pytest.raises(StepResultError, match=f"'mystep'.*one number or boolean.*({what})"):
        kernel([np.ones(2)], None, 2)


def test_integers_that_do_not_fit_are_an_error_in_python() -> None:
    kernel = EachKernel(lambda x: x * 4, {}, name="mystep", use_numba=False)
    with pytest.raises(StepResultError, match=r"'mystep'.*64 bits"):
        kernel([np.array([2**62])], None, 1)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.array(["a", "b"]), "<U1"),
        (np.array([None, 1]), "object"),
        (np.zeros((2, 2, 2)), "3 dimensions"),
        (np.array([1j, 2]), "complex128"),
        (np.ma.MaskedArray([1.0, 2.0], [True, False]), "missing"),
    ],
)
def test_columns_that_are_no_numbers(column: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"'above'.*argument 0.*{words}"):
        EachKernel(above, {})([column], None, 2)


def test_wrong_shapes_never_reach_compiled_code() -> None:
    kernel = EachKernel(above, {})
    with pytest.raises(InternalError, match=r"3 values.*4 rows"):
        kernel([np.zeros(3)], None, 4)
    for rows in ([0, 3], [-1, 0]):
        with pytest.raises(InternalError, match="block of 3"):
            kernel([np.zeros(3)], np.array(rows), 3)
    for offsets in ([0, 1], [0, 1, 9], [-1, 0, 1], [0, 1, 2, 3]):
        with pytest.raises(InternalError, match="do not describe 2 lists in 3 values"):
            EachKernel(count, {})([Jagged(np.array(offsets), np.zeros(3))], None, 2)


# -- surroundings --------------------------------------------------------------------------------


def test_importing_does_not_import_numba() -> None:
    code = "import sys, windrow.blocks.kernels; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_users_do_not_see_numba_warnings() -> None:
    def function(x: float, *, table: Any) -> float:
        # Numba would warn of a slow product of arrays that are not contiguous.
        return float(np.dot(table[::2], table[::2])) * x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kernel = EachKernel(function, {"table": np.ones(8)})
        assert kernel([np.ones(1)], None, 1).tolist() == [4.0]
    assert [str(w.message) for w in caught] == []


def test_threads_share_a_kernel() -> None:
    kernel = EachKernel(total, {})  # a new one: the threads race for compiling it
    column = jagged([[1.0, 2.0], [3.0], []] * 50, np.float32)
    eta = Jagged(column.offsets, np.zeros(len(column.content)))
    x = np.ones(150)
    results: list[bytes] = []
    start = threading.Barrier(4)

    def work() -> None:
        start.wait(timeout=30)
        results.extend(kernel([column, eta, x], None, 150).tobytes() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(results) == 80
    assert len(set(results)) == 1
    assert len(kernel._variants) == 1


def test_a_kernel_pickles_without_its_code() -> None:
    kernel = EachKernel(above, {"low": 1.5}, name="step", kind="cut")
    x = np.array([1.0, 2.0])
    kernel([x], None, 2)
    again = pickle.loads(pickle.dumps(kernel))
    assert (again.name, again.kind, again.parameters, again.compiled) == ("step", "cut", {"low": 1.5}, None)
    assert again([x], None, 2).tolist() == [False, True]


# --- unsigned numbers ------------------------------------------------------------------------------

UNSIGNED: dict[str, Any] = {
    "same": lambda n: n,
    "digit": lambda n: n % 10,
    "half": lambda n: n * 0.5,
    "large": lambda n: n > 2**62,
    "third": lambda n: n // 3,
    "next": lambda n: n // 2 + 1,
    "shifted": lambda n: n >> 3,
    "bits": lambda n: n & 7,
    "last": lambda n: n == 2**64 - 1,
}
EDGES = [0, 1, 10, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 7, 2**64 - 1]


@pytest.mark.parametrize("name", few_by_day(UNSIGNED, 4))
@pytest.mark.parametrize("use_numba", [True, False])
def test_unsigned_numbers_are_what_python_says_at_both_ends(name: str, use_numba: bool) -> None:
    function = UNSIGNED[name]
    kernel = EachKernel(function, {}, name=name, use_numba=use_numba)
    for rows in (EDGES, EDGES[:5], EDGES[-1:], [5, 2**63 + 7, 2**64 - 1]):
        values = np.array(rows, np.uint64)
        expected = [function(value) for value in rows]
        assert kernel([values], None, len(rows)).tolist() == expected
        # Rows that are not asked about do not matter, nor does whether numbers stand in lists.
        few = np.arange(0, len(rows), 2)
        assert kernel([values], few, len(rows)).tolist() == expected[::2]
        lists = EachKernel(lambda numbers: function(numbers[0]), {}, use_numba=False)
        assert lists([Jagged(np.arange(len(rows) + 1), values)], None, len(rows)).tolist() == expected
    parameter = EachKernel(lambda n, *, top: n % top == 0, {"top": np.uint64(2**64 - 1)}, use_numba=use_numba)
    assert parameter([np.array(EDGES, np.uint64)], None, len(EDGES)).tolist() == [n % (2**64 - 1) == 0 for n in EDGES]
