"""How far a run is: what progress displays show. Read only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from windrow.core.scheduler import Scheduler

__all__ = ["Standing", "standing"]


class Standing(NamedTuple):
    """How far a run is; rows first."""

    known: int
    done: int
    failed: int
    held: int
    running: int
    waiting: int  #: can be cut now
    expected: int  #: estimate for inputs that nobody opened yet
    inputs: int
    inputs_unopened: int
    inputs_closed: int  #: every row done or failed
    tasks_running: int
    tasks_accepted: int
    workers: int
    graph_tasks: int = 0  #: tasks of graphs
    graph_done: int = 0
    graph_failed: int = 0  #: those that could not run because of others included
    graph_running: int = 0


def standing(scheduler: Scheduler) -> Standing:
    """Say how far a run is."""
    ledger, intake, crew = scheduler.ledger, scheduler.intake, scheduler.crew
    tasks = scheduler.tasks
    return Standing(
        known=ledger.known_rows,
        done=ledger.done_rows,
        failed=ledger.failed_rows,
        held=ledger.held_rows,
        running=crew.running_rows,
        waiting=intake.uncut,
        expected=intake.expected(),
        inputs=len(intake.feeds),
        inputs_unopened=intake.unopened,
        inputs_closed=ledger.closed_inputs,
        tasks_running=len(crew.attempts),
        tasks_accepted=scheduler.reports.accepted,
        workers=len(crew.workers),
        graph_tasks=tasks.graph.submitted,
        graph_done=tasks.graph.submitted - len(tasks.graph.open) - tasks.failed - tasks.cancellations,
        graph_failed=tasks.failed,
        graph_running=len(tasks.running),
    )
