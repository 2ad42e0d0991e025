"""What the shell of a command has left running: who of that is still at work on what the command is to give.

No shell waits for its process substitutions: in ``tee >(gzip > {out})`` it may end long before gzip, which is done when it
has read all that tee wrote. Ended with the shell it would leave half a file that looks like a whole one. Who has an
output open for writing is at work on it, and so is who reads from a pipe into which nobody writes any more, or only such
as are at work: it may open its output when it has read all (``>(sort -o {out})``). Others hold nothing of the command.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.tasks.files.stamps import OURS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class _Open(NamedTuple):
    """What a process has open."""

    written: str  #: one of the outputs, if any
    reads: set[tuple[int, int]]  #: pipes, by device and number
    feeds: set[tuple[int, int]]


def places_of(directory: str, values: Iterable[Any]) -> tuple[str, ...]:
    """Say how the paths of a command's outputs begin: with all of their private directory, where they have one."""
    found: dict[str, None] = {}
    for value in values:
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, (str, os.PathLike)):
                path = Path(directory, one)
                private = OURS in str(path)
                found[f"{path.parent.resolve()}/" if private else f"{path.resolve()}"] = None
    return tuple(found)


def at_work(members: Iterable[int], places: Sequence[str]) -> set[int]:
    """Who of a command's processes will still write, or may."""
    opened = {pid: _opened(pid, places) for pid in members}
    found = {pid for pid, one in opened.items() if one.written}
    while True:
        idle = {pid: one.feeds for pid, one in opened.items() if pid not in found}
        more = {
            pid
            for pid in idle
            if any(
                all(pipe not in feeds for other, feeds in idle.items() if other != pid) for pipe in opened[pid].reads
            )
        }
        if not more:
            return found
        found |= more


def writers(members: Iterable[int], places: Sequence[str]) -> dict[int, str]:
    """Who has an output open for writing, in words."""
    found: dict[int, str] = {}
    for pid in members:
        written = _opened(pid, places).written
        if written:
            found[pid] = f"{_name(pid)} (process {pid}) was writing {Path(written).name}"
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a program"


def _opened(pid: int, places: Sequence[str]) -> _Open:
    found = _Open("", set(), set())
    with contextlib.suppress(OSError):  # gone, or another user's
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed by now
                found = _with(found, pid, entry, places)
    return found


def _with(found: _Open, pid: int, entry: os.DirEntry[str], places: Sequence[str]) -> _Open:
    facts = os.stat(entry.path)  # noqa: PTH116 - of what is open, not of a path
    if stat.S_ISFIFO(facts.st_mode):
        mode = _mode(pid, entry.name)
        if mode != os.O_WRONLY:
            found.reads.add((facts.st_dev, facts.st_ino))
        if mode != os.O_RDONLY:
            found.feeds.add((facts.st_dev, facts.st_ino))
    elif stat.S_ISREG(facts.st_mode) and not found.written:
        path = os.readlink(entry.path)  # noqa: PTH115 - as above
        if path.startswith(tuple(places)) and _mode(pid, entry.name) != os.O_RDONLY:
            return found._replace(written=path)
    return found


def _mode(pid: int, descriptor: str) -> int:
    """Say how something was opened: to read, to write, or both."""
    for line in Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text().splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE
    return os.O_RDONLY
