"""The seams through which work and decisions come into the heart; core imports none that decides anything.

A policy called from the scheduler is pure and answers in microseconds. Longer thinking is a ``Replan`` command,
answered by the loop with ``OrderPolicy.replan``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from windrow.core.records import NO_LIMITS

if TYPE_CHECKING:
    from windrow.core.records import CostSums, Needs, Plan, PlanJob, StepCost, Task

# -- tries, limits and costs -------------------------------------------------------------------------------


class Tries(NamedTuple):
    """How often a task ended badly before, by whose fault it was."""

    errors: int = 0  #: it raised
    reads: int = 0  #: reading failed and might not fail again
    crashes: int = 0  #: it ended its worker
    losses: int = 0  #: its worker was ended from outside
    exhaustions: int = 0  #: it used more than it was allowed
    fresh: bool = False  #: the last try was on a worker that had run nothing before


NO_TRIES = Tries()


#: Weight of the newest task in what is known of its category: about the last five count.
RECENT = 0.2


class LaunchPolicy:
    """Limits as the user set them, for tasks that run rows, and costs of calls as they were measured."""

    def __init__(self, limits: Needs = NO_LIMITS) -> None:
        self.limits = limits
        self._seconds: dict[str, float] = {}  #: by category, for a size of one

    def seen(self, task: Task, wall: float) -> None:
        """Learn how long a task took; one without a size, such as a merge, tells nothing of the others."""
        category, size = task.category, task.size
        if size:
            seconds = wall / size
            known = self._seconds.get(category)
            self._seconds[category] = seconds if known is None else known + RECENT * (seconds - known)

    def predict(self, task: Task) -> float | None:
        """Predict the seconds of a task; None where nothing is known."""
        seconds = self._seconds.get(task.category)
        return seconds * task.size if seconds is not None and task.size else None


# -- shape, order, safety ----------------------------------------------------------------------------------


@dataclass(slots=True)
class ShapeRequest:
    """What is known when the next task is cut; a feeder has one, and fills it in anew for every task."""

    category: str
    workers: int
    unit: int  #: rows of the next unit; a task is at least that
    units: int  #: units left in the range that the task is cut from
    known: int  #: rows of the run that can be cut now
    expected: int  #: rows estimated in inputs that nobody opened yet
    running: int  #: rows estimated that workers still have before them
    costs: StepCost | CostSums  #: over accepted tasks of the category: rows and wall time


class ShapePolicy(Protocol):
    """How much to run at once."""

    def rows(self, request: ShapeRequest) -> int:
        """Say how many rows the next task should have; the source snaps it down to whole units."""

    def window(self, task_s: float | None) -> int:
        """Say how many jobs a worker may have, given the predicted length of a task, if known."""


class OrderPolicy(Protocol):
    """What to run first; ``replan`` is called by the loop, apart from the scheduler."""

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        """Say whether to think again, after an accepted attempt that brought so many windows.

        ``spent_s`` are the seconds of all accepted attempts of the category.
        """

    def replan(self, job: PlanJob) -> Plan:
        """Make the next plan of a category; it keeps every known guard and has a larger id."""


class KeepOrder:
    """The order decision that never moves anything: it only takes new guards into the plan."""

    def due(self, category: str, spent_s: float, windows: int) -> bool:  # noqa: ARG002 - a Protocol's
        return False

    def replan(self, job: PlanJob) -> Plan:
        """Repeat the plan with all guards known by now."""
        return replace(job.plan, id=job.plan.id + 1, guards=job.guards, reason="new guards")


class SafetyPolicy(Protocol):
    """How much work may be lost with a worker."""

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:
        """Say whether what a worker keeps, ``held_s`` seconds of work, is to be brought to safety.

        ``cost_s`` is what that took the last time (None: never done), ``life_s`` how long workers
        live on average as far as was seen (None: none was lost).
        """


class AtTheEnd:
    """The safety of engines whose workers are not lost: partials are fetched when they are whole."""

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:  # noqa: ARG002 - a Protocol's
        return False


@dataclass(frozen=True, slots=True)
class Policies:
    """The decisions about rows."""

    shape: ShapePolicy
    order: OrderPolicy = field(default_factory=KeepOrder)
    safety: SafetyPolicy = field(default_factory=AtTheEnd)


# -- what the user asked, and what went wrong ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a run."""

    retries: int = 2  #: of a read that may succeed the next time
    crashes: int = 2  #: times that a task may end its worker before it is at fault
    restart: bool = False  #: start a worker again when it is lost; needs an engine that can
    open: bool = False  #: more may be submitted; the run does not end before ``Closed``
    ahead: bool = False  #: short tasks are launched behind those that they read from
    speculate: bool = False  #: run a straggler twice near the end, at workers that can be killed
    io_workers: int = 0  #: workers for input and output that may be started when tasks need them
    first_io: int = 0  #: number of the first of them at least


@dataclass(slots=True)
class Spent:
    """What a run spent on things that went wrong: the one budget that reports show."""

    retries: int = 0  #: of reads
    crashes: int = 0  #: workers that a task ended
    losses: int = 0  #: workers that ended otherwise, without being told to
    exhaustions: int = 0  #: attempts that were ended at a limit
    copies: int = 0  #: attempts that ran a straggler a second time
