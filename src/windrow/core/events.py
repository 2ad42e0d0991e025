"""Events: facts about the past, reported by engines and the loop, the only input of the scheduler.

Every event of a task, inspection or merge names the worker's incarnation, so that late reports of a
worker's former life are recognised. More kinds may be added; these do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from windrow.core.records import Evidence, Failure, Handle, InputSpec, Measurement, Needs, Plan, Rows, Task, Worker

__all__ = [
    "AttemptEvent",
    "CancelRequested",
    "Cancelled",
    "Closed",
    "Discovered",
    "DrainRequested",
    "Event",
    "Exhausted",
    "Failed",
    "FetchFailed",
    "Fetched",
    "Finished",
    "InspectFailed",
    "MergeFailed",
    "Merged",
    "OffersChanged",
    "OutputLost",
    "OutputReady",
    "Planned",
    "PoolChanged",
    "Progress",
    "Released",
    "Shrunk",
    "Started",
    "Submitted",
    "Tick",
    "Wanted",
    "WorkerJoined",
    "WorkerLost",
]


class Submitted(NamedTuple):
    """More inputs, or tasks of a graph, belong to the run."""

    inputs: tuple[InputSpec, ...]
    tasks: tuple[Task, ...] = ()


class Closed(NamedTuple):
    """Nothing more will be submitted to an open run (``Options.open``): it may end."""


class Wanted(NamedTuple):
    """The user asks for an output of a graph; answered by Take once it exists and is here."""

    output: str


class Released(NamedTuple):
    """The user will not ask for an output any more, nor submit a task that reads it: it goes when no task needs it."""

    output: str


class Discovered(NamedTuple):
    """An input was opened: its rows and unit borders are known."""

    input: int
    rows: int
    borders: tuple[int, ...]
    worker: int
    incarnation: int


class InspectFailed(NamedTuple):
    """An input could not be opened."""

    input: int
    worker: int
    incarnation: int
    failure: Failure


class WorkerJoined(NamedTuple):
    """A worker (or a new life of one) is ready."""

    worker: Worker


class WorkerLost(NamedTuple):
    """A worker is gone, with all it kept."""

    worker: int
    incarnation: int
    failure: Failure | None = None  #: how it ended; held against the attempt that ran, if CRASHED


class DrainRequested(NamedTuple):
    """A worker is to get no more work, hand over what it keeps, and end."""

    worker: int
    incarnation: int
    reason: str
    replace: bool = False  #: start a new life of it afterwards


class PoolChanged(NamedTuple):
    """A shared offerer (a machine, a device) has this to offer from now on."""

    pool: str
    offers: Needs


class OffersChanged(NamedTuple):
    """A worker has more or less to offer than before."""

    worker: int
    incarnation: int
    offers: Needs


class Started(NamedTuple):
    """An attempt left the worker's queue and runs."""

    attempt: int
    worker: int
    incarnation: int


class Progress(NamedTuple):
    """An attempt has done so many of its rows."""

    attempt: int
    worker: int
    incarnation: int
    rows: int


class Finished(NamedTuple):
    """An attempt is done; its worker keeps the partial under the handle.

    The handle of a task of a graph has no rows and no output: it stands for all outputs of the
    attempt that were not reported by OutputReady. If there is just one it may be the handle of that.
    """

    attempt: int
    worker: int
    incarnation: int
    handle: Handle
    measurement: Measurement
    evidence: Evidence | None = None
    skipped: tuple[tuple[Rows, Failure], ...] = ()  #: rows of the task the handle does not cover


class Failed(NamedTuple):
    """An attempt ended with an exception."""

    attempt: int
    worker: int
    incarnation: int
    failure: Failure


class Exhausted(NamedTuple):
    """An attempt was ended because it used more of a resource than it was allowed."""

    attempt: int
    worker: int
    incarnation: int
    resource: str  #: "memory" or "seconds"
    limit: float
    used: float  #: at least


class Shrunk(NamedTuple):
    """An attempt will do its rows only up to ``stop``; the others are no longer its own."""

    attempt: int
    worker: int
    incarnation: int
    stop: int


class OutputReady(NamedTuple):
    """An output of a task is there although the task still runs; its worker keeps it."""

    attempt: int
    worker: int
    incarnation: int
    handle: Handle


class Cancelled(NamedTuple):
    """An attempt was stopped before it was done; it left nothing."""

    attempt: int
    worker: int
    incarnation: int


class Merged(NamedTuple):
    """The partials of ``inputs`` are now one partial, ``handle``."""

    handle: Handle
    inputs: tuple[int, ...]  #: handle ids
    worker: int
    incarnation: int


class MergeFailed(NamedTuple):
    """A merge raised: its inputs are lost, as it may have been done in place."""

    handle: Handle
    inputs: tuple[int, ...]
    worker: int
    incarnation: int
    failure: Failure


class Fetched(NamedTuple):
    """The partial has left the worker; the engine holds it until it is taken or discarded."""

    handle: Handle
    seconds: float = 0.0  #: what packing and sending took
    bytes: int = 0


class FetchFailed(NamedTuple):
    """A partial cannot leave its worker (it cannot be pickled); it is lost."""

    handle: Handle
    failure: Failure


class OutputLost(NamedTuple):
    """A kept partial is gone although its worker lives."""

    handle: Handle


class CancelRequested(NamedTuple):
    """Somebody wishes the whole run (Ctrl-C), some groups of tasks, or one task, to end."""

    reason: str
    groups: frozenset[int] | None = None
    task: int | None = None


class Planned(NamedTuple):
    """The answer to a ``Replan``."""

    plan: Plan


class Tick(NamedTuple):
    """Time has passed; sent when a ``WakeAt`` is due."""


#: What is told of an attempt; all of them name it and the life of the worker it runs in.
AttemptEvent: TypeAlias = Started | Progress | OutputReady | Finished | Failed | Exhausted | Shrunk | Cancelled

Event: TypeAlias = (
    Submitted
    | Closed
    | Wanted
    | Released
    | Discovered
    | InspectFailed
    | WorkerJoined
    | WorkerLost
    | DrainRequested
    | OffersChanged
    | PoolChanged
    | Started
    | Progress
    | OutputReady
    | Finished
    | Failed
    | Exhausted
    | Shrunk
    | Cancelled
    | Merged
    | MergeFailed
    | Fetched
    | FetchFailed
    | OutputLost
    | CancelRequested
    | Planned
    | Tick
)
