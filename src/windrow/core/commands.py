"""Commands: orders that the scheduler gives to engines (the first group) and to the loop.

Engines never retry and never decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from windrow.core.records import DRIVER, NO_LIMITS

if TYPE_CHECKING:
    from windrow.core.records import Failure, Grant, Handle, Holder, Life, Made, Needs, Plan, PlanJob, Task

#: complete: every row and task done; incomplete: some failed and the run went on; cancelled: ended on request;
#: failed: stopped by a failure
Status = Literal["complete", "incomplete", "cancelled", "failed"]

#: done: every output was made; failed: given up; cancelled: on request, or because of one that was
TaskEnd = Literal["done", "failed", "cancelled"]

# -- to the engine ---------------------------------------------------------------------------------------------


class Launch(NamedTuple):
    """Run a task under a plan; answered by Started and then Finished, Failed, Exhausted or Cancelled.

    A queued one that is over before anybody looks need not be Started.
    """

    task: Task
    attempt: int
    life: Life
    plan: Plan
    limits: Needs = NO_LIMITS  #: "memory" in bytes and "seconds": more than that ends the attempt
    inputs: tuple[Handle, ...] = ()  #: what the task reads, in the order of ``task.reads``
    #: Inputs, by position, that the worker lacks: the driver sends a copy, which stays there.
    bring: tuple[int, ...] = ()
    grant: Grant = ()  #: what was given to it; a queued launch runs on what the one before it had
    #: It runs when what was launched at this worker before it has ended, and holds nothing of its own until then.
    queued: bool = False
    #: What it reads is being made by others in that queue; Cancelled if one of them came to nothing.
    ahead: bool = False
    mine: tuple[int, ...] = ()  #: inputs, by position, that nobody else can ask for any more


class Cancel(NamedTuple):
    """Stop an attempt if that is possible; it is answered like the launch it belongs to."""

    attempt: int
    life: Life


class Recall(NamedTuple):
    """Give back a queued attempt that has not begun; answered by Cancelled, or not at all."""

    attempt: int
    life: Life


class Fetch(NamedTuple):
    """Copy an output from a worker that holds it; answered by Held or FetchFailed."""

    handle: Handle
    source: Life
    to: Holder = DRIVER
    open: bool = False  #: it is for the program itself: FetchFailed if it cannot be opened where it arrives


class Discard(NamedTuple):
    """Forget an output at these holders; no answer. Copies that are on their way are forgotten when they arrive."""

    handle: Handle
    holders: tuple[Holder, ...]


class StartWorker(NamedTuple):
    """Begin this life of a worker; answered by WorkerJoined, or WorkerLost if it cannot."""

    life: Life
    io: bool = False


class StopWorker(NamedTuple):
    """End a worker when it has done what it was told; answered by WorkerLost."""

    life: Life


# -- to the loop and the front door ----------------------------------------------------------------------------


class Take(NamedTuple):
    """An output is with the driver, and a future waits for it: take it from the engine."""

    handle: Handle
    about: Any = None  #: of a feeder's output: what it is about, such as the rows of a partial
    mine: bool = False  #: nobody else will ask: the driver's side of the engine forgets it, without a Discard


class OutputMade(NamedTuple):
    """An output exists although its task has not ended, and will not be taken back."""

    task: int
    handle: Handle
    made: Made


class Uncounted(NamedTuple):
    """An attempt has finished, and what it made does not count: another attempt was quicker, or its task is no longer wanted."""

    attempt: int


class TaskEnded(NamedTuple):
    """A task that was submitted has ended; told once, and again only if one that was done fails later."""

    task: int
    state: TaskEnd
    failure: Failure | None = None
    attempt: int = 0  #: the one that counted, if it is done
    made: tuple[Made, ...] = ()  #: by that attempt, and not told of before
    spent: tuple[tuple[str, float], ...] = ()  #: seconds by what it waited for or did, from submission to end


class OutputFailed(NamedTuple):
    """An output that a task had not announced, and that the user waits for, cannot be had."""

    output: str
    failure: Failure


class Publish(NamedTuple):
    """What a task has made is to be put into place, where other tasks had to end before; answered by Published."""

    task: int


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


EngineCommand: TypeAlias = Launch | Cancel | Recall | Fetch | Discard | StartWorker | StopWorker
Command: TypeAlias = (
    EngineCommand | Take | OutputMade | Uncounted | TaskEnded | OutputFailed | Publish | Replan | WakeAt | Resolve
)
