"""The seams through which work and decisions come into the heart; core imports none that decides anything.

A policy called from the scheduler is pure and answers in microseconds. Longer thinking is a ``Replan`` command,
answered by the loop with ``OrderPolicy.replan``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Finished
    from windrow.core.records import Failure, InputSpec, Life, Measurement, Needs, Plan, PlanJob, StepCost, Task

# -- where tasks come from ---------------------------------------------------------------------------------


class Wait(NamedTuple):
    """The answer of a feeder that has nothing now and may have something later."""

    until: float | None = None  #: look again then; None: when something has happened


class Desk(Protocol):
    """What a feeder may ask of the scheduler."""

    @property
    def now(self) -> float:
        """The time of the batch."""
        ...

    def submit(self, task: Task) -> None:
        """Take in a task of the feeder that waits for its worker, such as a merge: those come before new ones."""
        ...

    def command(self, command: Command) -> None:
        """Give a command, such as Replan."""
        ...

    def want(self, output: str) -> None:
        """Bring an output of the feeder to the driver and hand it over (Take); ``Feeder.taken`` is told."""
        ...

    def release(self, output: str) -> None:
        """The feeder needs an output no more."""
        ...

    def lives(self) -> int:
        """Count the workers."""
        ...

    def launches(self) -> int:
        """Count the attempts that have not ended."""
        ...

    def rows_ahead(self, row_s: float | None) -> int:
        """Estimate the rows that workers still have before them, given the seconds that a row takes."""
        ...

    def rows_running(self, category: str) -> int:
        """Count the rows of a category that workers have before them."""
        ...

    def mean_life_s(self) -> float | None:
        """Say how long a worker lives on average; None if none was lost."""
        ...


class Feeder(Protocol):
    """A supply of tasks that are made when a worker has room; it claims their outputs and releases them itself."""

    def begin(self, desk: Desk) -> None:
        """The scheduler is there."""
        ...

    def submitted(self, inputs: Sequence[InputSpec]) -> None:
        """More inputs belong to the run."""
        ...

    def next(self, life: Life, now: float) -> Task | Wait | None:
        """Give the next task for a worker with room; None: never again, unless something is returned or submitted."""
        ...

    def window(self) -> int:
        """Say how many tasks of the feeder a worker may have at a time."""
        ...

    def ended(self, task: Task, event: Finished) -> bool:
        """An attempt is done: say whether it counts; False: its outputs are discarded."""
        ...

    def failed(self, task: Task, failure: Failure) -> bool:
        """A task was given up: divide it, leave it out, or say that the run must stop (True)."""
        ...

    def returned(self, task: Task) -> None:
        """No attempt of a task will count, through no fault of its own: it may be cut anew."""
        ...

    def lost(self, output: str) -> None:
        """No holder of an output is left."""
        ...

    def unreadable(self, output: str, failure: Failure) -> bool:
        """An output cannot be brought to the driver: say whether the run must stop."""
        ...

    def crashed(self, output: str, failure: Failure) -> bool:
        """A worker crashed while it sent an output, which is lost with it: say whether the run must stop."""
        ...

    def about(self, output: str) -> object:
        """Say what an output is about, for ``Take``."""
        ...

    def taken(self, output: str, seconds: float) -> None:
        """An output that was wanted is in the driver's hands."""
        ...

    def draining(self, life: Life) -> None:
        """A worker gets no more work but what is pinned to it: what it keeps is to be brought away."""
        ...

    def losing(self, life: Life) -> None:
        """A worker is gone: nothing is to be merged there any more; what it had is about to be returned or lost."""
        ...

    def left(self, life: Life) -> None:
        """A worker is gone; what it had was returned or lost."""
        ...

    def plan(self, category: str) -> Plan:
        """Give the plan in force."""
        ...

    def planned(self, plan: Plan) -> None:
        """A new plan was made."""
        ...

    def blame_order(self, category: str) -> None:
        """Tasks of a category used too much in a moved order."""
        ...

    def describe(self, task: Task) -> str:
        """Name a task in messages."""
        ...

    def is_divisible(self, task: Task) -> bool:
        """Whether ``failed`` could divide a task."""
        ...

    def stop(self, *, forget: bool) -> None:
        """No more tasks; what was made is still brought in, unless all is to be forgotten."""
        ...

    @property
    def busy(self) -> bool:
        """Whether outputs are still to be brought in."""
        ...

    @property
    def exhausted(self) -> bool:
        """Whether everything was handed out and has come to an end."""
        ...

    @property
    def complete(self) -> bool | None:
        """Whether all is done; None: something is neither done nor given up."""
        ...


