"""Marks on what tasks have put into place: a directory that is replaced as a whole must not take anybody else's files with it.

They are where the files are, so that any session knows them, whatever store it has, and where users do not meet them: in
extended attributes. A directory has the names of all files that its task made; each mark has the number of what it is on,
which a copy does not have, and the name of the task. Where there are no such attributes, a hidden file beside a directory
has the names, also of single files that tasks put into it later.
"""

# ruff: noqa: PTH112, PTH114, PTH116, PTH118, PTH119, PTH120, PTH123
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import TaskFileError
from windrow.tasks.files.stamps import MARK, OURS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from windrow.tasks.files.annotations import FileKind


_ATTRIBUTE = "user.windrow.made"
#: So many names are told of files that are in the way.
FEW = 5


class Mark(NamedTuple):
    """What is known of a file or directory that a task put into place."""

    number: int  #: of the file, or directory
    time: int  #: of the file, or the youngest one in the directory, in ns
    task: str
    names: list[str]  #: of the files in a directory, relative to it


def mark_file(path: str, target: str, task: str) -> None:
    """Mark a file that a task made and that goes to ``target``; not one with other names, which may be an input of the user's."""
    status = os.lstat(path)
    if status.st_nlink > 1 or _set_attribute(path, Mark(status.st_ino, status.st_mtime_ns, task, [])):
        return
    place = os.path.dirname(target)
    while place != os.path.dirname(place):  # where no directory is marked, nobody asks
        known = _read_mark(place)
        if known is not None:
            _write_beside(place, known._replace(names=[*known.names, os.path.relpath(target, place)]))
            return
        place = os.path.dirname(place)


def mark_directory(path: str, target: str, task: str, without: Collection[str] = ()) -> None:
    """Mark a directory that a task made and that goes to ``target``, but for files ``without``, which no task made."""
    names = [one for one in names_in(path) if one not in without]
    times = [os.lstat(os.path.join(path, one)).st_mtime_ns for one in names]
    mark = Mark(os.stat(path).st_ino, max(times, default=0), task, names)
    if not _set_attribute(path, mark):
        _write_beside(target, mark)


def _set_attribute(path: str, mark: Mark) -> bool:
    """Mark a file or directory itself; False if there are no attributes here, or it is too much for one."""
    try:
        os.setxattr(path, _ATTRIBUTE, zlib.compress(json.dumps(mark).encode()), follow_symlinks=False)
    except (AttributeError, OSError):
        return False
    return True


def _write_beside(directory: str, mark: Mark) -> None:
    with suppress(OSError), open(_beside(directory), "w") as stream:
        json.dump(mark, stream)


def _beside(directory: str) -> str:
    return os.path.join(os.path.dirname(directory), MARK + os.path.basename(directory))


def _read_mark(path: str) -> Mark | None:
    found: Any = None
    with suppress(OSError, ValueError), open(_beside(path)) as stream:
        found = json.load(stream)
    with suppress(AttributeError, OSError, ValueError, zlib.error):
        found = json.loads(zlib.decompress(os.getxattr(path, _ATTRIBUTE, follow_symlinks=False)))
    try:
        mark = Mark(*found)
        return mark if mark.number == os.lstat(path).st_ino else None
    except (OSError, TypeError):
        return None


def maker_of(path: str) -> str:
    """Give the name of the task that made a file as it is, alone or in a directory; empty if that is not known."""
    inside, time = path, os.lstat(path).st_mtime_ns
    while inside != os.path.dirname(inside):
        mark = _read_mark(os.path.realpath(inside))
        if mark is not None and (inside == path or os.path.relpath(path, inside) in mark.names):
            return mark.task if time <= mark.time else ""
        inside = os.path.dirname(inside)
    return ""


def others_in(directory: str) -> list[str]:
    """List the files in a directory that no task has put there; links are files here."""
    names = list(names_in(directory))
    known: set[str] = set()
    for place in dict.fromkeys(["", *map(os.path.dirname, names)]) if names else ():
        mark = _read_mark(os.path.join(directory, place) if place else directory)
        known.update(os.path.join(place, one) for one in (mark.names if mark else ()))
    return [one for one in names if one not in known and _read_mark(os.path.join(directory, one)) is None]


def names_in(directory: str) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(one for one in directories if not one.startswith(OURS))
        links = [one for one in directories if os.path.islink(os.path.join(place, one))]
        for name in (*links, *(one for one in names if not one.startswith(MARK))):
            yield os.path.relpath(os.path.join(place, name), directory)


def check_replaceable(
    task: str, parameter: str, kind: FileKind, target: str, base: str, inside: Collection[str]
) -> None:
    """Refuse a directory that cannot be replaced as a whole, or that would lose files which no task put there.

    ``inside`` are paths in it that tasks of the session write, also where they have no marks.
    """
    what = f"task {task!r} writes the directory {target} (parameter {parameter!r}, {kind.name}), which is replaced as a whole, but"
    keeping = f", or {kind.keeps_nothing}" if kind.keeps_nothing else ""
    for here in {os.path.realpath(base), os.path.realpath(os.curdir)}:  # of the program, and here
        if f"{here}{os.sep}".startswith(target.rstrip(os.sep) + os.sep):
            raise TaskFileError(
                f"{what} the working directory {here} is in it; give it a directory of its own{keeping if kind.name == 'OutDir' else ''}"
            )
    if os.path.ismount(target):
        raise TaskFileError(
            f"{what} it is where a file system is mounted, which cannot be replaced; name a directory in it"
        )
    if not kind.keeps_nothing or not os.path.isdir(target):
        return
    others = [one for one in others_in(target) if os.path.join(target, one) not in inside]
    if others:
        more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
        raise TaskFileError(
            f"{what} it has files that no task has put there: {', '.join(others[:FEW])}{more}; move them elsewhere, or "
            f"remove them if nobody needs them; else give it a directory of its own{keeping}"
        )
