"""Partials of rows: when they are merged where they were made, and when they are brought to the driver.

Partials of one worker and one input, or a family of neighbouring inputs, form a bundle. Eight of them are merged into one,
eight of those into the next, so that the cost of a set of rows grows with the logarithm of their number; when nothing more
is to come the rest is merged, and the last one is brought. Where workers can be lost, what a bundle has is also brought in
between, when the safety decision says so. A merge works in place, so that its failure returns the rows of all that it was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from windrow.core.policies import RECENT, AtTheEnd
from windrow.core.records import MergePartials, Task

if TYPE_CHECKING:
    from windrow.core.inputs import Family, Input
    from windrow.core.ledger import Ledger
    from windrow.core.policies import SafetyPolicy
    from windrow.core.records import Life, Needs, Rows
    from windrow.core.scheduler import Scheduler

#: Partials merged at once. Each merge is a task, so more is cheaper for the driver; but the partials wait in memory
#: until then.
FAN_IN = 8

#: Partials of more bytes are merged when there are two: what waits takes memory from what runs.
LARGE_BYTES = 16_000_000

#: In place of the number of merges that a merged partial went through: it is brought at once.
TO_BRING = -1


class Bundle:
    """What one worker has of one input, or of a family of them: tasks that run and partials that are kept."""

    __slots__ = ("bringing", "family", "input", "kept", "large", "life", "merging", "running", "unsafe_s")

    def __init__(self, life: Life, one: Input) -> None:
        self.life = life
        self.family = one.family
        self.input = one  #: the latest of them
        self.large = False  #: a partial was
        self.running = 0  #: tasks that were cut for this worker and may still add a partial
        #: partials that are neither being merged nor brought, by how many merges they went through
        self.kept: list[dict[str, None]] = [{}]
        self.merging: dict[int, tuple[int, tuple[str, ...]]] = {}  #: by task: merges then gone through, its inputs
        self.bringing: dict[str, None] = {}
        self.unsafe_s = 0.0  #: seconds of work in partials that nobody began to bring

    @property
    def empty(self) -> bool:
        return not (self.running or self.merging or self.bringing or any(self.kept))


class Partials:
    """All bundles of a run."""

    def __init__(self, ledger: Ledger, safety: SafetyPolicy, needs: Needs, next_task: Callable[[], int]) -> None:
        self.bundles: dict[int, dict[Life, Bundle]] = {}  #: by family and worker
        self.where: dict[str, Bundle] = {}  #: by output: who keeps it or has it brought
        self.merges: dict[int, Bundle] = {}  #: by task
        self.no_more = False  #: the run is ending: nothing is to come for any bundle
        self.closed: set[Life] = set()  #: workers that get no more rows
        self.dead: set[Life] = set()  #: those of them that are gone
        self.desk: Scheduler
        self._ledger = ledger
        self._safety = None if isinstance(safety, AtTheEnd) else safety
        self._bring_s: dict[str, float] = {}  #: by category: what bringing a partial took
        self._needs = needs
        self._next_task = next_task

    def bundle(self, life: Life, one: Input) -> Bundle:
        bundles = self.bundles.get(one.family.id)
        if bundles is None:
            bundles = self.bundles[one.family.id] = {}
        bundle = bundles.get(life)
        if bundle is None:
            bundle = bundles[life] = Bundle(life, one)
        bundle.input = one
        return bundle

    def all(self, life: Life | None = None) -> list[Bundle]:
        return [one for found in self.bundles.values() for one in found.values() if life in (None, one.life)]

    def keep(self, bundle: Bundle, output: str, level: int, seconds: float = 0.0, size: int = 0) -> None:
        if level == len(bundle.kept):
            bundle.kept.append({})
        bundle.kept[level][output] = None
        bundle.unsafe_s += seconds
        bundle.large |= size > LARGE_BYTES
        self.where[output] = bundle
        self.review(bundle, level)

    def review(self, bundle: Bundle, level: int = 0) -> None:
        """Do what is due for a bundle after a level of it, or the rows left to cut, changed."""
        more = bundle.running or (not self.no_more and bundle.family.more)
        if more and (not self.closed or bundle.life not in self.closed):
            if len(bundle.kept[level]) >= (2 if bundle.large else FAN_IN):
                outputs, bundle.kept[level] = bundle.kept[level], {}
                self._merge(bundle, list(outputs), level + 1)
            elif self._safety is not None and not bundle.merging and self._is_due(bundle):
                self._gather(bundle)
            elif bundle.running or bundle.kept[level]:
                return
        elif not bundle.merging:  # else its end leads here again
            self._gather(bundle)
        self._drop_if_empty(bundle)

    def _drop_if_empty(self, bundle: Bundle) -> None:
        bundles = self.bundles.get(bundle.family.id)
        if bundles is not None and bundle.empty:
            bundles.pop(bundle.life, None)
            if not bundles:
                del self.bundles[bundle.family.id]

    def review_input(self, one: Input) -> None:
        for bundle in list(self.bundles.get(one.family.id, {}).values()):
            self.review(bundle)

    def close(self, life: Life) -> None:
        """A worker gets no more rows: what it keeps is brought away."""
        self.closed.add(life)
        for bundle in self.all(life):
            self.review(bundle)

    def _is_due(self, bundle: Bundle) -> bool:
        assert self._safety is not None
        cost_s = self._bring_s.get(bundle.input.spec.category)
        return self._safety.due(bundle.unsafe_s, cost_s, self.desk.workers.mean_life_s(self.desk.batch.now))

    def _gather(self, bundle: Bundle) -> None:
        outputs = [output for kept in bundle.kept for output in kept]
        bundle.kept = [{} for _ in bundle.kept]
        bundle.unsafe_s = 0.0
        if len(outputs) > 1 and bundle.life not in self.dead:
            self._merge(bundle, outputs, TO_BRING)
        else:
            self._bring(bundle, outputs)

    def _bring(self, bundle: Bundle, outputs: list[str]) -> None:
        bundle.bringing.update(dict.fromkeys(outputs))
        for output in outputs:
            self.where[output] = bundle
        for output in outputs:
            self.desk.want(output)

    def _merge(self, bundle: Bundle, outputs: list[str], level: int) -> None:
        held = self._ledger.held
        outputs.sort(key=held.__getitem__)
        number, spec = self._next_task(), bundle.input.spec
        task = Task(
            number,
            spec.category,
            0,
            MergePartials(spec.id, self._whole(bundle.family, outputs)),
            reads=tuple(outputs),
            makes=(f"merge {number}",),
            consumes=True,
            needs=self._needs,
            pin=bundle.life,
        )
        if not self.desk.has_room(task, bundle.life):  # the driver has, which puts results aside
            self._bring(bundle, outputs)
            return
        bundle.merging[number] = level, task.reads
        self.merges[number] = bundle
        for output in outputs:
            del self.where[output]
        self.desk.submit(task)

    def _whole(self, family: Family, outputs: list[str]) -> tuple[tuple[int, int, int], ...]:
        """Name the inputs of a family, if there are several, of which all rows are in some partials."""
        if len(family.inputs) == 1:
            return ()
        ledger, places = self._ledger, {one.spec.id: one.place for one in family.inputs}
        rows: Counter[int] = Counter()
        for number, start, stop in [part for output in outputs for part in ledger.held[output]]:
            rows[number] += stop - start
        whole = [number for number, size in rows.items() if size == ledger.books[number].everything.total]
        return tuple((number, places[number], ledger.last_row(number)) for number in whole)

    # -- what becomes of them

    def merged(self, task: Task) -> None:
        bundle = self.merges.pop(task.id)
        level, outputs = bundle.merging.pop(task.id)
        (into,) = task.makes
        self._ledger.replace(outputs, into)
        if level == TO_BRING:
            self._bring(bundle, [into])
            self.review(bundle)
        else:
            self.keep(bundle, into, level)

    def merge_failed(self, task: Task) -> tuple[Bundle, list[Rows]]:
        """A merge came to nothing, and its inputs are gone; return their rows, which have no owner now."""
        bundle = self.merges.pop(task.id)
        _, outputs = bundle.merging.pop(task.id)
        rows: list[Rows] = []
        for output in outputs:
            rows += self._ledger.release(output)
            self.desk.release(output)
        return bundle, rows

    def taken(self, output: str, seconds: float) -> None:
        bundle = self.where.pop(output)
        del bundle.bringing[output]
        self._ledger.settle(output)
        category = bundle.input.spec.category
        known = self._bring_s.get(category, seconds)
        self._bring_s[category] = known + RECENT * (seconds - known)
        self.desk.release(output)
        self.review(bundle)

    def lost(self, output: str) -> tuple[Rows, ...]:
        """A partial is gone; return its rows, which have no owner now."""
        bundle = self.where.pop(output, None)
        if bundle is not None:
            bundle.bringing.pop(output, None)
            for kept in bundle.kept:
                kept.pop(output, None)
            self._drop_if_empty(bundle)
        return self._ledger.release(output)

    def losing(self, life: Life) -> None:
        """A worker is gone: nothing is merged there any more."""
        self.closed.add(life)
        self.dead.add(life)

    def left(self, life: Life) -> None:
        """A worker is gone; partials that other workers hold are brought from there."""
        for bundle in self.all(life):
            self._gather(bundle)
            self._drop_if_empty(bundle)

    def forget(self) -> list[Rows]:
        """Drop all partials; return the rows, which have no owner now."""
        rows: list[Rows] = []
        for output in list(self._ledger.held):
            rows += self._ledger.release(output)
            self.desk.release(output)
        self.where.clear()
        for bundle in self.all():
            bundle.kept, bundle.bringing = [{}], {}
            self._drop_if_empty(bundle)
        return rows