# -- needs, limits and what is done when they are exceeded -------------------------------------------------


class Tries(NamedTuple):
    """How often a task ended badly before, by whose fault it was."""

    errors: int = 0  #: it raised
    reads: int = 0  #: reading failed and might not fail again
    crashes: int = 0  #: it ended its worker
    losses: int = 0  #: its worker was ended from outside
    exhaustions: int = 0  #: it used more than it was allowed
    fresh: bool = False  #: the last try was on a worker that had run nothing before


NO_TRIES = Tries()


class Again(NamedTuple):
    """Try a task again, at once."""

    how: Literal["same", "written", "fresh"] = (
        "same"  #: as it was, in the written order, on a worker that ran nothing yet
    )


class Larger(NamedTuple):
    """Try a task again with these needs, if a worker could ever grant them; else it has failed."""

    needs: Needs


class Split(NamedTuple):
    """Let the feeder divide a task, or give it up where it cannot."""


class Fail(NamedTuple):
    """A task has failed."""


Answer: TypeAlias = Again | Larger | Split | Fail


class LaunchPolicy(Protocol):
    """What a launch needs and may use, and what follows when it used more."""

    def grant(self, task: Task, plan: Plan, tries: Tries) -> tuple[Needs, Needs]:
        """Say what a task needs, and its limits."""
        ...

    def seen(self, task: Task, plan: Plan, measurement: Measurement) -> None:
        """An attempt was done and counted: learn what it used."""
        ...

    def predict(self, category: str, size: int, plan: Plan | None = None) -> tuple[float | None, float | None]:
        """Predict the seconds and bytes of a task; None where nothing is known."""
        ...

    def exhausted(
        self, task: Task, plan: Plan, resource: str, limit: float, tries: Tries, *, divisible: bool
    ) -> Answer:
        """An attempt used more than it was allowed; ``tries`` counts it, ``divisible``: a feeder could divide it."""
        ...


# -- shape, order, safety ----------------------------------------------------------------------------------


class ShapeRequest(NamedTuple):
    """What is known when the next task is cut."""

    category: str
    workers: int
    unit: int  #: rows of the next unit; a task is at least that
    units: int  #: units left in the range that the task is cut from
    known: int  #: rows of the run that can be cut now
    expected: int  #: rows estimated in inputs that nobody opened yet
    running: int  #: rows estimated that workers still have before them
    costs: StepCost  #: over accepted tasks of the category: rows and wall time


class ShapePolicy(Protocol):
    """How much to run at once."""

    def rows(self, request: ShapeRequest) -> int:
        """Say how many rows the next task should have; the source snaps it down to whole units."""
        ...

    def window(self, task_s: float | None) -> int:
        """Say how many jobs a worker may have, given the predicted length of a task, if known."""
        ...


class OrderPolicy(Protocol):
    """What to run first; ``replan`` is called by the loop, apart from the scheduler."""

    def due(self, category: str, spent_s: float, windows: int) -> bool:
        """Say whether to think again, after an accepted attempt that brought so many windows.

        ``spent_s`` are the seconds of all accepted attempts of the category.
        """
        ...

    def replan(self, job: PlanJob) -> Plan:
        """Make the next plan of a category; it keeps every known guard and has a larger id."""
        ...


class KeepOrder:
    """The order decision that never moves anything: it only takes new guards into the plan."""

    def due(self, category: str, spent_s: float, windows: int) -> bool:  # noqa: ARG002 - a Protocol's
        """Never: guards are news enough."""
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
        ...


class AtTheEnd:
    """The safety of engines whose workers are not lost: partials are fetched when they are whole."""

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:  # noqa: ARG002 - a Protocol's
        """Never early."""
        return False


@dataclass(frozen=True, slots=True)
class Policies:
    """The decisions about rows."""

    shape: ShapePolicy
    order: OrderPolicy = field(default_factory=KeepOrder)
    safety: SafetyPolicy = field(default_factory=AtTheEnd)
