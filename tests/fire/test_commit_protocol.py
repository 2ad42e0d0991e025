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
from windrow.core.parts import Parts
from windrow.core.records import EvaluateUnit, Handle, RunRows
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.errors import WindrowError
from windrow.reuse.coverage import Portion, Reuse
from windrow.store.journal import journal as journal_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.core import events as happened
    from windrow.core.inputs import Input
    from windrow.core.partials import Bundle
    from windrow.core.parts import SplitUnit
    from windrow.core.records import Made, Rows, Task
    from windrow.reuse.coverage import Covered
    from windrow.store.journal.journal import Blob

RUNS, MANY_RUNS = 2_000, 20_000
#: A check is no judge of what it never sees.
HAPPENS = (
    "complete", "cancelled", "copies", "drained", "hung", "killed", "repeated", "driver killed",
    "killed at the disk", "taken over", "OpenInput", "RunRows", "MergePartials", "EvaluateUnit", "given back", "Fetch", "Discard", "Cancel", "Recall",
)  # fmt: skip
#: Runs within which a version with a rule removed must be found wrong.
NOTICED_WITHIN = 1_000


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


class Impatient(Parts):
    """Evaluates a unit from the parts that are there."""

    def keep(self, one: Input, made: Made, rows: Rows, skipped: Any) -> Task | None:
        task = super().keep(one, made, rows, skipped)
        return task or self.evaluate(self.where[made.output])

    def evaluated(self, task: Task, skipped: Any) -> Input:
        unit = self.where[task.reads[0]]
        later = {name: rows for name, rows in unit.outputs.items() if name not in task.reads}
        unit.outputs = {name: rows for name, rows in unit.outputs.items() if name in task.reads}
        one = super().evaluated(task, skipped)
        for name, rows in later.items():
            self.unit(one, rows).outputs[name] = rows
            self.where[name] = self.unit(one, rows)
        return one


class Forgotten(Parts):
    """Lets the parts of a unit go when its evaluation is sent."""

    def evaluate(self, unit: SplitUnit) -> Task:
        task = super().evaluate(unit)
        rows = [part for output in unit.outputs for part in self._ledger.held.pop(output)]
        self._ledger.held[task.makes[0]] = tuple(sorted(rows))
        self.where[task.makes[0]] = unit
        return task

    def evaluated(self, task: Task, skipped: Any) -> Input:
        unit = self.where.pop(task.makes[0])
        self._drop(unit)
        return unit.input

    def lost(self, output: str) -> tuple[Rows, ...]:
        unit = self.where.pop(output)
        rows = unit.outputs.pop(output)
        unit.missing += rows.stop - rows.start
        unit.task = None
        return ()


def with_parts(parts: type[Parts]) -> type[RowFeeder]:
    """Make a feeder of rows with another rule for parts of units."""

    class Other(RowFeeder):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.parts.__class__ = parts

    return Other


class CountsParts(RowFeeder):
    """Takes a part of a unit for its partial."""

    def ended(self, task: Task, event: happened.Finished) -> bool:
        payload = task.payload
        if isinstance(payload, RunRows) and payload.part:
            task = task._replace(payload=payload._replace(part=False))
        return super().ended(task, event)


class KeepsEvaluating(RowFeeder):
    """Goes on with the evaluation of a unit of which a part was lost: a worker may have got that already."""

    def _lose_part(self, output: str) -> tuple[Rows, ...]:
        task = self.parts.where[output].task
        rows = self.parts.lost(output)
        if task is not None:
            self.late[task.id] = output
        return rows

    def _evaluated(self, task: Task, event: happened.Finished) -> bool:
        if task.id in self.late and self.late[task.id] not in self.ledger.held:
            held = [part for one in task.reads for part in self.ledger.held.pop(one, ())]
            self.ledger.held[task.makes[0]] = tuple(held)
            one = self.inputs.inputs[task.payload.rows[0].input]
            self.partials.keep(self.partials.bundle(event.life, one), task.makes[0], 0)
            return True
        return super()._evaluated(task, event)

    @property
    def late(self) -> dict[int, str]:
        """By evaluation: the part that it has lost."""
        return self.__dict__.setdefault("_late", {})  # type: ignore[no-any-return]


class EvaluatesOnce(RowFeeder):
    """Leaves a unit alone whose evaluation was lost with its worker."""

    def returned(self, task: Task) -> None:
        if isinstance(task.payload, EvaluateUnit) and not self._stopped:
            del self.given[task.id]
        else:
            super().returned(task)


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
    "a part counts as a partial": Rules(feeder=CountsParts),
    "a unit is evaluated before all its parts are there": Rules(feeder=with_parts(Impatient)),
    "parts are released when their evaluation is sent": Rules(feeder=with_parts(Forgotten)),
    "an evaluation goes on without a part that was lost": Rules(feeder=KeepsEvaluating),
    "an evaluation that is lost is not done again": Rules(feeder=EvaluatesOnce),
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
