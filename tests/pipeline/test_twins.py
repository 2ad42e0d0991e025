"""Steps that are the same are computed once, and nobody can tell from the results."""

from __future__ import annotations

import functools
from itertools import permutations
from threading import Lock
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import bits
from searching import examples
from windrow.pipeline.binding.bind import bind

if TYPE_CHECKING:
    from windrow.blocks.program import Program

DATA = {"x": np.arange(-20, 20), "y": np.linspace(0.0, 5.0, 40), "p": ak.Array([[1.5, 2.5], []] * 20)}
SCALE = 2


def double(x: Any) -> Any:
    return SCALE * x


def also_double(x: Any) -> Any:
    """The same in other words."""
    return SCALE * x


def positive(x: Any) -> Any:
    return x > 0


def varied(x: Any) -> Any:
    return wr.updown(1.0 + x % 3, 2.0 + x % 3, 0.5 * x)


def smeared(x: Any, *, rng: Any) -> Any:
    return x + rng("smear").normal()


def rooted(y):  # type: ignore[no-untyped-def]
    return y**0.5


def program_of(analysis: wr.Pipeline) -> Program:
    info = wr.data.open(DATA).open(0).info
    return bind(analysis.definition(0), "data", {}, info, "data")


def twins(analysis: wr.Pipeline) -> dict[str, str | None]:
    return {name: step.same_as for name, step in program_of(analysis).steps.items()}


def run(analysis: wr.Pipeline, **options: Any) -> Any:
    return analysis.run(wr.data.open(DATA, grid=10), progress=False, **options)


def rows_of_all(analysis: wr.Pipeline, *columns: str) -> wr.Pipeline:
    for column in columns:
        analysis.output(lambda c: c.tolist(), name=f"of_{column}", reads={"c": column})
    return analysis


# --- what is the same -----------------------------------------------------------------------------


def test_one_function_under_several_names() -> None:
    analysis = wr.Pipeline("names")
    for name in ("a", "b", "c"):
        analysis.column(double, name=name)
    rows_of_all(analysis, "a", "b", "c")
    assert twins(analysis) == {"a": "a", "b": "a", "c": "a"}
    result = run(analysis, chunk=20)
    assert {n: s.calls for n, s in result.steps.items() if n in "abc"} == {"a": 2, "b": 0, "c": 0}
    assert result["of_a"] == result["of_b"] == result["of_c"] == (2 * DATA["x"]).tolist()


def test_a_lambda_in_a_loop() -> None:
    analysis = wr.Pipeline("loop")
    for name in ("up", "down"):
        analysis.column(lambda x: x * 3, name=name)
    assert twins(rows_of_all(analysis, "up", "down")) == {"up": "up", "down": "up"}


def test_the_same_text_at_two_places() -> None:
    analysis = wr.Pipeline("texts")
    analysis.column(double)
    analysis.column(also_double)
    assert twins(rows_of_all(analysis, "double", "also_double"))["also_double"] == "double"


def test_columns_of_twins_are_the_same_columns() -> None:
    analysis = wr.Pipeline("chain")
    for name in ("a", "b"):
        analysis.column(double, name=name)
        analysis.column(lambda c: c + 1, name=f"more_{name}", reads={"c": name})
    assert twins(rows_of_all(analysis, "more_a", "more_b"))["more_b"] == "more_a"
    result = run(analysis)
    assert result.steps["more_b"].calls == 0
    assert result["of_more_b"] == (2 * DATA["x"] + 1).tolist()


def test_what_differs_is_not_the_same() -> None:
    analysis = wr.Pipeline("different")
    for number in (1, 2):

        def scaled(x: Any, *, factor: int = number) -> Any:
            return factor * x

        def closed(x: Any, number: Any = None) -> Any:
            return x

        def made(offset: int) -> Any:
            return lambda x: x + offset

        analysis.column(scaled, name=f"scaled{number}")
        analysis.column(made(number), name=f"made{number}")
        analysis.column(double, name=f"of{number}", reads={"x": "xy"[number - 1]})
    analysis.column(double, name="column")
    analysis.weight(double, name="weight1")
    names = ("scaled1", "scaled2", "made1", "made2", "of1", "of2", "column")
    found = twins(rows_of_all(analysis, *names))
    assert {name for name, other in found.items() if other is not None} == {"of1", "column"}


class Hidden:
    """Nobody can look into it."""

    __slots__ = ("__weakref__",)

    def __call__(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (double, double, True),
        (functools.partial(double, 1), functools.partial(double, 1), True),
        (functools.partial(double, 1), functools.partial(double, 2), False),
        (functools.partial(double, 1), functools.partial(positive, 1), False),
        (Lock(), Lock(), False),  # cannot be looked into
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (0.0, -0.0, False),
        (float("nan"), float("nan"), True),
        ([1, "a"], [1, "a"], True),
        ([1, "a"], (1, "a"), False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (np.arange(3), np.arange(3), True),
        (np.arange(3), np.arange(3.0), False),
        (double, positive, False),
    ],
)
def test_parameters(one: Any, other: Any, same: bool) -> None:
    analysis = wr.Pipeline("parameters")
    for name, value in (("a", one), ("b", other)):

        def step(x: Any, *, thing: Any = value) -> Any:
            return x

        analysis.column(step, name=name)
    assert (twins(rows_of_all(analysis, "a", "b"))["b"] == "a") is same


