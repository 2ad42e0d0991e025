"""What is done about a failure, by whose fault it is. A pure rule; the scheduler carries it out."""

from __future__ import annotations

import enum
from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.core.records import FailureKind

if TYPE_CHECKING:
    from windrow.core.options import Options
    from windrow.core.records import Failure

__all__ = ["EXPLAINED", "FEW_LOSSES", "KILLED", "MOST_LOSSES", "Answer", "answer", "lost_too_often"]

#: The type of a loss by SIGKILL, which the kernel sends, too.
KILLED = "Killed"
#: The type of a loss that follows from the end of an attempt, at a limit say, of which another event tells.
EXPLAINED = "Explained"

#: Losses of the same running task before it is at fault itself, by filling the machine's memory
#: say. A killer from outside that hits every fifth attempt, which is one kill every 100 ms against
#: attempts of 20 ms, hits the same one ten times in a row once in ten million tasks. It must be
#: less than the lives after which a worker is given up (``staff``): first the task, then the worker.
MOST_LOSSES = 10
#: Losses before a task of several units is cut into them. That blames nobody, so it may come
#: sooner, and smaller tasks need less memory.
FEW_LOSSES = 5


class Answer(enum.Enum):
    """What becomes of the rows (or the input) concerned."""

    AGAIN = enum.auto()  #: at once and free: nobody's fault
    LATER = enum.auto()  #: after a pause, within the budget of retries
    SMALLER = enum.auto()  #: unit by unit, to fit or to find the one at fault
    GIVE_UP = enum.auto()  #: these rows have failed; the run goes on
    GIVE_UP_INPUT = enum.auto()  #: so has everything that remains of their input
    STOP = enum.auto()  #: the run fails


def answer(kind: FailureKind, options: Options, *, tries: int, units: int = 1) -> Answer:
    """Say what to do; ``tries`` failed before this one, and ``units`` were tried together."""
    if kind is FailureKind.INTERNAL:
        return Answer.STOP
    if kind is FailureKind.LOST or kind is FailureKind.CRASHED:
        losses = FEW_LOSSES if units > 1 else MOST_LOSSES
        if tries + 1 < (losses if kind is FailureKind.LOST else options.crashes):
            return Answer.AGAIN
        if units > 1:
            return Answer.SMALLER
    skip = options.on_error == "skip"
    if kind is FailureKind.TRANSIENT_IO:
        if tries < options.retries:
            return Answer.LATER
        # Out of reach for good: waiting as long for every other unit of it would help nobody.
        return Answer.GIVE_UP_INPUT if skip else Answer.STOP
    if units > 1 and (skip or kind is FailureKind.EXHAUSTED):
        return Answer.SMALLER
    return Answer.GIVE_UP if skip else Answer.STOP


def lost_too_often(failure: Failure) -> Failure:
    """Say of the last loss of a task that it was one too many, and what may be behind it."""
    story = f"{failure.message}; that happened {MOST_LOSSES} times with these rows"
    if failure.type == KILLED:
        story += ", from outside, perhaps by the kernel for want of memory: memory= limits what a worker may use"
    return replace(failure, message=story)
