"""What workers keep: when partials are merged where they were made, and when they are fetched.

Handles of one worker and one input form a bundle. Eight leaves are merged into one, eight of
those into the next, so that the cost of a handle's row set grows with the logarithm of their
number; when nothing more is to come the rest is merged, and the last handle is fetched. Where
workers can be lost, what a bundle has is also fetched in between, when the safety decision says so.
Inputs of a merge own their rows until it is reported.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from windrow.core.commands import Command, Discard, Fetch, Merge, Take
from windrow.core.records import Handle, Rows
from windrow.core.state import Bundle, Feed, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.ledger import Ledger
    from windrow.core.safekeeping import Safekeeping

__all__ = ["FAN_IN", "Merger"]

#: Partials merged at once. Each merge is a command and an event, so more is cheaper for the
#: driver; but the partials wait in memory until then.
FAN_IN = 8

#: In place of the number of merges that a merged handle went through: it is fetched at once.
TO_FETCH = -1

_rows = attrgetter("rows")


class Merger:
    """All bundles of a run."""

    def __init__(self, ledger: Ledger, next_id: Callable[[], int], safe: Safekeeping | None = None) -> None:
        self.no_more = False  #: the run is ending: nothing is to come for any bundle
        self.merging: dict[int, Bundle] = {}  #: id of the merged handle -> its bundle
        self.fetching: dict[int, Bundle] = {}
        self._ledger = ledger
        self._next_id = next_id
        self._safe = safe  #: None: never fetch early

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
        if bundle.running or (bundle.feed.cutter.rows and not self.no_more and bundle.worker.drain is None):
            if len(bundle.kept[level]) >= FAN_IN:
                handles, bundle.kept[level] = bundle.kept[level], []
                self._merge(bundle, handles, level + 1, out)
            elif self._safe is not None and not bundle.merging and self._safe.due(bundle):
                self._gather(bundle, out)
        elif bundle.merging:
            pass  # its end leads here again
        elif not self._gather(bundle, out) and not bundle.fetching:
            worker, feed = bundle.worker, bundle.feed
            if worker.bundles.get(feed.spec.id) is bundle:
                del worker.bundles[feed.spec.id]
                del feed.bundles[worker.id]

    def _gather(self, bundle: Bundle, out: list[Command]) -> bool:
        """Fetch all that is kept, as one; False if there is nothing."""
        handles = [handle for kept in bundle.kept for handle in kept]
        bundle.kept = [[] for _ in bundle.kept]
        bundle.unsafe_s = 0.0
        if len(handles) > 1:
            self._merge(bundle, handles, TO_FETCH, out)
        elif handles:
            self._fetch(bundle, handles[0], out)
        return bool(handles)

    def _fetch(self, bundle: Bundle, handle: Handle, out: list[Command]) -> None:
        bundle.fetching[handle.id] = handle
        self.fetching[handle.id] = bundle
        out.append(Fetch(handle))

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
        if level == TO_FETCH:
            self._fetch(bundle, into, out)
            self.review(bundle, out)
        else:
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

    def fetched(self, handle: Handle, seconds: float, out: list[Command]) -> bool:
        """A partial is here: its rows are done; False if nobody waits for it."""
        bundle = self.fetching.pop(handle.id, None)
        if bundle is None:
            return False
        del bundle.fetching[handle.id]
        self._ledger.settle(handle.id)
        out.append(Take(handle))
        if self._safe is not None:
            self._safe.fetched(bundle.feed.spec.category, seconds)
        self.review(bundle, out)
        return True

    def fetch_failed(self, handle: Handle, out: list[Command]) -> tuple[Bundle, list[Rows]] | None:
        """A partial is lost on its way; return its rows, which have no owner now."""
        bundle = self.fetching.pop(handle.id, None)
        if bundle is None:
            return None
        del bundle.fetching[handle.id]
        out.append(Discard(handle))
        return bundle, list(self._ledger.release(handle.id))

    def at_work(self, worker: WorkerState, before: int | None) -> tuple[Handle, Feed] | None:
        """Give the merge a worker was told of first, unless the attempt ``before`` was; or a fetch.

        Attempts and merges are numbered in one sequence, fetches are not.
        """
        bundles = worker.bundles.values()
        merges = [(number, bundle) for bundle in bundles for number in bundle.merging]
        if merges:
            number, bundle = min(merges, key=itemgetter(0))
            if before is None or number < before:
                return bundle.merging[number][1], bundle.feed
        for bundle in bundles:
            for handle in bundle.fetching.values():
                return handle, bundle.feed
        return None

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
