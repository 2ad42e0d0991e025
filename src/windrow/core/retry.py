"""What is done about a failed attempt, by whose fault it is: pure rules, and the words for people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.core.records import Failure, FailureKind

if TYPE_CHECKING:
    from windrow.core.events import Exhausted
    from windrow.core.graph import Node
    from windrow.core.policies import Options, Tries
    from windrow.core.resources import Resources

#: The type of a loss by SIGKILL, which the kernel sends, too.
KILLED = "Killed"
#: The type of a loss that follows from the end of an attempt, at a limit say, of which another event tells.
EXPLAINED = "Explained"
#: The type of a loss of what an attempt was to read: it has not run.
MISSED = "OutputLost"
#: The type of a failure of rows that took too long.
OUT_OF_TIME = "OutOfTime"

#: Stands for the end of a worker of which nothing was told.
UNSEEN = Failure(FailureKind.LOST, "WorkerLost", "its worker went away")
#: How an attempt ends that was in the queue of a worker when that ended: no fault of its own, however often.
UNTOUCHED = Failure(FailureKind.LOST, "WorkerLost", "its worker went away before it ran")

#: Losses of the same running task before it is at fault itself, by filling the machine's memory say. A killer from
#: outside that hits every fifth attempt, which is one kill every 100 ms against attempts of 20 ms, hits the same one
#: ten times in a row once in ten million tasks. It must be less than the lives after which a worker is given up
#: (``workers``): first the task, then the worker.
MOST_LOSSES = 10
#: Attempts of a task that began without their inputs before the task fails. Where the worker that held an output is lost, so are copies
#: still on their way to other workers; the scheduler counts on each copy until the engine reports it lost.
MOST_MISSED = 100
#: Losses before a task that can be divided is: that blames nobody, so it may come sooner, and smaller tasks need less
#: memory.
FEW_LOSSES = 5

#: Seconds before the first, second, ... retry of a read: a network file system recovers from a hiccup within the
#: first, from a fail-over rather within the second.
BACK_OFF_S = (0.1, 0.4)


def is_forgiven(failure: Failure, tries: Tries, retries: int, options: Options, *, divisible: bool) -> bool:
    """Say whether a task runs again after a failure that ``tries`` counts; of exhaustion more is asked."""
    kind = failure.kind
    if failure.type == MISSED:
        return tries.missed < MOST_MISSED
    if kind is FailureKind.LOST:
        return tries.losses < (FEW_LOSSES if divisible else MOST_LOSSES)
    if kind is FailureKind.CRASHED:
        return tries.crashes < options.crashes
    if kind is FailureKind.TRANSIENT_IO:
        return tries.reads <= options.retries
    return kind is FailureKind.USER and not failure.final and tries.errors <= retries


# -- in words --------------------------------------------------------------------------------------------------


def lost_too_often(failure: Failure) -> Failure:
    story = f"{failure.message}; that happened {MOST_LOSSES} times with these rows"
    if failure.type == KILLED:
        story += ", from outside, perhaps by the kernel for want of memory: memory= limits what a worker may use"
    return replace(failure, message=story)


def exhaustion(node: Node, event: Exhausted) -> Failure:
    """Say that a call used more than it was allowed, what was tried, and what to do."""
    message = f"task {node.task.category!r} ({node.id}) {too_much(event)}"
    if event.resource == "memory":
        given = dict(node.task.needs.amounts).get("memory")
        again = node.tries.exhaustions > 0  # with twice of what it asked for
        if given:
            message += f"; it asked for memory={in_words('memory', given / 2 if again else given)!r}"
        if given and again:
            message += f", and was tried once more with {in_words('memory', given)}"
        message += ". Say with memory= what it really needs, or let it do less at a time"
    return Failure(FailureKind.EXHAUSTED, "Exhausted", message)


def hopeless(node: Node, failure: Failure, event: Exhausted | None, why: str) -> Failure:
    """Say that a task used more than it can have, and why neither more nor less of it would do."""
    message = failure.message
    if event is not None and not node.fed:
        message = f"task {node.task.category!r} ({node.id}) {too_much(event)}"
    return replace(failure, message=f"{message}; {why}", final=True)


def too_much(event: Exhausted) -> str:
    if event.resource == "seconds":
        return f"took more than {event.used:.3g} s; the limit is {event.limit:.3g} s"
    if event.resource == "memory":
        return f"used {_bytes(event.used)} of memory or more; the limit is {_bytes(event.limit)}"
    return f"used {event.used:g} of {event.resource!r} or more; the limit is {event.limit:g}"


def too_large(node: Node, resources: Resources) -> Failure:
    needs = node.task.needs.amounts
    asked = ", ".join(f"{name}={in_words(name, amount)}" for name, amount in needs)
    most = ", ".join(f"{name}={in_words(name, resources.largest(name))}" for name, _ in needs)
    message = (
        f"task {node.task.category!r} ({node.id}) needs {asked}, which no worker offers together with its pools; the most "
        f"that any of them has is {most}. Ask for less, or add a worker that has it"
    )
    return Failure(FailureKind.USER, "NeedsError", message)


def too_late(node: Node) -> Failure:
    message = f"task {node.task.category!r} ({node.id}) was not done by its deadline"
    return Failure(FailureKind.USER, "TimeoutError", message)


def in_words(resource: str, amount: float) -> str:
    return _bytes(amount) if resource == "memory" else f"{amount:g}"


def _bytes(amount: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"
