"""Where the units of a stream begin: counted all, remembered as long as rows of theirs are in memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from collections.abc import Iterable


class Borders(Sequence[int]):
    """The borders of all units that ever came, for a stream without an end.

    Of one that was forgotten it is only known that it is below those that are not. It is answered by the least that it
    can have been, its own number, so that rows that are in memory are looked up by bisection as in any list of borders.
    """

    def __init__(self) -> None:
        # Forgotten ones, and those that are known: replaced as a whole, as other threads look at them meanwhile.
        self._state = 0, array("q", [0])

    def extend(self, ends: Iterable[int]) -> None:
        """Add the ends of units."""
        forgotten, known = self._state
        self._state = forgotten, known + array("q", ends)

    def forget(self, row: int) -> None:
        """Forget the borders below a row; the last is always known."""
        forgotten, known = self._state
        count = min(bisect_left(known, row), len(known) - 1)
        self._state = forgotten + count, known[count:]

    @property
    def known(self) -> int:
        """How many are in memory."""
        return len(self._state[1])

    def __len__(self) -> int:
        forgotten, known = self._state
        return forgotten + len(known)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        forgotten, known = self._state
        places = range(forgotten + len(known))[place]
        if isinstance(places, int):
            return places if places < forgotten else known[places - forgotten]
        return tuple(n if n < forgotten else known[n - forgotten] for n in places)
