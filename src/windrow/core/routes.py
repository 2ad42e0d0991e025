"""Whose report is it: once there are tasks of a graph, their reports are taken out first.

A run of rows alone never comes here, and so does not pay for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.records import Failure, FailureKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.crew import Crew
    from windrow.core.nodes import TaskAttempt
    from windrow.core.tasks import Tasks

__all__ = ["graph_handlers", "route"]

UNSEEN = Failure(FailureKind.LOST, "WorkerLost", "its worker went away")


def graph_handlers(tasks: Tasks, crew: Crew) -> dict[type, Callable[[Any], None]]:
    """Say who takes the events that only concern graphs and pools."""

    def pool_changed(event: happened.PoolChanged) -> None:
        crew.share()
        crew.packing.set_pool(event.pool, event.offers)

    return {
        happened.Closed: tasks.close,
        happened.Wanted: tasks.wanted,
        happened.Released: tasks.released,
        happened.OutputReady: tasks.output_ready,
        happened.PoolChanged: pool_changed,
    }


def route(handlers: dict[type, Callable[[Any], None]], tasks: Tasks) -> None:
    """Let reports of tasks of a graph go to them, and all others where they went before."""

    def attempts(kind: type, do: Callable[[TaskAttempt, Any], None]) -> None:
        others = handlers[kind]

        known = tasks.attempts

        def handle(event: Any) -> None:
            attempt = known.get(event[:3])  # attempt, worker and incarnation
            if attempt is not None:
                do(attempt, event)
            elif kind is happened.Finished and not event.handle.rows:
                tasks.places.discard(event.handle)
            else:
                others(event)

        handlers[kind] = handle

    def handles(kind: type, do: Callable[[Any], None]) -> None:
        others = handlers[kind]
        handlers[kind] = lambda event: (others if event.handle.rows else do)(event)

    worker_lost, worker_joined = handlers[happened.WorkerLost], handlers[happened.WorkerJoined]

    def lost(event: happened.WorkerLost) -> None:
        failure = event.failure or UNSEEN
        # A task that ran when its worker crashed is held responsible, and not the rows beside it.
        blamed = tasks.runs_at(event.worker, event.incarnation)
        if failure.kind is FailureKind.CRASHED:
            # That brings a task nearer to its end: no useless life, however many such tasks there are.
            for attempt in tasks.at.get((event.worker, event.incarnation), {}).values():
                attempt.worker.proven = True
        worker_lost(event._replace(failure=replace(failure, kind=FailureKind.LOST)) if blamed else event)
        tasks.lost(event.worker, failure)

    def joined(event: happened.WorkerJoined) -> None:
        worker_joined(event)
        tasks.lost(event.worker.id, UNSEEN)

    handlers[happened.WorkerLost], handlers[happened.WorkerJoined] = lost, joined
    attempts(happened.Started, tasks.started)
    attempts(happened.Progress, _nothing)
    attempts(happened.Shrunk, _nothing)
    attempts(happened.Finished, tasks.finished)
    attempts(happened.Failed, lambda attempt, event: tasks.ended_badly(attempt, event.failure))
    attempts(happened.Exhausted, tasks.exhausted)
    attempts(happened.Cancelled, lambda attempt, _: tasks.cancelled(attempt))
    handles(happened.Fetched, tasks.copies.fetched)
    handles(happened.FetchFailed, tasks.copies.fetch_failed)
    handles(happened.OutputLost, tasks.copies.output_lost)


def _nothing(attempt: TaskAttempt, event: Any) -> None:
    """Tasks of a graph have no rows to tell of."""
