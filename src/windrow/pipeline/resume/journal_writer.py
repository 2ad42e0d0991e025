"""A run that writes down what it has, so that it can be continued: inputs as they are opened, partials when it is cheap."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.core.commands import Launch, Resolve
from windrow.core.events import Finished
from windrow.core.intervals import Intervals
from windrow.core.records import Opened, OpenInput
from windrow.errors import JournalError
from windrow.pipeline.definition.definition import products_of
from windrow.pipeline.resume.input_digest import InputIdentities
from windrow.pipeline.run.partials import pack
from windrow.store.journal.journal import Keeper

if TYPE_CHECKING:
    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Rows
    from windrow.data.base import Source
    from windrow.pipeline.definition.definition import Definition, Product
    from windrow.pipeline.resume.plan import ResumePlan
    from windrow.pipeline.run.partials import UnitedPartial
    from windrow.pipeline.run.workload import PipelineWorkload
    from windrow.store.journal.journal import Journal, Key


class JournalWriter:
    """Watches a run and keeps its journal: whole units of inputs, for the products that can be known again.

    What an earlier run left and this one cannot use stays until there is something better: for the same rows, or for
    all of them.
    """

    def __init__(
        self, journal: Journal, plan: ResumePlan, definition: Definition, source: Source, workload: PipelineWorkload
    ) -> None:
        self._journal = journal
        self._plan = plan
        self._everything = products_of(definition)
        self._source = source
        self._workload = workload
        self._identities = InputIdentities(source)
        used = {blob.id for blobs in plan.used.values() for blob, _ in blobs}
        self._unused = {blob.id for blob in journal.blobs()} - used  #: left by earlier runs
        self._borders = {index: frozenset(known.borders) for index, known in plan.known.items()}
        self._keeper = Keeper(journal, lambda what: pack(what[0].whole(), what[1]), time.monotonic, self._unused)
        #: by input of the scheduler: under which key it is written down, and which products; None: it is not
        self._entries: dict[int, tuple[Key, frozenset[Product]] | None] = {}
        self._opening: dict[int, int] = {}  #: attempts to open an input -> the input of the scheduler
        self._complete = False
        self._broken: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        return self._broken or self._keeper.notes

    def takes(self, rows: tuple[Rows, ...]) -> bool:
        """Say whether rows of an input of the scheduler are written down: whole units of one that can be known again."""
        number = rows[0].input
        if number not in self._entries:
            self._entries[number] = None if self._broken else self._entry(number)
        if self._entries[number] is None:
            return False
        borders = self._borders[self._workload.feed(number).input]
        return all(start in borders and stop in borders for _, start, stop in rows)

    def changing(self, number: int) -> None:
        """Take back what ``changed`` told last: a partial that a Ctrl-C finds half changed is not written down."""
        entry = self._entries[number]
        assert entry is not None
        self._keeper.changing(entry[0])

    def changed(self, number: int, united: UnitedPartial) -> None:
        entry = self._entries[number]
        assert entry is not None
        key, products = entry
        self._keeper.changed(key, united.rows, (united, products))

    def _entry(self, number: int) -> tuple[Key, frozenset[Product]] | None:
        feed = self._workload.feed(number)
        digests = self._plan.digests[self._source.inputs[feed.input].dataset]
        wanted = self._everything if feed.products is None else feed.products
        mine = {
            product: digests[product].digest
            for product in wanted
            if product.kind != "save" and not digests[product].opaque
        }
        if not mine:
            return None
        key = (self._identities.keys[feed.input], tuple(sorted(mine.values())))
        # A look at the first rows of what an earlier run has done, and more beside, must not cost that.
        asked = Intervals(self._plan.wanted.get(feed.input, ()))
        for blob in self._journal.blobs_of(key[0]):
            wider = any(asked.gaps(*part) for part in blob.rows)
            if wider and blob.id in self._unused and not set(key[1]).isdisjoint(blob.products):
                return None
        return key, frozenset(mine)

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:  # noqa: ARG002 - an observer's
        for command in commands:
            if isinstance(command, Resolve):
                self._complete = command.status == "complete"
            elif isinstance(command, Launch) and isinstance(command.task.payload, OpenInput):
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
            index = self._workload.feed(number).input
            self._borders.setdefault(index, frozenset(found.borders))
            identity = self._workload.facts.identities.get(index)
            if identity is not None and index not in self._plan.known:
                item = self._source.inputs[index]
                entries.append(self._identities.known(item, identity, found.rows, tuple(found.borders)))
        try:
            if entries:
                self._journal.know(entries)
        except JournalError as error:
            self._broken = (f"this run was not written down, so that it cannot be continued: {error}",)

    def end(self) -> None:
        """Write down everything there is; after a run of all rows, forget what it had no use for."""
        if self._broken:
            return
        if not self._workload.facts.keeping:
            self._journal.note("rows kept", False)
        self._keeper.flush()
        if self._complete and not self._plan.limited and not self.notes:
            with contextlib.suppress(JournalError):  # the next run has as little use for it
                self._journal.drop(sorted(self._unused))
