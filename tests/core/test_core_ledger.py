"""The ledger and its interval sets against models that keep every row by itself."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.intervals import Intervals
from windrow.core.ledger import Ledger
from windrow.core.records import Failure, FailureKind, Rows
from windrow.errors import InternalError

FAULT = Failure(FailureKind.USER, "ValueError", "no good")


ranges = st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))


def members(intervals: Intervals) -> set[int]:
    return {row for start, stop in intervals for row in range(start, stop)}


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), ranges), max_size=30))
def test_intervals_are_a_set_of_rows(operations: list[tuple[str, tuple[int, int]]]) -> None:
    intervals, model = Intervals(), set[int]()
    for what, (start, stop) in operations:
        rows = set(range(start, stop))
        assert intervals.free(start, stop) == (not rows & model) or not rows
        if what == "add":
            added = intervals.add(start, stop)
            if rows:
                assert added == (not rows & model)
            if added:
                model |= rows
        elif rows <= model:
            intervals.remove(start, stop)
            model -= rows
        assert members(intervals) == model
        assert intervals.total == len(model)
        found = list(intervals)
        assert all(a < b for a, b in found)
        assert all(left[1] < right[0] for left, right in pairwise(found))


@given(st.lists(ranges, max_size=8), ranges)
def test_gaps_are_the_rows_that_are_not_there(inside: list[tuple[int, int]], of: tuple[int, int]) -> None:
    intervals = Intervals()
    for start, stop in inside:
        intervals.add(start, stop)
    gaps = intervals.gaps(*of)
    assert {row for start, stop in gaps for row in range(start, stop)} == (set(range(*of)) - members(intervals))
    assert gaps == sorted(gaps)


def test_rows_that_are_not_there_cannot_be_removed() -> None:
    intervals = Intervals([(0, 10), (20, 30)])
    with pytest.raises(InternalError, match=r"\[5, 25\)"):
        intervals.remove(5, 25)


def test_a_row_cannot_be_listed_twice() -> None:
    with pytest.raises(InternalError, match="twice"):
        Intervals([(0, 10), (9, 12)])


# -- the ledger under every order of reports, overlapping ones included


class CarelessLedger(Ledger):
    """Accepts without looking whether a row has an owner: the rule that is tested below."""

    def accept(self, output: str, rows: tuple[Rows, ...], skipped: Any = ()) -> bool:
        for part in rows:
            taken = self.books[part.input].taken
            for start, stop in taken.gaps(part.start, part.stop):
                taken.add(start, stop)
            self.held_rows += part.stop - part.start
        self.held[output] = rows
        return True


def rows_in_result(ledger: Ledger, seed: int) -> Counter[tuple[int, int]]:
    """Live through random reports of overlapping partials, as speculation would make them."""
    rng = random.Random(seed)
    ledger.expect(0, [(0, 20)])
    ledger.expect(1, [(0, 5), (10, 20)])
    held: list[tuple[str, tuple[Rows, ...]]] = []
    result: Counter[tuple[int, int]] = Counter()
    for number in range(40):
        act = rng.random()
        if act < 0.6 or not held:
            source = rng.randint(0, 1)
            if source:
                start, most = rng.choice([(rng.randint(0, 4), 5), (rng.randint(10, 19), 20)])
            else:
                start, most = rng.randint(0, 19), 20
            parts: tuple[Rows, ...] = (Rows(source, start, rng.randint(start + 1, most)),)
            owned = any(
                one.start < parts[0].stop and parts[0].start < one.stop and one.input == source
                for _, other in held
                for one in other
            ) or any((source, row) in result for row in range(parts[0].start, parts[0].stop))
            accepted = ledger.accept(str(number), parts)
            if type(ledger) is Ledger:
                assert accepted == (not owned)
            if accepted:
                held.append((str(number), parts))
            continue
        output, parts = held.pop(rng.randrange(len(held)))
        if act < 0.85:
            assert ledger.settle(output) == parts
            result.update((p.input, row) for p in parts for row in range(p.start, p.stop))
        else:
            assert ledger.release(output) == parts
    if type(ledger) is Ledger:
        assert ledger.done_rows == sum(result.values())
        assert ledger.held_rows == sum(p.stop - p.start for _, parts in held for p in parts)
    return result


@pytest.mark.parametrize("seed", range(50))
def test_overlapping_reports_never_double_a_row(seed: int) -> None:
    assert max(rows_in_result(Ledger(), seed).values(), default=1) == 1


def test_a_ledger_that_does_not_look_doubles_rows() -> None:
    doubled = 0
    for seed in range(50):
        try:
            doubled += max(rows_in_result(CarelessLedger(), seed).values(), default=1) > 1
        except InternalError:
            doubled += 1
    assert doubled > 25


def test_a_partial_of_several_ranges_is_accepted_as_a_whole_or_not_at_all() -> None:
    ledger = Ledger()
    ledger.expect(0, [(0, 100)])
    assert ledger.accept("1", (Rows(0, 40, 50),))
    assert not ledger.accept("2", (Rows(0, 0, 10), Rows(0, 45, 60)))
    assert ledger.unowned((Rows(0, 0, 100),)) == [Rows(0, 0, 40), Rows(0, 50, 100)]
    assert ledger.held_rows == 10


def test_the_account_tells_every_row_once() -> None:
    ledger = Ledger()
    ledger.unopened[3] = None
    ledger.expect(0, [(0, 100)])
    ledger.accept("1", (Rows(0, 0, 10),))
    ledger.settle("1")
    ledger.accept("2", (Rows(0, 50, 60),))
    ledger.fail(Rows(0, 20, 30), FAULT)
    assert [(e.start, e.stop, e.state) for e in ledger.account(0)] == [
        (0, 10, "done"),
        (10, 20, "missing"),
        (20, 30, "failed"),
        (30, 50, "missing"),
        (50, 60, "held"),
        (60, 100, "missing"),
    ]
    assert ledger.account(0)[2].reason == "no good"
    assert ledger.account(3) == [(0, None, "missing", "never opened")]
    ledger.fail_input(3, FAULT)
    assert ledger.account(3) == [(0, None, "failed", "no good")]
    assert (ledger.last_row(0), ledger.last_row(3)) == (100, 0)
    assert not ledger.accounted


def test_rows_with_an_owner_cannot_be_given_up() -> None:
    ledger = Ledger()
    ledger.expect(0, [(0, 10)])
    ledger.accept("1", (Rows(0, 0, 5),))
    with pytest.raises(InternalError, match="owner"):
        ledger.fail(Rows(0, 4, 8), FAULT)
