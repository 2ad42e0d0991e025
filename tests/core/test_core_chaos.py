"""The scheduler against a world where anything may be late, doubled or lost.

The world keeps real partials (lists of rows) on workers that die, and mail that arrives late,
twice or from a former life. After every batch all invariants are checked; at the end every row of
the run is in the result exactly once or given up, whatever happened.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from searching import examples, few_by_day
from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.options import Options
from windrow.core.policies import Policies, ShapeRequest
from windrow.core.records import Evidence, Failure, FailureKind, Handle, InputSpec, Measurement, Plan, StepCost, Worker
from windrow.core.scheduler import Scheduler
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = tuple[int, int]


class Dice:
    """A shape that jumps about, yet is the same for the same request."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def rows(self, request: ShapeRequest) -> int:
        return 1 + (request.known * 7919 + request.costs.calls * 31) % 23

    def window(self, task_s: float | None) -> int:
        return self.depth


@dataclass
class Config:
    """What a world is made of."""

    specs: list[InputSpec]
    rows: dict[int, int]
    borders: dict[int, tuple[int, ...]]
    options: Options
    depth: int = 2
    poison: set[Row] = field(default_factory=set)  #: rows on which the user's function raises
    flaky: dict[Row, int] = field(default_factory=dict)  #: rows that cannot be read so many times
    broken: set[int] = field(default_factory=set)  #: inputs that cannot be opened
    torn: dict[int, int] = field(default_factory=dict)  #: inputs unreadable from this row on
    memory: int = 10**9  #: rows a task may have
    unmergeable: set[Row] = field(default_factory=set)
    guards: set[Row] = field(default_factory=set)  #: rows that teach a guard

    def scheduler(self, kind: type[Scheduler] = Scheduler) -> Scheduler:
        return kind(self.specs, Policies(Dice(self.depth)), self.options)


