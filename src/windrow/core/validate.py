"""Every invariant of the scheduler, recomputed from scratch; run after each batch in tests.

It looks at everything and so takes time in proportion to the run; it changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.crew import MAX_WINDOW
from windrow.core.intervals import Intervals
from windrow.core.records import Rows
from windrow.core.state import Feed
from windrow.core.transitions import AttemptState, InputState
from windrow.core.validate_tasks import validate_tasks
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.core.scheduler import Scheduler
    from windrow.core.state import Attempt

__all__ = ["validate"]


def validate(scheduler: Scheduler) -> None:
    """Raise InternalError with the story if an invariant does not hold."""
    _rows(scheduler)
    _books(scheduler)
    _handles(scheduler)
    _workers(scheduler)
    _attempts(scheduler)
    _inputs(scheduler)
    _progress(scheduler)
    validate_tasks(scheduler)


def _check(holds: bool, story: str) -> None:
    if not holds:
        raise InternalError(story)


def _sum(rows: Iterable[Rows]) -> int:
    return sum(part.stop - part.start for part in rows)


def _owners(scheduler: Scheduler) -> list[Attempt]:
    """List the attempts that have rows; of two with the same rows the first."""
    return [
        attempt
        for attempt in scheduler.crew.attempts.values()
        if not attempt.void and (attempt.twin is None or attempt.id < attempt.twin.id)
    ]


def _rows(scheduler: Scheduler) -> None:
    """Every row of the run is in exactly one place."""
    ledger = scheduler.ledger
    places: dict[int, Intervals] = {input_id: Intervals() for input_id, _ in ledger.books}

    def put(parts: Iterable[Rows], place: str) -> None:
        for part in parts:
            _check(places[part.input].add(part.start, part.stop), f"{part} is {place} and elsewhere")

    for feed in scheduler.intake.feeds.values():
        put(feed.cutter.waiting(), "waiting")
    for attempt in _owners(scheduler):
        put(attempt.task.inputs, f"in attempt {attempt.id}")
    retries = [*scheduler.placement.ready]
    retries += [what for _, _, what in scheduler.delays.heap if not isinstance(what, Feed)]
    for task, _ in retries:
        put(task.inputs, f"in task {task.id}, to be tried again,")
    for handle in ledger.held.values():
        put(handle.rows, f"held in {handle.id}")
    for (input_id, output), book in ledger.books.items():
        for entry in ledger.account(input_id, output):
            if entry.state in ("done", "failed"):
                put([Rows(input_id, entry.start, entry.stop or 0)], entry.state)
        found, wanted = list(places[input_id]), list(book.everything)
        _check(found == wanted, f"input {input_id} should have rows {wanted} and has {found}")


def _books(scheduler: Scheduler) -> None:
    """What is held or failed is taken, once, and all counters agree."""
    ledger = scheduler.ledger
    owned = {key: Intervals(book.failed) for key, book in ledger.books.items()}
    for handle in ledger.held.values():
        for part in handle.rows:
            free = owned[part.input, handle.output].add(part.start, part.stop)
            _check(free, f"{part} is held in {handle.id}, and held or failed elsewhere")
    closed = 0
    for key, book in ledger.books.items():
        loose = [gap for part in owned[key] for gap in book.taken.gaps(*part)]
        _check(not loose, f"book {key}: {loose} are held or failed, but not taken")
        outside = [gap for part in book.taken for gap in book.everything.gaps(*part)]
        _check(not outside, f"book {key}: {outside} are taken, but not of the run")
        done = book.taken.total - owned[key].total
        _check(done == book.done, f"book {key} counts {book.done} rows done, but {done} are")
        closed += done + book.failed.total == book.everything.total
    books = ledger.books.values()
    counters = {
        "known": (ledger.known_rows, sum(book.everything.total for book in books)),
        "done": (ledger.done_rows, sum(book.done for book in books)),
        "failed": (ledger.failed_rows, sum(book.failed.total for book in books)),
        "held": (ledger.held_rows, sum(_sum(h.rows) for h in ledger.held.values())),
        "closed": (ledger.closed_inputs, closed),
        "failed rows listed": (
            sum(_sum(f.rows for f in listed) for listed in ledger.failures.values()),
            sum(book.failed.total for book in books),
        ),
        "uncut": (scheduler.intake.uncut, sum(_sum(feed.cutter.waiting()) for feed in scheduler.intake.feeds.values())),
        "running": (scheduler.crew.running_rows, sum(_sum(a.task.inputs) for a in _owners(scheduler))),
    }
    for name, (counted, found) in counters.items():
        _check(counted == found, f"the counter {name!r} is {counted}, but there are {found}")
    _categories(scheduler)


def _categories(scheduler: Scheduler) -> None:
    """What is left is counted by category as it is."""
    intake, crew = scheduler.intake, scheduler.crew
    for category, counted in intake.waiting().items():
        feeds = [feed for feed in intake.feeds.values() if feed.spec.category == category]
        uncut = sum(_sum(feed.cutter.waiting()) for feed in feeds)
        unopened = sum(feed.spec.id in scheduler.ledger.unopened for feed in feeds)
        attempts = [one for one in _owners(scheduler) if one.task.category == category]
        running = sum(_sum(one.task.inputs) for one in attempts)
        counts = (*counted, crew.rows_of(category))
        _check(
            counts == (uncut, unopened, running),
            f"of {category!r} are uncut, unopened and running {(uncut, unopened, running)}, counted {counts}",
        )


def _handles(scheduler: Scheduler) -> None:
    """Every held handle is kept by a living worker, in exactly one place."""
    kept: list[int] = []
    merging: list[int] = []
    fetching: list[int] = []
    for worker in scheduler.crew.workers.values():
        for input_id, bundle in worker.bundles.items():
            _check(bundle.feed.bundles.get(worker.id) is bundle, "a bundle its input does not know")
            handles = bundle.handles()
            for handle in handles:
                _check(
                    (handle.worker, handle.incarnation) == (worker.id, worker.incarnation)
                    and all(part.input == input_id for part in handle.rows),
                    f"{handle} is kept by worker {worker.id}, input {input_id}",
                )
            kept += [handle.id for handle in handles]
            merging += bundle.merging
            fetching += bundle.fetching
            running = sum(a.bundle is bundle and not a.void for a in worker.attempts.values())
            _check(running == bundle.running, f"{running} attempts, counted {bundle.running}")
    _check(sorted(merging) == sorted(scheduler.merger.merging), "merges disagree")
    _check(sorted(fetching) == sorted(scheduler.merger.fetching), "fetches disagree")
    held = sorted(scheduler.ledger.held)
    _check(sorted(kept) == held, f"handles {held} are held, but workers keep {sorted(kept)}")


def _workers(scheduler: Scheduler) -> None:
    """No worker has more than it may, and the index finds each where it is."""
    crew = scheduler.crew
    for worker in crew.workers.values():
        jobs = len(worker.attempts) + len(worker.inspecting)
        _check(
            worker.busy == jobs <= MAX_WINDOW,
            f"worker {worker.id} has {jobs} jobs, counted {worker.busy}, at most {MAX_WINDOW}",
        )
        at = [level for level, workers in enumerate(crew.levels) if worker.id in workers]
        _check(at == ([jobs] if worker.usable else []), f"worker {worker.id} with {jobs} jobs is at levels {at}")
        for feed in worker.inspecting.values():
            _check(feed.inspector is worker, f"input {feed.spec.id} is inspected by another")
    _check(sum(map(len, crew.levels)) <= len(crew.workers), "the levels hold a worker that left")
    draining = [worker.id for worker in crew.workers.values() if worker.drain is not None]
    _check(sorted(draining) == sorted(scheduler.staff.draining), "drained workers disagree")


def _attempts(scheduler: Scheduler) -> None:
    """Attempts are where they are looked for, and at most two have the same rows."""
    crew = scheduler.crew
    found = [one for worker in crew.workers.values() for one in worker.attempts.values()]
    _check(set(found) == set(crew.attempts.values()), "workers have other attempts than the crew")
    void = sum(attempt.void for attempt in found)
    _check(void == crew.void, f"{void} attempts that nobody waits for, counted {crew.void}")
    for attempt in crew.attempts.values():
        twin = attempt.twin
        _check(
            twin is None
            or (
                twin.twin is attempt
                and twin.task == attempt.task
                and twin.worker is not attempt.worker
                and twin.key in crew.attempts
                and not attempt.void
            ),
            f"attempts {attempt.id} and {twin.id if twin else ''} disagree about what they share",
        )
        _check(
            attempt.state <= AttemptState.CANCELLING and crew.workers.get(attempt.worker.id) is attempt.worker,
            f"attempt {attempt.id} has ended or lost its worker, yet is live",
        )


def _inputs(scheduler: Scheduler) -> None:
    """States, books and counts of inputs agree."""
    intake, ledger = scheduler.intake, scheduler.ledger
    states = [feed.state for feed in intake.feeds.values()]
    _check(intake.inspecting == states.count(InputState.INSPECTING), "inspections miscounted")
    for feed in intake.feeds.values():
        opened = (feed.spec.id, "") in ledger.books
        unopened = feed.spec.id in ledger.unopened
        failed = feed.spec.id in ledger.failed_inputs
        _check(
            opened + unopened + failed == 1,
            f"input {feed.spec.id} ({feed.state.name}): opened {opened}, unopened {unopened}, failed {failed}",
        )
        _check(
            (feed.inspector is not None) == (feed.state is InputState.INSPECTING),
            f"input {feed.spec.id} is {feed.state.name} and inspected by {feed.inspector}",
        )
    _check(intake.unopened == len(ledger.unopened), "unopened inputs miscounted")


def _progress(scheduler: Scheduler) -> None:
    """A run that is not at its end waits for something that will come."""
    if scheduler.status in ("complete", "incomplete"):
        _check(scheduler.ledger.accounted, "the run ended, and rows are missing")
    if scheduler.finished:
        return
    crew, merger, intake = scheduler.crew, scheduler.merger, scheduler.intake
    under_way = (
        crew.attempts
        or merger.merging
        or merger.fetching
        or intake.inspecting
        or scheduler.delays.heap
        or scheduler.tasks.under_way
    )
    if not scheduler.crew.workers:
        _check(scheduler.staff.deserted() is None, "nobody is left, and the run has not ended")
    usable = any(worker.usable for worker in crew.workers.values())
    _check(bool(under_way) or not usable, "nothing is under way, and the run has not ended")
