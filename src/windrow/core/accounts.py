"""What was learned of a category from accepted attempts: costs, evidence, guards, and the plan in force."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.core.policies import RECENT
from windrow.core.records import CostSums, Evidence, PlanJob, StepCost

if TYPE_CHECKING:
    from windrow.core.records import Plan, Terrain, Window

#: A task that computes less than this share of its time waits for something.
MOSTLY_WAITS = 0.1

#: Evidence is added up so many tasks at a time: column by column it costs half of task by task.
UNREAD = 128

#: Windows that are kept, the latest: a decision looks at the newest of them (``order.drift``).
MAX_WINDOWS = 512

#: Orders of which is kept how many rows passed each step: the latest.
MAX_ORDERS = 8

NOTHING = StepCost()


class Learned:
    """Evidence of many attempts, but guards, which are needed at once.

    Every task brings some, so it is taken in unread and added up many tasks at a time.
    """

    __slots__ = ("_looked", "_probed", "_ran", "_steps", "_terrain", "_unread", "_windows")

    def __init__(self) -> None:
        self._unread: list[Evidence] = []
        self._steps: dict[str, StepCost] = {}
        self._windows: deque[Window] = deque(maxlen=MAX_WINDOWS)
        self._terrain: Terrain | None = None
        self._probed: dict[str, StepCost] = {}
        self._looked = (0, 0, 0.0)
        self._ran: dict[tuple[str, ...], dict[str, StepCost]] = {}  #: the same as steps, by order; the latest last

    def add(self, evidence: Evidence) -> None:
        self._unread.append(evidence)
        if len(self._unread) >= UNREAD:
            self._read()

    def evidence(self, guards: Iterable[tuple[str, str]]) -> Evidence:
        self._read()
        return Evidence(
            tuple(self._steps.items()),
            tuple(guards),
            tuple(self._windows),
            self._terrain,
            tuple(self._probed.items()),
            self._looked,
            tuple((order, tuple(costs.items())) for order, costs in self._ran.items()),
        )

    def _read(self) -> None:
        """Add up what was left unread; steps are the same in most, so column by column."""
        tables: dict[tuple[str, ...], list[tuple[StepCost, ...]]] = {}
        for evidence in self._unread:
            if evidence.steps:
                names, costs = zip(*evidence.steps, strict=True)
                tables.setdefault(names, []).append(costs)
            if evidence.windows or evidence.probed or evidence.terrain:
                self._read_probes(evidence)
        self._unread.clear()
        for names, table in tables.items():
            ran = self._ran[names] = self._ran.pop(names, {})
            if len(self._ran) > MAX_ORDERS:
                del self._ran[next(iter(self._ran))]
            for name, column in zip(names, zip(*table, strict=True), strict=True):
                total = StepCost(*map(sum, zip(*column, strict=True)))
                self._steps[name] = self._steps.get(name, NOTHING).merge(total)
                ran[name] = ran.get(name, NOTHING).merge(total)

    def _read_probes(self, evidence: Evidence) -> None:
        """Take in what was seen where rows were shown to all cuts; few tasks have that."""
        self._windows.extend(evidence.windows)
        count, rows, seconds = self._looked
        for window in evidence.windows:
            count, rows, seconds = count + 1, rows + window.size, seconds + window.seconds
        self._looked = count, rows, seconds
        self._terrain = evidence.terrain or self._terrain
        for name, cost in evidence.probed:
            self._probed[name] = self._probed.get(name, NOTHING).merge(cost)


class Account:
    """What was learned of a category from accepted attempts, and the plan in force."""

    __slots__ = (
        "_asked", "_changed", "_learned", "_outdated", "_wall_s", "_warm", "blamed", "cold", "guards", "least_s",
        "most_memory", "most_rows", "off_s", "plan", "plans", "predicted", "predicted_s", "row_s", "slowest", "spent_s",
        "used_s",
    )  # fmt: skip

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.plans = [plan]  #: that were in force, in order; those that changed something
        self.row_s: float | None = None  #: seconds per row of recent tasks
        self.most_memory = self.most_rows = 0  #: of a task, the first in bytes
        self.least_s = math.inf  #: that a task took: what tasks take whatever their rows is no more
        self.slowest = 1.0  #: how many times as long as on average rows took of the slowest input
        self.predicted = 0  #: tasks of which was said how long they would take
        #: of these: what was said, what they took, and how far that is apart
        self.predicted_s = self.used_s = self.off_s = 0.0
        self.spent_s = 0.0  #: in accepted tasks: processor time, where they compute
        self._wall_s = 0.0
        self.blamed = 0  #: times that a moved order was held to have used too much
        self.guards: dict[tuple[str, str], None] = dict.fromkeys(plan.guards)
        #: of tasks; those that were the first of their worker apart, as they compile and open files
        self.cold, self._warm = CostSums(), CostSums()
        self._learned = Learned()
        self._asked: int | None = None  #: guards known when a new plan was asked for
        self._changed = True  #: what is known of recent tasks is of another order, or of first ones
        self._outdated = False  #: the plan that was asked for is no longer wanted

    def count(self, rows: int, wall: float, *, warm: bool, cpu: float = 0.0) -> None:
        sums = self._warm if warm else self.cold
        sums.calls += 1
        sums.rows_in += rows
        sums.wall += wall
        sums.rows_squared += rows * rows
        sums.rows_wall += rows * wall
        # Others on the same machine make it take longer; where it does little but wait, that is its cost.
        self.spent_s += cpu if cpu > MOSTLY_WAITS * wall else wall
        self._wall_s += wall
        self.least_s = min(self.least_s, wall)
        recent = self.row_s
        per_row = wall / rows
        self.row_s = per_row if recent is None or self._changed else recent + RECENT * (per_row - recent)
        self._changed = self._changed and not warm

    def compare(self, predicted_s: float, used_s: float) -> None:
        """Take in what a task was said to take, if anything was, and what it took."""
        if predicted_s:
            self.predicted += 1
            self.predicted_s += predicted_s
            self.used_s += used_s
            self.off_s += abs(predicted_s - used_s)

    def sums(self) -> StepCost | CostSums:
        """Give the sums over tasks as they are now; those of warm workers alone once there are two of them."""
        warm = self._warm
        return warm if warm.calls >= 2 else self.cold.record().merge(warm.record())  # a line needs two points

    def costs(self) -> StepCost:
        sums = self.sums()
        return sums if isinstance(sums, StepCost) else sums.record()

    def learn(self, evidence: Evidence) -> None:
        """Add what an attempt learned: costs add up, guards only grow."""
        if evidence.guards:
            self.guards |= dict.fromkeys(evidence.guards)
        self._learned.add(evidence)

    @property
    def evidence(self) -> Evidence:
        return self._learned.evidence(self.guards)

    @property
    def asked(self) -> bool:
        """Whether a new plan was asked for and is not there yet."""
        return self._asked is not None

    def wants_plan(self, *, due: bool = False) -> bool:
        """Say whether to ask for a new plan: there are new guards or it is ``due``, and no plan was asked for yet."""
        return self._asked is None and (due or len(self.guards) != len(self.plan.guards))

    def ask(self, *, rows_left: int = 0, others_s: float = 0.0) -> PlanJob:
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
            self._changed = True
        self.plan = plan
