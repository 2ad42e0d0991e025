"""N-1 counts: for each cut the rows that pass all the others, and an honest n/a where a cut cannot be left out."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import StepError, UnknownNameError


def built(thresholds: list[float], inverted: list[bool]) -> wr.Pipeline:
    analysis = wr.Pipeline("nminus1")

    @analysis.weight
    def w(factor: Any) -> Any:
        return factor

    for number, threshold in enumerate(thresholds):

        def passes(x: Any, *, threshold: float = threshold) -> Any:
            return x > threshold

        analysis.cut(passes, name=f"c{number}", reads={"x": f"x{number}"})
    marks = ["!" if side else "" for side in inverted]
    analysis.region("SR", *(f"{mark}c{n}" for n, mark in enumerate(marks)))
    analysis.region("first", "c0")

    @analysis.output
    def rows(x0: Any) -> int:
        return len(x0)

    return analysis


@given(
    cuts=st.integers(1, 4), rows=st.integers(0, 60), seed=st.integers(0, 2**16), grid=st.integers(1, 20), data=st.data()
)
def test_every_line_is_the_plain_count(cuts: int, rows: int, seed: int, grid: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(seed)
    columns = {f"x{n}": rng.random(rows) for n in range(cuts)}
    columns["factor"] = rng.integers(1, 5, rows).astype(float)  # sums are exact
    thresholds = data.draw(st.lists(st.floats(0, 1), min_size=cuts, max_size=cuts))
    inverted = data.draw(st.lists(st.booleans(), min_size=cuts, max_size=cuts))
    order = data.draw(st.permutations([f"c{n}" for n in range(cuts)]))
    analysis = built(thresholds, inverted)
    result = analysis.run(wr.data.open(columns, grid=grid), nminus1=["SR"], order=order, progress=False)
    masks = [(columns[f"x{n}"] > thresholds[n]) != inverted[n] for n in range(cuts)]
    expected = [np.ones(rows, bool)]
    for left_out in range(cuts):
        others = [mask for n, mask in enumerate(masks) if n != left_out]
        expected.append(np.logical_and.reduce([np.ones(rows, bool), *others]))
    expected.append(np.logical_and.reduce(masks))
    table = result.nminus1["SR"]
    assert table.labels == ["initial", *(f"N - c{n}" for n in range(cuts)), "N"]
    assert table.nev == [int(mask.sum()) for mask in expected]
    # The weight may stand anywhere among the cuts: in the end it counts.
    assert table.wgtev[1:] == [columns["factor"][mask].sum() for mask in expected[1:]]
    assert list(result.nminus1) == ["SR"]
    assert result.cutflow["SR"].passed == expected[-1].sum()


def muon_analysis() -> wr.Pipeline:
    analysis = wr.Pipeline("muons")

    @analysis.cut
    def two(pt: Any) -> Any:
        return ak.num(pt) >= 2

    @analysis.column
    def second(pt: Any) -> Any:
        return pt[:, 1]

    @analysis.cut
    def hard(second: Any) -> Any:
        return second > 20

    @analysis.cut
    def even(number: Any) -> Any:
        return number % 2 == 0

    @analysis.output
    def count(second: Any) -> int:
        return len(second)

    return analysis


PT = ak.Array([[30.0, 25.0], [50.0], [40.0, 10.0], [60.0, 22.0], [], [31.0, 30.0, 2.0]])
DATA = {"pt": PT, "number": np.arange(6)}


def test_a_cut_that_others_rely_on_says_so_and_changes_nothing_else() -> None:
    plain = muon_analysis().run(DATA, progress=False)
    result = muon_analysis().run(DATA, nminus1=True, progress=False)
    table = result.nminus1["all"]
    assert table.nev == [6, None, 2, 3, 1]
    assert "column 'second' fails without it" in table.failures["two"]
    assert "n/a" in str(table)
    assert result["count"] == plain["count"] == 1
    assert result.cutflow["all"].as_dict() == plain.cutflow["all"].as_dict()


@pytest.mark.parametrize("grid", [1, 2, 6])
def test_a_cut_is_given_up_for_the_whole_run_whatever_the_units(grid: int) -> None:
    result = muon_analysis().run(wr.data.open(DATA, grid=grid), nminus1=True, progress=False)
    assert result.nminus1["all"].nev == [6, None, 2, 3, 1]


@pytest.mark.parametrize("order", list(permutations(["two", "hard", "even"])))
def test_what_can_be_left_out_does_not_depend_on_the_order(order: tuple[str, ...]) -> None:
    result = muon_analysis().run(DATA, nminus1=True, order=order, progress=False)
    assert result.nminus1["all"].nev == [6, None, 2, 3, 1]
    assert result["count"] == 1


def test_an_error_of_the_region_itself_is_still_an_error() -> None:
    analysis = wr.Pipeline("wrong")

    @analysis.cut
    def first(x: Any) -> Any:
        return x > 0

    @analysis.cut
    def broken(x: Any) -> Any:
        raise ValueError("no")

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    with pytest.raises(StepError, match="broken"):
        analysis.run({"x": np.arange(4)}, nminus1=True, progress=False)


def test_datasets_apart_and_together() -> None:
    analysis = muon_analysis()
    result = analysis.run({"a": DATA, "b": DATA}, nminus1=True, progress=False)
    assert result.nminus1["all", "a"].nev == [6, None, 2, 3, 1]
    assert result.nminus1["all"].nev == [12, None, 4, 6, 2]
    assert result.summary()["nminus1"]["all"]["all"]["nev"] == [12, None, 4, 6, 2]


def test_tables_that_are_not_there_are_named() -> None:
    result = muon_analysis().run({"a": DATA, "b": DATA}, nminus1=True, progress=False)
    with pytest.raises(KeyError) as raised:
        result.nminus1["all", "bb"]
    assert isinstance(raised.value, UnknownNameError)
    assert "no N-1 table of region 'all' for dataset 'bb'; did you mean 'b'?" in str(raised.value)
    assert "(datasets: a, b)" in str(raised.value)
    with pytest.raises(UnknownNameError, match=r"region 'al'; did you mean 'all'.*regions: all"):
        result.nminus1["al", "a"]
    with pytest.raises(UnknownNameError, match="none: run with nminus1=True"):
        muon_analysis().run(DATA, progress=False).nminus1["all"]


def test_an_unknown_region_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="'SR', which is not defined"):
        muon_analysis().run(DATA, nminus1=["SR"], progress=False)
