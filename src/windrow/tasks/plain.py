"""Plain functions that are submitted to a session: declared once, as looking at a signature takes longer than a short task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.tasks.declare import Declared, task

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Plain"]

#: Functions that are remembered; of those made for one call each there is no end.
MOST = 1000


class Plain:
    """What was declared of functions."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Declared]] = {}  #: by identity, which is thus kept

    def declared(self, function: Callable[..., Any]) -> Declared:
        """Give what is declared of a function, or declare it."""
        declared = getattr(function, "declared", None)
        if isinstance(declared, Declared):
            return declared
        found = self._known.get(id(function))
        if found is None:
            if len(self._known) >= MOST:
                self._known.clear()
            found = self._known[id(function)] = (function, task(function).declared)
        return found[1]
