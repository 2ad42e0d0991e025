"""What workers keep: when partials are merged where they were made, and when they are fetched.

Handles of one worker and one input form a bundle. Eight leaves are merged into one, eight of
those into the next, so that the cost of a handle's row set grows with the logarithm of their
number; when nothing more is to come the rest is merged, and the last handle is fetched. Inputs of
a merge own their rows until it is reported.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from windrow.core.commands import Command, Discard, Fetch, Merge, Take
from windrow.core.records import Handle, Rows
from windrow.core.state import Bundle, Feed, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.ledger import Ledger

__all__ = ["FAN_IN", "Merger"]

#: Partials merged at once. Each merge is a command and an event, so more is cheaper for the
#: driver; but the partials wait in memory until then.
FAN_IN = 8

_rows = attrgetter("rows")


class Merger:
    """All bundles of a run."""

    def __init__(self, ledger: Ledger, next_id: Callable[[], int]) -> None:
        self.no_more = False  #: the run is ending: nothing is to come for any bundle
        self.merging: dict[int, Bundle] = {}  #: id of the merged handle -> its bundle
        self.fetching: dict[int, Bundle] = {}
        self._ledger = ledger
        self._next_id = next_id

    def bundle(self, worker: WorkerState, feed: Feed) -> Bundle:
        """Find or make the bundle of a worker and an input."""
        bundle = worker.bundles.get(feed.spec.id)
        if bundle is None:
            bundle = Bundle(worker, feed)
            worker.bundles[feed.spec.id] = feed.bundles[worker.id] = bundle
        return bundle

    def keep(self, bundle: Bundle, handle: Handle, level: int, out: list[Command]) -> None:
        """Put an accepted or merged handle into its bundle."""
        if level == len(bundle.kept):
            bundle.kept.append([])
        bundle.kept[level].append(handle)
        self.review(bundle, out, level)

    def review(self, bundle: Bundle, out: list[Command], level: int = 0) -> None:
        """Do what is due for a bundle after a level of it, or the rows left to cut, changed."""
        if bundle.running or (bundle.feed.cutter.rows and not self.no_more):
            if len(bundle.kept[level]) >= FAN_IN:
                handles, bundle.kept[level] = bundle.kept[level], []
                self._merge(bundle, handles, level + 1, out)
            return
        if bundle.merging:
            return  # its end leads here again
        handles = [handle for kept in bundle.kept for handle in kept]
        bundle.kept = [[] for _ in bundle.kept]
        if len(handles) > 1:
            self._merge(bundle, handles, len(bundle.kept) - 1, out)
        elif handles:
            (handle,) = handles
            bundle.fetching[handle.id] = handle
            self.fetching[handle.id] = bundle
            out.append(Fetch(handle))
        elif not bundle.fetching:
            bundle.worker.bundles.pop(bundle.feed.spec.id, None)
            bundle.feed.bundles.pop(bundle.worker.id, None)

    def review_all(self, owner: WorkerState | Feed, out: list[Command]) -> None:
        """Review all bundles of a worker or of an input."""
        for bundle in list(owner.bundles.values()):  # a review may remove the bundle
            self.review(bundle, out)

    def _merge(self, bundle: Bundle, handles: list[Handle], level: int, out: list[Command]) -> None:
        handles.sort(key=_rows)
        worker = bundle.worker
        number = self._next_id()
        output = handles[0].output
        into = Handle(number, number, worker.id, worker.incarnation, _join(handles), 0, output)
        inputs = tuple(handles)
        bundle.merging[number] = level, into, inputs
        self.merging[number] = bundle
        out.append(Merge(inputs, into, worker.id, worker.incarnation))

    def merged(self, handle: Handle, out: list[Command]) -> bool:
        """A merge is done; False if nobody waits for it."""
        bundle = self.merging.pop(handle.id, None)
        if bundle is None:
            return False
        level, into, inputs = bundle.merging.pop(handle.id)
        self._ledger.replace([one.id for one in inputs], into)
        self.keep(bundle, into, level, out)
        return True

    def merge_failed(self, handle: Handle, out: list[Command]) -> tuple[Bundle, list[Rows]] | None:
        """A merge raised: its inputs are gone; return their rows, which have no owner now."""
        bundle = self.merging.pop(handle.id, None)
        if bundle is None:
            return None
        lost: list[Rows] = []
        for one in bundle.merging.pop(handle.id)[2]:
            lost += self._ledger.release(one.id)
            out.append(Discard(one))
        return bundle, lost

    def fetched(self, handle: Handle, out: list[Command]) -> bool:
        """A partial is here: its rows are done; False if nobody waits for it."""
        bundle = self.fetching.pop(handle.id, None)
        if bundle is None:
            return False
        del bundle.fetching[handle.id]
        self._ledger.settle(handle.id)
        out.append(Take(handle))
        self.review(bundle, out)
        return True

    def output_lost(self, handle: Handle, worker: WorkerState) -> tuple[Rows, ...]:
        """A kept partial is gone; return its rows, none if a merge has it, whose end will tell."""
        bundle = worker.bundles.get(handle.rows[0].input)
        if bundle is None:
            return ()
        if self.fetching.pop(handle.id, None) is not None:
            del bundle.fetching[handle.id]
        else:
            for kept in bundle.kept:
                if handle in kept:
                    kept.remove(handle)
                    break
            else:
                return ()
        return self._ledger.release(handle.id)

    def forget(self, worker: WorkerState) -> list[Rows]:
        """Drop all bundles of a worker; return the rows, which have no owner now."""
        lost: list[Rows] = []
        for bundle in worker.bundles.values():
            lost += self.empty(bundle)
            del bundle.feed.bundles[worker.id]
        worker.bundles.clear()
        return lost

    def empty(self, bundle: Bundle) -> list[Rows]:
        """Drop all partials of a bundle; return the rows, which have no owner now."""
        handles = bundle.handles()
        for number in bundle.merging:
            del self.merging[number]
        for number in bundle.fetching:
            del self.fetching[number]
        bundle.kept, bundle.merging, bundle.fetching = [[]], {}, {}
        return [part for handle in handles for part in self._ledger.release(handle.id)]


def _join(handles: list[Handle]) -> tuple[Rows, ...]:
    """Join the row sets of handles of one input, neighbours into one range."""
    parts = sorted([part for handle in handles for part in handle.rows])
    joined = []
    number, start, stop = parts[0]
    for _, begin, end in parts[1:]:
        if begin != stop:
            joined.append(Rows(number, start, stop))
            start = begin
        stop = end
    joined.append(Rows(number, start, stop))
    return tuple(joined)
