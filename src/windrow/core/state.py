"""The mutable records behind the scheduler: inputs, workers, attempts, and what was learned.

Only the scheduler and its two hands, intake and merger, change them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from windrow.core.learned import Learned
from windrow.core.records import FailureKind, PlanJob, StepCost
from windrow.core.source import Cutter
from windrow.core.transitions import AttemptState, InputState

if TYPE_CHECKING:
    from windrow.core.offerers import Grant
    from windrow.core.records import Evidence, Failure, Handle, InputSpec, Plan, Task, Worker

__all__ = ["NO_TRIES", "Account", "Attempt", "Bundle", "Drain", "Feed", "Spent", "Tries", "WorkerState"]

#: A task that computes less than this share of its time waits for something.
MOSTLY_WAITS = 0.1

#: Weight of the newest task in the recent cost of a row: about the last five count.
RECENT = 0.2


class Tries(NamedTuple):
    """How often a task, or the opening of an input, ended badly before, by whose fault it was."""

    reads: int = 0
    crashes: int = 0  #: it ended its worker
    losses: int = 0  #: its worker was ended from outside

    def of(self, kind: FailureKind) -> int:
        """Say how often this kind of failure was seen; 0 for those that are never tried again."""
        if kind is FailureKind.TRANSIENT_IO:
            return self.reads
        if kind is FailureKind.CRASHED:
            return self.crashes
        return self.losses if kind is FailureKind.LOST else 0

    def after(self, kind: FailureKind) -> Tries:
        """Count one more failure."""
        if kind is FailureKind.TRANSIENT_IO:
            return self._replace(reads=self.reads + 1)
        if kind is FailureKind.CRASHED:
            return self._replace(crashes=self.crashes + 1)
        if kind is FailureKind.LOST:
            return self._replace(losses=self.losses + 1)
        return self


NO_TRIES = Tries()


@dataclass(slots=True)
class Spent:
    """What a run spent on things that went wrong: the one budget that reports show."""

    retries: int = 0  #: of reads
    crashes: int = 0  #: workers that a task, a merge or an input ended
    losses: int = 0  #: workers that ended otherwise, without being told to
    exhaustions: int = 0  #: attempts that were ended at a limit
    copies: int = 0  #: attempts that ran a straggler's rows a second time


@dataclass(slots=True)
class Drain:
    """Why a worker gets no more work, and what is to come after it."""

    reason: str
    replace: bool
    told: bool = False  #: it keeps nothing any more and was told to end


class Feed:
    """One input as work is cut from it."""

    __slots__ = ("borders", "bundles", "cutter", "failure", "inspector", "rows", "spec", "state", "touched", "tries")

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self.state = InputState.WAITING
        self.rows = 0  #: of the whole input; meaningful once it is known
        self.borders: tuple[int, ...] = (0,)
        self.cutter = Cutter(spec.id, self.borders)
        self.inspector: WorkerState | None = None  #: who opens it now
        self.tries = NO_TRIES  #: inspections that failed; crashes of merges, once it is open
        self.touched = False  #: a task was cut from it
        self.failure: Failure | None = None  #: why it is BAD
        self.bundles: dict[int, Bundle] = {}  #: by worker id


class Bundle:
    """What one worker has of one input: attempts that run and partials that it keeps."""

    __slots__ = ("feed", "fetching", "kept", "merging", "running", "unsafe_s", "worker")

    def __init__(self, worker: WorkerState, feed: Feed) -> None:
        self.worker = worker
        self.feed = feed
        self.running = 0  #: attempts that may still add a handle
        #: accepted handles, neither being merged nor fetched, by how many merges they went through
        self.kept: list[list[Handle]] = [[]]
        #: id of the merged handle -> merges it will have gone through, the handle, its inputs
        self.merging: dict[int, tuple[int, Handle, tuple[Handle, ...]]] = {}
        self.fetching: dict[int, Handle] = {}
        self.unsafe_s = 0.0  #: seconds of work in partials that nobody began to fetch

    def handles(self) -> list[Handle]:
        """List all that its worker keeps, whatever is being done with it."""
        kept = [handle for level in self.kept for handle in level]
        for _, _, inputs in self.merging.values():
            kept += inputs
        return [*kept, *self.fetching.values()]


class WorkerState:
    """A living worker and all it has."""

    __slots__ = (
        "attempts",
        "baseline",
        "bundles",
        "busy",
        "drain",
        "feed",
        "grant",
        "heard",
        "id",
        "incarnation",
        "inspecting",
        "joined",
        "known",
        "offers",
        "pools",
        "proven",
        "tasks",
        "tied",
        "usable",
    )

    def __init__(self, worker: Worker) -> None:
        self.id, self.incarnation, self.offers, self.pools = worker
        self.usable = False  #: its offers cover what tasks need, and it may get more of them
        self.attempts: dict[int, Attempt] = {}  #: that have not ended, in the order of launch
        self.busy = 0  #: attempts and inspections it was given
        self.tied = 0  #: attempts of a graph's tasks, and outputs that nobody else has
        self.grant: Grant | None = None  #: what its queue of rows has reserved
        self.inspecting: dict[int, Feed] = {}
        self.bundles: dict[int, Bundle] = {}  #: by input id
        self.feed: Feed | None = None  #: the input it has open: the next task comes from there
        self.known: set[str] = set()  #: categories it has run; the first run is slower
        self.drain: Drain | None = None  #: set when it is to get no more work
        self.proven = False  #: it has brought a job to an end, good or bad
        self.joined = 0.0  #: when
        self.heard = 0.0  #: when an attempt of it ended last
        self.baseline = 0  #: memory after its first task
        self.tasks = 0  #: since then


class Attempt:
    """One try of one task on one worker."""

    __slots__ = (
        "asked",
        "bundle",
        "doubt",
        "id",
        "key",
        "launched",
        "plan",
        "rows_done",
        "started",
        "state",
        "task",
        "told",
        "tries",
        "twin",
        "void",
        "worker",
    )

    def __init__(
        self, attempt_id: int, task: Task, worker: WorkerState, bundle: Bundle, plan: Plan, tries: Tries
    ) -> None:
        self.id = attempt_id
        self.key = (attempt_id, worker.id, worker.incarnation)
        self.task = task
        self.worker = worker
        self.bundle = bundle
        self.plan = plan
        self.tries = tries  #: failed attempts of the same task before this one
        self.state = AttemptState.LAUNCHED
        self.rows_done = 0  #: as far as Progress told
        self.told = 0.0  #: when Progress told it
        self.launched = 0.0  #: when
        self.started: float | None = None  #: when
        self.asked: float | None = None  #: when it was last asked to give rows away
        #: the other attempt at the same task; after the end: who has the rows now
        self.twin: Attempt | None = None
        self.doubt: Failure | None = None  #: how a former twin of it ended
        self.void = False  #: its twin was faster: nobody waits for its end


class Account:
    """What was learned of a category from accepted attempts, and the plan in force."""

    __slots__ = (
        "_asked",
        "_cold",
        "_costs",
        "_learned",
        "_outdated",
        "_wall_s",
        "_warm",
        "blamed",
        "guards",
        "plan",
        "plans",
        "row_s",
        "spent_s",
    )

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.plans = [plan]  #: that were in force, in order; those that changed something
        self.row_s: float | None = None  #: seconds per row of recent tasks
        self.spent_s = 0.0  #: in accepted tasks: processor time, where they compute
        self._wall_s = 0.0
        self.blamed = 0  #: times that a moved order was held to have used too much
        self.guards: dict[tuple[str, str], None] = dict.fromkeys(plan.guards)
        #: calls, rows, wall, rows squared, rows * wall of tasks; those that were the first of their
        #: worker apart, as they compile and open files
        self._cold: list[float] = [0] * 5
        self._warm: list[float] = [0] * 5
        self._costs: StepCost | None = None
        self._learned = Learned()
        self._asked: int | None = None  #: guards known when a new plan was asked for
        self._outdated = False  #: the plan that was asked for is no longer wanted

    def count(self, rows: int, wall: float, *, warm: bool, cpu: float = 0.0) -> None:
        """Count the cost of a task."""
        sums = self._warm if warm else self._cold
        sums[:] = map(add, sums, (1, rows, wall, rows * rows, rows * wall))
        self._costs = None
        # Others on the same machine make it take longer; where it does little but wait, that is its cost.
        self.spent_s += cpu if cpu > MOSTLY_WAITS * wall else wall
        self._wall_s += wall
        recent = self.row_s
        per_row = wall / rows
        self.row_s = per_row if recent is None else recent + RECENT * (per_row - recent)

    def costs(self) -> StepCost:
        """Give the sums over tasks; those of warm workers alone once there are two of them."""
        if self._costs is None:
            sums = self._warm
            if sums[0] < 2:  # two points are needed for a line
                sums = list(map(add, self._cold, sums))
            rows = int(sums[1])
            self._costs = StepCost(int(sums[0]), rows, rows, sums[2], sums[3], sums[4])
        return self._costs

    def learn(self, evidence: Evidence) -> None:
        """Add what an attempt learned: costs add up, guards only grow."""
        for guard in evidence.guards:
            self.guards[guard] = None
        self._learned.add(evidence)

    @property
    def evidence(self) -> Evidence:
        """Give everything learned so far as a record."""
        return self._learned.evidence(self.guards)

    def wants_plan(self, *, due: bool = False) -> bool:
        """Say whether to ask for a new plan: there are new guards or it is ``due``, and nobody was asked yet."""
        return self._asked is None and (due or len(self.guards) != len(self.plan.guards))

    def ask(self, *, rows_left: int = 0, others_s: float = 0.0) -> PlanJob:
        """Give the question for a new plan; ``others_s`` is all the work of other categories."""
        self._asked = len(self.guards)
        return PlanJob(
            category=self.plan.category,
            plan=self.plan,
            guards=tuple(self.guards),
            evidence=self.evidence,
            costs=self.costs(),
            spent_s=self.spent_s,
            left_s=self.expected_s(rows_left),
            run_s=self.spent_s + self.expected_s(rows_left) + others_s,
            blamed=self.blamed,
        )

    def expected_s(self, rows: int) -> float:
        """Say how long so many rows will take."""
        return rows * (self.row_s or 0.0) * (self.spent_s / (self._wall_s or 1.0))

    def blame_order(self) -> None:
        """Fall back to the written order, at once: rows that it removes may be what was too large."""
        self.blamed += 1
        self._outdated = self._asked is not None
        plan = self.plan
        if plan.moved:
            why = "the written order, because a moved one used too much memory or time"
            self._follow(replace(plan, id=plan.id + 1, order=plan.written, reason=why))

    def answer(self, plan: Plan) -> bool:
        """Put a new plan in force; False for one that is older or forgets guards it was told."""
        if self._outdated:
            self._outdated, self._asked = False, None
            return True
        if plan.id <= self.plan.id:
            return False
        told = list(self.guards)[: self._asked or 0]
        if any(guard not in plan.guards for guard in told):
            return False
        self._follow(plan)
        self._asked = None
        for guard in plan.guards:
            self.guards[guard] = None
        return True

    def _follow(self, plan: Plan) -> None:
        if (plan.order, plan.guards) != (self.plan.order, self.plan.guards):
            self.plans.append(plan)
        self.plan = plan