class World:
    """Workers with inboxes, shelves and mail; every action ends with a valid scheduler."""

    def __init__(self, config: Config, kind: type[Scheduler] = Scheduler) -> None:
        self.config = config
        self.flaky = dict(config.flaky)
        self.scheduler = config.scheduler(kind)
        self.now = 0.0
        self.lives: dict[int, int] = {}  #: worker id -> incarnation, the living
        self.born: Counter[int] = Counter()
        self.inbox: dict[tuple[int, int], deque[Any]] = {}
        self.shelf: dict[tuple[int, int], dict[int, list[Row]]] = {}
        self.mail: dict[tuple[int, int], deque[happened.Event]] = {}
        self.arrived: list[happened.Event] = []
        self.fetched: dict[int, list[Row]] = {}
        self.result: list[Row] = []
        self.log: list[tuple[list[happened.Event], float, list[orders.Command]]] = []
        self.resolved: list[orders.Resolve] = []

    # -- the driver

    def feed(self, events: list[happened.Event]) -> None:
        while True:
            commands = self.scheduler.on(events, self.now)
            self.log.append((events, self.now, commands))
            self.scheduler.validate()
            answers: list[happened.Event] = []
            for command in commands:
                self.obey(command, answers)
            assert not any(count > 1 for count in Counter(self.result).values()), "a row is doubled"
            if not answers:
                return
            events = answers

    def obey(self, command: orders.Command, answers: list[happened.Event]) -> None:
        if isinstance(command, orders.Take):
            self.result += self.fetched.pop(command.handle.id)
        elif isinstance(command, orders.Replan):
            job = command.job
            answers.append(happened.Planned(Plan(id=job.plan.id + 1, category=job.category, guards=job.guards)))
        elif isinstance(command, orders.Resolve):
            self.resolved.append(command)
        elif isinstance(command, orders.StartWorker):
            answers.append(self.begin(command.worker, command.incarnation))
        elif isinstance(command, orders.Fetch | orders.Discard):
            handle = command.handle
            if isinstance(command, orders.Discard):
                self.fetched.pop(handle.id, None)
            self.inbox.get((handle.worker, handle.incarnation), deque()).append(command)
        elif not isinstance(command, orders.WakeAt | orders.TaskEnded | orders.OutputFailed):
            self.inbox.get((command.worker, command.incarnation), deque()).append(command)

    # -- what may happen

    def join(self, worker: int) -> None:
        if worker not in self.lives:
            self.feed([self.begin(worker, self.born[worker])])

    def begin(self, worker: int, incarnation: int) -> happened.WorkerJoined:
        life = (worker, incarnation)
        assert incarnation >= self.born[worker], "a life is begun twice"
        self.born[worker] = incarnation + 1
        self.lives[worker] = incarnation
        self.inbox[life], self.shelf[life], self.mail[life] = deque(), {}, deque()
        return happened.WorkerJoined(Worker(*life))

    def lose(self, worker: int, told: bool) -> None:
        """A worker dies; its mail may still arrive, and the driver may hear of it late."""
        if worker not in self.lives:
            return
        life = (worker, self.lives.pop(worker))
        del self.inbox[life], self.shelf[life]
        if told:
            self.feed([happened.WorkerLost(*life)])
        else:
            self.mail[life].append(happened.WorkerLost(*life))

    def work(self, worker: int) -> None:
        """A worker does the next thing in its inbox."""
        life = (worker, self.lives.get(worker, -1))
        if self.inbox.get(life):
            command = self.inbox[life].popleft()
            self.mail[life].extend(self.do(command, life))

    def post(self, choice: int, count: int) -> None:
        """Some mail of one life of one worker arrives, in order."""
        lives = [life for life, mail in self.mail.items() if mail]
        if lives:
            mail = self.mail[lives[choice % len(lives)]]
            events = [mail.popleft() for _ in range(min(count, len(mail)))]
            self.arrived += events
            self.feed(events)

    def repeat(self, choice: int) -> None:
        """Mail that came before comes again."""
        if self.arrived:
            event = self.arrived[choice % len(self.arrived)]
            if isinstance(event, happened.Fetched):
                return  # a transfer cannot repeat itself: the partial has left the worker
            self.feed([event])

    def drop(self, choice: int) -> None:
        """A kept partial vanishes."""
        kept = [(life, number) for life, shelf in sorted(self.shelf.items()) for number in sorted(shelf)]
        if not kept:
            return
        life, number = kept[choice % len(kept)]
        del self.shelf[life][number]
        held = self.scheduler.ledger.held.get(number)
        if held is not None:
            self.mail[life].append(happened.OutputLost(held))

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.feed([happened.Tick()])

    def cancel(self) -> None:
        self.feed([happened.CancelRequested("enough")])

    # -- a worker's work

    def do(self, command: Any, life: tuple[int, int]) -> list[happened.Event]:
        shelf = self.shelf[life]
        if isinstance(command, orders.Inspect):
            return [self.inspect(command.input, life)]
        if isinstance(command, orders.Launch):
            return self.launch(command, life)
        if isinstance(command, orders.Merge):
            return [self.merge(command, life)]
        if isinstance(command, orders.Fetch):
            handle = command.handle
            if handle.id not in shelf:
                return [happened.OutputLost(handle)]
            self.fetched[handle.id] = shelf.pop(handle.id)
            return [happened.Fetched(handle)]
        if isinstance(command, orders.Discard):
            shelf.pop(command.handle.id, None)
            self.fetched.pop(command.handle.id, None)
        return []

    def inspect(self, number: int, life: tuple[int, int]) -> happened.Event:
        if number in self.config.broken:
            return happened.InspectFailed(number, *life, fault(FailureKind.BAD_FILE, "broken"))
        if self.flaky.get((number, -1), 0):
            self.flaky[number, -1] -= 1
            return happened.InspectFailed(number, *life, fault(FailureKind.TRANSIENT_IO, "flaky"))
        return happened.Discovered(number, self.config.rows[number], self.config.borders[number], *life)

    def launch(self, command: orders.Launch, life: tuple[int, int]) -> list[happened.Event]:
        started = happened.Started(command.attempt, *life)
        rows = [(p.input, row) for p in command.task.inputs for row in range(p.start, p.stop)]
        problem = self.problem(rows)
        if problem is not None:
            return [started, happened.Failed(command.attempt, *life, problem)]
        self.shelf[life][command.attempt] = rows
        handle = Handle(command.attempt, command.attempt, *life, command.task.inputs)
        guards = tuple(("step", f"cut{row}") for row in rows if row in self.config.guards)
        evidence = Evidence((("step", StepCost.of_call(len(rows), 0, 0.001)),), guards)
        measured = Measurement(wall=0.001 * len(rows), bytes_read=len(rows))
        return [
            started,
            happened.Progress(command.attempt, *life, len(rows) // 2),
            happened.Finished(command.attempt, *life, handle, measured, evidence),
        ]

    def problem(self, rows: list[Row]) -> Failure | None:
        config = self.config
        for row in rows:
            if self.flaky.get(row, 0):
                self.flaky[row] -= 1
                return fault(FailureKind.TRANSIENT_IO, "flaky")
            if row[0] in config.torn and row[1] >= config.torn[row[0]]:
                return fault(FailureKind.BAD_FILE, "torn")
        if len(rows) > config.memory:
            return fault(FailureKind.EXHAUSTED, "too large")
        if any(row in config.poison for row in rows):
            return fault(FailureKind.USER, "poison")
        return None

    def merge(self, command: orders.Merge, life: tuple[int, int]) -> happened.Event:
        ids = tuple(handle.id for handle in command.handles)
        parts = [self.shelf[life].pop(number, None) for number in ids]
        kind = None
        if any(part is None for part in parts):
            kind = FailureKind.LOST
        merged = [row for part in parts if part is not None for row in part]
        if kind is None and any(row in self.config.unmergeable for row in merged):
            kind = FailureKind.USER
        if kind is not None:
            return happened.MergeFailed(command.into, ids, *life, fault(kind, "merge"))
        self.shelf[life][command.into.id] = merged
        return happened.Merged(command.into, ids, *life)

    # -- the end

    def finish(self) -> None:
        """Nothing bad happens any more: the run must end, soon, and be right."""
        for worker in range(2):
            self.join(worker)
        for _ in range(20_000):
            if self.scheduler.finished:
                break
            for worker in sorted(self.lives):
                self.work(worker)
            while any(self.mail.values()):
                self.post(0, 4)
            if self.scheduler.delays.heap or self.scheduler.delays.pauses:
                self.sleep(0.5)
        assert self.scheduler.finished, "the run does not end"
        assert len(self.resolved) == 1
        self.check_result()

    def check_result(self) -> None:
        ledger = self.scheduler.ledger
        status = self.scheduler.status
        done = [
            (number, row)
            for number in self.scheduler.intake.feeds
            for entry in ledger.account(number)
            if entry.state == "done" and entry.stop is not None
            for row in range(entry.start, entry.stop)
        ]
        if status != "failed":
            assert sorted(self.result) == sorted(done)
        if status in ("complete", "incomplete"):
            failed = {
                (number, row)
                for number, listed in ledger.failures.items()
                for part, _ in listed
                for row in range(part.start, part.stop)
            }
            everything = expected_rows(self.config, set(ledger.failed_inputs))
            assert sorted(self.result) == sorted(set(everything) - failed)
            assert ledger.done_rows + ledger.failed_rows == ledger.known_rows == len(everything)
            assert status == ("incomplete" if failed or ledger.failed_inputs else "complete")


def expected_rows(config: Config, unopened: set[int]) -> list[Row]:
    """List the rows of a run by the plain definition: the first N per category, in input order."""
    taken: Counter[str] = Counter()
    result: list[Row] = []
    for spec in config.specs:
        if spec.id in unopened:
            continue
        ranges = spec.ranges or ((0, config.rows[spec.id]),)
        wanted = sorted({r for a, b in ranges for r in range(a, min(b, config.rows[spec.id]))})
        for row in wanted:
            limit = config.options.row_limit
            if limit is None or taken[spec.category] < limit:
                taken[spec.category] += 1
                result.append((spec.id, row))
    return result


def fault(kind: FailureKind, message: str) -> Failure:
    return Failure(kind, "Fault", message)


# -- configurations


def make_config(rng: random.Random) -> Config:
    """Draw a world; also used with Hypothesis' own source of randomness."""
    rows, borders, specs = {}, {}, []
    for number in range(rng.randint(1, 5)):
        count = rng.choice([0, 1, 3, 10, 40])
        inner = sorted(rng.sample(range(1, count), min(rng.randint(0, 12), count - 1))) if count else []
        rows[number] = count
        borders[number] = tuple([0, *inner, count] if count else [0])
        known = rng.random() < 0.4
        ranges = None
        if rng.random() < 0.2:
            ranges = tuple((a, a + rng.randint(0, 15)) for a in (rng.randint(0, 40) for _ in range(2)))
        specs.append(
            InputSpec(
                id=number,
                category=rng.choice("ab"),
                rows=count if known else None,
                borders=borders[number] if known else None,
                ranges=ranges,
            )
        )
    config = Config(specs, rows, borders, options=Options(), depth=rng.randint(1, 4))
    every = [(number, row) for number, count in rows.items() for row in range(count)]

    def some(most: int) -> set[Row]:
        return {row for row in every if rng.random() < most / max(len(every), 1)}

    if rng.random() < 0.4:
        config.poison = some(2)
    if rng.random() < 0.3:
        config.flaky = {row: rng.randint(1, 4) for row in [*some(2), (rng.choice([0, 1]), -1)]}
    if rng.random() < 0.15:
        config.broken = {rng.randint(0, 4)}
    if rng.random() < 0.15:
        config.torn = {rng.randint(0, 4): rng.randint(0, 30)}
    if rng.random() < 0.15:
        config.memory = rng.randint(1, 12)
    if rng.random() < 0.1:
        config.unmergeable = some(1)
    if rng.random() < 0.3:
        config.guards = some(3)
    config.options = Options(
        on_error=rng.choice(["stop", "skip", "skip"]),
        row_limit=rng.choice([None, None, None, 0, 7, 25]),
        chunk=rng.choice([None, 5, 16]),
        restart=True,
    )
    return config


def live_through(world: World, rng: random.Random, steps: int) -> None:
    """Let anything happen, then let the run end."""
    world.join(0)
    world.join(1)
    for _ in range(steps):
        act = rng.random()
        if act < 0.45:
            world.work(rng.randint(0, 3))
        elif act < 0.8:
            world.post(rng.randint(0, 7), rng.randint(1, 5))
        elif act < 0.87:
            world.repeat(rng.randint(0, 10_000))
        elif act < 0.92:
            world.lose(rng.randint(0, 3), told=rng.random() < 0.5)
        elif act < 0.97:
            world.join(rng.randint(0, 3))
        elif act < 0.98:
            world.drop(rng.randint(0, 100))
        elif act < 0.995:
            world.sleep(rng.choice([0.0, 0.1, 0.5]))
        elif rng.random() < 0.2:
            world.cancel()
    world.finish()


# -- properties


class Chaos(RuleBasedStateMachine):
    """Hypothesis chooses what happens."""

    world: World

    @initialize(rng=st.randoms(use_true_random=False))
    def begin(self, rng: random.Random) -> None:
        self.world = World(make_config(rng))

    @rule(worker=st.integers(0, 2))
    def work(self, worker: int) -> None:
        self.world.work(worker)

    @rule(choice=st.integers(0, 5), count=st.integers(1, 5))
    def post(self, choice: int, count: int) -> None:
        self.world.post(choice, count)

    @rule(worker=st.integers(0, 2))
    def join(self, worker: int) -> None:
        self.world.join(worker)

    @rule(worker=st.integers(0, 2), told=st.booleans())
    def lose(self, worker: int, told: bool) -> None:
        self.world.lose(worker, told)

    @rule(choice=st.integers(0, 1000))
    def repeat(self, choice: int) -> None:
        self.world.repeat(choice)

    @rule(choice=st.integers(0, 100))
    def drop(self, choice: int) -> None:
        self.world.drop(choice)

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5]))
    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)

    @precondition(lambda self: len(self.world.log) > 10)
    @rule()
    def cancel(self) -> None:
        self.world.cancel()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    max_examples=examples(60), stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.mark.parametrize("seed", few_by_day(range(150), 40))
