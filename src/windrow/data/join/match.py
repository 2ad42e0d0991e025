"""Rows found by their identity: which row of one table has the run, section and event of a row of another.

Identities are looked up by a 64-bit hash and then compared number by number, so that no two of them are ever taken for
one another. Reads no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.random import identity_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


class IdentityIndex:
    """Integer columns, sorted once by their hash; finding costs a binary search for each row."""

    def __init__(
        self,
        columns: Sequence[NDArray[Any]],
        hashed: Callable[[Sequence[NDArray[Any]]], NDArray[np.uint64]] = identity_hash,
    ) -> None:
        self._columns = columns
        self._hashed = hashed
        keys = hashed(columns)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, columns: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
        """Return for each identity the row that has it, -1 where there is none."""
        keys = self._hashed(columns)
        found = np.full(len(keys), -1, dtype=np.int64)
        if not len(self._keys):
            return found
        # In order the search walks through memory once, which makes up for the sorting.
        turn = np.argsort(keys)
        place = np.empty(len(keys), dtype=np.int64)
        place[turn] = np.searchsorted(self._keys, keys[turn])
        # All rows take part in the first round; in later ones those whose hash is another row's too.
        rest = np.arange(len(keys))
        while len(rest):
            at = place[rest]
            candidate = at < len(self._keys)
            candidate &= self._keys[np.minimum(at, len(self._keys) - 1)] == keys[rest]
            rest, rows = rest[candidate], self._order[at[candidate]]
            same = np.ones(len(rest), dtype=bool)
            for mine, other in zip(columns, self._columns, strict=True):
                same &= mine[rest] == other[rows]
            found[rest[same]] = rows[same]
            rest = rest[~same]
            place[rest] += 1
        return found

    def duplicates(self) -> NDArray[np.int64]:
        """Return one row of each identity that several rows have, in their order."""
        tied = _between(self._keys[1:] == self._keys[:-1])
        suspects = self._order[(tied[:-1] | tied[1:])[: len(self._order)]]
        values = [column[suspects] for column in self._columns]
        # By row number last, so that the first of several rows is the one that is named.
        order = np.lexsort((suspects, *values))
        same = np.ones(max(len(order) - 1, 0), dtype=bool)
        for column in values:
            same &= column[order][1:] == column[order][:-1]
        repeats = _between(same)
        firsts = (~repeats[:-1] & repeats[1:])[: len(order)]
        rows: NDArray[np.int64] = np.sort(suspects[order[firsts]])
        return rows


def _between(same: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say of every gap whether its neighbours are the same, the gaps at both ends included."""
    return np.concatenate(([False], same, [False]))
