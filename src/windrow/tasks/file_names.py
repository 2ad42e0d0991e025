"""Paths in what a body returns or releases: it knows private ones, others know the files by their final names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from windrow.tasks.body import releasing_through
from windrow.tasks.call import map_nested
from windrow.tasks.file_moves import final_name
from windrow.tasks.file_paths import as_given
from windrow.tasks.file_stamps import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.tasks.worker import RunningCall


class FinalNames:
    """The final names of private directories and files, for one attempt of a call."""

    def __init__(self, names: Mapping[str, str], going: RunningCall) -> None:
        self.names = names
        self._going = going
        self._held: list[tuple[Callable[[int, Any], None], int, Any]] = []

    def hold_back(self) -> None:
        """Hold back what the body releases and what names its files, as those are not in place before it has ended.

        What is released after that waits too: outputs come in their order.
        """
        if self.names:
            self._going.function = releasing_through(self._going.function, self._release)

    def _release(self, release: Callable[[int, Any], None], number: int, value: Any) -> None:
        told = self._told(value)
        if self._held or told is not value:
            self._held.append((release, number, told))
        else:
            release(number, value)

    def tell(self) -> None:
        """All files are in place: say what was made by final names, and release what was held back."""
        if self.names:
            made = self._going.made
            made.update({name: self._told(value) for name, value in made.items()})
        for release, number, value in self._held:
            release(number, value)

    def _told(self, value: Any) -> Any:
        return map_nested(value, self._final)

    def _final(self, thing: Any) -> Any:
        """Bodies like to return the paths they were given, or found, or a text that has them."""
        if isinstance(thing, bytes):
            return self._in_bytes(thing) if OURS.encode() in thing else thing
        if not isinstance(thing, (str, os.PathLike)):
            return thing
        text = os.fspath(thing)
        if not isinstance(text, str) or OURS not in text:
            return thing
        final = self._in_text(text) if isinstance(thing, str) else final_name(text, self.names)
        return thing if final == text else as_given(thing, final)

    def _in_text(self, text: str) -> str:
        for private in sorted(self.names, key=len, reverse=True):
            text = text.replace(private, self.names[private])
        return text

    def _in_bytes(self, content: bytes) -> bytes:
        final = content
        for private in sorted(self.names, key=len, reverse=True):
            final = final.replace(os.fsencode(private), os.fsencode(self.names[private]))
        return content if final == content else final
