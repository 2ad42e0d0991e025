"""The mutable records of a graph: its tasks, their outputs and attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.transitions import ATTEMPT_MOVES, TASK_MOVES, AttemptState, TaskState, move
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.chains import Chain
    from windrow.core.ready import Kind
    from windrow.core.records import Failure, Handle, Task
    from windrow.core.state import WorkerState

__all__ = ["ENDS", "NOTHING", "Node", "Output", "TaskAttempt"]


class _Nothing(dict[Any, Any]):
    """Stands for the dictionaries of all who have nothing to put into one: there are many, and few ever have."""

    def __setitem__(self, key: Any, value: Any) -> None:
        raise InternalError(f"{key!r} was put where all share that they have nothing")


NOTHING = _Nothing()
ENDS = (TaskState.DONE, TaskState.FAILED, TaskState.CANCELLED)


class Output:
    """One named thing that a task makes."""

    __slots__ = (
        "asked",
        "claimed",
        "consumers",
        "fetching",
        "handle",
        "here",
        "kept",
        "made",
        "maker",
        "name",
        "readers",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.maker: Node | None = None  #: None while only readers were submitted
        self.handle: Handle | None = None  #: it exists; as whose work, and where it was made
        self.kept = False  #: the worker that made it has it
        self.here = False  #: the engine has a copy that no worker can take along
        self.fetching = False  #: that copy is on its way
        self.made = False  #: somebody may have read it since its maker last began from nothing
        self.asked = False  #: the user waits for it
        self.claimed = True  #: the user may still ask for it
        self.consumers: dict[int, Node] = NOTHING  #: all tasks that read it
        #: those of them that have not ended, or might yet be done again
        self.readers: dict[int, Node] = NOTHING

    @property
    def needed(self) -> bool:
        """Whether it would be made again if it were lost."""
        return self.claimed or bool(self.readers)

    def is_only_for(self, node: Node) -> bool:
        """Whether nobody but a task, which reads it, can ask for it any more."""
        return not self.claimed and len(self.readers) == 1 and node.id in self.readers


class Node:
    """One task of the graph."""

    __slots__ = (
        "ahead",
        "attempts",
        "crashes",
        "enlarged",
        "errors",
        "failure",
        "followers",
        "fragile",
        "handle",
        "id",
        "io_errors",
        "kind",
        "losses",
        "missing",
        "needs",
        "number",
        "outputs",
        "pending",
        "reads",
        "root",
        "state",
        "task",
        "told",
        "unended",
    )

    def __init__(self, task: Task, number: int) -> None:
        self.id = task.id
        self.number = number  #: the order of submission
        self.task = task
        self.state = TaskState.WAITING
        self.needs = task.needs  #: grow when an attempt was too large for them
        self.kind: Kind | None = None  #: of these needs, once it was looked up
        self.attempts = 0  #: that have not ended, also such as are not wanted any more
        self.ahead = False  #: its attempt was launched before all that it reads was there
        self.fragile = False  #: it reads, directly or not, from a task that cannot be restarted
        self.reads: dict[str, Output] = NOTHING
        self.outputs: dict[str, Output] = {}
        self.unended: dict[int, Node] = NOTHING  #: tasks it comes after that have not ended
        self.followers: list[Node] | None = None  #: tasks that come after its first end
        self.missing = 0  #: outputs it reads that do not exist, and tasks it comes after
        self.pending: dict[str, Output] = NOTHING  #: outputs that are on their way while it is FETCHING
        #: failed attempts since it was last done, by whose fault
        self.errors = self.io_errors = self.crashes = self.losses = 0
        self.enlarged = False
        self.told = False  #: the user knows that it is done
        self.handle: Handle | None = None  #: of what its end will tell
        self.failure: Failure | None = None
        self.root: Node | None = None  #: the task that failed first, if that was not this one

    @property
    def needed(self) -> bool:
        """Whether anything that it makes would be made again if it were lost."""
        return any(output.needed for output in self.outputs.values())

    def move(self, state: TaskState) -> None:
        """Go to another state, if that is legal."""
        if state not in TASK_MOVES[self.state]:
            move(TASK_MOVES, self.state, state, "task", self.id)  # tells the story
        self.state = state


class TaskAttempt:
    """One try of a task of a graph on one worker."""

    __slots__ = ("chain", "id", "key", "life", "node", "queued", "recalled", "reported", "started", "state", "worker")

    def __init__(self, number: int, node: Node, worker: WorkerState, chain: Chain, *, queued: bool = False) -> None:
        self.id = number
        self.life = life = worker.id, worker.incarnation
        self.key = (number, *life)
        self.node = node
        self.worker = worker
        self.chain = chain  #: what it holds, and who holds it together with it
        chain.attempts[number] = self
        self.queued = queued  #: it runs when those of its chain that were launched before have ended
        self.state = AttemptState.LAUNCHED
        self.started = False
        self.recalled = False  #: its worker was asked to give it back
        self.reported: dict[str, None] = NOTHING  #: outputs that were released while it ran

    def move(self, state: AttemptState) -> None:
        """Go to another state, if that is legal."""
        if state not in ATTEMPT_MOVES[self.state]:
            move(ATTEMPT_MOVES, self.state, state, "attempt", self.id)  # tells the story
        self.state = state
