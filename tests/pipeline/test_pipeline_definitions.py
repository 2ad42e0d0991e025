"""What follows from the steps alone: signatures, names, the written order, and what a function reads from outside."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import DefinitionError, MissingColumnError, UnknownNameError
from windrow.pipeline.definition.definition import (
    check_definitions,
    dependencies,
    matching_regions,
    regions_of,
    written_order,
)
from windrow.pipeline.definition.steps import Read, StepDefinition, define

if TYPE_CHECKING:
    from collections.abc import Callable

# --- signatures -----------------------------------------------------------------------------------


def test_a_signature_says_what_a_step_reads() -> None:
    def step(run, /, pt, eta=1.5, maybe=None, *, low=20, dataset, rng):  # type: ignore[no-untyped-def]
        return pt

    made = define("cut", step)
    assert made.name == "step"
    assert made.reads == (
        Read("run", "run"), Read("pt", "pt"),
        Read("eta", "eta", True, 1.5), Read("maybe", "maybe", True, None),
    )  # fmt: skip
    assert dict(made.parameters) == {"low": 20}
    assert set(made.reserved) == {"dataset", "rng"}
    assert made.function is step
    assert made.module == __name__


def test_reads_gives_columns_other_names() -> None:
    def step(pt, hlt, eta=0):  # type: ignore[no-untyped-def]
        return pt

    by_name = define("cut", step, reads={"pt": "Aux.pt", "hlt": "HLT_*"})
    assert [r.column for r in by_name.reads] == ["Aux.pt", "HLT_*", "eta"]
    assert [r.is_pattern for r in by_name.reads] == [False, True, False]
    by_place = define("cut", step, reads=["Aux.pt"])
    assert [r.column for r in by_place.reads] == ["Aux.pt", "hlt", "eta"]


@pytest.mark.parametrize("pattern", ["a*", "a?", "a[bc]"])
def test_globs_are_patterns(pattern: str) -> None:
    assert Read("x", pattern).is_pattern


def lists(*args: Any) -> Any: ...
def keywords(x: Any, **more: Any) -> Any: ...
def no_default(x: Any, *, low: Any) -> Any: ...
def reserved_column(dataset: Any) -> Any: ...
def reads_weight(weight: Any) -> Any: ...
def keyword_weight(x: Any, *, weight: Any) -> Any: ...
def wants_region(x: Any, *, region: Any) -> Any: ...
def rng(x: Any) -> Any: ...


class Opaque:
    __name__ = "opaque"
    __signature__ = "not a signature"

    def __call__(self, x: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lists, r"takes \*args: arguments name the columns"),
        (keywords, r"takes \*\*more"),
        (no_default, "'low' is a parameter and needs a default"),
        (reserved_column, r"'dataset' is a reserved name .*\*, dataset"),
        (reads_weight, "reads 'weight', which is reserved"),
        (keyword_weight, "as a positional argument"),
        (wants_region, "only outputs know theirs"),
        (rng, "'rng' is a reserved name"),
        (lambda x: x, "no name of its own: give it one with name="),
        (3, "made of a function, got int 3"),
        (Opaque(), "cannot read the signature"),
    ],
)
def test_signatures_that_mean_nothing(function: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        define("cut", function)


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ("pt", "takes a mapping or a list of columns, got 'pt'"),
        ({"eta": "pt"}, r"names 'eta', which is not an argument; it has \['x'\]"),
        (["a", "b"], "lists 2 columns for 1 arguments"),
    ],
)
def test_reads_that_mean_nothing(reads: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        define("cut", lambda x: x, name="c", reads=reads)


def test_outputs_may_take_the_weight_and_their_lane() -> None:
    def output(x, weight, *, region, variation):  # type: ignore[no-untyped-def]
        return 0

    made = define("output", output)
    assert made.takes_weight
    assert set(made.reserved) == {"region", "variation"}
    assert not define("output", lambda x: 0, name="o").takes_weight


def test_a_partial_function_is_a_step_if_it_gets_a_name() -> None:
    def above(x, *, low=0):  # type: ignore[no-untyped-def]
        return x > low

    assert dict(define("cut", functools.partial(above, low=3), name="c").parameters) == {"low": 3}


# --- the graph ------------------------------------------------------------------------------------


def step(kind: Any, name: str, reads: str = "", **options: Any) -> StepDefinition:
    columns = reads.split()
    source = f"def {name}({', '.join(columns)}): ..."
    names: dict[str, Any] = {}
    exec(source, names)
    return define(kind, names[name], **options)


def steps(*made: StepDefinition) -> dict[str, StepDefinition]:
    return {one.name: one for one in made}


def test_a_column_read_above_its_definition_moves_up() -> None:
    made = steps(
        step("cut", "a", "m"), step("column", "m", "x"), step("cut", "b"),
        step("weight", "w", "m", after=("b",)), step("output", "o", "m"),
    )  # fmt: skip
    assert dependencies(made) == {"a": ("m",), "m": (), "b": (), "w": ("m", "b")}
    assert written_order(made) == ("m", "a", "b", "w")


@given(st.data())
def test_the_written_order_is_legal_and_that_of_definition_where_it_can_be(data: st.DataObject) -> None:
    names = [f"c{number}" for number in range(data.draw(st.integers(1, 7)))]
    hidden = data.draw(st.permutations(names))
    made = {}
    for name in names:
        above = hidden[: hidden.index(name)]
        reads = data.draw(st.lists(st.sampled_from(above), unique=True)) if above else []
        made[name] = step("column", name, " ".join(reads))
    order = written_order(made)
    assert sorted(order) == names
    for name, needs in dependencies(made).items():
        assert all(order.index(need) < order.index(name) for need in needs)
    if all(names.index(need) < names.index(n) for n, r in dependencies(made).items() for need in r):
        assert list(order) == names


def test_circles_are_drawn() -> None:
    made = steps(
        step("column", "a", "c"), step("column", "b", "a"), step("column", "c", "b"),
        step("output", "o", "a"),
    )  # fmt: skip
    with pytest.raises(DefinitionError, match="circle: a -> c -> b -> a"):
        check_definitions("p", made, {"all": {}})


OUTPUT = step("output", "o", "x")


@pytest.mark.parametrize(
    ("made", "regions", "error", "message"),
    [
        (steps(step("cut", "a")), {}, DefinitionError, "pipeline 'p' has no output"),
        (
            steps(step("cut", "trigger"), OUTPUT), {"SR": {"triger": False}},
            UnknownNameError, "region 'SR' names the cut 'triger'.*did you mean 'trigger'",
        ),
        (steps(OUTPUT), {"SR": {"a": False}}, UnknownNameError, r"\(cuts: none\)"),
        (
            steps(step("column", "m"), OUTPUT), {"SR": {"m": False}},
            DefinitionError, "names 'm', which is a column, not a cut",
        ),
        (
            steps(step("cut", "a", after=("z",)), OUTPUT), {"all": {}},
            UnknownNameError, "after= of cut 'a' names the cut 'z'",
        ),
        (
            steps(step("output", "o", "x", regions=("S*",))), {"CR": {}},
            UnknownNameError, r"names the region 'S\*'.*regions: CR",
        ),
        (
            steps(step("output", "o", "x weight", weights=("pu",))), {"all": {}},
            UnknownNameError, "names the weight 'pu'.*weights: none",
        ),
        (
            steps(step("cut", "a"), step("output", "o", "a")), {"all": {}},
            DefinitionError, "output 'o' reads 'a', which is a cut: only columns can be read",
        ),
        (
            steps(step("column", "m", "m"), OUTPUT), {"all": {}},
            DefinitionError, "column 'm' has two makers.*'m_corrected'",
        ),
    ],
)  # fmt: skip
def test_definitions_that_mean_nothing(made: Any, regions: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_definitions("p", made, regions)


def test_regions_are_those_declared_or_one_of_all_cuts() -> None:
    made = steps(step("cut", "a"), step("column", "m"), step("cut", "b"))
    assert regions_of(made, {}) == {"all": {"a": False, "b": False}}
    assert regions_of(made, {"SR": {"a": True}}) == {"SR": {"a": True}}


def test_outputs_choose_regions_by_glob() -> None:
    names = ["SR1", "SR2", "CR"]
    assert matching_regions(step("output", "o", regions=("SR*",)), names) == ("SR1", "SR2")
    assert matching_regions(step("output", "o"), names) == tuple(names)
    assert matching_regions(step("output", "o", regions=None), names) == ()


def test_random_numbers_in_an_output_need_the_identity_columns_too() -> None:
    analysis = wr.Pipeline("identity", identity=("run", "event"))

    @analysis.output
    def drawn(x: Any, *, rng: Any) -> Any:
        return float(rng("n").uniform().sum())

    with pytest.raises(MissingColumnError, match="no column 'run', which identity= of pipeline"):
        analysis.run({"x": np.zeros(3)}, engine="inline")


# --- what a function reads from outside -----------------------------------------------------------

LOW: Any = 20
TABLE: Any = np.array([1.0, 2.0])


def helper(x: Any) -> Any:
    return x + LOW


def uses_global(x: Any) -> Any:
    return x + LOW


def uses_helper(x: Any) -> Any:
    return helper(x)


def uses_array(x: Any) -> Any:
    return x + TABLE[0]


@pytest.mark.parametrize(
    ("function", "name", "value"),
    [
        (uses_global, "LOW", 21),
        (uses_global, "LOW", 20.5),
        (uses_helper, "LOW", 21),
        (uses_helper, "helper", lambda x: x - LOW),
        (uses_array, "TABLE", np.array([7.0])),
    ],
)
def test_a_constant_changed_between_runs_is_compiled_anew(
    function: Callable[..., Any], name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = wr.Pipeline("frozen")
    analysis.column(function, name="made", each=True)
    analysis.output(lambda made: float(made.sum()), name="total")
    data = {"x": np.arange(3.0)}
    assert analysis.run(data, engine="inline", progress=False)["total"] == sum(map(function, range(3)))
    monkeypatch.setitem(globals(), name, value)
    assert analysis.run(data, engine="inline", progress=False)["total"] == sum(map(function, range(3)))
