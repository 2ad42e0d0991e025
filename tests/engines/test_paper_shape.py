"""The scenarios of the task-shaping paper: their books add up, and bad configurations cost what they do there."""

from __future__ import annotations

from typing import Any

import pytest

from loading import load

load("benchmarks/harness.py", known=True)  # which it imports
PAPER: Any = load("benchmarks/paper_shape.py")


@pytest.mark.slow
def test_bad_configurations_come_in_the_order_of_figure_6() -> None:
    seconds = {name: PAPER.figure_6(name, 4).seconds for name in "ABCD"}
    assert seconds["A"] < seconds["B"] < seconds["C"] < seconds["D"]
    assert seconds["C"] / seconds["A"] >= 5
    assert seconds["D"] / seconds["A"] >= 20


def test_whole_files_fit_in_eight_gigabytes_and_not_in_two() -> None:
    assert PAPER.figure_6("B", 4).complete
    done = PAPER.figure_6("E", 4)
    assert done.run.outcome.status == "failed"
    assert "of memory" in done.run.outcome.failure.message


@pytest.mark.parametrize(("memory", "most"), [(2.0, 4), (2.1, 3), (2.7, 2), (8.0, 1)])
def test_a_node_of_eight_gigabytes_is_packed_by_memory(memory: float, most: int) -> None:
    done = PAPER.auto(PAPER.fixed(128 * PAPER.K, memory * PAPER.GB), 0)
    assert set(done.books.most.values()) == {most}


def test_all_lost_time_is_counted() -> None:
    """What tasks took in vain is what the engine says; every row is in one task that counts."""
    done = PAPER.figure_7(PAPER.guided_shares(), 2)
    tally, books = done.run.tally, done.books
    assert done.complete
    assert books.exhausted > 0
    assert books.lost["memory"] + books.lost["twins"] == pytest.approx(tally.lost_s, rel=1e-3)
    assert 0 < done.lost < 1
    assert done.lost == pytest.approx(books.lost["memory"] / tally.present_s, rel=1e-3)
    assert len(books.sizes) == tally.tasks
    assert sum(books.sizes) == sum(one.rows for one in PAPER.events(2, PAPER.NODE).inputs)


@pytest.mark.parametrize("seed", [1, 7, 107])
def test_slow_inputs_and_a_slow_worker_leave_no_tail(seed: int) -> None:
    done, least = PAPER.skewed(PAPER.learned(), seed)
    assert done.complete
    assert done.seconds <= 1.10 * least


@pytest.mark.parametrize("late", [0.2, 0.9])
def test_a_slow_worker_that_joins_late_leaves_no_tail(late: float) -> None:
    _, least = PAPER.skewed(PAPER.learned(), 1)
    done, least = PAPER.skewed(PAPER.learned(), 1, late * least)
    assert done.complete
    assert done.seconds <= 1.10 * least


def test_workers_that_come_and_go_lose_nothing() -> None:
    done = PAPER.figure_9(PAPER.fixed(64 * PAPER.K, 1.15 * PAPER.GB), 1)
    assert done.complete
    assert done.run.outcome.ledger.done_rows == sum(one.rows for one in PAPER.events(1, PAPER.NODE).inputs)
    assert done.books.lost["nodes"] > 0
    assert len(done.books.most) == 50
