"""Conditions over metadata: the small language, and what it refuses."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windrow.errors import DefinitionError, UnknownNameError, UsageError
from windrow.pipeline.definition.steps import When

META: dict[str, Any] = {
    "is_mc": True,
    "fast": False,
    "year": 2017,
    "xsec": 12.5,
    "era": "B",
    "tags": ["signal", "ttbar"],
    "note": None,
    "lumi": np.float64(41.5),
    "odd": np.bool_(True),
}


def holds(expression: str, **changes: Any) -> bool:
    return When.parse(expression, step="pileup").holds({**META, **changes}, "ttbar")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("is_mc", True),
        ("  is_mc  ", True),
        ("not is_mc", False),
        ("is_mc and year in (2016, 2017) and not fast == True", True),
        ("is_mc and year in (2016, 2018)", False),
        ("fast or era == 'B'", True),
        ("(fast or is_mc) and (fast or not fast)", True),
        ("year not in [2016, 2018]", True),
        ("era in {'A', 'B'}", True),
        ("'ttbar' in tags", True),
        ("'data' not in tags", True),
        ("2016 < year <= 2017", True),
        ("2016 < year < 2017", False),
        ("2018 < year < 2019", False),
        ("xsec >= 12.5", True),
        ("xsec != -3", True),
        ("xsec > +3", True),
        ("note == None", True),
        ("note != None", False),
        ("note", False),
        ("year == None", False),
        ("year", True),
        ("year in ()", False),
        ("lumi > 41 and odd", True),
        ("'i' in era", False),
        ("(fast == True) == False", True),
        ("year in (2017, 'B')", True),
        ("True", True),
        ("is_mc and False", False),
        ("tags == ['signal', 'ttbar']", True),
        ("(year > 2016) == is_mc", True),
    ],
)
def test_meaning(expression: str, expected: bool) -> None:
    got = holds(expression)
    assert got is expected


def test_names_are_in_written_order_and_once() -> None:
    when = When.parse("b and a == 1 and (c or not b)", step="s")
    assert when.names == ("b", "a", "c")
    assert When.parse("True", step="s").names == ()


@pytest.mark.parametrize(
    "expression",
    [
        "f(x)",
        "is_mc.real",
        "tags[0]",
        "year + 1 == 2018",
        "year == 2 * 3",
        "-year == 3",
        "year == ~1",
        "x is None",
        "x if y else z",
        "lambda: 1",
        "(x := 3)",
        "[x for x in y]",
        "x in (a, 2)",
        "x in {1: 2}",
        "x in {[1], 2}",
        "f'{x}' == 'a'",
        "x == b'a'",
        "x == 1j",
        "x == -True",
        "x == ...",
        "'is_mc'",
        "2016",
        "not 'is_mc'",
        "is_mc and 'fast'",
        "(is_mc, fast)",
        "",
        "   ",
        "is_mc and",
        "is_mc = True",
        "is_mc; fast",
        "a) or (b",
        "\0",
        "*x",
        "await x",
        "__import__('os')",
        "(" * 500 + "x" + ")" * 500,
    ],
)
def test_everything_else_is_refused(expression: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        When.parse(expression, step="pileup")
    assert "'pileup'" in str(caught.value)
    assert repr(expression) in str(caught.value)
    assert "allowed are names of metadata keys, not/and/or, ==" in str(caught.value)


def test_the_part_that_is_refused_is_named() -> None:
    with pytest.raises(DefinitionError, match=r"has 'year \+ 1'"):
        When.parse("is_mc and year + 1 == 2018", step="pileup")


def test_a_function_is_not_a_condition() -> None:
    with pytest.raises(DefinitionError, match=r"'pileup'.*a function"):
        When.parse(lambda metadata: True, step="pileup")  # type: ignore[arg-type]


@pytest.mark.parametrize("expression", ["is_nc", "fast and is_nc", "is_mc or is_nc", "1 < 0 < is_nc"])
def test_a_typo_is_found_wherever_it_stands(expression: str) -> None:
    when = When.parse(expression, step="pileup")
    with pytest.raises(UnknownNameError) as caught:
        when.holds(META, "ttbar")
    for part in ["'pileup'", "'ttbar'", "'is_nc'", "'year'", "'era'", "did you mean 'is_mc'"]:
        assert part in str(caught.value)
    assert caught.value.facts == {"step": "pileup", "dataset": "ttbar", "key": "is_nc"}


def test_no_metadata_at_all() -> None:
    with pytest.raises(UnknownNameError, match="none at all"):
        When.parse("is_mc", step="s").holds({}, "data")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("year > '2016'", ["2017", "int", "'2016'", "str", ">"]),
        ("year == '2017'", ["2017", "int", "'2017'", "str", "=="]),
        ("year != '2017'", ["int", "str", "!="]),
        ("year in ('2016', '2017')", ["2017", "tuple", "in"]),
        ("year not in ['2017']", ["2017", "list", "not in"]),
        ("year == (2016, 2017)", ["tuple", "=="]),
        ("era in year", ["'B'", "2017"]),
        ("year in era", ["2017", "'B'"]),
        ("note < 3", ["None", "NoneType", "3"]),
        ("tags in {'signal'}", ["list", "set"]),
        ("era", ["is true", "'B'", "str"]),
        ("not tags", ["is true", "tags", "list"]),
    ],
)
def test_comparisons_without_meaning_are_errors(expression: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        holds(expression)
    for word in [*words, "'pileup'", "'ttbar'", repr(expression)]:
        assert word in str(caught.value)


def test_a_condition_may_guard_a_comparison() -> None:
    assert holds("is_mc and scenario > 3", is_mc=False, scenario=None) is False
    with pytest.raises(UsageError, match="NoneType"):
        holds("is_mc and scenario > 3", is_mc=True, scenario=None)


def test_values_without_a_truth_are_errors() -> None:
    with pytest.raises(UsageError, match="ndarray"):
        holds("year == numbers", numbers=np.arange(3))


def test_it_compares_and_pickles() -> None:
    when = When.parse("is_mc and year > 3", step="s")
    assert when == When.parse("is_mc and year > 3", step="s")
    assert when != When.parse("is_mc", step="s")
    assert hash(when) == hash(When.parse("is_mc and year > 3", step="s"))
    again = pickle.loads(pickle.dumps(when))
    assert again == when
    assert again.holds(META, "d") is True


ATOMS = st.sampled_from(["a", "b", "c", "n == 1", "n in (1, 2)", "n not in {0}", "n < 2", "0 <= n < 2", "t == 'x'"])
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map("not ({})".format),
        st.tuples(inner, inner).map(lambda pair: "({}) and ({})".format(*pair)),
        st.tuples(inner, inner).map(lambda pair: "{} or {}".format(*pair)),
    ),
    max_leaves=8,
)


@given(CONDITIONS, st.booleans(), st.booleans(), st.booleans(), st.integers(-1, 3), st.sampled_from(["x", "y"]))
@settings(deadline=None)
def test_it_means_what_python_means(expression: str, a: bool, b: bool, c: bool, n: int, t: str) -> None:
    metadata = {"a": a, "b": b, "c": c, "n": n, "t": t}
    got = When.parse(expression, step="s").holds(metadata, "d")
    assert got is bool(eval(expression, {"__builtins__": {}}, metadata))
