"""A strict engine of no time for tests of the core: it keeps outputs where commands put them, and does what a seed says.

It fails if a command asks for what cannot be: an input that is nowhere, a fetch of what was discarded. Late, double and
stale reports can be had too.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from invariants import validate
from windrow.core import events as happened
from windrow.core.commands import (
    Cancel,
    Discard,
    Fetch,
    Launch,
    OutputMade,
    Publish,
    Recall,
    Replan,
    Resolve,
    StartWorker,
    StopWorker,
    Take,
    TaskEnded,
    WakeAt,
)
from windrow.core.records import (
    DRIVER,
    ONE_CORE,
    EvaluateUnit,
    Failure,
    FailureKind,
    Handle,
    Life,
    Made,
    Measurement,
    MergePartials,
    Needs,
    Opened,
    OpenInput,
    Rows,
    RowsReport,
    RunRows,
    Worker,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.ledger import Ledger
    from windrow.core.scheduler import Scheduler

CRASH = Failure(FailureKind.CRASHED, "WorkerLost", "it crashed")
KILL = Failure(FailureKind.LOST, "Killed", "it was killed")
ERROR = Failure(FailureKind.USER, "ValueError", "no")
GONE = Failure(FailureKind.LOST, "OutputLost", "what it reads was lost")
READ = Failure(FailureKind.TRANSIENT_IO, "OSError", "try again")


class World:
    """Workers of a scheduler in a test."""

    def __init__(
        self,
        scheduler: Scheduler,
        workers: int = 2,
        *,
        seed: int = 0,
        shares: bool = False,
        inputs: dict[int, tuple[int, ...]] | None = None,
        offers: Needs = ONE_CORE,
        pools: tuple[str, ...] = (),
        validate: bool = True,
    ) -> None:
        self.scheduler = scheduler
        self.rng = random.Random(seed)
        self.shares = shares
        self.size = 100  #: bytes of an output
        self.inputs = inputs or {}  #: borders by number
        self.now = 0.0
        self.lives: dict[int, Life] = {}
        self.queues: dict[Life, list[Launch]] = {}
        self.begun: set[int] = set()
        self.stores: dict[Any, dict[Handle, Any]] = {DRIVER: {}}
        self.fetches: list[Fetch] = []
        self.cancelled: set[int] = set()
        self.recalled: list[int] = []
        self.stopping: set[Life] = set()
        self.starting: list[StartWorker] = []
        self.taken: list[tuple[Take, Any]] = []
        self.ends: dict[int, list[TaskEnded]] = {}
        self.made: list[OutputMade] = []
        self.publishing: list[int] = []  #: tasks that are to be put into place
        self.released: dict[int, str] = {}  #: by attempt: what it has released
        self.launched: list[Launch] = []
        self.copies = 0  #: launches of tasks that ran elsewhere
        self.bad: Counter[str] = Counter()  #: ends of workers and attempts, by whose fault they were
        self.end: Resolve | None = None
        self.wake: float | None = None
        self.old: list[happened.Event] = []  #: to be told again
        self.commands: list[Any] = []  #: of the last batch
        self.call: Callable[[Launch, tuple[Any, ...]], dict[str, Any]] = _make_all
        self._offers, self._pools, self._validate = offers, pools, validate
        self._count = workers

    def begin(self) -> None:
        """Let all workers join."""
        self.tell(*[happened.WorkerJoined(self.worker(Life(number, 0))) for number in range(self._count)])

    def worker(self, life: Life, *, io: bool = False) -> Worker:
        """Begin a life."""
        self.lives[life.worker] = life
        self.queues[life] = []
        self.stores[life] = {}
        return Worker(life, Needs() if io else self._offers, self._pools, io, self.shares)

    # -- events and commands

    def tell(self, *events: happened.Event) -> list[Any]:
        """Give events to the scheduler and do what it says."""
        self.old += [event for event in events if isinstance(event, (happened.Finished, happened.Held))][:2]
        told = list(events)
        while told:
            commands = self.commands = self.scheduler.on(told, self.now)
            told = []
            for command in commands:
                told += self._do(command)
            if self._validate:
                validate(self.scheduler)
        return self.commands

    def _do(self, command: Any) -> list[happened.Event]:
        if isinstance(command, Launch):
            self._launch(command)
        elif isinstance(command, Cancel):
            self.cancelled.add(command.attempt)
        elif isinstance(command, Recall):
            self.recalled.append(command.attempt)
        elif isinstance(command, Fetch):
            if command.source not in self.stores:
                return []  # its end was told in the same batch
            assert command.handle in self.stores[command.source], command
            self.fetches.append(command)
        elif isinstance(command, Discard):
            for holder in command.holders:
                self.stores.get(holder, {}).pop(command.handle, None)
        elif isinstance(command, StartWorker):
            self.starting.append(command)
        elif isinstance(command, StopWorker):
            self.stopping.add(command.life)
        elif isinstance(command, Take):
            value = self.stores[DRIVER][command.handle]
            if command.mine:
                del self.stores[DRIVER][command.handle]
            self.taken.append((command, value))
        elif isinstance(command, TaskEnded):
            self.ends.setdefault(command.task, []).append(command)
        elif isinstance(command, OutputMade):
            self.made.append(command)
        elif isinstance(command, Publish):
            self.publishing.append(command.task)
        elif isinstance(command, Replan):
            plan = self.scheduler.feeder.policies.order.replan(command.job)  # type: ignore[union-attr]
            return [happened.Planned(plan)]
        elif isinstance(command, WakeAt):
            self.wake = command.time
        elif isinstance(command, Resolve):
            assert self.end is None
            self.end = command
        return []

    def _launch(self, launch: Launch) -> None:
        self.launched.append(launch)
        self.copies += any(one.task.id == launch.task.id for queue in self.queues.values() for one in queue)
        store = self.stores[self._store(launch.life)]
        for place in launch.bring:
            store[launch.inputs[place]] = self.stores[DRIVER][launch.inputs[place]]
        if not launch.ahead:
            assert all(handle in store for handle in launch.inputs), launch
        queue = self.queues[launch.life]
        assert launch.queued == bool(queue), launch
        queue.append(launch)

    def _store(self, life: Life) -> Any:
        return DRIVER if self.shares else life

    def values(self, launch: Launch) -> tuple[Any, ...] | None:
        """Give what a launch reads; None if something is missing."""
        store = self.stores[self._store(launch.life)]
        return tuple([store[one] for one in launch.inputs]) if all(one in store for one in launch.inputs) else None

    # -- what happens

    def first(self, life: Life) -> Launch | None:
        """Give what a worker is at."""
        queue = self.queues.get(life)
        return queue[0] if queue else None

    def start(self, life: Life) -> list[happened.Event]:
        """Let a worker begin."""
        launch = self.first(life)
        if launch is None or launch.attempt in self.begun:
            return []
        self.begun.add(launch.attempt)
        return [happened.Started(launch.attempt, life)]

    def finish(self, life: Life, *, here: bool = False, wall: float = 0.01, **more: Any) -> list[happened.Event]:
        """Let a worker end what it is at."""
        launch = self.queues[life].pop(0)
        store = self.stores[self._store(life)]
        if launch.attempt in self.cancelled and launch.attempt not in self.begun:
            return [happened.Cancelled(launch.attempt, life)]
        if any(handle not in store for handle in launch.inputs):
            assert launch.ahead, launch
            return [happened.Cancelled(launch.attempt, life)]
        take = store.pop if launch.task.consumes else store.__getitem__
        values = tuple([take(handle) for handle in launch.inputs])
        payload: Any = launch.task.payload
        report: Any = None
        outputs: dict[str, Any] = {}
        if isinstance(payload, OpenInput):
            borders = self.inputs[payload.input]
            report = Opened(borders[-1], borders)
        elif isinstance(payload, RunRows):
            report = RowsReport(**more)
            rows = payload.rows
            if report.rest is not None:
                rows = (rows[0]._replace(stop=report.rest.start),)
            if report.skipped and not payload.part and report.rest is None:  # a part leaves that to its unit
                rows = _left(rows, [part for part, _ in report.skipped])
            outputs = {launch.task.makes[0]: list(rows)}
        elif isinstance(payload, EvaluateUnit):
            parts = [part for value in values for part in value]
            assert [part for part in payload.rows if part in parts or part.stop > part.start + 1] == parts
            report = RowsReport(**more)
            outputs = {launch.task.makes[0]: list(payload.rows)}
        elif isinstance(payload, MergePartials):
            parts = [part for value in values for part in value]
            for number, _, last in payload.whole:  # is said to be all there
                mine = [part for part in parts if part.input == number]
                book = self.scheduler.feeder.ledger.books[number]  # type: ignore[union-attr]
                assert sum(part.stop - part.start for part in mine) == book.everything.total
                assert max(part.stop for part in mine) <= last
            outputs = {launch.task.makes[0]: parts}
        else:
            told = self.released.get(launch.attempt)
            outputs = {name: value for name, value in self.call(launch, values).items() if name != told}
        for name, value in outputs.items():
            store[Handle(name, launch.attempt)] = value
            if here:
                self.stores[DRIVER][Handle(name, launch.attempt)] = value
        made = tuple(Made(name, self.size, here or self.shares) for name in outputs)
        used = Measurement(wall=wall, cpu=wall)
        return [happened.Finished(launch.attempt, life, made, used, report)]

    def release(self, life: Life, name: str, value: Any = "early") -> list[happened.Event]:
        """Let what a worker is at release an output."""
        launch = self.first(life)
        assert launch is not None
        self.stores[self._store(life)][Handle(name, launch.attempt)] = value
        self.released[launch.attempt] = name
        return [happened.OutputReady(launch.attempt, life, Made(name, self.size, self.shares))]

    def fail(self, life: Life, failure: Failure = ERROR) -> list[happened.Event]:
        """Let what a worker is at raise."""
        launch = self.queues[life].pop(0)
        self._consume(launch)
        self.bad[failure.kind.name] += 1
        return [happened.Failed(launch.attempt, life, failure)]

    def exhaust(self, life: Life, resource: str = "memory", limit: float = 1e6) -> list[happened.Event]:
        """Let what a worker is at use too much; its worker lives on."""
        launch = self.queues[life].pop(0)
        self._consume(launch)
        return [happened.Exhausted(launch.attempt, life, resource, limit, 2 * limit)]

    def _consume(self, launch: Launch) -> None:
        if launch.task.consumes:
            for handle in launch.inputs:
                self.stores[self._store(launch.life)].pop(handle, None)

    def lose(self, life: Life, failure: Failure | None = KILL) -> list[happened.Event]:
        """Let a worker go away."""
        del self.lives[life.worker], self.queues[life], self.stores[life]
        self.stopping.discard(life)
        if failure is not None:
            self.bad[failure.kind.name] += 1
        self.fetches = [fetch for fetch in self.fetches if fetch.source != life]
        return [happened.WorkerLost(life, failure)]

    def give_back(self) -> list[happened.Event]:
        """Answer a recall."""
        attempt = self.recalled.pop(0)
        for life, queue in self.queues.items():
            for launch in queue[1:]:
                if launch.attempt == attempt:
                    queue.remove(launch)
                    return [happened.Cancelled(attempt, life)]
        return []

    def bring(self, failure: Failure | None = None) -> list[happened.Event]:
        """Answer a fetch."""
        fetch = self.fetches.pop(0)
        if failure is not None:
            return [happened.FetchFailed(fetch.handle, fetch.source, failure)]
        value = self.stores.get(fetch.source, {}).get(fetch.handle)
        if value is None:
            return []  # it was discarded on the way
        self.stores[DRIVER][fetch.handle] = value
        return [happened.Held(fetch.handle, DRIVER, 100, 0.001)]

    def begin_life(self) -> list[happened.Event]:
        """Answer an order for a worker."""
        order = self.starting.pop(0)
        return [happened.WorkerJoined(self.worker(order.life, io=order.io))]

    def step(self, *, faults: float = 0.0) -> list[happened.Event]:
        """Let one thing happen, as the seed says; [] if nothing can."""
        self.now += self.rng.random() * 0.02
        choices: list[Callable[[], list[happened.Event]]] = []
        for life in self.lives.values():
            choices += self._of_worker(life, faults)
        if self.fetches:
            choices += [self.bring] * 2
        if self.starting:
            choices += [self.begin_life] * 2
        if self.recalled:
            choices.append(self.give_back)
        if self.publishing:
            choices.append(lambda: [happened.Published(self.publishing.pop(0))])
        if self.old and self.rng.random() < faults:
            choices.append(lambda: [self.rng.choice(self.old)])
        if self.wake is not None and (not choices or self.rng.random() < 0.1):
            self.now = max(self.now, self.wake)
            self.wake = None
            return [happened.Tick()]
        return self.rng.choice(choices)() if choices else []

    def _of_worker(self, life: Life, faults: float) -> list[Callable[[], list[happened.Event]]]:
        """List what may happen at a worker, the likely more than once."""
        if not self.queues[life]:
            found: list[Callable[[], list[happened.Event]]] = []
            if self.rng.random() < faults / 4:
                found.append(partial(self.lose, life))
            return [*found, partial(self.lose, life, None)] if life in self.stopping else found
        found = [partial(self._go_through, life, None)] * 4
        found.append(partial(self.start, life))
        if self.rng.random() < faults:
            found.append(partial(self.lose, life, self.rng.choice([CRASH, KILL, KILL])))
            if not self.queues[life][0].task.consumes:
                found.append(partial(self._go_through, life, READ))
        return found

    def _go_through(self, life: Life, failure: Failure | None) -> list[happened.Event]:
        begun = self.start(life)
        if failure is not None:
            return begun + self.fail(life, failure)
        return begun + self.finish(life, here=self.rng.random() < 0.3)

    def run(self, *, faults: float = 0.0, most: int = 20_000) -> None:
        """Let things happen until the run is resolved."""
        for _ in range(most):
            if self.end is not None:
                return
            events = self.step(faults=faults)
            self.tell(*events)
        raise AssertionError("the run does not end")

    def rows_taken(self) -> list[Rows]:
        """List the rows of all partials that were taken, in order."""
        return sorted(part for take, value in self.taken if take.about is not None for part in value)


class ClusterWorld(World):
    """Workers on machines that come and go; what one of them holds comes to others from there, which takes a while.

    A launch whose copies do not all come comes to nothing, and has brought nothing then.
    """

    def __init__(self, scheduler: Scheduler, workers: int = 2, **options: Any) -> None:
        super().__init__(scheduler, workers, **options)
        self._joined = workers  #: machines so far
        self._most = workers
        self.coming: dict[Life, dict[Handle, set[int]]] = {}  #: copies on their way, with the launches that bring them
        self.copies_lost = 0
        self.machines_lost = 0
        self.alone = 0  #: times when no machine was left

    def _do(self, command: Any) -> list[happened.Event]:
        if isinstance(command, Fetch) and command.handle in self.coming.get(command.source, {}):
            self.fetches.append(command)
            return []
        return super()._do(command)

    def _launch(self, launch: Launch) -> None:
        store, coming = self.stores[launch.life], self.coming.setdefault(launch.life, {})
        self.launched.append(launch)
        for place in launch.bring:
            handle = launch.inputs[place]
            if handle in self.stores[DRIVER]:
                store[handle] = self.stores[DRIVER][handle]
            else:
                coming.setdefault(handle, set()).add(launch.attempt)
        if not launch.ahead:
            assert all(handle in store or handle in coming for handle in launch.inputs), launch
        assert launch.queued == bool(self.queues[launch.life]), launch
        self.queues[launch.life].append(launch)

    def _arrive(self, life: Life, handle: Handle) -> list[happened.Event]:
        """A copy comes, or those that were to bring it come to nothing."""
        attempts = self.coming[life][handle]
        sources = [one for holder, one in self.stores.items() if holder != life and handle in one]
        if sources:
            self.stores[life][handle] = sources[0][handle]
            del self.coming[life][handle]
            return []
        events: list[happened.Event] = []
        for launch in [one for one in self.queues[life] if one.attempt in attempts]:
            self.queues[life].remove(launch)
            events += [*self._drop(launch), happened.Failed(launch.attempt, life, GONE)]
        self.coming[life].pop(handle, None)
        return events

    def _drop(self, launch: Launch) -> list[happened.Event]:
        """A launch that waits for copies comes to nothing."""
        life, events = launch.life, list[happened.Event]()
        if any(handle in self.coming.get(life, {}) for handle in launch.inputs):
            for place in launch.bring:
                handle = launch.inputs[place]
                self.stores[life].pop(handle, None)
                self.coming[life].pop(handle, None)
                self.copies_lost += 1
                events.append(happened.CopyLost(handle, life))
        return events

    def give_back(self) -> list[happened.Event]:
        found = {one.attempt: one for queue in self.queues.values() for one in queue[1:]}.get(self.recalled[0])
        events = super().give_back()
        return events if found is None else [*self._drop(found), *events]

    def finish(self, life: Life, *, here: bool = False, wall: float = 0.01, **more: Any) -> list[happened.Event]:
        launch = self.queues[life][0]
        if any(handle not in self.stores[life] for handle in launch.inputs) and not launch.ahead:
            if launch.attempt in self.cancelled and launch.attempt not in self.begun:
                return [*self._drop(launch), *super().finish(life)]
            self.queues[life].pop(0)  # what it found here was to come with a launch that came to nothing
            return [happened.Failed(launch.attempt, life, GONE)]
        return super().finish(life, here=here, wall=wall, **more)

    def lose(self, life: Life, failure: Failure | None = KILL) -> list[happened.Event]:
        """A worker goes away, mostly with its machine; all of them may."""
        self.coming.pop(life, None)
        (lost,) = super().lose(life, failure)
        if failure is not None and self.rng.random() < 0.7:
            self.machines_lost += 1
            self.alone += not self.lives
            return [happened.WorkerLost(life, failure, final=True)]
        return [lost]

    def join(self) -> list[happened.Event]:
        self._joined += 1
        return [happened.WorkerJoined(self.worker(Life(self._joined, 0)))]

    def bring(self, failure: Failure | None = None) -> list[happened.Event]:
        """Answer a fetch; one of what is on its way there is answered later."""
        fetch = self.fetches[0]
        if fetch.handle in self.coming.get(fetch.source, {}):
            self.fetches.append(self.fetches.pop(0))
            return []
        return super().bring(failure)

    def step(self, *, faults: float = 0.0) -> list[happened.Event]:
        """Let one thing happen, as the seed says; [] if nothing can."""
        moving = [(life, handle) for life, found in self.coming.items() for handle in found]
        if moving and self.rng.random() < 0.1:
            return self._arrive(*self.rng.choice(moving))
        if len(self.lives) < self._most and self.rng.random() < 0.05:
            return self.join()
        return super().step(faults=faults)

    def _of_worker(self, life: Life, faults: float) -> list[Callable[[], list[happened.Event]]]:
        first = self.first(life)
        waits = first is not None and any(handle in self.coming.get(life, {}) for handle in first.inputs)
        if first is not None and waits:  # nor has it begun
            called_off = first.attempt in self.cancelled and first.attempt not in self.begun
            found: list[Callable[[], list[happened.Event]]] = [partial(self.finish, life)] if called_off else []
            return [*found, partial(self.lose, life)] if self.rng.random() < faults else found
        return super()._of_worker(life, faults)


def missing_rows(ledger: Ledger) -> list[Rows]:
    """List the known rows that are neither done nor failed, by input and range."""
    return [
        Rows(number, entry.start, entry.stop)
        for number in sorted(ledger.books)
        for entry in ledger.account(number)
        if entry.stop is not None and entry.state in ("held", "missing")
    ]


def _left(rows: tuple[Rows, ...], gone: list[Rows]) -> tuple[Rows, ...]:
    left: list[Rows] = []
    for part in rows:
        start = part.start
        for other in sorted(gone):
            if other.input == part.input and part.start <= other.start < part.stop:
                if start < other.start:
                    left.append(Rows(part.input, start, other.start))
                start = other.stop
        if start < part.stop:
            left.append(Rows(part.input, start, part.stop))
    return tuple(left)


def _make_all(launch: Launch, values: tuple[Any, ...]) -> dict[str, Any]:
    return dict.fromkeys(launch.task.makes, (launch.task.id, values))
