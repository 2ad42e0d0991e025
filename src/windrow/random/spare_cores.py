"""Large draws shared with cores that have nothing else to do.

One half of the numbers is made in the background. Wherever they are made, the numbers are the same. How many cores are left
over is said by ``grant``; until it is called, nothing happens here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from windrow.random.arrays.numpy import DrawRequest, make, new

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Numbers from which on a draw is shared: the other half then takes some 100 us at least, many times
#: what it takes to wake a thread.
_SHARED = 65_536


class _Spare:
    """The cores that are left over, as threads which wait for something to make."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._free = threading.Semaphore(0)

    def grant(self, cores: int) -> None:
        """Use so many threads from now on; those there are end when they are idle."""
        before, self._pool = self._pool, None
        if before is not None:
            before.shutdown(wait=False)
        self._free = threading.Semaphore(max(cores, 0))
        if cores > 0:
            self._pool = ThreadPoolExecutor(cores, "windrow-random")

    def submit(self, work: Callable[[], Any]) -> Future[Any] | None:
        """Begin some work; None if every core has some already."""
        free, pool = self._free, self._pool
        if pool is None or not free.acquire(blocking=False):
            return None
        try:
            future = pool.submit(work)
        except RuntimeError:  # it was shut down meanwhile
            return None
        future.add_done_callback(lambda _: free.release())
        return future

    def after_fork(self) -> None:
        """Begin again in a child, which has none of the threads."""
        self._pool = None


_SPARE = _Spare()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SPARE.after_fork)

#: Says how many cores of this process no worker uses; 0, as at the start, switches all of this off.
grant = _SPARE.grant


def make_shared(request: DrawRequest, identity: NDArray[np.uint64], counts: int | NDArray[np.int64]) -> NDArray[Any]:
    """Make numbers as ``make`` does, one half of a large draw in the background."""
    out = new(request, len(identity), counts)
    if len(out) < _SHARED or len(identity) < 2:
        return make(request, identity, counts, out=out)
    half = len(identity) // 2
    here = counts if isinstance(counts, int) else counts[:half]
    there = counts if isinstance(counts, int) else counts[half:]
    place = half * here if isinstance(here, int) else int(here.sum())
    other = _SPARE.submit(lambda: make(request, identity[half:], there, out=out[place:]))
    if other is None:
        return make(request, identity, counts, out=out)
    make(request, identity[:half], here, out=out[:place])
    if other.cancel():  # it has not begun, so it would not be faster than we are
        make(request, identity[half:], there, out=out[place:])
    else:
        other.result()
    return out
