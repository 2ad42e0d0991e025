"""Waves: the decision against all plans there are, what it learns from, and the store over a link."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windrow.blocks.columns import ColumnStore
from windrow.blocks.fetch_ahead import MEMORY, AccessLog, Moment, companions, wave_length
from windrow.blocks.selection import Selection, everything
from windrow.data.base import ColumnInfo, FileInfo

lanes = st.sets(st.integers(0, 2), min_size=1).map(frozenset)
moment = st.builds(
    lambda size, reached, share, lanes: Moment(size, reached, share * reached, lanes),
    st.floats(0, 1e8), st.floats(0, 1), st.floats(0, 1), lanes,
)  # fmt: skip
some_moments = st.lists(moment, min_size=1, max_size=7)
link = st.tuples(st.floats(1e-4, 1), st.floats(1e5, 1e9))


def expected_cost(moments: list[Moment], starts: tuple[int, ...], round_trip: float, speed: float) -> float:
    """The seconds of a plan whose waves start at ``starts``, written as one would explain it."""
    total = 0.0
    for start, stop in pairwise((*starts, len(moments))):
        wave = moments[start:stop]
        comes = 1.0 if start == 0 else max(one.reached for one in wave)
        size = 0.0
        for one in wave:
            wanted = 1.0
            if start:
                # Rows only get fewer: a moment until then that wanted these lanes' rows, or more, is a bound.
                before = [m.share for m in moments[: start + 1] if m.lanes >= one.lanes]
                wanted = max(min([*before, 1.0]), one.share)
            size += one.size * wanted
        total += comes * round_trip + size / speed
    return total


def best_plans(moments: list[Moment], round_trip: float, speed: float, most: int) -> dict[int, float]:
    """By the length of the first wave: the cost of the best plan that begins with it."""
    count = len(moments)
    found: dict[int, float] = dict.fromkeys(range(1, count + 1), inf)

    def extend(starts: tuple[int, ...]) -> None:
        first = starts[1] if len(starts) > 1 else count
        cost = expected_cost(moments, starts, round_trip, speed)
        found[first] = min(found[first], cost)
        if len(starts) < most:
            for following in range(starts[-1] + 1, count):
                extend((*starts, following))

    extend((0,))
    return found


@given(some_moments, link, st.integers(1, 4))
def test_no_plan_is_better(moments: list[Moment], link: tuple[float, float], most: int) -> None:
    moments[0] = Moment(moments[0].size, 1.0, 1.0, moments[0].lanes)
    length = wave_length(moments, *link, most)
    plans = best_plans(moments, *link, most)
    assert plans[length] == pytest.approx(min(plans.values()), rel=1e-9, abs=1e-12)


@given(some_moments, link)
def test_everything_at_once_where_nothing_is_cut_or_one_request_is_allowed(
    moments: list[Moment], link: tuple[float, float]
) -> None:
    assert wave_length(moments, *link, 1) == len(moments)
    certain = [Moment(one.size, 1.0, 1.0, one.lanes) for one in moments]
    assert wave_length(certain, *link) == len(moments)


def test_the_two_extremes() -> None:
    lane = frozenset({0})
    moments = [Moment(1e6, 1.0, 1.0, lane), *[Moment(1e6, 0.1, 0.1, lane)] * 5]
    assert wave_length(moments, round_trip_s=1.0, bytes_per_s=1e9) == 6
    assert wave_length(moments, round_trip_s=1e-6, bytes_per_s=1e6) == 1
    assert wave_length(moments[:1], 1.0, 1.0) == 1
    assert wave_length([], 1.0, 1.0) == 0


def test_another_lane_s_cut_is_no_reason_to_wait() -> None:
    """Rows of lane 1 are not fewer after lane 0 was cut: waiting for that moment saves nothing."""
    now = Moment(1e6, 1.0, 1.0, frozenset({0, 1}))
    cut = Moment(1e3, 1.0, 0.01, frozenset({0}))
    other = Moment(1e8, 1.0, 0.01, frozenset({1}))
    mine = Moment(1e8, 1.0, 0.01, frozenset({0}))
    assert wave_length([now, cut, mine], 0.05, 1e8) == 1
    assert wave_length([now, cut, other], 0.05, 1e8, 2) == 2  # it waits for its own moment


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 100), min_size=1), st.floats(0, 300), st.data())
def test_companions_fit(sizes: dict[str, float], budget: float, data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(sorted(sizes)))
    chosen = companions(column, sizes, budget)
    assert chosen[0] == column
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(sizes)
    extra = sum(sizes[name] for name in chosen[1:])
    assert extra <= budget + 1e-9
    left = [size for name, size in sizes.items() if name not in chosen]
    if left:
        assert extra + min(left) > budget - 1e-9
        assert max((sizes[name] for name in chosen[1:]), default=0.0) <= min(left)


def test_what_is_unknown_is_expected() -> None:
    log = AccessLog()
    assert log.expected("data", "cut") == (1.0, 1.0)
    assert not log.knows("data", "cut")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
@example([0.9999999999999999] * 3)  # their sum is rounded to that of three ones
def test_what_was_seen_is_expected(shares: list[float]) -> None:
    log = AccessLog()
    for share in shares:
        log.note("data", {"cut": share})
    assert log.knows("data", "cut")
    assert not log.knows("other", "cut")
    reached, expected = log.expected("data", "cut")
    assert 0 < expected <= reached <= 1
    if all(shares):
        assert reached == 1.0
    rounding = 1e-12  # of the sums that a mean is made from
    assert min(shares) * 0.5 <= expected <= max(*shares, 0.5) + rounding


def test_old_chunks_are_forgotten() -> None:
    log = AccessLog()
    for _ in range(10 * MEMORY):
        log.note("data", {"cut": 1.0})
    for _ in range(10 * MEMORY):
        log.note("data", {"cut": 0.0})
    assert max(log.expected("data", "cut")) < 0.05


# -- the store over a link ---------------------------------------------------------------------------


class FakeReader:
    """Rows that are their numbers; remembers what it was asked for."""

    class link:  # noqa: N801 - stands for an instance
        round_trip_s, bytes_per_s = 0.05, 1e8

    def __init__(self) -> None:
        columns = {n: ColumnInfo(name=n, kind="flat", dtype=np.dtype("i8")) for n in "abc"}
        self.info = FileInfo(rows=100, borders=(0, 100), columns=columns, identity="x")
        self.bytes_read, self.reads = 0, []  # type: ignore[var-annotated]
        self.fetched: list[Any] = []
        self.forgotten = 0

    def read(self, columns: Any, start: int, stop: int) -> dict[str, Any]:
        self.reads.append((tuple(columns), start, stop))
        return {name: np.arange(start, stop) for name in columns}

    def prefetch(self, wanted: Any) -> None:
        self.fetched.append(sorted((tuple(names), start, stop) for names, start, stop in wanted))

    def forget(self) -> None:
        self.forgotten += 1

    def close(self) -> None:
        pass


def test_separate_ranges_are_one_request() -> None:
    reader = FakeReader()
    store = ColumnStore(reader, 10, 40, np.array([0, 10, 20, 30, 40]))
    rows = Selection(40, np.array([3, 25]))
    store.load(["a", "b"], rows)
    assert reader.fetched == [[(("a", "b"), 10, 20), (("a", "b"), 30, 40)]]
    assert store.file("a", rows).tolist() == [13, 35]
    # More rows: what is here is neither fetched nor read again.
    assert store.file("b", everything(40)).tolist() == list(range(10, 50))
    assert reader.fetched[1:] == [[(("b",), 20, 30), (("b",), 40, 50)]]
    store.clear()
    assert reader.forgotten == 1
    store.load(["a"], rows)
    assert len(reader.fetched) == 3


def test_what_was_fetched_is_read_without_a_request() -> None:
    reader = FakeReader()
    store = ColumnStore(reader, 0, 40, np.array([0, 10, 20, 30, 40]))
    everything_lacks = store.lacking(["a", "b"], ((0, 40),))
    assert everything_lacks == {((0, 40),): ["a", "b"]}
    store.fetch(everything_lacks)
    assert store.lacking(["a", "b", "c"], ((0, 40),)) == {((0, 40),): ["c"]}
    assert store.lacking(["a"], ((10, 20),)) == {}
    assert store.file("a", Selection(40, np.array([15]))).tolist() == [15]
    assert len(reader.fetched) == 1
    assert reader.reads == [(("a",), 10, 20)]
    store.fetch({})
    assert len(reader.fetched) == 1


def test_a_failed_fetch_is_remembered_as_a_failed_read() -> None:
    class Broken(FakeReader):
        def prefetch(self, wanted: Any) -> None:
            raise OSError("line cut")

    store = ColumnStore(Broken(), 0, 40, np.array([0, 40]))
    with pytest.raises(OSError, match="line cut"):
        store.load(["a"], everything(40))
    assert isinstance(store.read_error, OSError)
    assert store.lacking(["a"], ((0, 40),)) == {((0, 40),): ["a"]}
