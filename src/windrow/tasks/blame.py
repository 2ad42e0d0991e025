"""Why a task has no value: what it raised itself, or the way to the task that did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.records import FailureKind
from windrow.errors import DependencyError, TaskError, TaskLostError

if TYPE_CHECKING:
    from windrow.core.records import Failure
    from windrow.tasks.record import Record

__all__ = ["error_of", "way_to_the_root"]


def way_to_the_root(record: Record) -> list[Record]:
    """List the tasks from one that did not run to the one that is to blame, both included."""
    way = [record]
    while True:
        bad = [one for one in way[-1].parents if one.state in ("failed", "cancelled")]
        if not bad:
            return way
        way.append(bad[0])


def error_of(record: Record, failure: Failure) -> BaseException:
    """Make what ``result()`` raises: the task's own exception, or one that names the way to it."""
    way = way_to_the_root(record)
    root = way[-1]
    cause = (root.failure or failure).exception
    if len(way) == 1:
        if cause is None:
            lost = failure.kind in (FailureKind.LOST, FailureKind.CRASHED)
            kind = TaskLostError if lost else TaskError
            return kind(f"task {record.name!r} ({record.id}) failed: {failure.message}")
        note = f"raised in task {record.name!r} ({record.id})"
        if note not in getattr(cause, "__notes__", ()):
            cause.add_note(note)
        return cause
    links = [f"{one.name!r} ({one.id})" for one in way]
    verb = "was cancelled" if root.state == "cancelled" else "failed"
    why = root.failure or failure
    error = DependencyError(
        f"task {links[0]} did not run: it needs "
        + ", which needs ".join(links[1:])
        + f", which {verb}: "
        f"{why.type}: {why.message}"
    )
    error.__cause__ = cause
    return error
