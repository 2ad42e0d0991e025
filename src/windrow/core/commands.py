"""Commands: orders that the scheduler gives to engines (the first group) and to the loop.

Engines never retry and never decide. More kinds may be added; these do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from windrow.core.records import Needs

if TYPE_CHECKING:
    from windrow.core.records import Failure, Handle, Plan, PlanJob, Task

__all__ = [
    "Cancel",
    "Command",
    "Discard",
    "EngineCommand",
    "Fetch",
    "Inspect",
    "Launch",
    "Merge",
    "OutputFailed",
    "Recall",
    "Replan",
    "Resolve",
    "Shrink",
    "StartWorker",
    "Status",
    "StopWorker",
    "Take",
    "TaskEnd",
    "TaskEnded",
    "WakeAt",
]


NO_LIMITS = Needs()

#: complete: every row done; incomplete: some rows failed and were skipped;
#: cancelled: ended on request; failed: stopped by a failure
Status = Literal["complete", "incomplete", "cancelled", "failed"]


#: done: every output was made; failed: given up; cancelled: on request, or because of one that was
TaskEnd = Literal["done", "failed", "cancelled"]


class Launch(NamedTuple):
    """Run a task under a plan; answered by Started and then Finished, Failed or Cancelled.

    A queued one that is over before anybody looks need not be Started.
    """

    task: Task
    attempt: int
    worker: int
    incarnation: int
    plan: Plan
    limits: Needs = NO_LIMITS  #: "memory" in bytes and "seconds": more than that ends the attempt
    inputs: tuple[Handle, ...] = ()  #: what the task reads, in the order of ``task.reads``
    #: It runs when what was launched at this worker before it has ended, and holds nothing of its own until then.
    queued: bool = False
    #: What it reads is being made by others in that queue; Cancelled if one of them came to nothing.
    ahead: bool = False
    mine: tuple[int, ...] = ()  #: inputs, by position, that nobody else can ask for any more


class Shrink(NamedTuple):
    """Do rows only up to ``stop`` if that is still possible; answered by Shrunk, or not at all."""

    attempt: int
    worker: int
    incarnation: int
    stop: int


class Cancel(NamedTuple):
    """Stop an attempt if that is possible; it is answered like the launch it belongs to."""

    attempt: int
    worker: int
    incarnation: int


class Recall(NamedTuple):
    """Give back a queued attempt that has not begun; answered by Cancelled, or not at all.

    It goes to a worker that has nothing to do: what is before it in its queue may take long, or wait for it.
    """

    attempt: int
    worker: int
    incarnation: int


class Inspect(NamedTuple):
    """Open an input; answered by Discovered or InspectFailed."""

    input: int
    worker: int
    incarnation: int


class Merge(NamedTuple):
    """Make one partial of several that this worker keeps; answered by Merged or MergeFailed."""

    handles: tuple[Handle, ...]
    into: Handle
    worker: int
    incarnation: int


class Discard(NamedTuple):
    """Forget a partial, wherever it is by now; no answer.

    A handle without rows and output stands for everything that its attempt made.
    """

    handle: Handle


class Fetch(NamedTuple):
    """Bring a partial from its worker; answered by Fetched.

    An output of a graph is copied: tasks may still read it where it was made, until its Discard.
    """

    handle: Handle


class StartWorker(NamedTuple):
    """Begin this life of a worker; answered by WorkerJoined, or WorkerLost if it cannot."""

    worker: int
    incarnation: int


class StopWorker(NamedTuple):
    """End a worker when it has done what it was told; answered by WorkerLost."""

    worker: int
    incarnation: int


class Take(NamedTuple):
    """The fetched partial counts: take it from the engine into the result.

    An output of a graph is the answer to Wanted; the engine keeps it until its Discard.
    """

    handle: Handle


class TaskEnded(NamedTuple):
    """A task of a graph has ended; told once, and again only if one that was done fails later."""

    task: int
    state: TaskEnd
    failure: Failure | None = None
    handle: Handle | None = None  #: of one that is done: stands for all that it had not reported before


class OutputFailed(NamedTuple):
    """An output that a task had not announced, and that the user waits for, cannot be had."""

    output: str
    failure: Failure


class Replan(NamedTuple):
    """Ask the order decision for a new plan; answered by Planned."""

    job: PlanJob


class WakeAt(NamedTuple):
    """Send a Tick at this time if nothing else happens; a later one replaces it."""

    time: float


class Resolve(NamedTuple):
    """The run has ended; nothing is outstanding."""

    status: Status
    failure: Failure | None
    reason: str


EngineCommand: TypeAlias = (
    Launch | Shrink | Cancel | Recall | Inspect | Merge | Discard | Fetch | StartWorker | StopWorker
)
Command: TypeAlias = EngineCommand | Take | TaskEnded | OutputFailed | Replan | WakeAt | Resolve
