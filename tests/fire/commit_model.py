"""A driver that may die at any step, and what it leaves: the real scheduler, keeper, journal and division of what is left.

Only workers and the disk are pretended. A partial is the multiset of the rows it counts, so that the final sum shows a
row that is lost or counted twice, whatever anybody's books say.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fire.commit_disk import Death, Disk, ModelJournal
from fire.commit_engine import UNIT, Content, Engine, Piece
from windrow.core import commands as orders
from windrow.core import events as happened
from windrow.core.intervals import Intervals
from windrow.core.policies import Options, Policies, ShapeRequest
from windrow.core.records import InputSpec, Opened, Rows
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.reuse.coverage import Covered, Reuse, divide
from windrow.store.journal.journal import Journal, Keeper, KnownInput

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.store.journal.journal import Blob

#: Rounds after which a run that nobody disturbs any more counts as hung; it needs a few hundred.
MOST_ROUNDS = 5_000


class Wrong(AssertionError):
    """The check has found something."""


# -- the rules that can be broken -------------------------------------------------------------------


def divide_rows(rows: int, products: Any, blobs: Any) -> Reuse:
    return divide(((0, rows),), products, blobs)


@dataclass(frozen=True)
class Rules:
    """What the protocol is made of."""

    scheduler: type[Scheduler] = Scheduler
    feeder: type[RowFeeder] = RowFeeder
    journal: type[ModelJournal] = ModelJournal
    divide: Callable[..., Reuse] = divide_rows


RULES = Rules()


# -- one driver ------------------------------------------------------------------------------------


class Dice:
    """Chunks of one size, and partials that are brought to safety after some work."""

    def __init__(self, chunk: int, window: int, patience: float | None) -> None:
        self._chunk, self._window, self._patience = chunk, window, patience

    def rows(self, request: ShapeRequest) -> int:
        return self._chunk

    def window(self, task_s: float | None) -> int:
        return self._window

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:
        return self._patience is not None and held_s > self._patience


@dataclass
class Heap:
    """What the driver has of one input of the scheduler, as the collector of a pipeline has it."""

    rows: Intervals = field(default_factory=Intervals)
    content: Content = field(default_factory=Counter)

    def add(self, rows: tuple[Rows, ...], content: Content) -> None:
        for _, start, stop in rows:
            self.rows.add(start, stop)
        self.content.update(content)


def packed(heap: Heap) -> list[bytes]:
    return [json.dumps(sorted(heap.content.elements())).encode()]


def unpacked(content: bytes) -> Content:
    return Counter((product, number, row) for product, number, row in json.loads(content))


class Driver:
    """One life of a driver: begins with what the journal says, runs, and may die."""

    def __init__(
        self,
        world: Sequence[tuple[int, ...]],
        disk: Disk,
        products: frozenset[str],
        rng: random.Random,
        rules: Rules,
        journal: Journal,
    ) -> None:
        self.world = world  #: the borders of every input
        self.products = products
        self.disk = disk
        self.journal = journal
        self.rng = rng
        self.rules = rules
        self.specs: list[InputSpec] = []
        self.feeds: dict[int, tuple[int, frozenset[str]]] = {}
        self.used: list[tuple[Blob, frozenset[str]]] = []
        self.heaps: dict[int, Heap] = {}
        self.end: orders.Resolve | None = None
        self._wake: float | None = None
        self._begin()
        self.engine = Engine(rng, self._count, self._borders, fifo=rng.random() < 0.6)
        self.keeper = Keeper(journal, packed, lambda: self.engine.now)
        patience = rng.choice([None, 0.0, 0.2, 1.0])
        dice = Dice(rng.randint(1, 9), rng.randint(1, 3), patience)
        options = Options(restart=True, speculate=rng.random() < 0.8)
        rows = RowOptions(parts=rng.random() < 0.6, chunk=rng.choice([None, 1, 4]))
        self.feeder = rules.feeder(self.specs, Policies(dice, safety=dice), rows)
        self.scheduler = rules.scheduler(self.feeder, options=options)
        for worker in range(rng.randint(1, 3)):
            self.engine.join(worker)

    def _begin(self) -> None:
        """Find out what is left to do, as ``pipeline.resume.plan`` does."""
        known = self.journal.inputs()
        kept = set()
        for number, borders in enumerate(self.world):
            key = str(number)
            if key not in known:
                self._add(InputSpec(id=number, category="c"), number, self.products)
                continue
            blobs = {blob.id: blob for blob in self.journal.blobs_of(key)}
            covered = [Covered(b.id, frozenset(b.products), b.rows) for b in blobs.values()]
            reuse = self.rules.divide(borders[-1], self.products, covered)
            for blob, products in reuse.used.items():
                self.used.append((blobs[blob], products))
                kept.add(blob)
            for place, portion in enumerate(reuse.portions):
                mine = number if place == 0 else len(self.world) + len(self.specs)
                spec = InputSpec(id=mine, category="c", rows=borders[-1], borders=borders, ranges=portion.ranges)
                self._add(spec, number, portion.products)
        self.journal.drop([blob.id for blob in self.journal.blobs() if blob.id not in kept])

    def _add(self, spec: InputSpec, number: int, products: frozenset[str]) -> None:
        self.specs.append(spec)
        self.feeds[spec.id] = (number, products)

    def _borders(self, feed: int) -> tuple[int, ...]:
        return self.world[self.feeds[feed][0]]

    def _count(self, rows: Rows) -> Content:
        number, products = self.feeds[rows.input]
        found = [(name, number, row) for name in products for row in range(rows.start, rows.stop)]
        return Counter(found)

    # -- the loop, as ``run.loop`` and ``pipeline.resume.journal_writer`` have it

    def feed(self, events: list[happened.Event]) -> None:
        self.disk.step(on_disk=False)
        commands = self.scheduler.on(events, self.engine.now)
        self.engine.seen["copies"] += sum(len(node.attempts) > 1 for node in self.scheduler.graph.open.values())
        for command in commands:
            self.disk.step(on_disk=False)
            if isinstance(command, orders.Take):
                self._take(command)
            elif isinstance(command, orders.WakeAt):
                self._wake = command.time
            elif isinstance(command, orders.Resolve):
                self.end = command
            else:
                self.engine.do(command)
        opened = [one for one in events if isinstance(one, happened.Finished) and isinstance(one.report, Opened)]
        if opened:
            self.journal.know([self._known(event) for event in opened])
        self.keeper.maybe_write(self.engine.now)

    def _take(self, command: orders.Take) -> None:
        feed = command.about[0].input
        heap = self.heaps.setdefault(feed, Heap())
        heap.add(command.about, self.engine.take(command.handle))
        number, products = self.feeds[feed]
        self.keeper.changed((str(number), tuple(sorted(products))), tuple(heap.rows), heap)

    def _known(self, event: happened.Finished) -> KnownInput:
        key = str(self.feeds[self.engine.opened[event.attempt]][0])
        return KnownInput(key, "c", key, "same", event.report.rows, event.report.borders, None, None)

    def run(self, disturbed: int) -> None:
        """Run to the end; ``disturbed`` rounds with everything that may happen, then in peace."""
        for number in range(MOST_ROUNDS):
            if self.end is not None:
                self.keeper.flush()
                return
            events = self._something() if number < disturbed else self._in_peace()
            if self._wake is not None and self._wake <= self.engine.now:
                self._wake = None
                events.append(happened.Tick())
            if events:
                self.feed(events)
        raise Wrong("the run does not end")

    def _something(self) -> list[happened.Event]:
        rng, engine = self.rng, self.engine
        engine.now += rng.choice([0.0, 0.01, 0.1, 0.5])
        kind = rng.random()
        if kind < 0.45:
            engine.work()
        elif kind < 0.80:
            return engine.deliver()
        elif kind < 0.85:
            return engine.repeat()
        elif kind < 0.89:
            engine.kill()
        elif kind < 0.92:
            engine.hang()
        elif kind < 0.935:
            return engine.drain()
        elif kind < 0.999:
            engine.now += rng.choice([0.3, 3.0])
        else:
            return [happened.CancelRequested("enough")]
        return []

    def _in_peace(self) -> list[happened.Event]:
        engine = self.engine
        engine.now += 0.05
        if engine.mail_waits:
            return engine.deliver()
        if not engine.work():
            times = [engine.next_end_of_a_hang(), self._wake]
            due = [time for time in times if time is not None]
            if not due:
                raise Wrong("the run waits for nothing")
            engine.now = max(engine.now, min(due))
        return []

    def total(self) -> Content:
        """What the result would be: blobs taken over, and what was made."""
        total: Content = Counter()
        for blob, products in self.used:
            content = unpacked(self.journal.read(blob))
            total.update({piece: n for piece, n in content.items() if piece[0].removeprefix(UNIT) in products})
        for heap in self.heaps.values():
            total.update(heap.content)
        return total


# -- many drivers, one after the other -----------------------------------------------------------------


def check_journal(journal: Journal) -> None:
    """Every blob has just the rows and products that its entry names."""
    for blob in journal.blobs():
        named = {
            (product, int(blob.input), row)
            for product in blob.products
            for start, stop in blob.rows
            for row in range(start, stop)
        }
        content = Counter(
            {piece: n for piece, n in unpacked(journal.read(blob)).items() if not piece[0].startswith(UNIT)}
        )
        if content != Counter(named):
            raise Wrong(f"{blob} is not what it says")


def check_total(world: Sequence[tuple[int, ...]], products: frozenset[str], total: Content) -> None:
    """Every row of every input is there once for each product, each unit was evaluated once, and nothing else is there."""
    wanted: dict[Piece, int] = {}
    for product in products:
        for number, borders in enumerate(world):
            wanted |= {(product, number, row): 1 for row in range(borders[-1])}
            wanted |= {(UNIT + product, number, start): 1 for start in borders[:-1]}
    if total != Counter(wanted):
        twice = sorted(piece for piece, n in total.items() if n > 1)
        lost = sorted(set(wanted) - set(total))
        raise Wrong(f"counted more than once: {twice}; lost: {lost}")


def make_world(rng: random.Random) -> list[tuple[int, ...]]:
    world = []
    for _ in range(rng.randint(1, 2)):
        rows = rng.choice([1, 12, 30])
        inner = sorted(rng.sample(range(1, rows), min(rng.randint(0, rng.choice([2, 14])), rows - 1)))
        world.append((0, *inner, rows))
    return world


def live(seed: int, rules: Rules = RULES) -> Counter[str]:
    """Run, with driver after driver, until everything is done; raises if a row is lost or doubled."""
    rng = random.Random(seed)
    disk, world = Disk(), make_world(rng)
    seen: Counter[str] = Counter()
    for deaths_left in range(rng.choice([0, 1, 2, 3]), -1, -1):
        products = frozenset(rng.choice(["a", "ab"]))
        disk.any_step = rng.random() < 0.5
        disk.fuse = rng.randint(1, 300 if disk.any_step else 25) if deaths_left else None
        driver = None
        try:
            # Opening it checks every entry and every file.
            journal = rules.journal.on(disk)
            check_journal(journal)
            driver = Driver(world, disk, products, rng, rules, journal)
            driver.run(rng.choice([0, 60, 300]))
        except Death:
            seen["driver killed"] += 1
            seen["killed at the disk"] += not disk.any_step
        else:
            assert driver.end is not None
            seen[driver.end.status] += 1
            if driver.end.status == "complete":
                check_total(world, products, driver.total())
                _check_kept(world, disk, products, rules)
        finally:
            if driver is not None:
                seen.update(driver.engine.seen)
                seen["taken over"] += len(driver.used)
    return seen


def _check_kept(world: Sequence[tuple[int, ...]], disk: Disk, products: frozenset[str], rules: Rules) -> None:
    """What a complete run wrote down is all there is, and once."""
    disk.fuse = None
    journal = rules.journal.on(disk)
    again = Driver(world, disk, products, random.Random(0), rules, journal)
    if rules is RULES and again.specs:
        raise Wrong(f"everything was done, and yet this is left: {again.specs}")
    if not again.specs:
        check_total(world, products, again.total())
