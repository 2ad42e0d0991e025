"""Model check of the commit protocol: random interleavings, losses and deaths of the driver; every row counts once.

Seeds are plain numbers: ``live(seed)`` repeats a failure.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from fire.commit_disk import ModelJournal, pretended_disk, remove_blobs, write_blob
from fire.commit_model import Rules, divide_rows, live
from windrow.core import commands as orders
from windrow.core.intervals import Intervals
from windrow.core.ledger import Ledger
from windrow.core.merger import Merger
from windrow.core.scheduler import Scheduler
from windrow.errors import WindrowError
from windrow.reuse.coverage import Portion, Reuse
from windrow.store.journal import Blob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windrow.core import events as happened
    from windrow.core.commands import Command
    from windrow.core.records import Handle
    from windrow.core.state import Bundle
    from windrow.reuse.coverage import Covered

RUNS, MANY_RUNS = 2_000, 20_000
#: A check is no judge of what it never sees.
HAPPENS = (
    "complete", "cancelled", "copies", "drained", "hung", "killed", "repeated", "driver killed",
    "killed at the disk", "rows moved", "taken over", "Merge", "Fetch", "Discard", "Cancel", "Shrink",
)  # fmt: skip
#: Runs within which a version with a rule removed must be found wrong.
NOTICED_WITHIN = 500


@pytest.fixture(autouse=True)
def disk() -> Iterator[None]:
    with pretended_disk():
        yield


def check(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        try:
            seen += live(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    said = ", ".join(f"{n:,} {what}" for what, n in sorted(seen.items()))
    sys.stdout.write(f"\n{len(seeds):,} runs, 0 wrong ({said})\n")
    return seen


def test_every_row_counts_once() -> None:
    check(range(RUNS // 5))


@pytest.mark.slow
def test_everything_that_can_happen_happens_and_every_row_counts_once() -> None:
    seen = check(range(RUNS))
    assert [what for what in HAPPENS if not seen[what]] == []


@pytest.mark.fire
def test_every_row_counts_once_in_many_more_runs() -> None:
    check(range(RUNS, RUNS + MANY_RUNS))


# -- one rule removed --------------------------------------------------------------------------------


class Trusting(Ledger):
    """Lets anybody own rows."""

    def accept(self, handle: Handle, skipped: Any = ()) -> bool:
        taken = self._book(handle).taken
        for _, start, stop in handle.rows:
            for gap in taken.gaps(start, stop):
                taken.add(*gap)
            self.held_rows += stop - start
        self.held[handle.id] = handle
        return True


class AcceptsEverything(Scheduler):
    """Does not look who owns the rows of a result: neither for twins nor in the ledger."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.ledger.__class__ = Trusting
        self.crew.dismiss = self.crew.cancel  # type: ignore[method-assign]


class NoFence(Scheduler):
    """Takes a report of a worker's former life for one of its present life."""

    def _finished(self, event: happened.Finished) -> None:
        worker = self.crew.workers.get(event.worker)
        former = worker is not None and worker.incarnation > event.incarnation
        if worker is not None and former and self.ledger.accept(event.handle):
            feed = self.intake.feeds[event.handle.rows[0].input]
            self.merger.keep(self.merger.bundle(worker, feed), event.handle, 0, self._out)
        else:
            super()._finished(event)


class Forgetful(Merger):
    """Releases the inputs of a merge when it is sent."""

    def _merge(self, bundle: Bundle, handles: list[Handle], level: int, out: list[Command]) -> None:
        super()._merge(bundle, handles, level, out)
        number = max(bundle.merging)
        _, into, inputs = bundle.merging[number]
        self._ledger.replace([one.id for one in inputs], into)
        bundle.merging[number] = level, into, ()


class MergesTooEarly(Scheduler):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.merger.__class__ = Forgetful


class TakesEverything(Scheduler):
    """Counts a partial that arrives although nobody waits for it any more."""

    def _fetched(self, event: happened.Fetched) -> None:
        if not self.merger.fetched(event.handle, event.seconds, self._out):
            self._out.append(orders.Take(event.handle))


class RemovesTooEarly(ModelJournal):
    """Removes what is superseded before the new blob is committed."""

    def write(self, *given: Any, **named: Any) -> Blob:
        remove_blobs(self._disk, given[4])
        return super().write(*given, **named)


class CommitsTooEarly(ModelJournal):
    """Says that a blob is there before it is."""

    def write(
        self,
        input: str,  # noqa: A002 - what it is
        products: Sequence[str],
        rows: Sequence[tuple[int, int]],
        content: Sequence[bytes | memoryview],
        supersedes: Sequence[int] = (),
    ) -> Blob:
        wanted = self._wanted(input, tuple(products), rows, supersedes)
        number, self._next = self._next, self._next + 1
        whole = b"".join(content)
        digest = hashlib.sha256(whole).hexdigest()
        blob = Blob(number, input, wanted.products, wanted.rows, len(whole), digest)
        with self._transaction():
            self._insert(blob)
            self._delete(supersedes)
        write_blob(self._disk, number, content)
        remove_blobs(self._disk, supersedes)
        return blob


class CommitsInTwo(ModelJournal):
    """Deletes what is superseded in a transaction of its own, after the other."""

    def write(self, *given: Any, **named: Any) -> Blob:
        later: list[Sequence[int]] = []
        self._delete = later.append  # type: ignore[method-assign,assignment]
        try:
            blob = super().write(*given, **named)
        finally:
            del self._delete
        with self._transaction():
            self._delete(given[4])
        return blob


def ignoring_coverage(rows: int, borders: tuple[int, ...], products: frozenset[str], blobs: Sequence[Covered]) -> Reuse:
    """Takes over what is there, and does everything again."""
    used = divide_rows(rows, borders, products, blobs).used
    return Reuse(used, (Portion(products, ((0, rows),)),))


def overlapping(rows: int, borders: tuple[int, ...], products: frozenset[str], blobs: Sequence[Covered]) -> Reuse:
    """Takes over every blob for all of its products, wanted or not, and looks at rows alone."""
    free = Intervals()
    for blob in blobs:
        for start, stop in blob.rows:
            for gap in free.gaps(start, stop):
                free.add(*gap)
    left = tuple(free.gaps(0, rows))
    used = {blob.id: blob.products for blob in blobs}
    return Reuse(used, (Portion(products, left),) if left else ())


WITHOUT = {
    "results are accepted whoever owns the rows": Rules(scheduler=AcceptsEverything),
    "former lives are believed": Rules(scheduler=NoFence),
    "inputs of a merge are released when it is sent": Rules(scheduler=MergesTooEarly),
    "whatever arrives is taken": Rules(scheduler=TakesEverything),
    "superseded blobs are removed before the commit": Rules(journal=RemovesTooEarly),
    "the commit comes before the blob": Rules(journal=CommitsTooEarly),
    "the commit is two": Rules(journal=CommitsInTwo),
    "resuming ignores what is covered": Rules(divide=ignoring_coverage),
    "resuming looks at rows and not at products": Rules(divide=overlapping),
}


@pytest.mark.parametrize("rule", WITHOUT)
def test_without_a_rule_the_check_fails(rule: str) -> None:
    for seed in range(NOTICED_WITHIN):
        try:
            live(seed, WITHOUT[rule])
        except (AssertionError, WindrowError, KeyError) as error:
            story = f"{type(error).__name__}: {str(error)[:150]}"
            sys.stdout.write(f"\n{rule}: noticed in run {seed}: {story}\n")
            return
    raise AssertionError(f"{rule}: {NOTICED_WITHIN} runs did not notice")