def test_no_row_is_lost_or_doubled_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    live_through(World(make_config(rng)), rng, steps=rng.choice([0, 30, 200]))


def plain_config() -> Config:
    """Make a world of three inputs, two of them to be opened, in which nothing fails."""
    borders = {number: tuple(range(0, 31, 3)) for number in range(3)}
    specs = [
        InputSpec(id=0, category="a"),
        InputSpec(id=1, category="a", rows=30, borders=borders[1]),
        InputSpec(id=2, category="b"),
    ]
    return Config(specs, dict.fromkeys(range(3), 30), borders, Options())


def steps_of(world: World) -> Iterator[None]:
    """Run to the end in small steps: one command or one report at a time."""
    while not world.scheduler.finished:
        for worker in sorted(world.lives):
            world.work(worker)
            yield
            world.post(0, 1)
            yield


@pytest.mark.parametrize("told", [True, False])
def test_a_worker_may_be_lost_at_every_point(told: bool) -> None:
    for moment in range(1000):
        world = World(plain_config())
        world.join(0)
        world.join(1)
        steps = steps_of(world)
        if sum(1 for _ in itertools.islice(steps, moment)) < moment:
            assert moment > 50  # there were that many points to try
            return
        world.lose(0, told)
        world.finish()
        assert world.scheduler.status == "complete"
    raise AssertionError("the run has no end")


