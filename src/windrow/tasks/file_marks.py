"""Marks on what tasks have put into place: a directory that is replaced as a whole must not take anybody else's files with it.

They are where the files are, so that any session knows them, whatever store it has, and where nobody meets them: in
extended attributes. A directory has the names of all files that its task made, a single file its own number, which a copy
of it does not have. Where there are no such attributes, the names are in a hidden directory inside.
"""

# ruff: noqa: PTH103, PTH112, PTH114, PTH116, PTH118, PTH120, PTH123
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from windrow.errors import TaskFileError
from windrow.tasks.file_places import MOST_TRIES
from windrow.tasks.file_stamps import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from windrow.tasks.file_kinds import FileKind


#: The hidden directory, where there are no extended attributes.
MARK = f"{OURS}made"
_ATTRIBUTE = "user.windrow.made"
#: So many names are told of files that are in the way.
FEW = 5


def mark_file(path: str, target: str) -> None:
    """Mark a file that a task made and that goes to ``target``; not one with other names, which may be somebody's input."""
    status = os.lstat(path)
    if status.st_nlink > 1:
        return
    try:
        os.setxattr(path, _ATTRIBUTE, f"{status.st_ino}".encode(), follow_symlinks=False)
    except (AttributeError, OSError):
        _note_in_directory(target)


def _note_in_directory(target: str) -> None:
    """Note a file in the hidden directory of the one it goes to, or of one above; where there is none, nobody asks."""
    place = os.path.dirname(target)
    while place != os.path.dirname(place):
        with suppress(OSError), open(os.path.join(place, MARK, "more"), "a") as stream:
            stream.write(json.dumps(os.path.relpath(target, place)) + "\n")
            return
        place = os.path.dirname(place)


def mark_directory(directory: str, without: Collection[str] = ()) -> None:
    """Note in a directory that a task made which files it has; not those ``without``, which it has from somebody else."""
    names = [one for one in names_in(directory) if one not in without]
    content = zlib.compress(json.dumps(names).encode())
    try:
        os.setxattr(directory, _ATTRIBUTE, content)
    except (AttributeError, OSError):  # there are none here, or it is too much for one
        with suppress(OSError):
            os.makedirs(os.path.join(directory, MARK), exist_ok=True)
            with open(os.path.join(directory, MARK, "names"), "wb") as stream:
                stream.write(content)


def others_in(directory: str) -> list[str]:
    """List the files in a directory that no task has put there; links are files here."""
    for _ in range(MOST_TRIES):
        before = _identity(directory)
        names = list(names_in(directory))
        places = dict.fromkeys(["", *map(os.path.dirname, names)]) if names else ()
        known = {os.path.join(one, name) for one in places for name in _marked(os.path.join(directory, one))}
        found = [one for one in names if one not in known]
        found = [one for one in found if not _is_marked(os.path.join(directory, one))]
        if not found or before == _identity(directory):
            return found
    return found  # another session replaces it all the time


def _identity(directory: str) -> tuple[int, int] | None:
    """Tell a directory from the one that took its place while it was looked at."""
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def names_in(directory: str) -> Iterator[str]:
    """List the files below a directory, and links, relative to it; without what is private to a session."""
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(one for one in directories if not one.startswith(OURS))
        links = [one for one in directories if os.path.islink(os.path.join(place, one))]
        for name in (*links, *names):
            yield os.path.relpath(os.path.join(place, name), directory)


def _marked(directory: str) -> set[str]:
    content, more = b"", list[str]()
    with suppress(OSError), open(os.path.join(directory, MARK, "names"), "rb") as stream:
        content = stream.read()
    with suppress(OSError), open(os.path.join(directory, MARK, "more")) as lines:
        more = lines.readlines()
    with suppress(AttributeError, OSError):
        content = os.getxattr(directory, _ATTRIBUTE)
    try:
        names = json.loads(zlib.decompress(content)) if content else []
        return {*names, *map(json.loads, more)}
    except (zlib.error, ValueError):
        return set()


def _is_marked(path: str) -> bool:
    try:
        found = os.getxattr(path, _ATTRIBUTE, follow_symlinks=False)
        return found == f"{os.lstat(path).st_ino}".encode()
    except (AttributeError, OSError):
        return False


def check_replaceable(
    task: str, parameter: str, kind: FileKind, target: str, base: str, made: Callable[[], set[str]]
) -> None:
    """Refuse a directory that cannot be replaced as a whole, or that would lose files which no task put there.

    ``made`` gives files that the session knows to be its own, also where they have no marks.
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
    others = list(others_in(target))
    if others:
        known = made()
        others = [one for one in others if os.path.join(target, one) not in known]
    if others:
        more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
        raise TaskFileError(
            f"{what} it has files that no task has put there: {', '.join(others[:FEW])}{more}; move them elsewhere, or "
            f"remove them if nobody needs them; else give it a directory of its own{keeping}"
        )
