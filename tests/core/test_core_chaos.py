"""The scheduler under fire: random runs in which workers crash, are killed and come back, and reports come twice.

After every batch all invariants hold; at the end every row and every output counts once. Seeds are plain numbers.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_world import ERROR, ClusterWorld, World
from searching import examples
from windrow.core.events import CancelRequested, Closed, Event, PoolChanged, Released, Submitted, Wanted
from windrow.core.ledger import join_rows
from windrow.core.policies import Answer, AtTheEnd, LaunchPolicy, Options, Policies, TooMuch
from windrow.core.records import ONE_CORE, EvaluateUnit, InputSpec, MergePartials, Needs, Rows, RunRows, Task
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.core.transitions import TaskState
from windrow.shape.fixed import Fixed
from windrow.shape.safety import Bounded

if TYPE_CHECKING:
    from windrow.core.commands import Launch
    from windrow.core.ledger import Ledger
    from windrow.core.records import Life

SEEDS = 20


def rows_world(
    seed: int, *, shares: bool = False, parts: bool = False, cluster: bool = False
) -> tuple[World, tuple[Rows, ...]]:
    """Make a run over a few inputs."""
    rng = random.Random(seed)
    inputs = {}
    for number in range(rng.randint(1, 5)):
        rows, step = rng.choice([0, 1, 40, 100, 300]), rng.choice([7, 10, 25])
        inputs[number] = tuple(sorted({*range(0, rows, step), rows}))
    specs = [InputSpec(id=n, category="a" if n % 2 else "b", label=f"f{n}") for n in inputs]
    shape = Fixed(rng.choice([3, 5, 30] if parts else [10, 30]))
    policies = Policies(shape) if shares else Policies(shape, safety=Bounded())
    options = Options(
        restart=not shares, speculate=rng.random() < 0.5, retries=1000, crashes=50, elastic=cluster, direct=cluster
    )
    scheduler = Scheduler(
        RowFeeder(specs, policies, RowOptions(crashes=50, parts=parts, family=1 << seed % 3)), options=options
    )
    world = (ClusterWorld if cluster else World)(scheduler, rng.randint(1, 4), seed=seed, shares=shares, inputs=inputs)
    return world, tuple(Rows(n, 0, borders[-1]) for n, borders in inputs.items() if borders[-1])


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("faults", "shares"), [(0.0, False), (0.0, True), (0.2, False)])
@pytest.mark.parametrize("parts", [False, True])
def test_no_row_is_lost_or_doubled(seed: int, faults: float, shares: bool, parts: bool) -> None:
    world, wanted = rows_world(seed, shares=shares, parts=parts)
    run_rows(world, wanted, faults)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("faults", [0.0, 0.2])
@pytest.mark.parametrize("parts", [False, True])
def test_no_row_is_lost_or_doubled_on_a_cluster(seed: int, faults: float, parts: bool) -> None:
    run_rows(*rows_world(seed, parts=parts, cluster=True), faults)


def run_rows(world: World, wanted: tuple[Rows, ...], faults: float) -> None:
    world.begin()
    world.run(faults=faults)
    assert world.end is not None
    assert world.end.status == "complete"
    taken = world.rows_taken()
    assert sum(stop - start for _, start, stop in taken) == sum(stop - start for _, start, stop in wanted)
    assert join_rows(taken) == wanted
    merged = any(isinstance(one.task.payload, (MergePartials, EvaluateUnit)) for one in world.launched)
    assert merged or len(world.launched) < 100


# -- parts of units ----------------------------------------------------------------------------------------------


class HalvesRows(LaunchPolicy):
    """Tasks that used too much have half of their rows, down to one."""

    def exhausted(self, found: TooMuch) -> Answer:
        return Answer("split", rows=-(-found.task.size // 2)) if found.by_rows else Answer("fail")


class PartsWorld(World):
    """Workers at units in parts: some give rows back, rows and units fail and rows use too much as their numbers say."""

    skip = False

    def is_bad(self, row: int, *, output: bool) -> bool:
        return self.skip and (row % 13 == 1 if output else row % 11 == 0)

    def is_heavy(self, row: int) -> bool:
        """Whether no worker can hold a row."""
        return self.skip and row % 31 == 9

    def unit_fails(self, number: int, row: int) -> bool:
        """Whether the unit of a row fails, whatever is run of it."""
        borders = self.inputs[number]
        at = bisect_right(borders, row)
        return self.skip and any(one % 97 == 5 for one in range(borders[at - 1], borders[at]))

    def finish(self, life: Life, *, here: bool = False, wall: float = 0.01, **more: Any) -> list[Event]:
        """Let a worker end what it is at."""
        launch = self.queues[life][0]
        payload: Any = launch.task.payload
        if launch.attempt in self.cancelled or not isinstance(payload, (RunRows, EvaluateUnit)):
            return super().finish(life, here=here, wall=wall)
        number, start, _ = payload.rows[0]
        stop = payload.rows[-1].stop
        if isinstance(payload, RunRows):
            if any(row % 97 == 5 for row in range(start, stop)) and self.skip:
                return self.fail(life)
            if any(map(self.is_heavy, range(start, stop))):
                return self.exhaust(life)
            border = self.inputs[number][bisect_right(self.inputs[number], start)]
            if payload.short_s and self.rng.random() < 0.5 and min(border, stop) - start > 1:
                cut = self.rng.randrange(start + 1, min(border, stop))
                more["rest"], stop = Rows(number, cut, stop), cut
        whole = isinstance(payload, RunRows) and not payload.part and "rest" not in more
        kinds = (False, True) if whole else (isinstance(payload, EvaluateUnit),)
        bad = [row for row in range(start, stop) if any(self.is_bad(row, output=kind) for kind in kinds)]
        if isinstance(payload, EvaluateUnit):
            bad = [row for row in bad if not self.is_bad(row, output=False) and not self.is_heavy(row)]
        more["skipped"] = tuple((Rows(number, row, row + 1), ERROR) for row in bad)
        return super().finish(life, here=here, wall=wall, **more)


def parts_world(seed: int, *, skip: bool, chunk: int | None = None, shares: bool = False) -> PartsWorld:
    rng = random.Random(seed)
    inputs = {}
    for number in range(rng.randint(1, 4)):
        count = rng.choice([1, 2, 40, 120])
        inputs[number] = (0, *sorted(rng.sample(range(1, count), min(rng.randint(0, 6), count - 1))), count)
    ranges = {
        number: ((borders[-1] // 4, borders[-1] // 2), (borders[-1] // 2 + 1, borders[-1]))
        for number, borders in inputs.items()
    }
    some = rng.random() < 0.3
    specs = [InputSpec(id=n, category="ab"[n % 2], label=f"f{n}", ranges=ranges[n] if some else None) for n in inputs]
    policies = Policies(Fixed(chunk or rng.choice([1, 3, 5, 30])), safety=AtTheEnd() if shares else Bounded())
    options = Options(restart=not shares, speculate=rng.random() < 0.5, retries=1000, crashes=50)
    limit = rng.choice([None, None, 50])
    rows = RowOptions(
        crashes=50,
        parts=True,
        on_error="skip" if skip else "stop",
        chunk=chunk,
        row_limit=None if some else limit,
        family=1 << seed % 3,
    )
    scheduler = Scheduler(RowFeeder(specs, policies, rows), HalvesRows(), options)
    world = PartsWorld(scheduler, rng.randint(1, 4), seed=seed, shares=shares, inputs=inputs)
    world.skip = skip
    return world


def feeder_of(world: World) -> RowFeeder:
    feeder = world.scheduler.feeder
    assert isinstance(feeder, RowFeeder)
    return feeder


@settings(max_examples=examples(80))
@given(
    seed=st.integers(0, 2**20), skip=st.booleans(), chunk=st.sampled_from([None, 1, 2, 7]),
    faults=st.sampled_from([0.0, 0.2, 0.4]), shares=st.booleans(),
)  # fmt: skip
def test_units_in_parts_count_every_row_once_whatever_is_lost(
    seed: int, skip: bool, chunk: int | None, faults: float, shares: bool
) -> None:
    """Rows that fail or use too much by themselves are left out one by one, and of units that fail every row."""
    world = parts_world(seed, skip=skip, chunk=chunk, shares=shares)
    world.begin()
    world.run(faults=0.0 if shares else faults)
    ledger = feeder_of(world).ledger
    assert world.end is not None
    wanted = {(number, row) for number, book in ledger.books.items() for a, b in book.everything for row in range(a, b)}
    units = {(number, row) for number, row in wanted if in_failing_unit(world, ledger, number, row)}
    bad = {
        (number, row)
        for number, row in wanted
        if world.is_heavy(row) or any(world.is_bad(row, output=kind) for kind in (False, True))
    }
    assert world.end.status == ("incomplete" if units | bad else "complete")
    failed = [(rows.input, row) for one in ledger.failures.values() for rows, _ in one for row in range(*rows[1:])]
    assert sorted(failed) == sorted(units | bad)
    assert ledger.done_rows == len(wanted - units - bad)
    # What was taken has the rows of whole units, with those that were left out when they were evaluated.
    taken = [(number, row) for number, start, stop in world.rows_taken() for row in range(start, stop)]
    assert len(taken) == len(set(taken))
    assert wanted - units - bad <= set(taken) <= wanted - units


def in_failing_unit(world: PartsWorld, ledger: Ledger, number: int, row: int) -> bool:
    """Whether rows of the unit of a row fail that the run is asked for next to it."""
    borders = world.inputs[number]
    at = bisect_right(borders, row)
    first, last = next((a, b) for a, b in ledger.books[number].everything if a <= row < b)
    mine = range(max(borders[at - 1], first), min(borders[at], last))
    return world.skip and any(one % 97 == 5 for one in mine)


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 2**20), steps=st.integers(0, 120), faults=st.sampled_from([0.0, 0.3]),
    fails=st.booleans(), shares=st.booleans(),
)  # fmt: skip
def test_a_run_of_parts_that_ends_early_has_whole_units_and_says_what_is_missing(
    seed: int, steps: int, faults: float, fails: bool, shares: bool
) -> None:
    world = parts_world(seed, skip=False, shares=shares)
    world.begin()
    faults = 0.0 if shares else faults
    for _ in range(steps):
        if world.end is None:
            world.tell(*world.step(faults=faults))
    if world.end is None:
        busy = [life for life in world.lives.values() if world.queues[life]]
        early = fails and busy
        world.tell(*(world.fail(world.rng.choice(busy)) if early else [CancelRequested("enough")]))
    world.run(faults=faults)
    feeder = feeder_of(world)
    assert world.end is not None
    assert world.end.status in ("complete", "cancelled", "failed")
    assert not feeder.ledger.held
    assert not feeder.parts.units
    if world.end.status != "failed":
        assert sum(stop - start for _, start, stop in world.rows_taken()) == feeder.ledger.done_rows


def test_everything_that_can_happen_does() -> None:
    seen: Counter[str] = Counter()
    for seed in range(40):
        world, _ = rows_world(seed)
        world.begin()
        world.run(faults=0.2)
        seen += world.bad + Counter(copies=world.copies)
        seen += Counter(type(one.task.payload).__name__ for one in world.launched)
        seen += Counter(queued=sum(one.queued for one in world.launched))
    assert [what for what in ("copies", "CRASHED", "LOST", "TRANSIENT_IO", "queued") if not seen[what]] == []
    assert seen["OpenInput"]
    assert seen["RunRows"]
    assert seen["MergePartials"]


def test_the_same_events_give_the_same_commands() -> None:
    def commands(seed: int) -> list[Any]:
        world, _ = rows_world(seed)
        said: list[Any] = []
        told = world.scheduler.on

        def on(events: Any, now: float) -> Any:
            said.append(told(events, now))
            return said[-1]

        world.scheduler.on = on  # type: ignore[method-assign]
        world.begin()
        world.run(faults=0.2)
        return said

    assert commands(3) == commands(3)


def test_a_ledger_that_does_not_look_is_found_out() -> None:
    """Without the rule that each row has one owner, twins double rows or break an invariant."""
    wrong = 0
    for seed in range(25):
        world, wanted = rows_world(seed)
        feeder = world.scheduler.feeder
        assert isinstance(feeder, RowFeeder)
        feeder.ledger.release = lambda output: ()  # type: ignore[method-assign]
        world.begin()
        try:
            world.run(faults=0.2, most=2000)
            wrong += join_rows(world.rows_taken()) != wanted
        except Exception:  # noqa: BLE001 - found out
            wrong += 1
    assert wrong > 5


# -- graphs ----------------------------------------------------------------------------------------------------


class Graphs:
    """A random graph of tasks, and what the user wants of it."""

    def __init__(self, seed: int, *, pools: bool) -> None:
        rng = self.rng = random.Random(seed)
        self.tasks: list[Task] = []
        self.outputs: list[str] = []
        for number in range(1, rng.randint(1, 25) + 1):
            reads = rng.sample(self.outputs, min(len(self.outputs), rng.choice([0, 0, 1, 1, 2, 3])))
            makes = tuple(f"{number}.{part}" for part in range(rng.choice([1, 1, 2])))
            after = rng.sample(range(1, number), min(number - 1, rng.choice([0, 0, 1])))
            needs = ONE_CORE
            if pools:
                amounts = {
                    "cores": rng.choice([1, 2, 4]),
                    "memory": rng.choice([0, 2.1, 5]),
                    "gpu": rng.choice([0, 0, 1]),
                }
                needs = Needs.of(amounts | {"disk": rng.choice([0, 1])})
                if rng.random() < 0.5:
                    needs = Needs(needs.amounts, lasting=(("disk", makes[0]),))
            restartable = rng.random() < 0.8
            beside = [] if restartable else rng.sample(range(1, number), min(number - 1, rng.choice([0, 1, 2])))
            self.tasks.append(
                Task(
                    number, f"c{number % 2}", reads=tuple(reads), makes=makes, after=tuple(after), needs=needs,
                    restartable=restartable, priority=rng.choice([0, 0, 1, -1]), beside=tuple(beside),
                )
            )  # fmt: skip
            self.outputs += makes
        self.wanted = [name for name in self.outputs if rng.random() < 0.5]
        self.unsubmitted = list(self.tasks)
        self.closed = False

    def call(self, launch: Launch, values: tuple[Any, ...]) -> dict[str, Any]:
        """Make values that tell what they were made from; those of a task that cannot be restarted, by which attempt."""
        tag = 0 if launch.task.restartable else launch.attempt
        return {name: (name, tag, values) for name in launch.task.makes}

    def events(self) -> list[Event]:
        """Submit some, and say what is wanted."""
        rng, found = self.rng, list[Event]()
        if self.unsubmitted and rng.random() < 0.3:
            number = rng.randint(1, len(self.unsubmitted))
            found.append(Submitted((), tuple(self.unsubmitted[:number])))
            del self.unsubmitted[:number]
            if not self.unsubmitted:
                found += [Wanted(name) for name in self.wanted]
                others = [name for name in self.outputs if name not in self.wanted]
                found += [Released((name,)) for name in others if rng.random() < 0.7]
        elif not self.unsubmitted and not self.closed:
            if rng.random() < 0.1:
                self.closed = True
                found.append(Closed())
            elif self.wanted and rng.random() < 0.05:
                found.append(Wanted(rng.choice(self.wanted)))
        return found

    def early(self, world: World) -> list[Event]:
        """Let running tasks release their first output now and then."""
        found: list[Event] = []
        for life in list(world.lives.values()):
            launch = world.first(life)
            if launch is None or launch.attempt not in world.begun or launch.attempt in world.released:
                continue
            values = world.values(launch)
            if len(launch.task.makes) > 1 and values is not None and self.rng.random() < 0.1:
                name = launch.task.makes[0]
                found += world.release(life, name, self.call(launch, values)[name])
        return found


def graph_world(
    seed: int,
    *,
    shares: bool = False,
    pools: bool = False,
    ahead: bool = False,
    size: int = 100,
    cluster: bool = False,
    far: bool = False,
) -> tuple[World, Graphs]:
    """Make a run of a random graph, of whose outputs each has ``size`` bytes."""
    graph = Graphs(seed, pools=pools)
    options = Options(
        open=True, restart=not shares, ahead=ahead, crashes=1000, retries=1000, elastic=cluster, direct=cluster, far=far
    )
    own, shared = (Needs(), ("node",)) if pools else (ONE_CORE, ())
    world = (ClusterWorld if cluster else World)(
        Scheduler(options=options), graph.rng.randint(1, 4), seed=seed, shares=shares, offers=own, pools=shared
    )  # fmt: skip
    world.call, world.size = graph.call, size
    if pools:
        world.tell(PoolChanged("node", Needs.of({"cores": 4, "memory": 8, "gpu": 2, "disk": 25}), ("gpu",)))
    world.begin()
    return world, graph


def look_into(value: Any, graph: Graphs, made: dict[str, set[int]]) -> None:
    """Check that a value was made from what its task reads."""
    name, tag, values = value
    made.setdefault(name, set()).add(tag)
    task = graph.tasks[int(name.partition(".")[0]) - 1]
    assert tuple(one[0] for one in values) == task.reads
    for one in values:
        look_into(one, graph, made)


MODES: dict[str, tuple[float, dict[str, Any]]] = {
    "calm": (0.0, {}),
    "shared": (0.0, {"shares": True, "ahead": True}),
    "fire": (0.15, {}),
    "pools": (0.15, {"pools": True}),
    "ahead": (0.1, {"ahead": True}),
    "large": (0.1, {"ahead": True, "size": 20_000_000}),
    "calm cluster": (0.0, {"cluster": True}),
    "cluster": (0.2, {"cluster": True}),
    "large cluster": (0.1, {"cluster": True, "ahead": True, "far": True, "size": 20_000_000}),
}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("mode", MODES)
def test_every_output_is_made_of_what_its_task_reads(seed: int, mode: str) -> None:
    faults, more = MODES[mode]
    world, graph = graph_world(seed, **more)
    for _ in range(5000):
        if world.end is not None:
            break
        events = [*graph.events(), *world.step(faults=faults), *graph.early(world)]
        world.tell(*events)
    assert world.end is not None
    assert world.end.status == "complete"
    assert all(len(world.ends[task.id]) == 1 for task in graph.tasks)
    order = {number: place for place, number in enumerate(world.ends)}
    assert all(order[other] < order[task.id] for task in graph.tasks for other in task.beside)
    taken = {take.handle.output for take, _ in world.taken}
    assert set(graph.wanted) <= taken
    made: dict[str, set[int]] = {}
    for _, value in world.taken:
        look_into(value, graph, made)
    # What cannot be made the same again was read as one attempt made it, by everybody.
    assert all(len(tags) == 1 for tags in made.values())


def test_everything_that_can_happen_on_a_cluster_does() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        world, graph = graph_world(seed, cluster=True)
        assert isinstance(world, ClusterWorld)
        while world.end is None:
            world.tell(*graph.events(), *world.step(faults=0.2))
        seen.update(copies=world.copies_lost, machines=world.machines_lost, alone=world.alone)
        seen["complete"] += world.end.status == "complete"
    assert seen["complete"] == SEEDS
    assert min(seen["copies"], seen["machines"], seen["alone"]) > 0


def test_waits_add_up_to_the_time_of_a_task() -> None:
    world, graph = graph_world(5)
    submitted: dict[int, float] = {}
    for _ in range(5000):
        if world.end is not None:
            break
        events = [*graph.events(), *world.step(faults=0.1)]
        for event in events:
            if isinstance(event, Submitted):
                submitted |= {task.id: world.now for task in event.tasks}
        before = {number: len(told) for number, told in world.ends.items()}
        world.tell(*events)
        for number, told in world.ends.items():
            if len(told) > before.get(number, 0):
                spent = sum(seconds for _, seconds in told[-1].spent)
                assert spent == pytest.approx(world.now - submitted[number])
    assert len(submitted) == len(graph.tasks)


def test_a_run_does_not_grow_with_what_it_did() -> None:
    scheduler = Scheduler(options=Options(open=True))
    world = World(scheduler, 2, validate=False)
    world.begin()
    for number in range(1, 400):
        world.tell(Submitted((), (Task(number, "a", makes=(f"{number}",)),)))
        world.tell(*[event for life in world.lives.values() if world.first(life) for event in world.finish(life)])
        world.tell(Released((f"{number}",)))
        assert len(scheduler.graph.nodes) < 5
        assert sum(map(len, world.stores.values())) < 5
    assert all(node.state is TaskState.DONE for node in scheduler.graph.nodes.values())
