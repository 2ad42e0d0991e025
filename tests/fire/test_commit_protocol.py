"""Model check of the commit protocol: random interleavings, losses and deaths of the driver; every row counts once.

Seeds are plain numbers: ``live(seed)`` repeats a failure.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fire.commit_disk import ModelJournal
from fire.commit_model import Rules, divide_rows, live
from windrow.core import commands as orders
from windrow.core.intervals import Intervals
from windrow.core.partials import Partials
from windrow.core.records import Handle, RunRows
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.errors import WindrowError
from windrow.reuse.coverage import Portion, Reuse
from windrow.store.journal import journal as journal_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.core import events as happened
    from windrow.core.partials import Bundle
    from windrow.core.records import Rows
    from windrow.reuse.coverage import Covered
    from windrow.store.journal.journal import Blob

RUNS, MANY_RUNS = 2_000, 20_000
#: A check is no judge of what it never sees.
HAPPENS = (
    "complete", "cancelled", "copies", "drained", "hung", "killed", "repeated", "driver killed",
    "killed at the disk", "taken over", "OpenInput", "RunRows", "MergePartials", "Fetch", "Discard", "Cancel", "Recall",
)  # fmt: skip
#: Runs within which a version with a rule removed must be found wrong.
NOTICED_WITHIN = 500


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


class TakesEverything(Scheduler):
    """Counts a partial that arrives although nobody waits for it any more."""

    def _held(self, event: happened.Held) -> None:
        output = self.graph.outputs.get(event.handle.output)
        if output is None or output.attempt != event.handle.attempt:
            rows = self.made.get(event.handle)
            if rows is not None:
                self.batch.out.append(orders.Take(event.handle, rows, True))
        else:
            super()._held(event)

    def _finished(self, event: happened.Finished) -> None:
        attempt = self.queues.attempts.get(event.attempt)
        if attempt is not None and isinstance(attempt.node.task.payload, RunRows):
            for one in event.made:
                self.made[Handle(one.output, event.attempt)] = attempt.node.task.payload.rows
        super()._finished(event)

    @property
    def made(self) -> dict[Handle, tuple[Rows, ...]]:
        """The rows of partials."""
        return self.__dict__.setdefault("_rows_of_partials", {})  # type: ignore[no-any-return]


class AcceptsEverything(TakesEverything):
    """Takes the result of a twin that was not the first, too."""

    def _finished(self, event: happened.Finished) -> None:
        attempt = self.queues.attempts.get(event.attempt)
        unwanted = attempt is not None and attempt.void and attempt.life == event.life
        super()._finished(event)
        if unwanted:
            self.batch.out[:] = [one for one in self.batch.out if not isinstance(one, orders.Discard)]
            for one in event.made:
                self.batch.out.append(orders.Fetch(Handle(one.output, event.attempt), event.life))


class NoFence(TakesEverything):
    """Takes a report of a worker's former life for one of its present life: its rows count as done."""

    def _finished(self, event: happened.Finished) -> None:
        worker = self.workers.alive.get(event.life.worker)
        former = worker is not None and worker.life.incarnation > event.life.incarnation
        rows = self.launched.get(event.attempt)
        if former and rows is not None and isinstance(self.feeder, RowFeeder):
            ledger = self.feeder.ledger
            if ledger.accept(f"believed {event.attempt}", rows):
                ledger.settle(f"believed {event.attempt}")
        super()._finished(event)

    def on(self, events: Any, now: float) -> Any:
        commands = super().on(events, now)
        for one in commands:
            if isinstance(one, orders.Launch) and isinstance(one.task.payload, RunRows):
                self.launched[one.attempt] = one.task.payload.rows
        return commands

    @property
    def launched(self) -> dict[int, tuple[Rows, ...]]:
        """The rows of attempts."""
        return self.__dict__.setdefault("_rows_of_attempts", {})  # type: ignore[no-any-return]


class Forgetful(Partials):
    """Releases the inputs of a merge when it is sent."""

    def _merge(self, bundle: Bundle, outputs: list[str], level: int) -> None:
        super()._merge(bundle, outputs, level)
        number = max(bundle.merging)
        rows = [part for output in outputs for part in self._ledger.held.pop(output)]
        self._ledger.held[f"merge {number}"] = tuple(sorted(rows))
        bundle.merging[number] = level, (f"merge {number}",)

    def merge_failed(self, task: Any) -> Any:
        bundle = self.merges.pop(task.id)
        bundle.merging.pop(task.id)
        return bundle, []


class MergesTooEarly(RowFeeder):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.partials.__class__ = Forgetful


class CommitsTooEarly(ModelJournal):
    """Says that a blob is there before it is."""

    def write(
        self,
        input: str,  # noqa: A002 - what it is
        products: Sequence[str],
        rows: Iterable[tuple[int, int]],
        content: Sequence[bytes | memoryview],
        supersedes: Sequence[int] = (),
    ) -> Blob:
        blob = super().write(input, products, rows, [b"not yet"], supersedes)
        whole = b"".join(content)
        digest = journal_module._digest(whole)
        sealed = journal_module._seal(
            blob.id,
            blob.input,
            journal_module._plain(blob.products),
            journal_module._plain(blob.rows),
            len(whole),
            digest,
        )
        with self._writing():
            facts = (len(whole), digest, sealed, blob.id)
            self._connection.execute("UPDATE blobs SET bytes = ?, digest = ?, seal = ? WHERE id = ?", facts)
        with self._writing():
            self._connection.execute("UPDATE pieces SET content = ? WHERE blob = ?", (whole, blob.id))
        return replace(blob, bytes=len(whole), digest=digest)


def ignoring_coverage(rows: int, products: frozenset[str], blobs: Sequence[Covered]) -> Reuse:
    """Takes over what is there, and does everything again."""
    used = divide_rows(rows, products, blobs).used
    return Reuse(used, (Portion(products, ((0, rows),)),))


def overlapping(rows: int, products: frozenset[str], blobs: Sequence[Covered]) -> Reuse:
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
    "inputs of a merge are released when it is sent": Rules(feeder=MergesTooEarly),
    "whatever arrives is taken": Rules(scheduler=TakesEverything),
    "the commit comes before the blob": Rules(journal=CommitsTooEarly),
    "resuming ignores what is covered": Rules(divide=ignoring_coverage),
    "resuming looks at rows and not at products": Rules(divide=overlapping),
}


@pytest.mark.parametrize("rule", WITHOUT)
def test_without_a_rule_the_check_fails(rule: str) -> None:
    for seed in range(NOTICED_WITHIN):
        try:
            live(seed, WITHOUT[rule])
        except (AssertionError, WindrowError, KeyError, ValueError) as error:
            story = f"{type(error).__name__}: {str(error)[:150]}"
            sys.stdout.write(f"\n{rule}: noticed in run {seed}: {story}\n")
            return
    raise AssertionError(f"{rule}: {NOTICED_WITHIN} runs did not notice")
