"""What an engine is, and what a workload gives it to do: engines obey, report and never decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.core.events import Event
    from windrow.core.records import Evidence, Failure, Handle, Measurement, Plan, Rows

__all__ = ["Call", "Capabilities", "Engine", "Outcome", "WorkerSide", "Workload"]


class Outcome(NamedTuple):
    """What running a task gives; the engine fills the times into the measurement."""

    partial: Any
    measurement: Measurement
    evidence: Evidence | None = None
    skipped: tuple[tuple[Rows, Failure], ...] = ()  #: rows that the partial leaves out, and why


class Call(NamedTuple):
    """What a task of a graph has to do."""

    content: Any  #: what ``Workload.content`` gave for it
    values: tuple[Any, ...]  #: what it reads, in the order of ``Task.reads``
    release: Callable[[str, Any], None]  #: an output is there although the task goes on
    common: Callable[[int], Any] | None = None  #: what calls share, where that travels apart
    cancelled: Callable[[], bool] = bool  #: whether nobody wants what it makes any more
    #: positions of values that nobody else has; None where all memory is shared with the program
    mine: tuple[int, ...] | None = None


class WorkerSide(Protocol):
    """What one worker does, in its thread. It may have ``news()`` for ``Workload.hear``, and ``prepare`` for ``setup``.

    A workload with tasks of a graph has ``content(task id)``, which is asked at home (None: it is not wanted any more), and
    its workers' sides have ``call(task, call)``, which returns the outputs that were not released, by name.
    """

    def inspect(self, input: int) -> tuple[int, tuple[int, ...]]:  # noqa: A002 - the word of the house
        """Open an input: its rows and unit borders."""
        ...

    def run(self, rows: tuple[Rows, ...], plan: Plan) -> Outcome:
        """Process rows under a plan."""
        ...

    def merge(self, partials: Sequence[Any]) -> Any:
        """Make one partial of several of one input, in row order; may reuse the first."""
        ...

    def close(self) -> None:
        """Release files."""
        ...


class Workload(Protocol):
    """What a front door wants done."""

    def open_worker(self, worker: int) -> WorkerSide:
        """Make the worker's side, in the worker."""
        ...

    def classify(self, error: BaseException) -> Failure:
        """Say whose fault an exception of ``WorkerSide`` is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine really can do; limits are offered only where they are real."""

    can_kill: bool = False
    can_limit: bool = False
    measures_memory: bool = False
    isolates: bool = False


class Engine(Protocol):
    """Workers and the way to them."""

    capabilities: Capabilities

    @property
    def work_cpu_s(self) -> float:
        """CPU seconds spent on work inside ``wait``; zero where workers have threads or processes."""

    def start(self, workload: Workload) -> None:
        """Start the workers; each is reported by WorkerJoined."""
        ...

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Carry out commands; returns at once."""
        ...

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what happened, waiting at most ``timeout`` seconds (None: no limit)."""
        ...

    def wake(self) -> None:
        """Make ``wait`` return; may be called from a signal handler."""
        ...

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        ...

    def stop(self) -> None:
        """End every worker and wait for it; doing it twice is allowed."""
        ...
