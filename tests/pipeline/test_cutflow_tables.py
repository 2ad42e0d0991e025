"""Cutflow tables add up, say which order they show, and read as a table and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import UsageError
from windrow.pipeline.cutflow.table import Cutflow, Line, Table
from windrow.pipeline.cutflow.written import Member

if TYPE_CHECKING:
    from pathlib import Path

CUTS = {"a": False, "b": True}
WRITTEN = ("a", "w", "b")


Order = tuple[str, ...]


def member(orders: dict[Order, list[list[int]]], dataset: str = "d", absent: str = "") -> Member:
    """Make what a dataset has of entered, passed, undefined and NaN, line by line; weights count double."""
    counts = {}
    for order, numbers in orders.items():
        mine = np.array(numbers, dtype=np.float64)
        counts[order] = np.concatenate([mine, 2 * mine[:, 1:2], 4 * mine[:, 1:2]], axis=1)
    if counts:
        ends = [(lines[0], [lines[0, 0], lines[-1, 1], 0, 0, *lines[-1, 4:]]) for lines in counts.values()]
        counts[()] = np.sum(ends, axis=0)
    return Member(dataset, counts, frozenset(absent))


def table(orders: dict[Order, list[list[int]]], dataset: str = "d", absent: str = "", **options: Any) -> Table:
    return Table("SR", dataset, CUTS, WRITTEN, frozenset("w"), (member(orders, dataset, absent),), **options)


ab, ba = ("a", "w", "b"), ("b", "a", "w")
LINES = [[10, 10, 0, 0], [10, 6, 1, 0], [6, 2, 0, 3]]
SIMPLE = table({ab: LINES})


def test_a_table_of_one_order_is_the_written_one() -> None:
    assert SIMPLE.passed == 2
    assert SIMPLE.why == ""
    assert SIMPLE.written == SIMPLE.executed
    assert SIMPLE.executed == (
        Line("initial", 10, 10, 20.0, 40.0, 0, 0),
        Line("a", 10, 6, 12.0, 24.0, 1, 0),
        Line("b", 6, 2, 4.0, 8.0, 0, 3, inverted=True),
    )
    assert SIMPLE.executed[2].label == "!b"
    assert SIMPLE.executed[2].error == pytest.approx(8.0**0.5)


def test_a_table_reads_as_text() -> None:
    assert str(SIMPLE) == (
        "SR (d): exact, written order\n"
        "  cut      passed   of cut   of all  weighted     +-\n"
        "  initial      10  100.00%  100.00%        20  6.325\n"
        "  a             6   60.00%   60.00%        12  4.899  1 undefined\n"
        "  !b            2   33.33%   20.00%         4  2.828  3 with NaN"
    )


def test_an_unweighted_table_has_no_weights() -> None:
    plain = Table("SR", None, CUTS, WRITTEN, frozenset(), (member({ab: LINES}, absent="a"),))
    assert str(plain) == (
        "SR (all datasets): exact, written order\n"
        "  cut      passed   of cut   of all\n"
        "  initial      10  100.00%  100.00%\n"
        "  a             6   60.00%   60.00%  n/a here, 1 undefined\n"
        "  !b            2   33.33%   20.00%  3 with NaN"
    )


def test_a_table_of_another_order_says_so() -> None:
    moved = table({ba: [[10, 10, 0, 0], [10, 5, 0, 0], [5, 2, 0, 0]]})
    assert [line.label for line in moved.executed] == ["initial", "!b", "a"]
    assert moved.written is None
    assert "did not run in the written order: b a w" in moved.why
    assert str(moved).startswith("SR (d): exact, executed order\n")


def test_a_moved_weight_alone_moves_the_written_table() -> None:
    """A line is weighted by the weights above it, so their place among the cuts counts."""
    moved = table({("w", "a", "b"): LINES})
    assert moved.executed == SIMPLE.executed
    assert moved.written is not None
    # Above the cut a nothing is written that weighs; the last line is known whatever ran.
    assert [line.sumw for line in moved.written] == [20.0, 6.0, 4.0]
    assert [line.kind for line in moved.written] == ["exact"] * 3
    # Where a weight ran too late, only rows that were looked at could tell.
    late = Table("SR", "d", CUTS, ("w", "a", "b"), frozenset("w"), SIMPLE.members)
    assert late.written is None
    unweighted = Table("SR", "d", CUTS, WRITTEN, frozenset(), moved.members)
    assert unweighted.written == unweighted.executed


def test_steps_that_are_neither_cut_nor_weight_may_move() -> None:
    both = table({("col", "a", "w", "b"): LINES, ("a", "w", "col", "b"): LINES})
    assert both.why == ""
    assert [line.passed for line in both.executed] == [20, 12, 4]
    assert len(both.executed) == 3


def test_several_orders_add_what_reached_each_cut_and_end_with_what_is_left() -> None:
    several = table({ab: LINES, ba: [[20, 20, 0, 0], [20, 9, 0, 2], [9, 5, 1, 0]]})
    # The order of the larger part comes first.
    assert [(line.label, line.entered, line.passed) for line in several.executed] == [
        ("initial", 30, 30), ("!b", 26, 11), ("a", 19, 11), ("selected", 30, 7),
    ]  # fmt: skip
    assert several.passed == 7
    assert several.executed[-1].sumw == 14.0
    assert several.written is None
    assert "executed, 2 orders" in str(several)


def test_a_cut_may_be_called_initial_or_selected() -> None:
    cuts = {"initial": True, "selected": False}

    def part(order: Order, *passed: int) -> Table:
        lines = [[n, n, 0, 0] for n in passed]
        return Table("SR", "d", cuts, ("initial", "selected"), frozenset(), (member({order: lines}),))

    one = part(("initial", "selected"), 9, 5, 3)
    assert [(line.label, line.passed) for line in one.executed] == [
        ("initial", 9), ("!initial", 5), ("selected", 3),
    ]  # fmt: skip
    two = one + part(("selected", "initial"), 4, 2, 1)
    assert [(line.label, line.passed) for line in two.executed] == [
        ("initial", 13), ("!initial", 6), ("selected", 5), ("selected", 4),
    ]  # fmt: skip


def test_a_cut_called_initial_runs() -> None:
    analysis = wr.Pipeline("names")
    analysis.cut(lambda x: x > 1, name="initial")
    analysis.output(lambda x: len(x), name="count")
    result = analysis.run({"x": np.arange(4.0)}, engine="inline")
    assert [line.passed for line in result.cutflow["all"].executed] == [4, 2]


def test_a_dataset_without_rows_has_lines_of_zeros() -> None:
    empty = table({}, planned=("b", "w", "a"))
    assert [(line.label, line.passed) for line in empty.executed] == [
        ("initial", 0), ("!b", 0), ("a", 0),
    ]  # fmt: skip
    assert empty.written is not None
    assert [line.label for line in empty.written] == ["initial", "a", "!b"]
    assert (empty.passed, empty.why) == (0, "")
    assert " - " in str(empty)
    assert (empty + SIMPLE).executed == SIMPLE.executed == (SIMPLE + empty).executed


# --- adding ---------------------------------------------------------------------------------------


def chain(survivors: list[int], odd: list[int]) -> list[list[int]]:
    """Make lines of which each has what the one before left."""
    all_rows, one, two = sorted(survivors, reverse=True)
    return [[all_rows, all_rows, 0, 0], [all_rows, one, *odd[:2]], [one, two, *odd[2:]]]


numbers = st.builds(
    chain, st.lists(st.integers(0, 50), min_size=3, max_size=3), st.lists(st.integers(0, 50), min_size=4, max_size=4)
)
tables = st.builds(
    table,
    st.dictionaries(st.sampled_from([ab, ba]), numbers, max_size=2),
    st.sampled_from(["d", "e"]),
    st.sampled_from(["", "a", "b", "ab"]),
)


@given(tables, tables, tables)
def test_adding_is_associative_and_adds_up(one: Table, two: Table, three: Table) -> None:
    left, right = (one + two) + three, one + (two + three)
    # In text, because whole numbers of weights have no rounding to hide.
    assert left.as_dict() == right.as_dict()
    assert str(left) == str(right)
    assert left.passed == one.passed + two.passed + three.passed
    for name in ("initial", "a", "b"):
        counted = [
            sum(getattr(line, field) for t in (one, two, three) for line in t.executed
                if line.name == name)
            for field in ("entered", "passed", "undefined", "nan")
        ]  # fmt: skip
        found = [line for line in left.executed if line.name == name]
        if left.ran:
            assert [[f.entered, f.passed, f.undefined, f.nan] for f in found] == [counted]


@given(tables, tables)
def test_adding_leaves_the_tables_as_they_were(one: Table, two: Table) -> None:
    before = one.as_dict(), two.as_dict()
    _ = one + two
    assert (one.as_dict(), two.as_dict()) == before


def test_a_cut_applies_to_a_sum_if_it_applies_anywhere() -> None:
    here = table({ab: LINES}, absent="a")
    there = table({ab: LINES}, "e", absent="ab")
    total = here + there
    assert total.dataset is None
    assert [line.applies for line in total.executed] == [True, False, True]
    assert (here + here).dataset == "d"


def test_tables_of_different_regions_do_not_add() -> None:
    other = Table("CR", "d", CUTS, WRITTEN, frozenset(), ())
    with pytest.raises(UsageError, match=r"'SR' of .* and 'CR' of"):
        _ = SIMPLE + other


# --- all tables -----------------------------------------------------------------------------------


def test_a_cutflow_is_a_mapping_by_region() -> None:
    cutflow = Cutflow({("SR", "d"): SIMPLE, ("SR", "e"): table({ab: LINES}, "e")})
    assert list(cutflow) == ["SR"]
    assert len(cutflow) == 1
    assert cutflow["SR"].passed == 4
    assert cutflow["SR"].dataset is None
    assert cutflow["SR", "d"] is SIMPLE
    assert str(cutflow) == str(cutflow["SR"])
    assert "CR" not in cutflow
    with pytest.raises(KeyError, match=r"no cutflow of region 'CR' \(regions: SR\)"):
        cutflow["CR"]
    with pytest.raises(KeyError, match=r"no cutflow of region 'SR' for dataset 'f' \(datasets: d, e\)"):
        cutflow["SR", "f"]


def test_cutflows_add_table_by_table_also_where_one_lacks_a_region() -> None:
    control = Table("CR", "e", CUTS, WRITTEN, frozenset(), ())
    total = Cutflow({("SR", "d"): SIMPLE}) + Cutflow({("SR", "d"): SIMPLE, ("CR", "e"): control})
    assert total["SR"].passed == 4
    plain = total.as_dict()
    assert {region: list(plain[region]["datasets"]) for region in plain} == {
        "SR": ["d"], "CR": ["e"],
    }  # fmt: skip


def test_json_says_everything_the_table_says() -> None:
    plain = json.loads(SIMPLE.to_json())
    assert plain["passed"] == 2
    assert plain["why_no_written"] == ""
    assert plain["written"] == plain["executed"]
    assert plain["executed"][2] == {
        "cut": "!b", "kind": "exact", "entered": 6, "passed": 2, "passed_error": 0.0,
        "interval": [2, 2], "sampled": 0, "sumw": 4.0, "sumw_error": 8.0**0.5,
        "sumw_sampling": 0.0, "undefined": 0, "nan": 3, "applies": True,
    }  # fmt: skip
    every = json.loads(Cutflow({("SR", "d"): SIMPLE}).to_json())
    assert every["SR"]["datasets"]["d"] == plain
    assert every["SR"]["all"] == plain
    moved = json.loads(table({ba: LINES}).to_json())
    assert moved["written"] is None
    assert moved["why_no_written"]


def test_rows_of_a_program_without_steps_are_on_the_first_line(tmp_path: Path) -> None:
    analysis = wr.Pipeline("none")

    @analysis.cut(when="is_mc")
    def positive(x: Any) -> Any:
        return x > 0

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    x = np.arange(-30.0, 70.0)
    source = {name: {"files": {"x": x}, "metadata": {"is_mc": name == "mc"}} for name in ("mc", "data")}
    for resume in (False, True):
        found = analysis.run(source, rundir=tmp_path / "run", resume=resume, progress=False).cutflow
        assert [line.passed for line in found["all", "data"].executed] == [100, 100]
        assert [line.passed for line in found["all", "mc"].written or ()] == [100, 69]
        assert [line.passed for line in found["all"].executed] == [200, 169]
    alone = wr.Pipeline("alone")
    alone.output(count)
    table = alone.run({"x": x}, progress=False).cutflow["all"]
    assert [(line.entered, line.passed, line.sumw) for line in table.executed] == [(100, 100, 100)]
