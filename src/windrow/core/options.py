"""What the user asked of a run, and how far it is: the outside of the scheduler, as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from windrow.core.records import ONE_CORE, Needs

__all__ = ["Options", "Standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a run."""

    on_error: Literal["stop", "skip"] = "stop"
    row_limit: int | None = None  #: the first rows of every category, in input order
    retries: int = 2  #: of a read that may succeed the next time
    chunk: int | None = None  #: upper bound of a task's rows, snapped down to units
    needs: Needs = ONE_CORE  #: of every task


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
