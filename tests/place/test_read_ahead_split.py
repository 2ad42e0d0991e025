"""How threads are shared out between setting up and processing: oracles by hand, properties, and a small world."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from loading import load
from windrow.errors import UsageError
from windrow.place.read_ahead_split import (
    FIRST_PERIOD,
    LONGEST_PERIOD,
    MOST_AHEAD,
    Balance,
    FixedSplit,
    MeasuredSplit,
    Pool,
    pool_split,
)

PAPER: Any = load("benchmarks/paper_split.py")

seconds = st.floats(0.001, 1000.0)
threads = st.integers(1, 64)


def test_the_paper_moves_a_third_more_than_one_thread() -> None:
    """By hand: D = 2 s, P = 6 s, 4 + 4 threads: a thread is worth 1.5 s, and 2 s are to be made up for."""
    assert PAPER.paper_step(2, 6, 4, 4) == pytest.approx(4 / 3)
    assert PAPER.paper_step(6, 2, 4, 4) == pytest.approx(-4 / 3)


def test_the_exact_balance_is_two_of_eight() -> None:
    """By hand: 8 thread-seconds of setting up against 24 of processing."""
    assert pool_split(8, 8, 24) == Pool(2, 6)


@given(seconds, seconds, threads, threads)
def test_the_paper_moves_threads_to_the_slower_side_and_never_half_of_it(
    setup: float, process: float, s: int, p: int
) -> None:
    moved = PAPER.paper_step(setup, process, s, p)
    assert (moved > 0) == (process > setup)
    assert (moved < 0) == (setup > process)
    assert abs(moved) < (p if moved > 0 else s) / 2 or moved == 0


@given(seconds, st.integers(2, 64))
def test_nothing_moves_in_balance(second: float, many: int) -> None:
    assert PAPER.paper_step(second, second, many, many) == 0
    assert pool_split(2 * many, second, second) == PAPER.even_pool(2 * many)


@given(st.integers(2, 64), seconds, seconds)
def test_where_setting_up_computes_the_pool_is_the_exact_split(cores: int, setup: float, process: float) -> None:
    pool = pool_split(cores, setup, process, 1.0)
    assert sum(pool) == cores
    assert min(pool) >= 1
    wanted = cores * setup / (setup + process)
    assert pool.setting_up == min(max(round(wanted), 1), cores - 1)


@given(st.integers(1, 64), seconds, seconds, st.floats(0, 0.99))
def test_processors_are_busy_and_no_more_than_that(cores: int, setup: float, process: float, computing: float) -> None:
    pool = pool_split(cores, setup, process, computing)
    assert 1 <= pool.processing <= cores
    assert 1 <= pool.setting_up <= MOST_AHEAD * cores
    demand = cores * process / (process + computing * setup)
    assert abs(pool.processing - max(demand, 1)) <= 0.5 + 1e-9
    # As much is set up as is processed, unless there may not be more threads.
    assert pool.setting_up >= min(demand * setup / process - 0.1, MOST_AHEAD * cores) - 1e-9


def test_all_processors_are_left_to_processing_where_reading_only_waits() -> None:
    assert pool_split(2, 0.1, 0.1, 0.0) == Pool(2, 2)
    assert pool_split(4, 0.05, 0.1, 0.0) == Pool(2, 4)
    assert pool_split(4, 10.0, 0.1, 0.0) == Pool(4 * MOST_AHEAD, 4)


@given(st.integers(2, 64), seconds, seconds, st.sampled_from(["exact", "paper"]))
def test_a_split_that_is_tuned_comes_to_rest_and_keeps_one_of_each(
    many: int, setup: float, process: float, rule: str
) -> None:
    kind = Balance if rule == "exact" else PAPER.PaperBalance
    balance = kind(many, PAPER.even_pool(many))
    for _ in range(60):
        balance.checkpoint(setup, process)
        assert sum(balance.pool) == many
        assert min(balance.pool) >= 1
    rest = balance.pool
    balance.checkpoint(setup, process)
    assert balance.pool == rest
    assert balance.period == LONGEST_PERIOD
    if rule == "exact":
        # No split by whole threads has a slower side that is quicker, but for rounding to the nearest.
        def slowest(s: int) -> float:
            return max(setup / s, process / (many - s))

        wanted = many * setup / (setup + process)
        near = {min(max(n, 1), many - 1) for n in (math.floor(wanted), math.ceil(wanted))}
        assert rest.setting_up in near
        assert min(map(slowest, near)) == pytest.approx(min(map(slowest, range(1, many))))


def test_the_papers_rule_cannot_leave_a_single_thread() -> None:
    """It moves less than half of the slower side's threads, so of one thread it never makes two."""
    balance = PAPER.PaperBalance(24, Pool(1, 23))
    for _ in range(20):
        balance.checkpoint(1000.0, 1.0)
    assert balance.pool == Pool(1, 23)


def test_checkpoints_come_more_rarely_while_nothing_changes_and_more_often_again() -> None:
    balance = Balance(8, Pool(4, 4))
    periods = []
    for _ in range(6):
        balance.checkpoint(1, 1)
        periods.append(balance.period)
    assert periods == [4, 8, 8, 16, 16, 32]
    balance.checkpoint(1, 3)
    assert balance.period == 32
    balance.checkpoint(3, 1)
    assert balance.period == 16
    balance.checkpoint(3, 1)
    balance.checkpoint(1, 3)
    assert balance.period == 16  # one change is not two
    assert FIRST_PERIOD == 4


