"""The feeder of rows: inputs are opened, tasks cut from them, partials accepted by the ledger, merged and brought in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Literal, NamedTuple

from windrow.core.accounts import Account
from windrow.core.commands import Replan
from windrow.core.inputs import UNIT, Inputs
from windrow.core.ledger import Ledger, join_rows, without
from windrow.core.partials import Partials
from windrow.core.parts import MOST_UNMADE, Parts
from windrow.core.policies import ShapeRequest
from windrow.core.records import (
    NO_COST,
    NO_REPORT,
    ONE_CORE,
    EvaluateUnit,
    FailureKind,
    Made,
    MergePartials,
    Needs,
    Opened,
    OpenInput,
    Plan,
    RowsReport,
    RunRows,
    Task,
    make_record,
)
from windrow.core.retry import MOST_LOSSES, lost_too_often
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.events import Finished
    from windrow.core.inputs import Input
    from windrow.core.partials import Bundle
    from windrow.core.parts import SplitUnit
    from windrow.core.policies import Policies
    from windrow.core.records import CostSums, Failure, InputSpec, Life, Rows, StepCost
    from windrow.core.scheduler import Scheduler


#: Units that take so many seconds are cut into parts: less than that is not worth carrying columns for.
PART_S = 0.5
#: A run that is expected to take less than this, all workers together, is over before a decision about it pays.
SHORT_S = 2.0

#: Seconds of an input that must have been run before it says how long rows of others may take: of little that may be chance.
SHOWS_S = 0.5

#: Seconds that a row must take for every byte that it hands over: bringing that from a worker and to another takes some
#: 2 ns a byte, and is to stay under a tenth of the time.
CARRY_S = 2e-8

#: Single rows that may be left out while none is done, and otherwise too if they are not over this share of all rows: more
#: are no exceptions, and finding them one by one takes far longer than running all.
MOST_SINGLE, MOST_SHARE = 64, 0.1

#: Inputs of a task at most: a worker that opens so many ahead keeps them open until they are read.
MOST_INPUTS = 8

#: Bytes of units in parts that wait to be evaluated, with those to come: units beyond it are run whole.
MOST_BYTES = 500_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowOptions:
    """What the user asked of a run over rows."""

    on_error: Literal["stop", "skip"] = "stop"
    row_limit: int | None = None  #: the first rows of every category, in input order
    row_limits: Mapping[str, int] | None = None  #: by category, in place of ``row_limit``
    chunk: int | None = None  #: upper bound of a task's rows, snapped down to units
    parts: bool = False  #: units may be cut into parts, which are evaluated together
    row_s: Mapping[str, float] = field(default_factory=dict)  #: by category: what rows took in an earlier run
    halves: bool = False  #: what failed is cut in two rather than unit by unit, as units may be single rows
    needs: Needs = ONE_CORE  #: of every task
    family: int = 1  #: neighbouring inputs that a worker adds up with each other: a power of two
    crashes: int = 2  #: times that merging or sending partials of an input may end a worker


class Standing(NamedTuple):
    """How far a run over rows is; rows first."""

    known: int
    done: int
    failed: int
    held: int
    running: int
    waiting: int  #: can be cut now
    expected: int  #: estimate for inputs that nobody opened yet
    inputs: int
    inputs_unopened: int
    workers: int


class RowFeeder:
    """Rows of a run, as tasks."""

    def __init__(
        self,
        inputs: Sequence[InputSpec],
        policies: Policies,
        options: RowOptions | None = None,
        plans: Mapping[str, Plan] | None = None,
    ) -> None:
        self.options = options = options or RowOptions()
        self.policies = policies
        self.ledger = Ledger()
        self.accounts: dict[str, Account] = {}
        self.notes: list[str] = []
        self.bytes_read = 0  #: by accepted attempts at rows
        self._next_task = count(1).__next__
        self.inputs = Inputs(self.ledger, options.row_limit, options.row_limits, options.family)
        self.partials = Partials(self.ledger, policies.safety, options.needs, self._next_task)
        self.parts = Parts(self.ledger, options.needs, self._next_task)
        self.given: dict[int, Bundle | None] = {}  #: tasks that have not ended; of rows: whose they are
        self._plans = dict(plans or {})
        self._at: dict[Life, Input] = {}  #: by worker: the input that it has open
        self._known: set[tuple[Life, str]] = set()  #: categories that a worker has run; the first run is slower
        self._checked: set[str] = set()  #: steps that tasks have shown to be row-pure
        self._told: dict[Life, int] = {}  #: by worker: how many of them it knows
        self._piloted: set[str] = set()  #: categories whose first rows a task was told to look at
        self.left_out = 0  #: rows that were given up one by one
        self._checking = 0  #: the first task of rows, which checks all steps that it comes to
        self.window = policies.shape.window(None)  #: how many tasks a worker may have at a time
        self._forgotten = False  #: the run has failed: no result counts any more
        self._stopped = False
        self._barrier: Account | None = None  #: whose plan all tasks wait for
        #: what tasks of rows have in common: from needs on
        self._row_task = Task(0, "", needs=options.needs, twin=True)[8:]
        self._request = ShapeRequest("", 0, 0, 0, 0, 0, NO_COST)
        self._desk: Scheduler
        self.submitted(inputs)

    def begin(self, scheduler: Scheduler) -> None:
        self._desk = self.partials.desk = self.parts.desk = scheduler

    def submitted(self, inputs: Sequence[InputSpec]) -> None:
        for spec in inputs:
            if spec.category not in self.accounts:
                plan = self._plans.get(spec.category) or Plan(id=0, category=spec.category)
                self.accounts[spec.category] = Account(plan)
        self.inputs.add(inputs)

    # -- what is next

    def next(self, life: Life) -> Task | None:
        """Cut rows of the input that a worker has open, of one that no worker has open, open the next, or cut any rows."""
        if self._stopped:
            return None
        if self._barrier is not None:
            if not any(self.given.values()):  # all tasks of rows have ended
                self._ask_for_plan(self._barrier, due=True)
            return None
        inputs = self.inputs
        one = self._at.get(life)
        if one is None or not one.cutter.rows:
            one = inputs.fresh(life)
            if one is None:
                alive = len(self._desk.workers.alive)
                several = MOST_INPUTS if self.options.family > 1 else 1  # a task then takes as many as are open
                waiting = inputs.next_waiting(max(alive + 1, alive * min(self.window, several)), life)
                if waiting is not None:
                    return self._open(waiting, life)
                one = inputs.any()
                if one is None:
                    return None
        if self.accounts[one.spec.category].asked:
            return None  # the answer comes at once, and what is run before it gains nothing from it
        self._at[life] = one
        return self._cut(one, life)

    def _open(self, one: Input, life: Life) -> Task:
        self.inputs.begin_opening(one)
        self._at[life] = one
        one.family.life = one.family.life or life
        number, spec = self._next_task(), one.spec
        self.given[number] = None
        return Task(number, spec.category, 0, OpenInput(spec.id), needs=self.options.needs)

    def _cut(self, one: Input, life: Life) -> Task:
        inputs, desk = self.inputs, self._desk
        category = one.spec.category
        account = self.accounts[category]
        unit = one.cutter.next_unit()
        request, row_s = self._request, account.row_s
        if row_s is None:
            row_s = self.options.row_s.get(category)
        bound = self.options.chunk
        most, block = desk.policy.rows_at_once(category)
        for limit in (most, one.cutter.most()):  # as many fit the memory
            if limit:
                bound = min(bound or limit, limit)
        parts = self.options.parts and (
            (bound is not None and bound < unit) or one.cutter.is_split() or self._pays(category, row_s or 0.0, unit)
        )
        request.parts, request.steps = parts, account.evidence.steps if parts else ()
        request.category, request.workers, request.unit = category, len(desk.workers.alive), unit
        request.known, request.expected = inputs.uncut, inputs.expected() if inputs.unopened else 0
        request.running, request.costs = desk.queues.rows_ahead(row_s), account.sums()
        request.least_s, request.cold = account.least_s, account.cold
        one.running = {number: about for number, about in one.running.items() if number in self.given}
        # Of an input that nothing is known of, rows may take as long as those of the slowest.
        request.slower = one.slower(request.costs, desk.batch.now) if one.touched else account.slowest
        request.slow = self._slow_rows(request.costs) if request.slower > 1 else 0.0
        want = self.policies.shape.rows(request)
        if bound is not None:
            want = min(want, bound)
        rows = inputs.cut(one, want, parts=parts)
        part = one.cutter.is_part(rows.start)
        if part:
            self.parts.unit(one, rows)
        size = rows.stop - rows.start
        self.window = self.policies.shape.window(None if row_s is None else row_s * size)
        more = [] if part or row_s is None or one.cutter.rows else self._go_on(one, want - size)
        bundle = self.partials.bundle(life, one)
        bundle.running += 1
        one.family.life = one.family.life or life
        number = self._next_task()
        self.given[number] = bundle
        one.running[number] = size, desk.batch.now
        if not one.cutter.rows:
            self.partials.review_input(one)  # nothing more comes for workers that are through with its family
        short_s = 0.0
        if row_s is None and self.options.parts and not part:
            # The first task of a category looks at first rows: those of other workers would see the same.
            short_s = (
                math.inf if category in self._piloted else SHORT_S * unit / (size + inputs.uncut + request.expected)
            )
            self._piloted.add(category)
        checked = None if self._checking in self.given else self._unsaid(life)
        self._checking = self._checking or number
        size += sum(after.stop - after.start for _, after in more)
        all_rows = (rows, *(after for _, after in more))
        identities = (one.identity, *(other.identity for other, _ in more))
        predicted_s = size * (row_s or 0.0)
        payload = make_record(
            RunRows, (all_rows, identities, part, short_s, self._spare(), checked, block, predicted_s)
        )
        return make_record(Task, (number, category, size, payload, (), (), (f"rows {number}",), False, *self._row_task))

    def _slow_rows(self, costs: StepCost | CostSums) -> float:
        """Say how many more rows are left of the inputs that workers are at, if they count by their time."""
        at, now = dict.fromkeys(self._at.values()), self._desk.batch.now
        return sum((one.slower(costs, now) - 1) * one.cutter.rows for one in at)

    def _go_on(self, one: Input, room: int) -> list[tuple[Input, Rows]]:
        """Cut a task across the borders of its input: whole neighbours of the family, as far as they are open and there is room."""
        found: list[tuple[Input, Rows]] = []
        for other in one.family.inputs:
            rows = other.cutter.rows
            if rows and rows <= room and not other.touched and len(found) < MOST_INPUTS - 1:
                room -= rows
                while other.cutter.rows:
                    found.append((other, self.inputs.cut(other, rows)))
        return found

    def _unsaid(self, life: Life) -> frozenset[str]:
        """Give the steps that are row-pure, unless a worker knows them."""
        if self._told.get(life) == len(self._checked):
            return frozenset()
        self._told[life] = len(self._checked)
        return frozenset(self._checked)

    def _spare(self) -> int:
        """Count the workers that will have nothing to do when the rows that were just cut are under way."""
        if self.inputs.uncut or self.inputs.unopened:
            return 0
        return max(len(self._desk.workers.alive) - len(self.given), 0)

    def _pays(self, category: str, row_s: float, unit: int) -> bool:
        """Say whether the next unit is to be cut into parts: it takes long, and what its rows hand over is carried easily."""
        if row_s * unit < PART_S:
            return False
        carried = self.parts.bytes_per_row(category)
        slow, much = row_s < carried * CARRY_S, (len(self.parts.units) + 1) * carried * unit > MOST_BYTES
        what = f"units of {category} were run whole: "
        if (slow or much) and not any(note.startswith(what) for note in self.notes):
            why = "takes too long to carry" if slow else f"would make over {MOST_BYTES // 10**6} MB wait"
            self.notes.append(f"{what}what a row hands over, some {int(carried)} bytes, {why}")
        return not (slow or much)

    def is_moved(self, category: str) -> bool:
        return self.accounts[category].plan.moved

    def predict_s(self, task: Task) -> float | None:
        """Predict how long a task takes; None where nothing is known, as of one without rows."""
        row_s = self.accounts[task.category].row_s
        return row_s * task.size if row_s is not None and task.size else None

    # -- what came of it

    def ended(self, task: Task, event: Finished) -> bool:
        """An attempt is done: accept what it made, all or nothing."""
        payload = task.payload
        if type(payload) is MergePartials:
            if self._forgotten:
                self.returned(task)
                return False
            self.partials.merged(task)
            return True
        bundle = self.given.pop(task.id)
        if type(payload) is OpenInput:
            report = event.report
            if not isinstance(report, Opened):
                raise InternalError(f"input {payload.input} was opened, and {report!r} came instead of its rows")
            one = self.inputs.inputs[payload.input]
            one.identity = report.identity
            one.free = report.free
            self.inputs.known(one, report.rows, report.borders)
            self.partials.review_input(one)  # it may have no rows
            return True
        if type(payload) is EvaluateUnit:
            return self._evaluated(task, event)
        assert bundle is not None
        bundle.running -= 1
        report = event.report or NO_REPORT
        rows, part, skipped = payload.rows, payload.part, report.skipped
        one = self.inputs.inputs[rows[0].input]
        if report.rest is not None:
            rows, part = (rows[0]._replace(stop=report.rest.start),), True
        if part:
            skipped = ()  # its unit leaves them out, when it is evaluated
        elif skipped:
            rows = without(rows, [part for part, _ in skipped])
        (output,) = task.makes
        late = self._forgotten or (part and (self._stopped or one.failure_of(rows[0].start) is not None))
        if late or not self.ledger.accept(output, rows, skipped):
            self.inputs.give_back(self.ledger.unowned(payload.rows))
            self.partials.review(bundle)
            return False
        self._learn(task, event, report, task.size if report.rest is None else rows[0].stop - rows[0].start)
        if report.rest is not None:
            one.cutter.split_unit(rows[0].start)
            self.inputs.give_back((report.rest,))
        if part:
            evaluation = self.parts.keep(one, event.made[0], rows[0], report.skipped)
            self._desk.bring(output)
            self._evaluate(evaluation)
            self.partials.review(bundle)
            return True
        if rows:
            self._keep(event, one, output)
        if bundle.life != event.life or not rows:
            self.partials.review(bundle)
        return True

    def _keep(self, event: Finished, one: Input, output: str) -> None:
        bundle = self.partials.bundle(event.life, one)
        self.partials.keep(bundle, output, 0, event.measurement.wall, sum(made.bytes for made in event.made))

    def _evaluate(self, task: Task | None) -> None:
        if task is not None:
            self.given[task.id] = None
            self._desk.submit(task)

    def _evaluated(self, task: Task, event: Finished) -> bool:
        if self._forgotten:
            return False
        report, (output,) = event.report or NO_REPORT, task.makes
        one = self.parts.evaluated(task, report.skipped)
        self.bytes_read += event.measurement.bytes_read
        if report.evidence is not None:
            self.accounts[task.category].learn(report.evidence)
        if output in self.ledger.held:
            self._keep(event, one, output)
        return True

    def _learn(self, task: Task, event: Finished, report: RowsReport, size: int) -> None:
        measured, category = event.measurement, task.category
        self.bytes_read += measured.bytes_read
        self._checked |= report.checked
        account = self.accounts[category]
        account.most_memory = max(account.most_memory, measured.peak_memory)
        account.most_rows = max(account.most_rows, size)
        key = event.life, category
        warm = key in self._known
        wall = report.row_s * size or measured.wall
        if len(task.payload.rows) == 1:
            one = self.inputs.inputs[task.payload.rows[0].input]
            one.took = one.took[0] + size, one.took[1] + wall
            if one.took[1] > SHOWS_S:
                account.slowest = max(account.slowest, one.slower(account.sums()))
        account.count(size, wall, warm=warm, cpu=measured.cpu * wall / max(measured.wall, 1e-9))
        account.compare(task.payload.predicted_s * size / task.size, wall)
        if not warm:
            self._known.add(key)
        evidence = report.evidence
        if evidence is not None:
            account.learn(evidence)
            due = self.policies.order.due(category, account.spent_s, len(evidence.windows))
            if due and self.policies.order.barrier:
                self._barrier = self._barrier or account
            elif due or evidence.guards:
                self._ask_for_plan(account, due=due)

    def can_cut_rows(self, task: Task) -> bool:
        """Say whether the rows of a task can be cut into fewer: into parts of units, or units that may be single rows."""
        if self.options.parts:
            return type(task.payload) is RunRows and task.size > 1
        return self.options.halves and self.is_divisible(task)

    def cut_smaller(self, task: Task, most: int) -> None:
        """Take back rows that were too many at once: they are cut into tasks of at most so many."""
        bundle = self.given.pop(task.id)
        assert bundle is not None
        bundle.running -= 1
        self.inputs.give_back(task.payload.rows, most=most)
        self.partials.review(bundle)

    def failed(self, task: Task, failure: Failure) -> bool:
        """A task was given up: divide it, leave it out, or say that the run must stop."""
        payload = task.payload
        skip = self.options.on_error == "skip" and failure.kind is not FailureKind.INTERNAL
        if isinstance(payload, MergePartials):
            merged, rows = self.partials.merge_failed(task)
            stop = self._partials_lost(merged.input, rows, failure)
            self.partials.review(merged)
            return stop
        bundle = self.given.pop(task.id)
        if isinstance(payload, OpenInput):
            one = self.inputs.inputs[payload.input]
            if skip:
                self.inputs.give_up(one, failure)
                self.partials.review_input(one)
            else:
                self.inputs.wait_again(one)
            return not skip
        if isinstance(payload, EvaluateUnit):
            unit = self.parts.where[task.reads[0]]
            if skip:
                self._give_up_unit(unit, failure)
            else:
                self.inputs.give_back(self.parts.give_up([unit]))
            return not skip
        assert bundle is not None
        bundle.running -= 1
        one = self.inputs.inputs[payload.rows[0].input]
        hard = failure.kind in (FailureKind.EXHAUSTED, FailureKind.CRASHED, FailureKind.LOST)
        parts = self.is_divisible(task) and not failure.final
        if len(payload.rows) > 1 and (skip or hard):
            self.inputs.give_back(payload.rows)  # each is run by itself, as it was touched
            skip = True
        elif parts and (skip or hard) and failure.kind is not FailureKind.TRANSIENT_IO:
            self.inputs.give_back(payload.rows, most=task.size // 2 if self.options.halves else UNIT)
            skip = True
        elif skip and payload.part:
            if not self._leave_out_row(task, one, failure):
                self._give_up_unit(self.parts.unit(one, payload.rows[0]), failure)
                self.inputs.give_back(payload.rows)  # which fail with their unit
        elif skip:
            self._give_up(payload.rows, failure)
            self._give_up_unreachable(one, failure)
            self.partials.review_input(one)
            skip = not self._is_hopeless(task)
        else:
            self.inputs.give_back(payload.rows)
        self.partials.review(bundle)
        return not skip

    def _leave_out_row(self, task: Task, one: Input, failure: Failure) -> bool:
        """Leave out a row that alone uses too much, as if a part had been made without it; False if its unit is to go."""
        rows, output = task.payload.rows[0], task.makes[0]
        alone = failure.kind is FailureKind.EXHAUSTED and task.size == 1 and one.failure_of(rows.start) is None
        unit = self.parts.unit(one, rows)
        others = unit.missing > 1 or len(unit.outputs) > len(unit.unmade)
        if not (alone and others and len(unit.unmade) < MOST_UNMADE and self.ledger.accept(output, (rows,))):
            return False
        unit.unmade.add(output)
        self._evaluate(self.parts.keep(one, Made(output), rows, ((rows, failure),)))
        return True

    def _is_hopeless(self, task: Task) -> bool:
        """Count a row that was found by halving; say whether so many were that looking for more is in vain."""
        ledger = self.ledger
        self.left_out += self.options.halves and task.size == 1
        if self.left_out < MOST_SINGLE:
            return False
        done = ledger.done_rows + ledger.held_rows
        return not done or self.left_out > MOST_SHARE * (ledger.known_rows + self.inputs.expected())

    def _give_up(self, rows: Iterable[Rows], failure: Failure) -> None:
        if failure.kind is FailureKind.LOST:
            failure = lost_too_often(failure)
        for part in rows:
            self.ledger.fail(part, failure)

    def _give_up_unit(self, unit: SplitUnit, failure: Failure) -> None:
        """A unit in parts is at fault: leave all of it out, as if it had been run whole."""
        one = unit.input
        why = lost_too_often(failure) if failure.kind is FailureKind.LOST else failure
        self.inputs.give_up_unit(one, unit.start, unit.stop, why)
        self.inputs.give_back(self.parts.give_up([unit]))
        self._give_up_unreachable(one, failure)
        self.partials.review_input(one)

    def _give_up_unreachable(self, one: Input, failure: Failure) -> None:
        """Out of reach for good: waiting as long for every other unit of an input would be in vain."""
        if failure.kind is FailureKind.TRANSIENT_IO:
            self.inputs.give_up(one, failure)
            units = [unit for unit in self.parts.units.values() if unit.input is one and unit.task is None]
            self.inputs.give_back(self.parts.give_up(units))

    def returned(self, task: Task) -> None:
        payload = task.payload
        if isinstance(payload, MergePartials):
            bundle, rows = self.partials.merge_failed(task)
            self.inputs.give_back(rows)
            self.partials.review(bundle)
            return
        found = self.given.pop(task.id)
        if isinstance(payload, OpenInput):
            self.inputs.wait_again(self.inputs.inputs[payload.input])
            return
        if isinstance(payload, EvaluateUnit):
            unit = self.parts.where.get(task.reads[0])
            if unit is not None and self._stopped:
                self.inputs.give_back(self.parts.give_up([unit]))
            elif unit is not None:
                self._evaluate(self.parts.evaluate(unit))
            return
        assert found is not None
        found.running -= 1
        self.inputs.give_back(payload.rows)
        self.partials.review(found)

    def lost(self, output: str) -> None:
        in_parts = output in self.parts.where
        self.inputs.give_back(self._lose_part(output) if in_parts else self.partials.lost(output))

    def _lose_part(self, output: str) -> tuple[Rows, ...]:
        """A part is gone, and the evaluation that would have read it; return its rows, which have no owner now."""
        unit = self.parts.where[output]
        if unit.task is not None:
            del self.given[unit.task.id]
            self._desk.withdraw(unit.task)
        rows = self.parts.lost(output)
        if self._stopped:  # what is missing will not come any more
            self.inputs.give_back(self.parts.give_up([unit]))
        return rows

    def unreadable(self, output: str, failure: Failure) -> bool:
        """A partial cannot be brought to the driver: say whether the run must stop."""
        unit = self.parts.where.get(output)
        if unit is not None:
            rows = self._lose_part(output)
            self._desk.release(output)
            return self._partials_lost(unit.input, rows, failure, unit)
        bundle = self.partials.where[output]
        rows = self.partials.lost(output)
        self._desk.release(output)
        stop = self._partials_lost(bundle.input, rows, failure)
        self.partials.review(bundle)
        return stop

    def crashed(self, output: str, failure: Failure) -> bool:
        """A worker crashed while it sent a partial: after a few times its rows are at fault."""
        one = (self.parts.where.get(output) or self.partials.where[output]).input
        if one.crashes + 1 < self.options.crashes:
            one.crashes += 1
            return False
        return self.unreadable(output, failure)

    def _partials_lost(self, one: Input, rows: Sequence[Rows], failure: Failure, unit: SplitUnit | None = None) -> bool:
        """Partials are gone: there is nothing to try again, except that they vanished unseen."""
        ended = failure.kind in (FailureKind.CRASHED, FailureKind.EXHAUSTED)
        one.crashes += ended
        most = self.options.crashes if failure.kind is FailureKind.CRASHED else MOST_LOSSES  # they are not merged again
        vanished = ended and one.crashes < most
        if failure.kind is FailureKind.LOST or vanished or self._stopped:
            self.inputs.give_back(rows)
            return False
        skip = self.options.on_error == "skip" and failure.kind is not FailureKind.INTERNAL
        if skip and unit is None:
            self._give_up(rows, failure)
            return False
        if skip and unit is not None:
            self._give_up_unit(unit, failure)
        self.inputs.give_back(rows)
        return not skip

    # -- what is kept

    def draining(self, life: Life) -> None:
        self._at.pop(life, None)
        self.partials.close(life)

    def left(self, life: Life) -> None:
        self._at.pop(life, None)
        self.partials.left(life)

    # -- plans

    def planned(self, plan: Plan) -> None:
        """A new plan was made; guards that came meanwhile ask for the next one."""
        account = self.accounts[plan.category]
        if not account.answer(plan):
            raise InternalError(
                f"{plan} must have an id above {account.plan.id} and keep every guard of {list(account.guards)}"
            )
        if account is self._barrier:
            self._barrier = None
        self._ask_for_plan(account)

    def blame_order(self, category: str) -> None:
        if category in self.accounts:
            self.accounts[category].blame_order()

    def _ask_for_plan(self, account: Account, *, due: bool = False) -> None:
        if account.wants_plan(due=due):
            category = account.plan.category
            others_s = sum(
                other.spent_s + other.expected_s(self._left(name))
                for name, other in self.accounts.items()
                if name != category
            )
            job = account.ask(rows_left=self._left(category), others_s=others_s)
            self._desk.batch.out.append(Replan(job))

    def _left(self, category: str) -> int:
        return self.inputs.left(category) + self._desk.queues.rows_of(category)

    # -- the end

    def describe(self, task: Task) -> str:
        payload = task.payload
        if not isinstance(payload, (RunRows, EvaluateUnit)):
            label = self.inputs.inputs[payload.input].spec.label or f"input {payload.input}"
            return f"results of {label}" if isinstance(payload, MergePartials) else label
        said = ", ".join(
            f"{self.inputs.inputs[part.input].spec.label or f'input {part.input}'} rows {part.start} to {part.stop}"
            for part in join_rows(payload.rows)
        )
        return f"outputs of {said}" if isinstance(payload, EvaluateUnit) else said

    def is_divisible(self, task: Task) -> bool:
        payload = task.payload
        if not isinstance(payload, RunRows):
            return False
        return sum(self.inputs.inputs[part.input].cutter.units(part) for part in payload.rows) > 1

    def stop(self, *, forget: bool) -> None:
        """No more tasks; what was made is still brought in, unless all is to be forgotten."""
        self._stopped = self.partials.no_more = True
        if forget:
            self._forgotten = True
            parts = self.parts.give_up(self.parts.units.values())
            self.inputs.give_back(join_rows([*parts, *self.partials.forget()]))
        else:
            # What has all its parts is still evaluated.
            self.inputs.give_back(self.parts.give_up([one for one in self.parts.units.values() if one.task is None]))
            for bundle in self.partials.all():
                self.partials.review(bundle)

    def forget(self, input_id: int) -> bool:
        """Drop all that is kept of an input whose rows are all done; False if something is under way.

        The counters forget its rows too. The caller has to remember what the user will want to know.
        """
        if input_id in self.partials.bundles or not self.ledger.forget(input_id):
            return False
        del self.inputs.inputs[input_id]
        return True

    @property
    def busy(self) -> bool:
        return bool(self.ledger.held)

    @property
    def exhausted(self) -> bool:
        return not (self.inputs.unopened or self.inputs.uncut or self.given or self.ledger.held)

    @property
    def complete(self) -> bool | None:
        """Whether every row is done; None: some are neither done nor given up."""
        return self.ledger.complete if self.ledger.accounted else None

    def standing(self) -> Standing:
        ledger, inputs, desk = self.ledger, self.inputs, self._desk
        return Standing(
            known=ledger.known_rows,
            done=ledger.done_rows,
            failed=ledger.failed_rows,
            held=ledger.held_rows,
            running=desk.queues.fed_rows,
            waiting=inputs.uncut,
            expected=inputs.expected(),
            inputs=len(inputs.inputs),
            inputs_unopened=inputs.unopened,
            workers=len(desk.workers.alive),
        )
