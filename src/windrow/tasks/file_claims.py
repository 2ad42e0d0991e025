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
    from collections.abc import Container, Iterator

    from windrow.tasks.future import Future


Shape = Literal["file", "tree", "glob"]

#: How a pattern begins before anything in it may stand for another text; characters of names may be escaped there.
_BEGINNING = re.compile(r"(?:[^*?[]|\[[*?[]\])*")
_ESCAPED = re.compile(r"\[([*?[])\]")
#: How it ends: nothing in that has a meaning.
_END = re.compile(r"[^]*?[]*\Z")
#: So many new texts are put into their places one by one; more, all at once.
FEW = 100
#: So many readers are never worth looking through.
MANY = 1000


class Claim(NamedTuple):
    """Files that a call reads or writes: one, all below a directory, or all that match a pattern."""

    shape: Shape
    path: str  #: absolute

    def covers(self, path: str) -> bool:
        """Whether a file is one of them."""
        if self.shape == "file":
            return path == self.path
        if self.shape == "tree":
            return _below(path, self.path)
        # Here stars match separators too; those of "**/" may also stand for no directory at all.
        pattern = self.path.replace(f"**{os.sep}", "*")
        return path.startswith(literal(self.path)) and fnmatchcase(path, pattern)


def literal(pattern: str) -> str:
    """Give what all matches of a pattern begin with."""
    beginning = _BEGINNING.match(pattern)
    assert beginning is not None
    return _ESCAPED.sub(r"\1", beginning[0])


def _ending(pattern: str) -> str:
    """Give what all matches of a pattern end with, or a part of that."""
    end = _END.search(pattern)
    assert end is not None
    return end[0]


def meet(one: Claim, other: Claim) -> bool:
    """Whether two claims may have a file in common."""
    if one.shape == "file":
        return other.covers(one.path)
    if other.shape == "file":
        return meet(other, one)
    if one.shape == "tree" and other.shape == "tree":
        return _below(one.path, other.path) or _below(other.path, one.path)
    if one.shape == "glob" and other.shape == "glob":
        first, second = literal(one.path), literal(other.path)
        ends, other_ends = _ending(one.path), _ending(other.path)
        return (first.startswith(second) or second.startswith(first)) and (
            ends.endswith(other_ends) or other_ends.endswith(ends)
        )
    tree, glob = (one, other) if one.shape == "tree" else (other, one)
    start = literal(glob.path)
    return _below(start, tree.path) or tree.path.startswith(start)


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)


class Entry:
    """What is known of a claim: who wrote it last, and who has read it since."""

    __slots__ = ("_enough", "claim", "future", "readers", "was_read", "writer")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.writer = 0  #: the number of the task; 0 if none of the session
        self.future: Future | None = None  #: of what it says of the files
        self.readers: list[int] = []  #: those that may not have ended
        self.was_read = False
        self._enough = MANY

    def add_reader(self, task: int, open_tasks: Container[int]) -> None:
        """A task reads it; of very many, those that have ended are forgotten."""
        self.was_read = True
        if len(self.readers) >= self._enough:
            self.readers = [one for one in self.readers if one in open_tasks]
            self._enough = max(MANY, 2 * len(self.readers))
        self.readers.append(task)  # now: it is not among the open ones yet