def test_a_split_has_a_thread_that_processes_and_none_below_zero() -> None:
    with pytest.raises(UsageError, match="such as"):
        FixedSplit(1, 0)
    with pytest.raises(UsageError, match="such as"):
        FixedSplit(-1, 3)


# -- the measured split ----------------------------------------------------------------------------


def run(
    split: MeasuredSplit,
    chunks: int,
    *,
    compute: float,
    decode: float,
    wait: float,
    workers: int,
    cores: int | None = None,
    pays: bool = True,
    now: float = 0.0,
) -> float:
    """Let chunks pass in an idealised world; return when it is over.

    Inline a worker computes, decodes and waits; what is set up apart costs only processor time, if it pays.
    """
    cores = cores or workers
    for _ in range(chunks):
        setting_up, processing = split.pool
        if setting_up:
            split.set_up(100, decode + wait, decode)
            busy = (compute + decode) / cores
            step = max(busy, (decode + wait) / setting_up, compute / processing)
            step = step if pays else 1.5 * (compute + decode + wait) / workers
            now += step
            split.processed(100, compute, 0.0, 0.0, now)
        else:
            now += (compute + decode + wait) / workers
            split.processed(100, compute + decode + wait, decode + wait, wait, now)
    return now


def test_nobody_sets_up_apart_where_nothing_waits() -> None:
    split = MeasuredSplit(4, lambda: True)
    run(split, 200, compute=0.05, decode=0.05, wait=0.0, workers=4)
    assert split.pool == Pool(0, 4)
    assert "by the workers themselves, which waited 0%" in split.said()


def test_where_workers_wait_for_data_others_set_up_and_it_says_so() -> None:
    split = MeasuredSplit(2, lambda: True)
    spent = run(split, 200, compute=0.1, decode=0.01, wait=0.2, workers=2)
    assert split.pool.setting_up >= 2
    assert split.pool.processing == 2
    assert spent < 0.55 * 200 * 0.31 / 2  # all but the beginning, at twice the speed and more
    assert "waited 65% of their time for data" in split.said()
    assert "in the end" in split.said()


def test_remote_files_are_read_ahead_from_the_beginning() -> None:
    split = MeasuredSplit(2, lambda: True, remote=True)
    assert split.pool == Pool(2, 2)
    late = MeasuredSplit(2, lambda: True)
    work: dict[str, Any] = {"compute": 0.1, "decode": 0.01, "wait": 0.4, "workers": 2}
    assert run(split, 200, **work) < run(late, 200, **work)
    assert split.pool == late.pool
    assert "ahead of the workers, because 98% of the time that reading takes" in split.said()


def test_remote_files_that_nobody_waits_for_are_read_by_the_workers() -> None:
    split = MeasuredSplit(2, lambda: True, remote=True)
    run(split, 100, compute=0.1, decode=0.1, wait=0.0, workers=2)
    assert split.pool == Pool(0, 2)
    assert "by the workers themselves, because 0% of the time" in split.said()


def test_what_looks_like_waiting_for_data_may_be_the_lock() -> None:
    split = MeasuredSplit(2, lambda: False)
    run(split, 100, compute=0.1, decode=0.01, wait=0.2, workers=2)
    assert split.pool == Pool(0, 2)


def test_a_trial_that_does_not_pay_is_given_up_for_good_and_told() -> None:
    split = MeasuredSplit(2, lambda: True)
    run(split, 100, compute=0.1, decode=0.01, wait=0.2, workers=2, pays=False)
    assert split.pool == Pool(0, 2)
    assert "tried, and changed the time by +50%" in split.said()


def test_a_disk_that_becomes_slow_is_noticed() -> None:
    split = MeasuredSplit(2, lambda: True)
    now = run(split, 100, compute=0.1, decode=0.01, wait=0.0, workers=2)
    assert split.pool == Pool(0, 2)
    run(split, 100, compute=0.1, decode=0.01, wait=0.3, workers=2, now=now)
    assert split.pool.setting_up > 0


@given(
    st.integers(1, 16), st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 80), st.booleans()
)  # fmt: skip
@example(1, 0.5, 0.0, 0.5, 80, False)
def test_a_measured_split_is_always_one_that_works(
    workers: int, compute: float, decode: float, wait: float, chunks: int, remote: bool
) -> None:
    assume(decode + wait > 0)
    split = MeasuredSplit(workers, lambda: True, remote=remote)
    run(split, chunks, compute=compute, decode=decode, wait=wait, workers=workers)
    assert 0 <= split.pool.setting_up <= MOST_AHEAD * workers
    assert 1 <= split.pool.processing <= workers
    split.said()


def test_a_fixed_split_never_changes() -> None:
    split = FixedSplit(1, 3)
    split.set_up(10, 9.0, 9.0)
    split.processed(10, 0.1, 0.0, 0.0, 1.0)
    assert split.pool == Pool(1, 3)
    assert split.said() == "reading: 1 thread set up and 3 processed, as asked for"
