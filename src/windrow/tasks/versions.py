"""Things that tasks change: which future stands for what has become of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.tasks.future import Future

__all__ = ["Versions"]


class Versions:
    """By the identity of a thing: the future of its latest version.

    The thing is kept as long, since another one could get its identity otherwise.
    """

    def __init__(self) -> None:
        self._latest: dict[int, tuple[Any, Future]] = {}
        self.any = False  #: whether there were any so far; asked for with every call

    def latest(self, thing: Any) -> Any:
        """Give the latest version of a thing; the thing itself if nobody changes it."""
        found = self._latest.get(id(thing))
        return thing if found is None else found[1]

    def follow(self, thing: Any, future: Future) -> None:
        """A task makes a new version of a thing; nobody else knows the one before, so it may go."""
        self._latest[id(thing)] = (thing, future)
        self.any = True

    def forget(self, thing: Any) -> None:
        """Nobody will use a thing any more."""
        self._latest.pop(id(thing), None)