# --- what comes out -------------------------------------------------------------------------------


@functools.cache  # compiling takes longer than everything else
def full_analysis(twice: bool) -> wr.Pipeline:
    """Every kind of step; with ``twice`` false, the second of each is not the same as the first."""
    analysis = wr.Pipeline("full")

    def second(function: Any) -> Any:
        if twice:
            return function
        hidden = Hidden()  # makes it a function of its own, which nobody can compare
        if function is smeared:
            return lambda x, *, rng: hidden(function(x, rng=rng))
        if function is rooted:
            return rooted
        return lambda x: hidden(function(x))

    for number in (1, 2):
        way = second if number == 2 else (lambda function: function)
        analysis.weight(way(varied), name=f"varied{number}")
        analysis.column(way(double), name=f"double{number}")
        analysis.column(way(smeared), name=f"smeared{number}")
        analysis.column(rooted, name=f"rooted{number}", each=True)
        analysis.cut(way(positive), name=f"positive{number}")
        analysis.cut(lambda c: c % 3 != 0, name=f"odd{number}", reads={"c": f"double{number}"})
    analysis.region("both", "positive1", "odd1", "positive2", "odd2")
    analysis.region("first", "positive1")
    analysis.region("second", "!odd2", "!positive2")

    @analysis.output
    def total(weight: Any, smeared1: Any, rooted1: Any, double1: Any) -> Any:
        return float((weight * smeared1 + rooted1 * double1).sum())

    @analysis.output
    def again(smeared2: Any, rooted2: Any, double2: Any) -> Any:
        return [smeared2.tolist(), rooted2.tolist(), double2.tolist()]

    return analysis


ORDERS = list(permutations(("positive1", "odd2", "positive2", "odd1", "varied2", "varied1")))


@settings(max_examples=examples(10))
@given(
    order=st.none() | st.sampled_from(ORDERS), chunk=st.integers(1, 60), engine=st.sampled_from(("inline", "threads"))
)
def test_nobody_can_tell(order: Any, chunk: int, engine: str) -> None:
    options = {"engine": engine, "workers": 2} | ({} if order is None else {"order": list(order)})
    one, other = (run(full_analysis(twice), chunk=max(chunk, 10), nminus1=True, **options) for twice in (True, False))
    assert {n: bits(v) for n, v in one.outputs["data"].items()} == {
        n: bits(v) for n, v in other.outputs["data"].items()
    }
    assert one.cutflow.as_dict() == other.cutflow.as_dict()
    assert one.nminus1.as_dict() == other.nminus1.as_dict()
    assert {n: s.rows_out for n, s in one.steps.items()} == {n: s.rows_out for n, s in other.steps.items()}


def test_the_second_one_is_not_called() -> None:
    result = run(full_analysis(twice=True), chunk=40)
    calls = {name: step.calls for name, step in result.steps.items()}
    for name in ("varied", "double", "smeared", "rooted"):
        assert calls[f"{name}1"] > 0
        assert calls[f"{name}2"] == 0
    # Each of these cuts is in a region that does not have the other.
    assert calls["positive1"] > 0
    assert calls["positive2"] > 0


def test_answers_are_taken_over_for_fewer_rows() -> None:
    analysis = wr.Pipeline("fewer")
    analysis.weight(varied, name="before")
    analysis.cut(lambda x: ak.mask(ak.Array(x > 0), x % 2 == 0), name="even1")
    analysis.cut(lambda x: x < 15, name="low")
    analysis.cut(lambda x: ak.mask(ak.Array(x > 0), x % 2 == 0), name="even2")
    analysis.weight(varied, name="after")
    analysis.output(lambda weight: float(weight.sum()), name="total")
    result = run(analysis)
    assert result.steps["after"].calls == 0
    x = np.array([n for n in range(-20, 20) if 0 < n < 15 and n % 2 == 0])
    nominal, up, down = 1.0 + x % 3, 2.0 + x % 3, 0.5 * x
    assert result["total"] == (nominal * nominal).sum()
    for side, values in (("up", up), ("down", down)):
        for name in ("before", "after"):
            assert result["total", "all", f"{name}_{side}"] == (nominal * values).sum()
    # In a cutflow the first of the two cuts has the rows without an answer, the second has none left.
    lines = {line.name: line for line in result.cutflow["all"].executed}
    assert [lines[name].undefined for name in ("even1", "even2")] == [20, 0]


def test_whoever_comes_first_answers() -> None:
    analysis = wr.Pipeline("moved")
    analysis.cut(positive, name="a")
    analysis.cut(positive, name="b")
    analysis.output(lambda x: x.tolist(), name="rows")
    result = run(analysis, order=["b", "a"])
    assert (result.steps["b"].calls > 0, result.steps["a"].calls) == (True, 0)
    assert result["rows"] == list(range(1, 20))


def test_all_of_them_count_as_checked() -> None:
    analysis = wr.Pipeline("checked")
    for name in ("a", "b"):
        analysis.column(double, name=name)
    rows_of_all(analysis, "a", "b")
    assert analysis.check(DATA) == ("a", "b")
