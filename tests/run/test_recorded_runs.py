"""Recorded runs: what is read from them, and what they foretell of runs with other workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded_run import record, uneven
from windrow.core.records import Rows
from windrow.engines.simulated.devices import Device
from windrow.engines.simulated.model import SimulatedInput
from windrow.errors import DataError, MissingFileError
from windrow.run.recorded import CostsOfRows, lock_share_of, lock_wait_of, read_record, scatter
from windrow.run.simulate import forecast, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.engines.simulated.engine import Kind


# -- parts


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30), st.floats(0, 9)), max_size=8),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_rows_keep_what_they_cost_in_the_task_that_had_them(
    drawn: list[tuple[int, int, float]], first: int, second: int
) -> None:
    """Against a list with one entry for every row."""
    pieces: list[tuple[int, int, tuple[float, float, float]]] = []
    rows: list[float] = []
    for gap, size, cost in drawn:
        rows += [0.5] * gap
        pieces.append((len(rows), len(rows) + size, (cost, 2 * cost, 3 * cost)))
        rows += [cost / size] * size
    rows += [0.5] * 600
    costs = CostsOfRows(pieces, (0.5, 1.0, 1.5))
    start, stop = sorted((first, second))
    low, high = costs.until(start), costs.until(stop)
    expected = sum(rows[start:stop])
    for number in range(3):
        assert high[number] - low[number] == pytest.approx((number + 1) * expected, abs=1e-9)


@pytest.mark.parametrize("threads", [2, 3, 8])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.7, 1.0])
def test_the_share_of_the_lock_is_found_from_the_wait_it_led_to(share: float, threads: int) -> None:
    assert lock_share_of(lock_wait_of(share, threads), threads) == pytest.approx(share, abs=1e-6)


def test_threads_that_do_nothing_but_hold_the_lock_wait_for_all_others() -> None:
    assert lock_wait_of(1.0, 1) == 0
    assert lock_wait_of(1.0, 2) == pytest.approx(1.0)
    assert lock_wait_of(1.0, 5) == pytest.approx(4.0)
    assert lock_wait_of(0.0, 5) == 0
    assert lock_share_of(0.0, 4) == pytest.approx(0.0, abs=1e-12)
    assert lock_share_of(99.0, 4) == pytest.approx(1.0)


def test_what_changes_slowly_is_no_scatter() -> None:
    assert scatter([1 + 0.01 * number for number in range(200)]) < 0.01
    assert scatter([1.0, 1.2] * 100) == pytest.approx(0.2 / 2**0.5 / 1.1, rel=0.01)
    assert scatter([1.0, 2.0]) == 0.0
    assert scatter([0.0] * 5) == 0.0


# -- what is read


def test_a_record_has_the_inputs_as_they_were(tmp_path: Path) -> None:
    model = uneven()
    done = record(tmp_path / "run", model, 2, outside_s=1.25)
    found = read_record(tmp_path / "run")
    assert [(one.category, one.rows, one.borders) for one in found.inputs] == [
        (one.category, one.rows, one.borders) for one in model.inputs
    ]
    assert (found.workers, found.engine, found.chunk) == (2, "threads", 2_000)
    assert found.seconds == pytest.approx(done.seconds + 1.25)
    assert found.outside_s == pytest.approx(1.25, abs=0.01)
    assert found.complete


def test_costs_are_taken_apart(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(cold_s=3.0), 2, kind="processes")
    found = read_record(tmp_path / "run")
    cheap, dear = found.costs["cheap"], found.costs["dear"]
    assert cheap.fixed_s == pytest.approx(0.05, rel=0.02)
    # All tasks of the other are of one size but one: both costs are in what rows cost, or apart.
    assert cheap.cold_s == pytest.approx(3.0, rel=0.02)
    assert cheap.demand(Rows(0, 1_000, 5_000), 0, 0).free_s == pytest.approx(0.05 + 0.4, rel=0.05)
    assert dear.demand(Rows(3, 2_000, 4_000), 0, 0).free_s == pytest.approx(0.05 + 0.6, rel=0.05)
    assert cheap.lock_share == 0.0


def test_rows_that_were_not_wanted_are_not_wanted_again(tmp_path: Path) -> None:
    whole = SimulatedInput.even("cheap", 20_000, 500)
    model = uneven()
    part = SimulatedInput(category="cheap", rows=20_000, borders=whole.borders, ranges=((2_000, 5_000), (8_000, 9_000)))
    record(tmp_path / "run", type(model)(inputs=(part,), costs=model.costs), 1)
    (one,) = read_record(tmp_path / "run").inputs
    assert one.ranges == ((2_000, 5_000), (8_000, 9_000))


def test_a_run_that_was_killed_tells_what_it_can(tmp_path: Path) -> None:
    model = uneven()
    record(tmp_path / "run", model, 2, ended=False)
    log = tmp_path / "run" / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    keep = [line for line in lines if json.loads(line).get("input", 0) < 3][:-3]
    log.write_text("".join(keep) + '{"t": 12.5, "eve')
    found = read_record(tmp_path / "run")
    assert not found.complete
    assert [one.rows for one in found.inputs[:3]] == [20_000, 12_300, 7_000]
    assert all(one.ranges is None for one in found.inputs)  # what is missing is to come
    assert found.inputs[4].rows == round((20_000 + 12_300 + 7_000) / 3)
    words = " ".join(found.notes)
    assert "did not come to its end" in words
    assert "2 of 5 inputs were never opened" in words
    assert "1 lines" in words
    assert forecast(found, 4, seeds=(0,)).seconds > 0


def test_one_worker_does_not_tell_of_the_lock(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(lock_share=0.5), 1)
    found = read_record(tmp_path / "run")
    assert any("interpreter lock" in note for note in found.notes)
    assert found.costs["cheap"].lock_share == 0.0


def test_directories_without_a_run_or_a_log_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no run directory"):
        read_record(tmp_path / "nothing")
    with pytest.raises(DataError, match="not the directory of a run"):
        read_record(tmp_path)
    record(tmp_path / "run", uneven(), 1)
    log = tmp_path / "run" / "events.jsonl"
    log.write_text("\n".join(log.read_text().splitlines()[:2]))
    with pytest.raises(DataError, match="no task that ended"):
        read_record(tmp_path / "run")
    log.unlink()
    with pytest.raises(MissingFileError, match="no event log"):
        read_record(tmp_path / "run")


# -- what is foretold


@pytest.mark.parametrize("costs", [{}, {"cold_s": 1.0}, {"sigma": 0.2}, {"lock_share": 0.6}])
@pytest.mark.parametrize("recorded_at", [2, 3])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_a_record_foretells_runs_with_other_workers(
    costs: dict[str, Any], recorded_at: int, kind: Kind, tmp_path: Path
) -> None:
    model = uneven(**costs)
    record(tmp_path / "run", model, recorded_at, kind=kind)
    found = read_record(tmp_path / "run")
    for workers in (1, 2, 6):
        truth = simulate(model, workers, kind=kind, chunk=2_000).seconds
        foretold = forecast(found, workers, seeds=(0, 1, 2))
        assert foretold.seconds == pytest.approx(truth, rel=0.1)


@pytest.mark.parametrize("chunk", [None, 1_000, 5_000])
def test_a_record_foretells_other_cuttings(chunk: int | None, tmp_path: Path) -> None:
    model = uneven()
    record(tmp_path / "run", model, 2, kind="processes", chunk=2_000)
    found = read_record(tmp_path / "run")
    for workers in (1, 4):
        truth = simulate(model, workers, chunk=chunk).seconds
        assert simulate(found.model(), workers, chunk=chunk).seconds == pytest.approx(truth, rel=0.1)


def test_what_is_not_done_by_workers_stays(tmp_path: Path) -> None:
    record(tmp_path / "run", uneven(), 2, kind="processes", outside_s=20.0)
    foretold = forecast(read_record(tmp_path / "run"), 64, seeds=(0,))
    assert foretold.seconds > 20.0
    assert "not done by workers" in foretold.limit


def test_reads_may_come_from_another_device(tmp_path: Path) -> None:
    model = uneven()
    slow = Device(streams=(1,), rates=(1e6,))
    with_reads = type(model)(
        inputs=model.inputs,
        costs={
            name: type(one)(per_row_s=1e-4, read_per_row=1_000.0, device="disk")  # type: ignore[call-arg]
            for name, one in model.costs.items()
        },
        devices={"disk": Device(streams=(1,), rates=(1e12,))},
    )
    record(tmp_path / "run", with_reads, 2, kind="processes")
    found = read_record(tmp_path / "run")
    rows = sum(one.rows for one in model.inputs)
    foretold = forecast(found, 16, seeds=(0,), device=("slow", slow))
    assert foretold.seconds >= rows * 1_000 / 1e6
    assert "reading from slow" in foretold.limit
    assert forecast(found, 16, seeds=(0,)).seconds < 5.0


@pytest.mark.parametrize(
    ("costs", "workers", "kind", "words"),
    [
        ({}, 1, "processes", "the work itself"),
        ({"lock_share": 1.0}, 8, "threads", "the interpreter lock"),
        ({"cold_s": 30.0}, 4, "processes", "the first task of every worker"),
        ({}, 400, "processes", "only"),
        ({"merge_s": 2.0}, 4, "processes", "merging"),
    ],
)
def test_what_limits_a_run_is_said(costs: dict[str, Any], workers: int, kind: Kind, words: str) -> None:
    from windrow.run.simulate import what_limits

    assert words in what_limits(simulate(uneven(**costs), workers, kind=kind, chunk=2_000))