@pytest.mark.parametrize("seed", range(20))
def test_the_same_events_give_the_same_commands(seed: int) -> None:
    rng = random.Random(seed)
    world = World(make_config(rng))
    live_through(world, rng, steps=100)
    again = world.config.scheduler()
    for events, now, commands in world.log:
        repeated = again.on(events, now)
        assert repeated == commands
        assert [type(command) for command in repeated] == [type(command) for command in commands]


# -- the rules are needed: without them the properties above fail


class Believing(Scheduler):
    """Takes a report of an attempt that has ended for news."""

    def _finished(self, event: happened.Finished) -> None:
        if self.crew.live(event) is None and event.handle.id not in self.ledger.held:
            worker = self.crew.workers.get(event.worker)
            if worker is not None and self.ledger.accept(event.handle):
                feed = self.intake.feeds[event.handle.rows[0].input]
                bundle = self.merger.bundle(worker, feed)
                self.merger.keep(bundle, event.handle, 0, self._out)
                return
        super()._finished(event)


class Forgetful(Scheduler):
    """Does not return what a lost worker held."""

    def _worker_lost(self, event: happened.WorkerLost) -> None:
        worker = self.crew.find(event.worker, event.incarnation)
        if worker is not None:
            self.crew.leave(worker)


def violations(kind: type[Scheduler], seeds: range) -> int:
    """Count the runs in which an invariant breaks, a row is doubled or lost, or the run hangs."""
    found = 0
    for seed in seeds:
        rng = random.Random(seed)
        try:
            live_through(World(make_config(rng), kind), rng, steps=120)
        except (InternalError, AssertionError, KeyError):
            found += 1
    return found


@pytest.mark.parametrize("kind", [Believing, Forgetful])
def test_without_the_rule_the_property_fails(kind: type[Scheduler]) -> None:
    assert violations(kind, range(60)) > 0


def test_with_the_rules_it_holds_on_the_same_runs() -> None:
    assert violations(Scheduler, range(60)) == 0
