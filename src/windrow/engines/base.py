"""The contract between engines, which run tasks, and workloads, which say what a task does.

Engines obey, report and never decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from windrow.core.records import Measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType

    from windrow.core.commands import EngineCommand
    from windrow.core.events import Event
    from windrow.core.records import Failure, Handle, Plan, Task


class Reading(NamedTuple):
    """What the reading within one attempt took."""

    wall: float = 0.0
    cpu: float = 0.0


NO_READING = Reading()


class Prepared(Protocol):
    """What ``WorkerSide.prepare`` gives to ``WorkerSide.run``."""

    @property
    def memory(self) -> int:
        """Bytes that it keeps."""


#: What engines fill in.
NO_MEASUREMENT = Measurement()


class Outcome(NamedTuple):
    """What running a task gives; the engine fills times and memory into the measurement."""

    outputs: Mapping[str, Any]  #: by name: those that were not released
    report: Any = None  #: travels with Finished
    measurement: Measurement = NO_MEASUREMENT


class Job(NamedTuple):
    """One launch as a worker's side sees it."""

    task: Task
    plan: Plan
    content: Any  #: what ``Workload.content`` gave for it
    values: tuple[Any, ...]  #: what it reads, in the order of ``Task.reads``
    release: Callable[[str, Any], None]  #: an output is there although the task goes on
    cancelled: Callable[[], bool] = bool  #: whether nobody wants what it makes any more
    common: Callable[..., Any] | None = None  #: what calls share, where that travels apart
    #: positions of values that nobody else has; None where all memory is shared with the program
    mine: tuple[int, ...] | None = None
    #: What ``prepare`` made of the same launch, if it was asked to: a list, to be taken out of, or a traceback would keep it.
    prepared: Any = ()


class WorkerSide(Protocol):
    """What one worker does, in its thread."""

    #: What reading took in the last run; ``NO_READING`` where the side does not tell.
    reading: Reading
    #: CPU seconds and peak memory of programs that the last run waited for, until the engine has taken note.
    used: tuple[float, int] | None

    def run(self, job: Job) -> Outcome:
        """Run a task."""

    def prepare(self, task: Task, plan: Plan) -> Prepared | None:
        """Read ahead what a task will need first; None: there is nothing to read ahead."""

    def news(self) -> Any:
        """Say what home should know, for ``Workload.hear``; None: nothing. Asked in other processes only."""

    def close(self) -> None:
        """Release files."""


class Workload(Protocol):
    """What a front door wants done."""

    def open_worker(self, worker: int) -> WorkerSide:
        """Make the worker's side, in the worker."""

    def content(self, task: Task) -> Any:
        """Give what a worker needs to run a task; None: it is not wanted any more. Asked at home.

        Engines that share memory ask when the task begins, other engines when it is sent.
        """

    def classify(self, error: BaseException) -> Failure:
        """Say whose fault an exception of ``WorkerSide`` is."""

    def describe(self, task: Task) -> str:
        """Name a task in messages, such as "rows 0-100 of input 3"."""

    def hear(self, news: Any) -> None:
        """Take in what a worker in another process learned."""

    def is_own(self, module: ModuleType) -> bool:
        """Whether a module is the user's own, so that it goes to other processes with its state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine really can do; decisions ask for these, never for the name of an engine."""

    can_kill: bool = False  #: a cancelled attempt that runs is ended; so stragglers may be run twice
    can_restart: bool = False  #: StartWorker begins a new life of a worker that was lost
    isolates: bool = False  #: workers share no memory with the driver: values are pickled


class Engine(Protocol):
    """Workers and the way to them."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""

    @property
    def work_cpu_s(self) -> float:
        """CPU seconds spent on work inside ``wait``; zero where workers have threads or processes."""

    def start(self, workload: Workload) -> None:
        """Start the workers; each is reported by WorkerJoined."""

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Carry out commands; returns at once."""

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what happened, waiting at most ``timeout`` seconds (None: no limit)."""

    def wake(self) -> None:
        """Make ``wait`` return; may be called from a signal handler."""

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        """Hand over an output that the driver's side has; ``mine``: no other task will ask, so it is forgotten here.

        Without ``mine`` the program gets a value of its own, of which it may do what it likes.
        """

    def stop(self) -> None:
        """End every worker and wait for it; doing it twice is allowed."""
