"""Every invariant of the scheduler, recomputed from scratch; run after each batch in tests.

It looks at everything and so takes time in proportion to the run; it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from windrow.core.intervals import Intervals
from windrow.core.records import DRIVER, Granted, Life, MergePartials, Rows, RunRows
from windrow.core.transitions import ENDS, AttemptState, InputState, TaskState
from windrow.core.workers import MAX_QUEUE
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.graph import Node
    from windrow.core.rows import RowFeeder
    from windrow.core.scheduler import Scheduler


def validate(scheduler: Scheduler) -> None:
    """Raise InternalError with the story if an invariant does not hold."""
    _tasks(scheduler)
    _attempts(scheduler)
    _outputs(scheduler)
    _workers(scheduler)
    _resources(scheduler)
    if scheduler.feeder is not None:
        _rows(scheduler, scheduler.feeder)
        _books(scheduler, scheduler.feeder)
        _partials(scheduler, scheduler.feeder)
        _inputs(scheduler.feeder)
    _progress(scheduler)


def _check(holds: bool, story: str) -> None:
    if not holds:
        raise InternalError(story)


def _sum(rows: Iterable[Rows]) -> int:
    return sum(part.stop - part.start for part in rows)


# -- tasks and outputs -----------------------------------------------------------------------------------------


def _tasks(scheduler: Scheduler) -> None:
    """Every task is in exactly one place, the one of its state."""
    dispatch, graph = scheduler.dispatch, scheduler.graph
    pinned = {node.id for nodes in dispatch.pinned.values() for node in nodes}
    for node in graph.nodes.values():
        ready = [node.id in dispatch.ready, node.id in pinned, node.id in dispatch.fresh]
        places = {
            TaskState.READY: sum(ready) == 1,
            TaskState.FETCHING: node.id in dispatch.fetching,
            TaskState.RUNNING: bool(node.attempts),
        }
        found = [state.name for state, there in places.items() if there]
        wanted = [node.state.name] if node.state in places else []
        _check(found == wanted, f"task {node.id} is {node.state.name}, but found as {found}")
        _check(
            (node.id in graph.open) == (node.state not in ENDS),
            f"task {node.id} is {node.state.name}, and open says otherwise",
        )
        _missing(node)
    _check(all(node.id in graph.nodes for node in graph.open.values()), "an open task is forgotten")
    for cls in {node.cls for node in dispatch.ready.values()}:
        count = sum(node.cls is cls for node in dispatch.ready.values())
        _check(cls is not None and cls.waiting == count, f"{count} tasks of {cls} wait")


def _missing(node: Node) -> None:
    """A task misses what it reads and what it comes after, as far as that is not there."""
    missing = sum(not output.made for output in node.reads.values()) + len(node.unended)
    if node.state not in ENDS:
        _check(missing == node.missing, f"task {node.id} misses {missing}, not {node.missing}")
    if node.state in (TaskState.READY, TaskState.FETCHING):
        _check(not missing, f"task {node.id} is {node.state.name} and misses {missing}")
    if node.state is TaskState.WAITING:
        _check(missing > 0, f"task {node.id} waits for nothing")
    _check(
        bool(node.pending) == (node.state is TaskState.FETCHING)
        and all(output.fetching is not None for output in node.pending.values()),
        f"task {node.id} is {node.state.name} and waits for copies of {list(node.pending)}",
    )
    _check(
        bool(node.homing or node.beside or node.publishing) >= (node.state is TaskState.HOMING) >= bool(node.homing)
        and all(output.fetching is not None for output in node.homing.values()),
        f"task {node.id} is {node.state.name} and waits for {list(node.homing)} to come home",
    )


def _attempts(scheduler: Scheduler) -> None:
    """Attempts are where they are looked for; two of one task are at different workers."""
    queues, workers = scheduler.queues, scheduler.workers
    chains = [worker.chain for worker in workers.alive.values() if worker.chain is not None]
    found = {number for chain in chains for number in chain.attempts}
    _check(found == set(queues.attempts), "workers have other attempts than the queues")
    for attempt in queues.attempts.values():
        node = attempt.node
        _check(
            attempt.state <= AttemptState.CANCELLING
            and workers.alive.get(attempt.worker.id) is attempt.worker
            and (attempt in node.attempts) == (not attempt.void),
            f"attempt {attempt.id} of task {node.id} is {attempt.state.name}, void {attempt.void}",
        )
        twins = [one.worker.id for one in node.attempts]
        _check(len(twins) == len(set(twins)) <= 2, f"task {node.id} runs at workers {twins}")
        _check(len(twins) < 2 or node.task.twin, f"task {node.id} runs twice, and may not")
    void = [one for one in queues.attempts.values() if one.void]
    _check(len(void) == queues.void, f"{len(void)} attempts that nobody waits for, counted {queues.void}")
    for node in {one.node.id: one.node for one in queues.attempts.values()}.values():
        mine = sum(one.void for one in queues.attempts.values() if one.node is node)
        _check(mine == node.void, f"{mine} void attempts of task {node.id}, counted {node.void}")
    queued = sum(one.queued for one in queues.attempts.values())
    _check(queued == queues.queued, f"{queued} attempts were queued, counted {queues.queued}")
    rows = sum(node.task.size for node in scheduler.graph.open.values() if node.fed and node.attempts)
    _check(rows == queues.fed_rows, f"{rows} rows run, counted {queues.fed_rows}")


def _outputs(scheduler: Scheduler) -> None:
    """An output exists only while it is needed, what is needed exists or will, and holders live."""
    graph, outputs = scheduler.graph, scheduler.outputs
    kept: dict[Life, set[str]] = {}
    for output in graph.outputs.values():
        name, maker = output.name, output.maker
        readers = [one.id for one in graph.open.values() if name in one.reads]
        _check(sorted(readers) == sorted(output.readers), f"{name!r} has other readers: {readers}")
        consumers = sum(name in one.reads for one in graph.nodes.values())
        _check(consumers == output.consumers, f"{name!r} has {consumers} consumers, counted {output.consumers}")
        _check(bool(output.holders) == bool(output.attempt), f"{name!r} has no holder, or exists and has none")
        _check(not output.made or bool(output.holders), f"{name!r} can be read, and nobody holds it")
        if output.holders:
            homing = maker.state is TaskState.HOMING
            _check(output.made or homing, f"{name!r} exists and cannot be read")
            _check(output.needed or homing, f"{name!r} is kept, and nobody needs it")
            _check(
                not (DRIVER in output.holders and output.fetching is not None), f"{name!r} is here, and is fetched"
            )  # fmt: skip
        for holder in output.holders:
            if isinstance(holder, Life):
                kept.setdefault(holder, set()).add(name)
                _check(scheduler.workers.find(holder) is not None, f"{name!r} is held by nobody alive")
        if maker.state is TaskState.DONE and not graph.frozen and not output.fed:
            _check(
                output.made or not output.needed or name in graph.lacking,
                f"{name!r} is gone, somebody needs it, and task {maker.id} rests",
            )
    known = {life: set(names) for life, names in outputs.kept.items() if names}
    _check(known == kept, f"workers hold {kept}, noted is {known}")
    fetching = sorted(one.name for one in graph.outputs.values() if one.fetching is not None)
    _check(fetching == sorted(outputs.fetching), "fetches of outputs disagree")


# -- workers and resources -------------------------------------------------------------------------------------


def _workers(scheduler: Scheduler) -> None:
    """No worker has more than it may, and the indexes find each where it is."""
    workers, resources = scheduler.workers, scheduler.resources
    for worker in workers.alive.values():
        length = worker.queue
        _check(length <= MAX_QUEUE, f"worker {worker.id} has {length} launches")
        _check(worker.chain is None or length > 0, f"worker {worker.id} has an empty queue")
        idle = worker.id in worker.site.idle
        _check(idle == (worker.open and not length), f"worker {worker.id} with {length} launches: idle is {idle}")
        _check(not idle or worker.site in resources.open, f"worker {worker.id} is idle, and its site is closed")
        if worker.chain is not None:
            first, *later = worker.chain.attempts.values()
            _check(all(one.queued and one.started is None for one in later), f"worker {worker.id} runs two at a time")
            _check(first.worker is worker, f"worker {worker.id} has the queue of another")
    for number, worker in workers.short.items():
        _check(workers.alive.get(number) is worker and worker.open, f"worker {number} is to be fed, and cannot")
    draining = [worker.id for worker in workers.alive.values() if worker.drain is not None]
    _check(sorted(draining) == sorted(workers.draining), "drained workers disagree")
    for site in resources.open:
        _check(bool(site.idle) and all(one in workers.alive for one in site.idle), "a site of nobody is open")


def _resources(scheduler: Scheduler) -> None:
    """What is taken is the sum over grants, and never more than is offered."""
    resources = scheduler.resources
    parts: list[Granted] = []
    for worker in scheduler.workers.alive.values():
        if worker.chain is not None:
            parts += worker.chain.grant
    lasting = [part for output in scheduler.graph.outputs.values() for part in output.grant]
    _check(len(lasting) == resources.lasting, f"outputs keep {len(lasting)} grants, counted {resources.lasting}")
    parts += lasting
    for pool in resources.pools.values():
        mine = [one for one in parts if one.pool == pool.name]
        _check(pool.grants == len(mine), f"{pool.name}: {len(mine)} grants are out, counted {pool.grants}")
        for name in {**pool.taken, **{one.name: 0 for one in mine}}:
            taken, summed = pool.taken.get(name, 0), sum(one.amount for one in mine if one.name == name)
            close = abs(taken - summed) <= 1e-6 * max(taken, summed, 1)
            _check(close, f"{pool.name}: {name}={taken} is taken, tasks have {summed}")
            enough = summed <= pool.offers.get(name, 0) * (1 + 1e-6)
            _check(enough or pool.shrunk, f"{pool.name} has given more {name} than it has")
        units = [(one.name, unit) for one in mine for unit in one.units]
        _check(len(units) == len(set(units)), f"{pool.name} has given a device twice: {units}")


# -- rows ------------------------------------------------------------------------------------------------------


def _rows(scheduler: Scheduler, feeder: RowFeeder) -> None:
    """Every row of the run is in exactly one place."""
    ledger = feeder.ledger
    places: dict[int, Intervals] = {number: Intervals() for number in ledger.books}

    def put(rows: Iterable[Rows], where: str) -> None:
        for number, start, stop in rows:
            _check(places[number].add(start, stop), f"rows {start}-{stop} of {number} are {where} and elsewhere")

    for rows in ledger.held.values():
        put(rows, "held")
    for node in scheduler.graph.open.values():
        if node.fed and isinstance(node.task.payload, RunRows):
            put(node.task.payload.rows, f"at task {node.id}")
    for one in feeder.inputs.inputs.values():
        put(one.cutter.waiting(), "uncut")
    for failed in ledger.failures.values():
        put([rows for rows, _ in failed], "failed")
    for number, book in ledger.books.items():
        for begin, end in book.everything:
            gaps = sum(stop - start for start, stop in places[number].gaps(begin, end))
            del begin, end
            book_done = gaps if len(list(book.everything)) == 1 else None
            _check(book_done in (None, book.done), f"input {number}: {gaps} rows are nowhere, and {book.done} done")
        total = places[number].total + book.done
        _check(total == book.everything.total, f"input {number}: {total} rows are known of {book.everything.total}")


def _books(scheduler: Scheduler, feeder: RowFeeder) -> None:
    """The counters of the ledger, the inputs and the tasks are what they count."""
    ledger, inputs = feeder.ledger, feeder.inputs
    books = list(ledger.books.values())
    uncut = {number: _sum(one.cutter.waiting()) for number, one in inputs.inputs.items()}
    counters = {
        "known": (ledger.known_rows, sum(book.everything.total for book in books)),
        "done": (ledger.done_rows, sum(book.done for book in books)),
        "failed": (ledger.failed_rows, sum(book.failed.total for book in books)),
        "held": (ledger.held_rows, sum(map(_sum, ledger.held.values()))),
        "failed rows listed": (
            sum(_sum(f.rows for f in listed) for listed in ledger.failures.values()),
            sum(book.failed.total for book in books),
        ),
        "uncut": (inputs.uncut, sum(uncut.values())),
        "tasks": (
            sorted(feeder.given),
            sorted(
                node.id
                for node in scheduler.graph.open.values()
                if node.fed and not isinstance(node.task.payload, MergePartials)
            ),
        ),
    }
    for name, (counted, found) in counters.items():
        _check(counted == found, f"the counter {name!r} is {counted}, but there are {found}")
    for category, order in inputs._orders.items():
        counts = order.uncut, order.unopened
        mine = [one for one in inputs.inputs.values() if one.spec.category == category]
        found = sum(uncut[one.spec.id] for one in mine), sum(one.spec.id in ledger.unopened for one in mine)
        _check(counts == found, f"of {category!r} are uncut and unopened {found}, counted {counts}")


def _partials(scheduler: Scheduler, feeder: RowFeeder) -> None:
    """Every held partial is in exactly one place, and exists or is being merged."""
    partials, graph = feeder.partials, scheduler.graph
    found: list[str] = []
    for bundle in partials.all():
        life, number = bundle.life, bundle.family.id
        _check(partials.bundles[number].get(life) is bundle, f"a bundle of {life} and {number} is misplaced")
        _check(not bundle.empty, f"an empty bundle of {life} and {number} is kept")
        for output in [*(one for kept in bundle.kept for one in kept), *bundle.bringing]:
            found.append(output)
            known = graph.outputs.get(output)
            _check(known is not None and bool(known.holders), f"partial {output!r} is kept by nobody")
            _check(partials.where.get(output) is bundle, f"partial {output!r} is looked for elsewhere")
        for task, (_, inputs) in bundle.merging.items():
            found += inputs
            _check(task in graph.open and partials.merges.get(task) is bundle, f"merge {task} is not under way")
    found += feeder.parts.where
    held = sorted(feeder.ledger.held)
    if scheduler.failure is not None:
        found = [one for one in found if one in held]  # merges that were called off
    _check(sorted(found) == held, f"partials {held} are held, but found are {sorted(found)}")
    _check(len(partials.where) == len(set(partials.where) & set(found)), "partials are looked for that are gone")
    for unit in feeder.parts.units.values():
        rows = sum(part.stop - part.start for part in unit.outputs.values())
        _check(unit.missing + rows == unit.stop - unit.start, f"unit {unit.start}: {rows} rows are in parts")
        _check(unit.task is None or unit.task.id in graph.open, f"unit {unit.start} is evaluated by none")
        _check(bool(unit.missing) or unit.task is not None, f"unit {unit.start} has all its parts, and rests")
        _check(all(feeder.parts.where[one] is unit for one in unit.outputs), "parts are looked for elsewhere")
    merging = [task for bundle in partials.all() for task in bundle.merging]
    _check(sorted(merging) == sorted(partials.merges), "merges disagree")
    for bundle in partials.all():
        running = sum(one is bundle for one in feeder.given.values())
        _check(running == bundle.running, f"{running} tasks of a bundle run, counted {bundle.running}")


def _inputs(feeder: RowFeeder) -> None:
    """States, books and counts of inputs agree."""
    inputs, ledger = feeder.inputs, feeder.ledger
    states = [one.state for one in inputs.inputs.values()]
    _check(inputs.opening == states.count(InputState.OPENING), "openings miscounted")
    for number, one in inputs.inputs.items():
        where = number in ledger.books, number in ledger.unopened, number in ledger.failed_inputs
        _check(sum(where) == 1, f"input {number} ({one.state.name}): opened, unopened, failed {where}")
    _check(inputs.unopened == len(ledger.unopened), "unopened inputs miscounted")


def _progress(scheduler: Scheduler) -> None:
    """A run that is not at its end waits for something that will come."""
    feeder = scheduler.feeder
    if scheduler.status in ("complete", "incomplete") and feeder is not None:
        _check(feeder.complete is not None, "the run ended, and rows are missing")
    if scheduler.finished:
        return
    asked = any(node.state is TaskState.DELAYED or node.publishing for node in scheduler.graph.open.values())
    asked = asked or (feeder is not None and not all(one.wants_plan(due=True) for one in feeder.accounts.values()))
    under_way = scheduler.queues.attempts or scheduler.outputs.fetching or asked or not scheduler.closed
    if not scheduler.workers.alive:
        _check(scheduler.workers.no_workers_failure() is None, "nobody is left, and the run has not ended")
    alive = scheduler.workers.alive.values()
    usable = (
        alive and all(worker.open for worker in alive) and not scheduler.workers.starting
    )  # one that ends comes back fresh
    _check(bool(under_way) or not usable, "nothing is under way, and the run has not ended")
