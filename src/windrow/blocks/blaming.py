"""Some rows on which a function raises by itself, found in few calls: enough to see which cut protects it from them.

Leaving rows out needs every one of them (``skipping``); here many may raise, since nothing has removed them yet, and a
few from all over the chunk tell as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    #: Whether a function raises on the rows at these positions.
    Raises = Callable[[NDArray[np.int64]], bool]


#: Rows that are looked for. Each costs two calls for every halving.
MOST_FOUND = 8
#: Calls, enough for so many rows out of a quarter of a million.
MOST_CALLS = 320
#: Rows, from all over, that are tried first: most often something raises among them, and less has to be asked.
THIN = 4096


def failing_rows(
    raises: Raises, index: NDArray[np.int64], most: int = MOST_FOUND, calls: int = MOST_CALLS
) -> tuple[NDArray[np.int64], bool]:
    """Return rows of ``index`` on which a function raises by itself, and whether there are no others.

    None are returned where it raises only for several rows together, or calls run out.
    """
    parts, complete = [index], True
    if len(index) > THIN:
        thin = index[:: -(-len(index) // THIN)]
        if raises(thin):
            parts, complete = [thin], False
    if complete and not raises(index):
        return index[:0], False
    calls -= 2
    while any(len(part) > 1 for part in parts):
        failing: list[NDArray[np.int64]] = []
        for part in parts:
            if len(part) == 1:
                failing.append(part)
                continue
            calls -= 2
            if calls < 0:
                return index[:0], False
            halves = [half for half in np.array_split(part, 2) if raises(half)]
            # Where neither half raises it takes several rows, and nothing can be said of them.
            complete = complete and bool(halves)
            failing += halves
        parts = failing
        if len(parts) > most:
            parts = [parts[place] for place in np.linspace(0, len(parts) - 1, most).astype(int)]
            complete = False
    found = np.array([part[0] for part in parts], dtype=np.int64)
    return np.sort(found), complete and bool(len(found))
