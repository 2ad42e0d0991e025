"""The seams through which work and decisions come into the heart; core imports none that decides anything.

A policy called from the scheduler is pure and answers in microseconds. Longer thinking is a ``Replan`` command,
answered by the loop with ``OrderPolicy.replan``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from windrow.core.records import NO_COST, NO_LIMITS, Needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.records import CostSums, Measurement, Plan, PlanJob, StepCost, Task

# -- tries, limits and costs -------------------------------------------------------------------------------


class Tries(NamedTuple):
    """How often a task ended badly before, by whose fault it was."""

    errors: int = 0  #: it raised
    reads: int = 0  #: reading failed and might not fail again
    crashes: int = 0  #: it ended its worker
    losses: int = 0  #: its worker was ended from outside
    exhaustions: int = 0  #: it used more than it was allowed
    fresh: bool = False  #: the last try was on a worker that had run nothing before
    missed: int = 0  #: what it reads had not come


NO_TRIES = Tries()


#: Weight of the newest task in what is known of its category, as in the recent cost of a row: about the last five count.
RECENT = 0.2


class TooMuch(NamedTuple):
    """An attempt that used more than it was allowed, as the policy is asked about it."""

    task: Task
    tries: Tries  #: with this one
    moved: bool  #: it ran in another order than the written one
    divisible: bool  #: it has several units of rows
    limit: tuple[str, float] | None  #: the resource, and how much was allowed; None: it raised MemoryError
    by_rows: bool = False  #: it has rows that can be run in several tasks, or called for in smaller blocks
    used: float = 0.0  #: of the resource when it was ended, or more


class Answer(NamedTuple):
    """What is done about a task that used too much."""

    #: again in the written order, with fewer rows in each call, on a fresh worker or with more; cut smaller; not at all
    act: Literal["written", "blocks", "fresh", "larger", "split", "fail"]
    needs: Needs | None = None  #: of the next attempt, where that has more
    why: str = ""  #: of a failure: what would help, as parts of it would fail too
    rows: int = 0  #: of a call, or of a task that is cut from it, at most; 0: a unit


class LaunchPolicy:
    """What a launch is given and may use, learned from what launches used.

    This one takes limits as the user set them, for tasks that run rows; calls may use the memory that they ask for.
    """

    def __init__(self, limits: Needs = NO_LIMITS) -> None:
        self.limits = limits
        self.is_moved: Callable[[str], bool] = {}.__contains__  #: whether rows of a category run in a moved order now
        self._seconds: dict[str, float] = {}  #: by category, for a size of one
        self._latest = NO_LIMITS, NO_LIMITS  #: needs of the call that was asked for last, and its limits

    def grant(self, task: Task, tries: Tries) -> tuple[Needs, Needs]:  # noqa: ARG002 - for policies that learn from tries
        """Say what the next attempt at a task needs, and how much it may use."""
        needs = task.needs
        if task.twin:
            return needs, self.limits
        if needs is not self._latest[0]:  # most have the needs of the one before
            self._latest = needs, Needs(tuple([part for part in needs.amounts if part[0] == "memory"]))
        return self._latest

    def rows_at_once(self, category: str) -> tuple[int, int]:  # noqa: ARG002 - for policies that learn
        """Give the rows of a task at most, and those of a call of a step in it; 0: any number."""
        return 0, 0

    def seen(self, task: Task, measured: Measurement) -> bool:
        """Learn from an accepted attempt, not from rows or merges; True: its category is granted something else from now on."""
        category, size = task.category, task.size
        if size and not task.twin:
            seconds = measured.wall / size
            known = self._seconds.get(category)
            self._seconds[category] = seconds if known is None else known + RECENT * (seconds - known)
        return False

    def predict(self, task: Task) -> float | None:
        """Predict the seconds of a task; None where nothing is known."""
        seconds = self._seconds.get(task.category)
        return seconds * task.size if seconds is not None and task.size else None

    def most_memory(self, task: Task) -> float:  # noqa: ARG002 - for policies that learn
        """Say how much memory a task is expected to use at most; 0: nothing is known."""
        return 0.0

    def exhausted(self, found: TooMuch) -> Answer:
        """Blame the order first, then the shape, then the worker, then the task.

        A worker that has grown before may be the reason, so that rows are blamed only when a worker that had run
        nothing failed on them too. A call gets twice the memory once.
        """
        task, limit = found.task, found.limit
        if found.moved:
            return Answer("written")
        if task.twin:
            if found.divisible:
                return Answer("split")
            # Threads, which have no limits, share their memory: no worker is fresh.
            return Answer("fail" if found.tries.fresh or limit is None else "fresh")
        if (limit is None or limit[0] == "memory") and found.tries.exhaustions == 1:
            amounts = dict(task.needs.amounts)
            amounts["memory"] = 2 * (amounts.get("memory") or (limit[1] if limit is not None else 0.0))
            if amounts["memory"]:
                return Answer("larger", replace(task.needs, amounts=Needs.of(amounts).amounts))
        return Answer("fail")


# -- shape, order, safety ----------------------------------------------------------------------------------


@dataclass(slots=True)
class ShapeRequest:
    """What is known when the next task is cut; a feeder has one, and fills it in anew for every task."""

    category: str
    workers: int
    unit: int  #: rows of the next unit; a task is at least that
    known: int  #: rows of the run that can be cut now
    expected: int  #: rows estimated in inputs that nobody opened yet
    running: int  #: rows estimated that workers still have before them
    costs: StepCost | CostSums  #: over accepted tasks of the category: rows and wall time
    cold: StepCost | CostSums = NO_COST  #: over those of them that were the first of their worker
    parts: bool = False  #: the task may be a part of a unit
    least_s: float = math.inf  #: that a task of the category took
    slower: float = 1.0  #: how many times as long rows of the input take as those of its category
    slow: float = 0.0  #: where they do: how many more rows are left if those of slow inputs count by their time
    #: of steps: what they cost by their calls, however few rows they have; known where the task may be a part
    steps: tuple[tuple[str, StepCost], ...] = ()


class ShapePolicy(Protocol):
    """How much to run at once."""

    def rows(self, request: ShapeRequest) -> int:
        """Say how many rows the next task should have; the source snaps it down to whole units."""

    def window(self, task_s: float | None) -> int:
        """Say how many jobs a worker may have, given the predicted length of a task, if known."""


class OrderPolicy(Protocol):
    """What to run first; ``replan`` is called by the loop, apart from the scheduler."""

    barrier: bool  #: before a plan that is due is asked for all tasks end, and none begins before it is there

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        """Say whether to think again, after an accepted attempt that brought so many windows.

        ``spent_s`` are the seconds of all accepted attempts of the category.
        """

    def replan(self, job: PlanJob) -> Plan:
        """Make the next plan of a category; it keeps every known guard and has a larger id."""


class KeepOrder:
    """The order decision that never moves anything: it only takes new guards into the plan."""

    barrier = False

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


# -- what the user asked ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a run."""

    retries: int = 2  #: of a read that may succeed the next time
    crashes: int = 2  #: times that a task may end its worker before it is at fault
    restart: bool = False  #: start a worker again when it is lost; needs an engine that can
    open: bool = False  #: more may be submitted; the run does not end before ``Closed``
    ahead: bool = False  #: short tasks are launched behind those that they read from
    speculate: bool = False  #: run a straggler twice near the end, at workers that can be killed
    elastic: bool = False  #: machines join and leave with their workers: a run without any worker waits for new ones
    far: bool = False  #: answers take long: a worker has the next call while it runs one, unless that is a long one
    direct: bool = False  #: an output goes from the worker that holds it to another one, without a copy at the driver
    io_workers: int = 0  #: workers for input and output that may be started when tasks need them
    first_io: int = 0  #: number of the first of them at least
