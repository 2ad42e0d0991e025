"""Rows that are known by file and entry number: their identities, hashed where they are used.

Most steps draw one number per row. A compiled loop then hashes as it goes, and no array of identities is
ever there: making one costs more than half of what the numbers do. Whoever draws many gets the array,
which is made once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from windrow.random import compiling
from windrow.random.identities import HASHED_AT_ONCE, absorber, file_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]


#: What the words are that a compiled loop is given: see ``compiled_rows``.
IDENTITIES, RANGE, PLACES = 0, 1, 2
_NO_WORDS: Words = np.empty(0, np.uint64)
#: Numbers per row that are made without keeping identities. Hashing on the way costs 0.5 ns per number, an
#: array 3 ns per row, on a machine whose vectors multiply 64 bits; on others the first is dearer.
_WITHOUT_WORDS = 4


class Span:
    """Some entries of a file, in a row or at given places; never changed, so threads may share it."""

    __slots__ = ("file", "first", "length", "places")

    def __init__(self, file: np.uint64, first: int, length: int, places: Words | None) -> None:
        self.file = file  #: the hash of the file's own identity
        self.first = first  #: entry number of the first row, or of place 0
        self.length = length
        self.places = places  #: of the rows, counted from ``first``; None: one after the other

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> Span:
        start, stop, _ = part.indices(self.length)
        length = max(stop - start, 0)
        if self.places is None:
            return Span(self.file, self.first + start, length, None)
        return Span(self.file, self.first, length, self.places[start:stop])

    def words(self) -> Words:
        """Return the identities of all rows."""
        out = np.empty(self.length, np.uint64)
        self.hash_into(out, absorber(self.length))
        return out

    def hash_into(self, out: Words, absorb: Callable[[Words, Words, bool], None]) -> None:
        """Write the identities of all rows, hashed by ``absorb``."""
        out[:] = self.file
        for begin in range(0, self.length, HASHED_AT_ONCE):
            state = out[begin : begin + HASHED_AT_ONCE]
            first = self.first + begin
            if self.places is None:
                entries = np.arange(first, first + len(state), dtype=np.uint64)
            else:
                entries = self.places[begin : begin + len(state)] + np.uint64(self.first)
            absorb(state, entries, False)


class Entries:
    """The rows of a step, with their identities once they are worth keeping."""

    __slots__ = ("_drawn", "_span", "_words")

    def __init__(self, file_identity: str, first: int, length: int, places: NDArray[np.int64] | None = None) -> None:
        bits = None if places is None else np.asarray(places, np.int64).view(np.uint64)
        self._span = Span(file_hash(file_identity), first, length, bits)
        self._words: Words | None = None
        self._drawn = 0

    def __len__(self) -> int:
        return len(self._span)

    def words(self) -> Words:
        """Return the identities; they are hashed when this is first called."""
        if self._words is None:
            self._words = self._span.words()
        return self._words

    def drawn_from(self, method: str, counts: int | NDArray[np.int64], rows: int) -> Words | Span:
        """Return what to make the numbers of so many rows from; blocks of one draw add up to all rows."""
        self._drawn += rows
        few = self._words is None and self._drawn <= _WITHOUT_WORDS * len(self._span)
        # In NumPy hashing is dear, and the next stream would do it again.
        if few and isinstance(counts, int) and counts == 1 and compiling.loops.ready(method):
            return self._span
        return self.words()


def drawn_from(identity: Words | Entries, method: str, counts: int | NDArray[np.int64], rows: int) -> Words | Span:
    """Return what to make the numbers of so many rows from: identities, or a span to hash on the way."""
    return identity.drawn_from(method, counts, rows) if isinstance(identity, Entries) else identity


def compiled_rows(identity: Words | Span) -> tuple[Words, int, np.uint64, np.uint64]:
    """Return rows as compiled loops take them: words, what these are, the file's hash, the first entry."""
    if not isinstance(identity, Span):
        return _plain(identity), IDENTITIES, np.uint64(0), np.uint64(0)
    first = np.uint64(identity.first)
    if identity.places is None:
        return _NO_WORDS, RANGE, identity.file, first
    return _plain(identity.places), PLACES, identity.file, first


def _plain(words: Words) -> Words:
    """Return the one kind of array that loops are compiled for."""
    words = np.ascontiguousarray(words)
    return words if words.flags.writeable else words.copy()
