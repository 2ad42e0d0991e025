"""Units that are run in parts: when they are evaluated, and what becomes of parts that are lost, refused or left over."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from core.test_core_rows import A, B, feeder_of, go_on, known, rows_at, world
from core_world import ERROR, missing_rows
from windrow.core import rows
from windrow.core.events import CancelRequested
from windrow.core.records import EvaluateUnit, Made, Rows, RunRows

if TYPE_CHECKING:
    from core_world import World


def evaluations(made: World) -> list[tuple[Rows, ...]]:
    return [one.task.payload.rows for one in made.launched if isinstance(one.task.payload, EvaluateUnit)]


def in_parts(*rows: int, chunk: int = 4, workers: int = 1, **options: Any) -> World:
    return world(known(*rows, unit=10), workers, chunk=chunk, rows={"parts": True, "chunk": chunk}, **options)


def test_a_unit_is_evaluated_from_all_its_parts_in_the_order_of_rows() -> None:
    made = in_parts(20)
    assert made.launched[0].task.payload == RunRows((Rows(0, 0, 4),), part=True)
    made.run()
    first = tuple(Rows(0, *part) for part in ((0, 4), (4, 8), (8, 10)))
    second = tuple(Rows(0, *part) for part in ((10, 14), (14, 18), (18, 20)))
    assert sorted(evaluations(made)) == [first, second]
    assert made.end is not None
    assert made.end.status == "complete"


def test_units_that_fit_are_whole() -> None:
    made = in_parts(20, chunk=10)
    made.run()
    assert evaluations(made) == []
    assert not any(one.task.payload.part for one in made.launched if isinstance(one.task.payload, RunRows))


def test_a_range_within_a_unit_is_evaluated_by_itself() -> None:
    (spec,) = known(20)
    made = world([replace(spec, ranges=((2, 5), (6, 14)))], chunk=2, rows={"parts": True, "chunk": 2})
    made.run()
    assert sorted((rows[0].start, rows[-1].stop) for rows in evaluations(made)) == [(2, 5), (6, 10), (10, 14)]
    assert made.end is not None
    assert made.end.status == "complete"


def test_what_a_task_did_not_do_is_cut_again_and_what_it_did_is_a_part() -> None:
    made = world(known(10), chunk=10, rows={"parts": True})
    assert made.launched[0].task.payload == RunRows((Rows(0, 0, 10),), short_s=rows.SHORT_S)
    go_on(made, A, rest=Rows(0, 3, 10))
    assert rows_at(made, A) == [(0, 3, 10)]
    feeder = feeder_of(made)
    assert feeder.accounts["d"].costs().rows_in == 3
    assert feeder.ledger.held_rows == 3
    made.run()
    assert evaluations(made) == [(Rows(0, 0, 3), Rows(0, 3, 10))]


def test_one_worker_looks_at_first_rows_for_all() -> None:
    made = world(known(10, 10), chunk=10, workers=2, rows={"parts": True})
    limits = [one.task.payload.short_s for one in made.launched if isinstance(one.task.payload, RunRows)]
    assert limits == [rows.SHORT_S / 2, math.inf]


def test_a_part_that_is_lost_on_its_way_is_run_again_and_the_evaluation_waits_for_it() -> None:
    made = in_parts(10, chunk=5, workers=2, restart=True)
    go_on(made, A)
    go_on(made, B)  # both parts are there, and on their way to the driver
    assert feeder_of(made).ledger.held_rows == 10
    made.tell(*made.lose(B))
    assert [tuple(part) for part in feeder_of(made).ledger.held.values()] == [(Rows(0, 0, 5),)]
    made.run()
    assert made.rows_taken() == [Rows(0, 0, 5), Rows(0, 5, 10)] or made.rows_taken() == [Rows(0, 0, 10)]
    assert made.end is not None
    assert made.end.status == "complete"


def test_parts_of_a_unit_that_is_not_whole_are_missing_when_a_run_is_stopped() -> None:
    made = in_parts(10)
    go_on(made, A)
    made.tell(CancelRequested("no more"))
    made.run()
    assert made.end is not None
    assert made.end.status == "cancelled"
    assert missing_rows(feeder_of(made).ledger) == [Rows(0, 0, 10)]
    assert made.taken == []


def test_a_partial_that_is_lost_has_its_unit_run_whole_again_with_the_rows_that_were_left_out() -> None:
    """Or the two ranges beside a row that fails would be two partials of one unit."""
    made = world(known(10), 2, chunk=10, rows={"on_error": "skip"}, restart=True)
    go_on(made, A, skipped=((Rows(0, 4, 5), ERROR),))
    ledger = feeder_of(made).ledger
    assert ledger.failed_rows == 1
    made.tell(*made.lose(A))
    assert ledger.failed_rows == 0
    assert rows_at(made, B) == [(0, 0, 10)]


@pytest.mark.usefixtures("as_in_production")
@pytest.mark.parametrize(
    ("bytes_per_row", "row_s", "parts"), [(0, 0.1, True), (100, 0.1, True), (100, 1e-6, False), (10**8, 10.0, False)]
)
def test_units_are_cut_where_they_take_long_and_what_rows_hand_over_is_carried_easily(
    bytes_per_row: int, row_s: float, parts: bool
) -> None:
    feeder = feeder_of(world(known(30, unit=10**6 if row_s < 0.01 else 10), chunk=5, rows={"parts": True}))
    (one,) = feeder.inputs.inputs.values()
    feeder.parts.keep(one, Made("some", 5 * bytes_per_row), Rows(0, 0, 5), ())
    assert feeder._pays("d", row_s, 10**6 if row_s < 0.01 else 10) == parts
    assert bool(feeder.notes) != parts


def test_a_task_teaches_about_the_rows_that_it_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(known(10), chunk=10, rows={"parts": True})
    sizes: list[int] = []
    monkeypatch.setattr(made.scheduler.policy, "seen", lambda task, _: sizes.append(task.size))
    go_on(made, A, rest=Rows(0, 3, 10))
    assert sizes == [3]
