"""Events: facts about the past, reported by engines, front doors and the loop; the only input of the scheduler.

Every event of an attempt names the life of the worker it runs in, so that late reports of a former life are
recognised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from windrow.core.records import DRIVER

if TYPE_CHECKING:
    from windrow.core.records import (
        Failure,
        Handle,
        Holder,
        InputSpec,
        Life,
        Made,
        Measurement,
        Needs,
        Plan,
        Task,
        Worker,
    )

# -- the front door --------------------------------------------------------------------------------------------


class Submitted(NamedTuple):
    """More inputs, which the feeder cuts tasks from, or more tasks belong to the run."""

    inputs: tuple[InputSpec, ...]
    tasks: tuple[Task, ...] = ()


class Closed(NamedTuple):
    """Nothing more will be submitted to an open run (``Options.open``): it may end."""


class Wanted(NamedTuple):
    """The user asks for an output; answered by Take once it exists and is with the driver."""

    output: str


class Released(NamedTuple):
    """The user will not ask for some outputs any more, nor submit a task that reads them: they go when no task needs them."""

    outputs: tuple[str, ...]


class CancelRequested(NamedTuple):
    """The user wishes the whole run (Ctrl-C), some groups of tasks, or one task, to end."""

    reason: str
    groups: frozenset[int] | None = None
    task: int | None = None


# -- workers and pools -----------------------------------------------------------------------------------------


class WorkerJoined(NamedTuple):
    """A worker (or a new life of one) is ready."""

    worker: Worker


class WorkerLost(NamedTuple):
    """A life of a worker is over, with all it kept; None: it was told to end."""

    life: Life
    failure: Failure | None = None  #: how it ended; held against the attempt that ran, if CRASHED
    final: bool = False  #: its machine is gone too: no other life of it can begin


class DrainRequested(NamedTuple):
    """A worker is to get no more work, hand over what it keeps, and end."""

    life: Life
    reason: str
    replace: bool = False  #: start a new life of it afterwards


class PoolChanged(NamedTuple):
    """A pool (a node, a device, a licence server) offers this from now on."""

    pool: str
    offers: Needs
    devices: tuple[str, ...] = ()  #: resources that are numbered units, so that a grant says which


# -- attempts --------------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """An attempt left the worker's queue and runs."""

    attempt: int
    life: Life


class OutputReady(NamedTuple):
    """An output of a task exists although the task still runs."""

    attempt: int
    life: Life
    made: Made


class Finished(NamedTuple):
    """An attempt is done."""

    attempt: int
    life: Life
    made: tuple[Made, ...]  #: all outputs that no OutputReady told of
    measurement: Measurement
    report: Any = None  #: a small value for whoever made the task: ``Opened``, ``RowsReport``


class Failed(NamedTuple):
    """An attempt ended with an exception."""

    attempt: int
    life: Life
    failure: Failure


class Exhausted(NamedTuple):
    """An attempt was ended because it used more of a resource than its launch allowed."""

    attempt: int
    life: Life
    resource: str  #: "memory" or "seconds"
    limit: float
    used: float  #: at least


class Cancelled(NamedTuple):
    """An attempt was stopped, or given back, before it was done; it left nothing."""

    attempt: int
    life: Life


# -- outputs ---------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """The answer to Fetch: a copy of an output is where it was wanted."""

    handle: Handle
    holder: Holder = DRIVER
    bytes: int = 0
    seconds: float = 0.0  #: what packing and sending took


class FetchFailed(NamedTuple):
    """An output cannot leave its worker (it cannot be pickled), or cannot be opened here."""

    handle: Handle
    source: Life
    failure: Failure


class CopyLost(NamedTuple):
    """A copy of an output that a launch was to bring to its worker has not come, and does not come any more."""

    handle: Handle
    life: Life


# -- the loop --------------------------------------------------------------------------------------------------


class Planned(NamedTuple):
    """The answer to a ``Replan``."""

    plan: Plan


class Published(NamedTuple):
    """What a task has made is in place, or could not be put there."""

    task: int
    failure: Failure | None = None


class Tick(NamedTuple):
    """Time has passed; sent when a ``WakeAt`` is due."""


#: What is told of an attempt; all of them name it and the life of the worker it runs in.
AttemptEvent: TypeAlias = Started | OutputReady | Finished | Failed | Exhausted | Cancelled
#: What engines report.
EngineEvent: TypeAlias = (
    AttemptEvent | WorkerJoined | WorkerLost | DrainRequested | PoolChanged | Held | FetchFailed | CopyLost
)
Event: TypeAlias = EngineEvent | Submitted | Closed | Wanted | Released | CancelRequested | Planned | Published | Tick
