"""What ``order=`` takes: lists, mappings, functions and frozen files that do not fit are refused in words, never ignored."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import windrow as wr
from description import Dataset, File, MemorySource
from ordering import eager
from windrow.errors import UnknownNameError, UsageError

RNG = np.random.default_rng(8)
ROWS = {"x": RNG.normal(size=6000), "z": RNG.random(6000)}
WRITTEN, TURNED = ("first", "second"), ("second", "first")


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("asked")

    @made.cut
    def first(x: Any) -> Any:
        return x > -1

    @made.cut
    def second(z: Any) -> Any:
        return z > 0.5

    @made.output
    def count(x: Any) -> Any:
        return len(x)

    return made


def run(order: Any, *datasets: str, made: wr.Pipeline | None = None, **options: Any) -> Any:
    names = datasets or ("data",)
    file = File(label="rows", columns=ROWS, borders=tuple(range(0, 6001, 100)))
    source = MemorySource([Dataset(name=name, files=(file,)) for name in names])
    return (made or analysis()).run(source, order=order, engine="inline", progress=False, chunk=100, **options)


def begun(result: Any) -> dict[str, tuple[str, ...]]:
    return {dataset: tuple(n for n in order if n in WRITTEN) for dataset, order, _ in result.order}


def frozen(tmp_path: Any, **content: Any) -> Any:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"kind": "windrow order", **content}))
    return path


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, '"order" has to map datasets .* there is None'),
        ({"order": ["a"]}, r"there is \['a'\]"),
        ({"order": {}}, "there is {}"),
        ({"order": {"data": 5}}, "lists of step names.* there is {'data': 5}"),
        ({"order": {"data": [1]}}, r"there is {'data': \[1\]}"),
        ({"order": {"data": "first"}}, "there is {'data': 'first'}"),
        ({"order": {"data": ["first"]}, "guards": 3}, "pairs of a step and a cut; there is .* and 3"),
        ({"order": {"data": ["first"]}, "guards": [["first"]]}, "pairs of a step and a cut"),
    ],
)
def test_a_file_with_another_content_is_refused_by_name(tmp_path: Any, content: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=rf"plan\.json.*{words}"):
        run(frozen(tmp_path, **content))


def test_a_dataset_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"'dat', which is not there; did you mean 'data'"):
        run({"dat": list(TURNED)})


def test_datasets_that_a_mapping_leaves_out_run_as_written_and_that_is_said() -> None:
    result = run({"a": list(TURNED), "b": "written"}, "a", "b", "c", "d")
    assert begun(result) == {"a": TURNED, "b": WRITTEN, "c": WRITTEN, "d": WRITTEN}
    said = [line for line in result.decisions if "not named" in line]
    assert said == ["order: the written order is used for 'c', 'd', not named in order="]


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ({}, "without any dataset"),
        ({"data": "first"}, "a list of names"),
        ({"data": 3}, "order= is"),
        ({3: ["first"]}, "names of datasets"),
    ],
)
def test_mappings_that_mean_nothing_are_refused(order: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        run(order)


def test_a_file_of_one_order_serves_other_datasets_and_that_is_said(tmp_path: Any) -> None:
    path = frozen(tmp_path, order={"a": TURNED, "b": TURNED})
    result = run(path, "other")
    assert begun(result) == {"other": TURNED}
    assert any("plan.json" in line and "'other'" in line for line in result.decisions)


def test_a_file_of_several_orders_serves_only_its_own_datasets(tmp_path: Any) -> None:
    path = frozen(tmp_path, order={"a": TURNED, "b": WRITTEN})
    assert begun(run(path, "a")) == {"a": TURNED}
    with pytest.raises(UsageError, match=r"plan\.json .*'a', 'b', and none for 'other'"):
        run(path, "a", "other")


def test_the_guards_of_a_file_are_kept_where_they_fit(tmp_path: Any) -> None:
    guards = [["second", "first"], ["first", "second"], ["gone", "first"], ["count", "gone"]]
    made = analysis()
    result = run(frozen(tmp_path, order={"data": TURNED}, guards=guards), made=made)
    assert made.guards == {("second", "first")}
    assert begun(result) == {"data": WRITTEN}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (["c", "b", "a"], ["scale", "early", "c", "b", "a", "late"]),
        (["b"], ["scale", "early", "b", "a", "late", "c"]),
        (["c", "late", "b"], ["scale", "early", "c", "late", "b", "a"]),
        (["scale", "c"], ["scale", "early", "c", "a", "late", "b"]),
        (["c", "early", "b", "a"], ["c", "scale", "early", "b", "a", "late"]),
        (["c", "scale", "b", "a"], ["c", "scale", "b", "a", "early", "late"]),
    ],
)
def test_weights_above_the_first_cut_stay_there_unless_they_are_named(order: list[str], expected: list[str]) -> None:
    made = wr.Pipeline("weighted")
    made.column(lambda z: 1 + z, name="scale")
    made.weight(lambda scale: scale, name="early")
    made.cut(lambda x: x > -1, name="a")
    made.weight(lambda z: 2 - z, name="late")
    made.cut(lambda z: z > 0.3, name="b")
    made.cut(lambda x: x < 1, name="c")
    made.output(lambda weight: weight.sum(), name="total")
    result = run(order, made=made)
    assert list(result.order[0][1]) == expected
    initial = result.cutflow["all"].executed[0]
    above = expected[: expected.index(next(n for n in expected if n in "abc"))]
    weights = 1 + ROWS["z"] if "early" in above else np.ones(6000)
    assert initial.passed == 6000
    assert initial.sumw == pytest.approx(weights.sum(), rel=1e-12)
    # What is called the written order has the written weights, or is not there.
    written = result.cutflow["all"].written
    if written is not None:
        assert written[0].sumw == pytest.approx((1 + ROWS["z"]).sum(), rel=1e-12)
    last = result.cutflow["all"].selected
    kept = (ROWS["x"] > -1) & (ROWS["z"] > 0.3) & (ROWS["x"] < 1)
    assert last.sumw == pytest.approx(((1 + ROWS["z"]) * (2 - ROWS["z"]))[kept].sum(), rel=1e-12)


def fails(_: Any) -> Any:
    raise ValueError("no idea")


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (fails, "the function given as order= raised ValueError: no idea"),
        (lambda s: (fails(s) for _ in range(2)), "order= raised ValueError: no idea"),
        (lambda _: "abc", "list of step names.* returned 'abc'"),
    ],
)
def test_a_function_that_fails_is_named(policy: Any, words: str) -> None:
    with eager(50), pytest.raises(UsageError, match=words):
        run(policy)
