"""A run that writes down what it has, so that it can be continued: inputs as they are opened, partials when it is cheap."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.commands import Launch, Resolve
from windrow.core.events import Finished
from windrow.core.intervals import Intervals
from windrow.core.records import Opened, OpenInput
from windrow.errors import JournalError
from windrow.pipeline.collecting import pack
from windrow.pipeline.input_identity import InputIdentities
from windrow.pipeline.products import products_of
from windrow.store.keeper import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.blocks.chunk import Partial
    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Rows
    from windrow.data.base import Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.collecting import Heap, Heaps
    from windrow.pipeline.products import Product
    from windrow.pipeline.resuming import Beginning
    from windrow.pipeline.workload import PipelineWorkload
    from windrow.store.journal import Journal


class _Entry(NamedTuple):
    """How an input of the scheduler is written down."""

    key: tuple[str, tuple[str, ...]]
    products: frozenset[Product]
    spared: Intervals  #: rows that an earlier run has done, and more beside, which this one is not asked for
    superseded: tuple[int, ...]  #: blobs of no use, the rows of which are done again


class Journaling:
    """Watches a run and keeps its journal.

    What an earlier run left and this one cannot use stays until there is something better: for the same rows, or for
    all of them. Rows that are not whole units go to blobs of their own, so that no whole unit has to be done again.
    """

    def __init__(
        self, journal: Journal, beginning: Beginning, definition: Definition, source: Source, workload: PipelineWorkload
    ) -> None:
        self._journal = journal
        self._beginning = beginning
        self._everything = products_of(definition)
        self._source = source
        self._workload = workload
        self._identities = InputIdentities(source)
        used = {blob.id for blobs in beginning.used.values() for blob, _ in blobs}
        self._unused = {blob.id for blob in journal.blobs()} - used  #: left by earlier runs
        self._spared: set[int] = set()  #: of these, better than what this run has
        self._borders = {i: frozenset(known.borders) for i, known in beginning.known.items()}
        self._keeper = Keeper(journal, _packed, time.monotonic)
        #: Of no use unless the same rows are asked for again: written at the end, when it is cheap.
        self._torn = Keeper(journal, _packed, time.monotonic)
        self._entries: dict[int, _Entry | None] = {}  #: by input of the scheduler; None: not kept
        self._opening: dict[int, int] = {}  #: attempts to open an input -> the input of the scheduler
        self._complete = False
        self._broken: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the run was not written down from some point on, if so."""
        found = (*self._keeper.notes, *self._torn.notes, *([self._broken] if self._broken else []))
        return tuple(dict.fromkeys(found))

    def changed(self, rows: tuple[Rows, ...], partial: Partial, heaps: Heaps) -> None:
        """There is more of an input of the scheduler: put it where it belongs, and keep that."""
        number = rows[0].input
        if number not in self._entries:
            self._entries[number] = None if self._broken else self._entry(number)
        entry = self._entries[number]
        if entry is None:
            heaps.add("", rows, partial)
        elif any(not entry.spared.free(start, stop) for _, start, stop in rows):
            heaps.add("spared", rows, partial)
        else:
            borders = self._borders[self._workload.feed(number).input]
            whole = all(start in borders and stop in borders for _, start, stop in rows)
            heap = heaps.add("" if whole else "torn", rows, partial)
            keeper = self._keeper if whole else self._torn
            what = (heap, entry.products)
            keeper.changed(entry.key, tuple(heap.rows), what, entry.superseded)

    def _entry(self, number: int) -> _Entry | None:
        feed = self._workload.feed(number)
        item = self._source.inputs[feed.input]
        digests = self._beginning.digests[item.dataset]
        wanted = self._everything if feed.products is None else feed.products
        mine = {
            product: digests[product].digest
            for product in wanted
            if product.kind != "save" and not digests[product].opaque
        }
        if not mine:
            return None
        key = (self._identities.keys[feed.input], tuple(sorted(mine.values())))
        asked = Intervals(self._beginning.wanted.get(feed.input, ()))
        spared: list[tuple[int, int]] = []
        superseded = []
        for blob in self._journal.blobs_of(key[0]):
            if blob.id not in self._unused or set(key[1]).isdisjoint(blob.products):
                continue
            if any(asked.gaps(*part) for part in blob.rows):
                spared += blob.rows
                self._spared.add(blob.id)
            else:
                superseded.append(blob.id)
        return _Entry(key, frozenset(mine), _union(spared), tuple(superseded))

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:  # noqa: ARG002 - an observer's
        """Write down inputs that were opened, and partials if it is time."""
        self._complete |= any(isinstance(c, Resolve) and c.status == "complete" for c in commands)
        for command in commands:
            if isinstance(command, Launch) and isinstance(command.task.payload, OpenInput):
                self._opening[command.attempt] = command.task.payload.input
        opened = [
            (self._opening[event.attempt], event.report)
            for event in events
            if isinstance(event, Finished) and isinstance(event.report, Opened)
        ]
        if opened and not self._broken:
            self._know(opened)
        if not self._broken:
            self._keeper.maybe_write(time.monotonic())

    def _know(self, opened: Sequence[tuple[int, Opened]]) -> None:
        entries = []
        for number, found in opened:
            feed = self._workload.feed(number)
            self._borders.setdefault(feed.input, frozenset(found.borders))
            item = self._source.inputs[feed.input]
            identity = self._workload.identities.get(feed.input)
            if identity is not None and feed.input not in self._beginning.known:
                entries.append(self._identities.known(item, identity, found.rows, found.borders))
        try:
            if entries:
                self._journal.know(entries)
        except JournalError as error:
            self._broken = f"this run was not written down, so that it cannot be continued: {error}"

    def end(self) -> None:
        """Write down everything there is; after a run of all rows, forget what it had no use for."""
        if self._broken:
            return
        if not self._workload.keeping:
            self._journal.note("rows kept", False)
        self._keeper.flush()
        self._torn.flush()
        if self._complete and not self._beginning.limited and not self.notes:
            with contextlib.suppress(JournalError):  # the next run has as little use for it
                self._journal.drop(sorted(self._unused - self._spared))


def _union(ranges: Iterable[tuple[int, int]]) -> Intervals:
    """Put rows together that may be there several times, for different products."""
    rows = Intervals()
    for start, stop in ranges:
        for gap in rows.gaps(start, stop):
            rows.add(*gap)
    return rows


def _packed(what: tuple[Heap, frozenset[Product]]) -> Any:
    heap, products = what
    return pack(heap.whole(), products)
