"""What is done about a failure, by whose fault it is. A pure rule; the scheduler carries it out."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from windrow.core.records import FailureKind

if TYPE_CHECKING:
    from windrow.core.options import Options

__all__ = ["MOST_LOSSES", "Answer", "answer"]

#: Losses of the same running task that are nobody's fault. A killer that ends one of four workers
#: every 100 ms hits the same task of a second ten times at most; a task that attracts more, by
#: filling the machine's memory say, would be tried for ever.
MOST_LOSSES = 50


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
        if tries + 1 < (MOST_LOSSES if kind is FailureKind.LOST else options.crashes):
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