class _Ordered:
    """Texts in order, so that those with one beginning are found without a look at the others."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._new: list[str] = []  #: not in their places yet, as perhaps nobody ever asks
        self._known: set[str] = set()  #: all of them

    def add(self, text: str) -> None:
        """Add a text, unless it is there."""
        if text not in self._known:
            self._known.add(text)
            self._new.append(text)

    def beginning_with(self, start: str) -> list[str]:
        """Find all texts that begin so."""
        where = self._range(start)  # which may put another list in the place of this one
        return self._texts[where]

    def take_out(self, start: str) -> list[str]:
        """Find all texts that begin so, and forget them."""
        where = self._range(start)
        found = self._texts[where]
        del self._texts[where]
        self._known.difference_update(found)
        return found

    def _range(self, start: str) -> slice:
        if len(self._new) > FEW:
            self._texts = sorted(self._texts + self._new)
        else:
            for one in self._new:
                insort(self._texts, one)
        self._new.clear()
        first = bisect_left(self._texts, start)
        return slice(first, bisect_left(self._texts, True, first, key=lambda one: not one.startswith(start)))


class Claims:
    """All claims of a session."""

    def __init__(self) -> None:
        self._files: dict[str, Entry] = {}
        self._trees: dict[str, Entry] = {}
        self._globs: dict[str, dict[str, Entry]] = {}  #: by what all matches begin with, and pattern
        self._paths = _Ordered()  #: of files and trees
        self._starts = _Ordered()  #: of globs
        self._lengths: set[int] = set()  #: of those

    def meeting(self, claim: Claim) -> list[Entry]:
        """Find everything that may have a file in common with a claim."""
        if claim.shape != "file":
            return [one for one in self._near(claim) if meet(claim, one.claim)]
        found = [self._files[claim.path]] if claim.path in self._files else []
        if self._trees:
            found += [self._trees[one] for one in _upwards(claim.path) if one in self._trees]
        return found + [one for one in self._beginnings(claim.path) if one.claim.covers(claim.path)]

    def _near(self, claim: Claim) -> Iterator[Entry]:
        """Find everything that begins as a claim does, and what is said of directories above and shorter beginnings."""
        start = _start(claim)
        for path in self._paths.beginning_with(start):
            for known in (self._files, self._trees):
                if path in known:
                    yield known[path]
        for path in list(_upwards(start))[1:]:
            if path in self._trees:
                yield self._trees[path]
        for text in self._starts.beginning_with(start):
            yield from self._globs[text].values()
        yield from self._beginnings(start[:-1])

    def _beginnings(self, text: str) -> Iterator[Entry]:
        """Find the patterns whose matches begin as a text does."""
        for length in self._lengths:
            if length <= len(text):
                yield from self._globs.get(text[:length], {}).values()

    def _all(self) -> Iterator[Entry]:
        yield from self._files.values()
        yield from self._trees.values()
        for entries in self._globs.values():
            yield from entries.values()

    def makers(self, claim: Claim) -> list[Entry]:
        """Find what earlier tasks write of a claim, in the order of their calls."""
        found = sorted((one for one in self.meeting(claim) if one.writer), key=lambda one: one.writer)
        if claim.shape != "file":
            return found
        # Whoever surely wrote the file last counts, and after that those that perhaps did.
        sure = [number for number, one in enumerate(found) if one.claim.shape != "glob"]
        return found[sure[-1] :] if sure else found

    def read(self, claim: Claim, task: int, open_tasks: Container[int]) -> None:
        """A task reads."""
        self._entry(claim).add_reader(task, open_tasks)

    def write(self, claim: Claim, task: int, future: Future) -> None:
        """A task writes: from now on this is its work."""
        if claim.shape == "tree":
            # A directory is replaced as a whole: nothing that was written in it before counts any more.
            inside = claim.path.rstrip(os.sep) + os.sep
            for path in (claim.path, *self._paths.take_out(inside)):
                self._files.pop(path, None)
                self._trees.pop(path, None)
            for text in self._starts.take_out(inside):
                del self._globs[text]
        entry = self._entry(claim)
        entry.writer, entry.future = task, future
        entry.readers, entry.was_read = [], False

    def forget(self, claim: Claim) -> None:
        """What a task wrote does not count any more."""
        for entry in self.meeting(claim):
            if entry.claim == claim:
                entry.writer, entry.future = 0, None

    def _entry(self, claim: Claim) -> Entry:
        if claim.shape == "glob":
            start = _start(claim)
            known = self._globs.setdefault(start, {})
            self._starts.add(start)
            self._lengths.add(len(start))
        else:
            known = self._files if claim.shape == "file" else self._trees
            self._paths.add(claim.path)
        if claim.path not in known:
            known[claim.path] = Entry(claim)
        return known[claim.path]

    def written_in(self, directory: str) -> list[str]:
        """List the paths in a directory that tasks write, for hints."""
        return [one.claim.path for one in self._all() if one.writer and os.path.dirname(one.claim.path) == directory]


def _start(claim: Claim) -> str:
    """Give what the paths of all files of a claim begin with."""
    return literal(claim.path) if claim.shape == "glob" else claim.path


def _upwards(path: str) -> Iterator[str]:
    """Give a path and the directories above it."""
    while True:
        yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above
