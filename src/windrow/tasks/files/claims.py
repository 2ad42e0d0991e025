"""Which calls of a session have to do with the same files: by path, by directory, and by pattern.

Who meets whom may be said too often, which costs parallelism, but never too seldom: a call only ever waits for earlier ones.
"""

# ruff: noqa: PTH120
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import os
import re
from bisect import bisect_left, insort
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from windrow.tasks.future import Future


Shape = Literal["file", "tree", "glob"]

#: How a pattern begins before anything in it may stand for another text; characters of names may be escaped there.
_BEGINNING = re.compile(r"(?:[^*?[]|\[[*?[]\])*")
_ESCAPED = re.compile(r"\[([*?[])\]")
#: How it ends: nothing in that has a meaning.
_END = re.compile(r"[^]*?[]*\Z")


class Claim(NamedTuple):
    """Files that a call reads or writes: one, all below a directory, or all that match a pattern."""

    shape: Shape
    path: str  #: absolute

    @property
    def start(self) -> str:
        return literal(self.path) if self.shape == "glob" else self.path

    def covers(self, path: str) -> bool:
        if self.shape == "file":
            return path == self.path
        if self.shape == "tree":
            return _below(path, self.path)
        # Here stars match separators too; those of "**/" may also stand for no directory at all.
        pattern = self.path.replace(f"**{os.sep}", "*")
        return path.startswith(self.start) and fnmatchcase(path, pattern)


def literal(pattern: str) -> str:
    beginning = _BEGINNING.match(pattern)
    assert beginning is not None
    return _ESCAPED.sub(r"\1", beginning[0])


def _ending(pattern: str) -> str:
    """Give what all matches of a pattern end with, or a part of that."""
    end = _END.search(pattern)
    assert end is not None
    return end[0]


def meet(one: Claim, other: Claim) -> bool:
    if one.shape == "file":
        return other.covers(one.path)
    if other.shape == "file":
        return meet(other, one)
    if one.shape == "tree" and other.shape == "tree":
        return _below(one.path, other.path) or _below(other.path, one.path)
    if one.shape == "glob" and other.shape == "glob":
        first, second = one.start, other.start
        ends, other_ends = _ending(one.path), _ending(other.path)
        return (first.startswith(second) or second.startswith(first)) and (
            ends.endswith(other_ends) or other_ends.endswith(ends)
        )
    tree, glob = (one, other) if one.shape == "tree" else (other, one)
    return _below(glob.start, tree.path) or tree.path.startswith(glob.start)


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


class Entry:
    """What is known of a claim: who wrote it last, and who has read it since."""

    __slots__ = ("claim", "future", "readers", "writer")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.writer = 0  #: the number of the task; 0 if none of the session
        self.future: Future | None = None  #: of what it says of the files
        self.readers: list[int] = []  #: those since the last writer


class Claims:
    """All claims of a session, by what their files begin with: those that may meet have the beginning of one in common."""

    def __init__(self) -> None:
        self._entries: dict[Claim, Entry] = {}
        self._at: dict[str, list[Entry]] = {}  #: by what all their files begin with
        self._starts: list[str] = []  #: these beginnings, in order
        self._lengths: set[int] = set()  #: of beginnings of trees and globs

    def meeting(self, claim: Claim) -> list[Entry]:
        start = claim.start
        near = [start[:length] for length in self._lengths if length < len(start)]
        near += [start] if claim.shape == "file" else self._starts[self._range(start)]
        return [one for text in near for one in self._at.get(text, ()) if meet(claim, one.claim)]

    def _range(self, start: str) -> slice:
        first = bisect_left(self._starts, start)
        return slice(first, bisect_left(self._starts, True, first, key=lambda one: not one.startswith(start)))

    def makers(self, claim: Claim) -> list[Entry]:
        found = sorted((one for one in self.meeting(claim) if one.writer), key=lambda one: one.writer)
        if claim.shape != "file":
            return found
        # Whoever surely wrote the file last counts, and after that those that perhaps did.
        sure = [number for number, one in enumerate(found) if one.claim.shape != "glob"]
        return found[sure[-1] :] if sure else found

    def read(self, claim: Claim, task: int) -> None:
        self._entry(claim).readers.append(task)

    def write(self, claim: Claim, task: int, future: Future) -> None:
        if claim.shape == "tree":
            # A directory is replaced as a whole: nothing that was written in it before counts any more.
            inside = self._range(claim.path.rstrip(os.sep) + os.sep)
            gone = [one for start in self._starts[inside] for one in self._at.pop(start)]
            del self._starts[inside]
            file = self._entries.get(Claim("file", claim.path))
            if file is not None and file not in gone:
                self._at[claim.path].remove(file)
                gone.append(file)
            for one in gone:
                del self._entries[one.claim]
        entry = self._entry(claim)
        entry.writer, entry.future, entry.readers = task, future, []

    def forget(self, claim: Claim) -> None:
        entry = self._entries.get(claim)
        if entry is not None:
            entry.writer, entry.future = 0, None

    def _entry(self, claim: Claim) -> Entry:
        if claim not in self._entries:
            start = claim.start
            if start not in self._at:
                self._at[start] = []
                insort(self._starts, start)
            if claim.shape != "file":
                self._lengths.add(len(start))
            entry = self._entries[claim] = Entry(claim)
            self._at[start].append(entry)
        return self._entries[claim]

    def written_in(self, directory: str) -> list[str]:
        written = [one.claim.path for one in self._entries.values() if one.writer]
        return [one for one in written if os.path.dirname(one) == directory]
