"""Numbers made in the background, where a core has nothing else to do.

Numbers belong to rows, so what can be made ahead is the numbers of the next rows. A step that is
called block by block and draws has two buffers: while it computes with the numbers of one block, the
same are made for the next. A single large draw is shared with the background instead. Nobody can tell
from the numbers: wherever they are made, they are the same.

How many cores are left over is said by ``grant``; where nobody says it, nothing happens here.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from windrow.random.arrays.numpy import DrawRequest, make, new, prepare

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from windrow.random.row_ids import RowIds


#: Numbers from which on a draw is shared: the other half then takes some 100 us at least, many times
#: what it takes to wake a thread.
_SHARED = 65_536
#: Draws of a step whose next numbers are made ahead, and their size: what is beyond is made when it
#: is asked for.
_MOST_DRAWS = 16
_MOST_BYTES = 32 * 2**20


class _Spare:
    """The cores that are left over, as threads which wait for something to make."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cores = 0
        self._busy = 0
        self._pool: ThreadPoolExecutor | None = None

    def grant(self, cores: int) -> None:
        """Use so many threads from now on; those there are end when they are idle."""
        with self._lock:
            if cores == self._cores:
                return
            self._cores = max(cores, 0)
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    def submit(self, work: Callable[[], Any]) -> Future[Any] | None:
        """Begin some work; None if every core has some already."""
        with self._lock:
            if self._busy >= self._cores:
                return None
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._cores, "windrow-random")
            self._busy += 1
            future = self._pool.submit(work)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: Future[Any]) -> None:
        with self._lock:
            self._busy -= 1

    def after_fork(self) -> None:
        """Begin again in a child, which has none of the threads."""
        self._lock = threading.Lock()
        self._pool, self._busy, self._cores = None, 0, 0


_SPARE = _Spare()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SPARE.after_fork)

grant = (
    _SPARE.grant
)  #: says how many cores of this process no worker uses; 0, as at the start, switches all of this off


def make_shared(request: DrawRequest, rows: RowIds, counts: int | NDArray[np.int64]) -> NDArray[Any]:
    """Make numbers as ``make`` does, one half of a large draw in the background."""
    out = new(request, len(rows), counts)
    if len(out) < _SHARED or len(rows) < 2:
        return make(request, rows, counts, out=out)
    prepare(request, rows, counts)
    half = len(rows) // 2
    here = counts if isinstance(counts, int) else counts[:half]
    there = counts if isinstance(counts, int) else counts[half:]
    place = half * here if isinstance(here, int) else int(here.sum())
    other = _SPARE.submit(lambda: make(request, rows[half:], there, out=out[place:]))
    if other is None:
        return make(request, rows, counts, out=out)
    make(request, rows[:half], here, out=out[:place])
    if other.cancel():  # it has not begun, so it would not be faster than we are
        make(request, rows[half:], there, out=out[place:])
    else:
        other.result()
    return out


class Ahead:
    """What was made ahead for the blocks of the steps of a chunk: for one choice of its rows at a time."""

    def __init__(self) -> None:
        self._whose: RowIds | None = None  #: another choice of rows is another object
        self._made: dict[tuple[DrawRequest, int], tuple[int, int, Future[Any]]] = {}

    def clear(self) -> None:
        self._whose = None
        self._keep(())

    def numbers(self, request: DrawRequest, counts: int, rows: RowIds, start: int, stop: int) -> NDArray[Any]:
        """Return the numbers of rows start to stop, and begin those of as many rows that follow."""
        if rows is not self._whose:
            self.clear()
            self._whose = rows
        prepare(request, rows, counts)
        values = self._take(request, counts, start, stop)
        if values is None:
            values = make_shared(request, rows[start:stop], counts)
        following = rows[stop : stop + (stop - start)]
        if len(self._made) >= _MOST_DRAWS:
            self._keep((start, stop))  # who does not draw in every block leaves some behind
        room = len(self._made) < _MOST_DRAWS
        if len(following) and room and values.nbytes * (len(self._made) + 1) <= _MOST_BYTES:
            # Room is taken and given back by one thread: memory of another's is new to it each time.
            out = new(request, len(following), counts)
            future = _SPARE.submit(lambda: make(request, following, counts, out=out))
            if future is not None:
                self._made[request, counts] = stop, stop + len(following), future
        return values

    def _take(self, request: DrawRequest, counts: int, start: int, stop: int) -> NDArray[Any] | None:
        first, last, future = self._made.pop((request, counts), (-1, -1, None))
        # Blocks may become smaller from one to the next: outputs see what is left of each unit.
        if future is None or future.cancel() or first != start or last < stop:
            return None
        values: NDArray[Any] = future.result()
        return values[: (stop - start) * counts]

    def _keep(self, starts: tuple[int, ...]) -> None:
        for key, (first, _, future) in list(self._made.items()):
            if first not in starts:
                future.cancel()
                del self._made[key]
