"""What is done about a failed attempt of a task of a graph, by whose fault it is. A pure rule."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from windrow.core.amounts import in_words, too_much
from windrow.core.failures import MOST_LOSSES
from windrow.core.records import Failure, FailureKind, Needs

if TYPE_CHECKING:
    from windrow.core.events import Exhausted
    from windrow.core.nodes import Node
    from windrow.core.options import Options

__all__ = ["UNTOUCHED", "Verdict", "enlarged", "exhaustion", "verdict"]

#: How an attempt ends that was in the queue of a worker when that ended: no fault of its own, however often.
UNTOUCHED = Failure(FailureKind.LOST, "WorkerLost", "its worker went away before it ran")


class Verdict(enum.Enum):
    """What becomes of the task."""

    AGAIN = enum.auto()  #: at once
    LATER = enum.auto()  #: after a pause
    LARGER = enum.auto()  #: once more, with twice the memory if somebody offers that
    FAIL = enum.auto()  #: the task has failed; whether the run goes on is the user's choice


def verdict(node: Node, failure: Failure, options: Options) -> Verdict:
    """Count a failure against a task, and say what to do with it."""
    kind = failure.kind
    if failure is UNTOUCHED:
        return Verdict.AGAIN
    if kind is FailureKind.LOST:
        node.losses += 1
        return Verdict.AGAIN if node.losses < MOST_LOSSES else Verdict.FAIL
    if kind is FailureKind.CRASHED:
        node.crashes += 1
        return Verdict.AGAIN if node.crashes < options.crashes else Verdict.FAIL
    if kind is FailureKind.TRANSIENT_IO:
        node.io_errors += 1
        return Verdict.LATER if node.io_errors <= options.retries else Verdict.FAIL
    if kind is FailureKind.EXHAUSTED:
        return Verdict.FAIL if node.enlarged else Verdict.LARGER
    if kind is FailureKind.INTERNAL:
        return Verdict.FAIL
    if failure.final:
        return Verdict.FAIL
    node.errors += 1
    return Verdict.AGAIN if node.errors <= node.task.budget else Verdict.FAIL


def enlarged(needs: Needs, limit: float) -> Needs:
    """Double the memory among the needs, or the limit that was hit if memory is none of them."""
    amounts = dict(needs.amounts)
    amounts["memory"] = 2 * (amounts.get("memory") or limit)
    return Needs.of(amounts)


def exhaustion(node: Node, event: Exhausted) -> Failure:
    """Say that a task used more than it was allowed, what was tried, and what to do."""
    message = f"task {node.task.category!r} ({node.id}) {too_much(event)}"
    if event.resource == "memory":
        asked = dict(node.task.needs.amounts).get("memory")
        given = dict(node.needs.amounts).get("memory")
        if asked:
            message += f"; it asked for memory={in_words('memory', asked)!r}"
        if given and given != asked:
            message += f", and was tried once more with {in_words('memory', given)}"
        message += ". Say with memory= what it really needs, or let it do less at a time"
    return Failure(FailureKind.EXHAUSTED, "Exhausted", message)
