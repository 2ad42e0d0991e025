"""Writing a run down as it goes: what has changed longest ago first, and only when it costs next to nothing.

Nothing here may harm the run: what cannot be written down is noted once, and not tried again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from windrow.core.intervals import Intervals
from windrow.errors import InternalError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from windrow.store.journal.journal import Blob, Journal


#: Writing takes at most this share of the time a run has taken so far.
SHARE = 0.01
#: The first guess of what a write takes is a disk that is not fast: so much each, and so much per byte.
FIXED_S, S_PER_BYTE = 0.010, 1 / 200e6
#: No disk writes anything in less time.
LEAST_S = 0.0001
#: How much a write that was faster than predicted changes the prediction. One that was slower counts at once: a disk
#: that others use is slow now and then, and a rule that hopes would spend more than its share.
TRUST = 0.25

Key = tuple[str, tuple[str, ...]]  # key of an input, products


class Keeper:
    """Keeps the newest state of every merged partial until it is worth writing it down.

    ``replaceable`` are blobs of earlier runs that are of no use to this one: they go where their rows are done again.
    """

    def __init__(
        self,
        journal: Journal,
        pack: Callable[[Any], Sequence[bytes | memoryview]],
        clock: Callable[[], float],
        replaceable: Container[int] = (),
    ) -> None:
        self._journal = journal
        self._pack = pack
        self._clock = clock
        self._replaceable = replaceable
        self._started = clock()
        #: (rows, partial); the one that changed longest ago first
        self._unsaved: dict[Key, tuple[Iterable[tuple[int, int]], Any]] = {}
        self._sizes: dict[Key, int] = {}  #: bytes when it was packed last
        self._last_size = 0  #: of any of them: one that is not known is taken to be as large
        self._fixed_s, self._s_per_byte = FIXED_S, S_PER_BYTE
        self._due = math.inf  #: before this time nothing is worth writing
        self.spent_s = 0.0  #: time that packing and writing took
        self.notes: tuple[str, ...] = ()  #: why it stopped, if it did

    def changed(self, key: Key, rows: Iterable[tuple[int, int]], partial: Any) -> None:
        """Tell that a merged partial now holds these rows, all of them.

        It may be changed in place as long as that is told before the next ``maybe_write``.
        """
        if self.notes:
            return
        self._unsaved[key] = rows, partial
        if len(self._unsaved) == 1:
            self._set_due()

    def maybe_write(self, now: float) -> None:
        """Write what is worth it; next to free when nothing is."""
        while self._unsaved and now >= self._due:
            self._save(next(iter(self._unsaved)), only_if_worth_it=True)
            now = self._clock()

    def flush(self) -> None:
        """Write all that is not written, whatever it costs: a run that ends early keeps everything."""
        while self._unsaved:
            self._save(next(iter(self._unsaved)), only_if_worth_it=False)

    def _save(self, key: Key, *, only_if_worth_it: bool) -> None:
        begun = self._clock()
        rows, partial = self._unsaved[key]
        try:
            content = self._pack(partial)
            size = sum(memoryview(piece).nbytes for piece in content)
            self._sizes[key] = self._last_size = size
            # The size was a guess until now. Up to twice the cost is accepted, since the next one then waits longer;
            # a write that costs more is packed again later.
            predicted = self._predict(size)
            if not only_if_worth_it or self.spent_s + predicted / 2 <= SHARE * (begun - self._started):
                self._write(key, Intervals(rows), content)
                self._learn(predicted, self._clock() - begun)
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

    def _write(self, key: Key, rows: Intervals, content: Sequence[bytes | memoryview]) -> None:
        """Write a partial down in place of the one before it, and of those of no use that share rows with it."""
        input_key, products = key
        # Asked anew each time: a Ctrl-C may have come between a write and the knowledge of it.
        superseded = [
            blob.id
            for blob in self._journal.blobs_of(input_key)
            if blob.shares(products, rows)
            and (blob.id in self._replaceable or (blob.products == products and _holds(rows, blob)))
        ]
        self._journal.write(input_key, products, tuple(rows), content, superseded)

    def _predict(self, size: int) -> float:
        return self._fixed_s + self._s_per_byte * size

    def _learn(self, predicted: float, seconds: float) -> None:
        """Learn what writes take: small ones teach what any write costs, and large ones what a byte costs."""
        wrong = seconds / predicted - 1
        if wrong < 0:
            wrong *= TRUST
        fixed = self._fixed_s / predicted
        self._fixed_s = max(self._fixed_s * (1 + wrong * fixed), LEAST_S)
        self._s_per_byte *= 1 + wrong * (1 - fixed)

    def _set_due(self) -> None:
        self._due = math.inf
        for key in self._unsaved:
            cost = self._predict(self._sizes.get(key, self._last_size))
            self._due = self._started + (self.spent_s + cost) / SHARE
            break

    def _stop(self, why: str) -> None:
        self._unsaved.clear()
        self.notes = (
            f"from some point on this run was not written down, so that it could not be continued from there: {why}",
        )


def _holds(rows: Intervals, blob: Blob) -> bool:
    return not any(rows.gaps(start, stop) for start, stop in blob.rows)
