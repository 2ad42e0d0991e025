"""A run that writes down what it has, so that it can be continued: inputs as they are opened, partials when it is cheap."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from windrow.core.events import Discovered
from windrow.errors import JournalError
from windrow.pipeline.collecting import pack
from windrow.pipeline.products import products_of
from windrow.pipeline.resuming import input_keys, known_input
from windrow.store.keeper import Keeper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.data.base import Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.collecting import Heap
    from windrow.pipeline.products import Product
    from windrow.pipeline.resuming import Beginning
    from windrow.pipeline.workload import PipelineWorkload
    from windrow.store.journal import Journal

__all__ = ["Journaling"]


class Journaling:
    """Watches a run and keeps its journal."""

    def __init__(
        self,
        journal: Journal,
        beginning: Beginning,
        definition: Definition,
        source: Source,
        workload: PipelineWorkload,
    ) -> None:
        self._journal = journal
        self._beginning = beginning
        self._everything = products_of(definition)
        self._source = source
        self._workload = workload
        self._keys = input_keys(source)
        self._keeper = Keeper(journal, _packed, time.monotonic)
        #: by input of the scheduler: what is kept of it, and under which name; None: nothing
        self._names: dict[int, tuple[tuple[str, tuple[str, ...]], frozenset[Product]] | None] = {}
        self._broken: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the run was not written down from some point on, if so."""
        return (*self._keeper.notes, *([self._broken] if self._broken else []))

    def changed(self, number: int, heap: Heap) -> None:
        """There is more of an input of the scheduler."""
        if number not in self._names:
            self._names[number] = self._name(number)
        found = self._names[number]
        if found is not None:
            key, products = found
            self._keeper.changed(key, tuple(heap.rows), (heap, products))

    def _name(self, number: int) -> tuple[tuple[str, tuple[str, ...]], frozenset[Product]] | None:
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
        return (self._keys[feed.input], tuple(sorted(mine.values()))), frozenset(mine)

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:  # noqa: ARG002 - an observer's
        """Write down inputs that were opened, and partials if it is time."""
        opened = [event for event in events if isinstance(event, Discovered)]
        if opened and not self._broken:
            self._know(opened)
        if not self._broken:
            self._keeper.maybe_write(time.monotonic())

    def _know(self, opened: Sequence[Discovered]) -> None:
        entries = []
        for event in opened:
            feed = self._workload.feed(event.input)
            item = self._source.inputs[feed.input]
            identity = self._workload.identities.get(feed.input)
            if identity is not None and feed.input not in self._beginning.known:
                key = self._keys[feed.input]
                entries.append(known_input(item, key, identity, event.rows, event.borders))
        try:
            if entries:
                self._journal.know(entries)
        except JournalError as error:
            self._broken = f"this run was not written down, so that it cannot be continued: {error}"

    def end(self) -> None:
        """Write down everything there is."""
        if not self._broken:
            if not self._workload.keeping:
                self._journal.note("rows kept", False)
            self._keeper.flush()


def _packed(what: tuple[Heap, frozenset[Product]]) -> Any:
    heap, products = what
    return pack(heap.whole(), products)
