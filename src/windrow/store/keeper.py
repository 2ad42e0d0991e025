"""Writing a run down as it goes: what has changed longest ago first, and only when it costs next to nothing.

Nothing here may harm the run: what cannot be written down is noted once, and not tried again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.intervals import Intervals
from windrow.errors import InternalError, JournalError
from windrow.store.saving_rule import WriteCost, when_worth_writing, worth_writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.store.journal import Journal
    from windrow.store.journal_records import Blob


Key = tuple[str, tuple[str, ...]]  # key of an input, products


class _Unsaved(NamedTuple):
    since: float
    rows: Sequence[tuple[int, int]]
    partial: Any
    supersedes: tuple[int, ...]


class Keeper:
    """Keeps the newest state of every merged partial until it is worth writing it down."""

    def __init__(
        self, journal: Journal, pack: Callable[[Any], Sequence[bytes | memoryview]], clock: Callable[[], float]
    ) -> None:
        self._journal = journal
        self._pack = pack
        self._clock = clock
        self._started = clock()
        self._unsaved: dict[Key, _Unsaved] = {}  #: the one that changed longest ago first
        self._sizes: dict[Key, int] = {}  #: bytes when it was packed last
        self._last_size = 0  #: of any of them: what is not known is taken to be as large
        self._cost = WriteCost()
        self._due = math.inf  #: before this time nothing is worth writing
        self._stopped: float | None = None  #: since when changes are not written down
        self.spent_s = 0.0  #: time that packing and writing took
        self.notes: tuple[str, ...] = ()  #: why it stopped, if it did

    def changed(self, key: Key, rows: Sequence[tuple[int, int]], partial: Any, supersedes: Sequence[int] = ()) -> None:
        """Tell that a merged partial now holds these rows, all of them.

        It may be changed in place as long as that is told before the next ``maybe_write``. Blobs of the same key whose
        rows it holds are superseded by themselves; others, which a resumed run took in, are named.
        """
        if self._stopped is not None:
            return
        before = self._unsaved.get(key)
        if before is None:
            self._unsaved[key] = _Unsaved(self._clock(), rows, partial, tuple(supersedes))
            if len(self._unsaved) == 1:
                self._set_due()
        else:
            named = (*before.supersedes, *supersedes)
            self._unsaved[key] = _Unsaved(before.since, rows, partial, named)

    def maybe_write(self, now: float) -> None:
        """Write what is worth it; next to free when nothing is."""
        if now < self._due:
            return
        while self._unsaved and now >= self._due:
            self._save(next(iter(self._unsaved)), only_if_worth_it=True)
            now = self._clock()

    def flush(self) -> None:
        """Write all that is not written, whatever it costs: a run that ends early keeps everything."""
        while self._unsaved:
            self._save(next(iter(self._unsaved)), only_if_worth_it=False)

    def at_risk_s(self, now: float) -> float:
        """Say how old the oldest change is that is not written down; what workers still have at hand comes on top."""
        if self._stopped is not None:
            return now - self._stopped
        if not self._unsaved:
            return 0.0
        return now - next(iter(self._unsaved.values())).since

    # ------------------------------------------------------------------------------------------

    def _save(self, key: Key, *, only_if_worth_it: bool) -> None:
        begun = self._clock()
        unsaved = self._unsaved[key]
        try:
            content = self._pack(unsaved.partial)
            size = sum(memoryview(piece).nbytes for piece in content)
            self._sizes[key] = self._last_size = size
            # The size was a guess until now. Up to twice the cost is accepted, since the next one then waits longer; what
            # costs more is packed again later.
            cost = self._cost.predict(size) / 2
            if not only_if_worth_it or worth_writing(begun - self._started, self.spent_s, cost):
                self._write(key, unsaved, content)
                self._cost = self._cost.after(size, self._clock() - begun)
                del self._unsaved[key]
        except InternalError:
            raise  # rows that are held twice: no result can be trusted after that
        except JournalError as error:
            self._stop(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a user's object raises when it is pickled
            self._stop(f"{type(error).__name__}: {error}")
        finally:
            self.spent_s += self._clock() - begun
            self._set_due()

    def _write(self, key: Key, unsaved: _Unsaved, content: Sequence[bytes | memoryview]) -> None:
        input_key, products = key
        # Asked anew each time: a Ctrl-C may have come between a write and the knowledge of it.
        there = self._journal.blobs_of(input_key)
        rows = Intervals(unsaved.rows)
        superseded = [
            blob.id
            for blob in there
            if blob.id in unsaved.supersedes or (blob.products == products and _holds(rows, blob))
        ]
        self._journal.write(input_key, products, unsaved.rows, content, superseded)

    def _set_due(self) -> None:
        """Find the time from which on the next one is worth writing."""
        if not self._unsaved:
            self._due = math.inf
            return
        key = next(iter(self._unsaved))
        cost = self._cost.predict(self._sizes.get(key, self._last_size))
        self._due = self._started + when_worth_writing(self.spent_s, cost)

    def _stop(self, why: str) -> None:
        self._stopped = next(iter(self._unsaved.values())).since
        self._unsaved.clear()
        self.notes = (
            f"from some point on this run was not written down, so that it could not be continued from there: {why}",
        )


def _holds(rows: Intervals, blob: Blob) -> bool:
    return not any(rows.gaps(start, stop) for start, stop in blob.rows)
