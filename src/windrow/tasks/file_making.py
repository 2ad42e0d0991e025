"""What a body is to write, and whether it has: each output at its private path, before that is moved into place."""

# ruff: noqa: PTH110, PTH112, PTH113, PTH114, PTH115, PTH116, PTH119, PTH120, PTH202, PTH206
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import glob
import os
import stat as modes
from typing import TYPE_CHECKING, NamedTuple

from windrow.errors import TaskFileError
from windrow.globs import matching
from windrow.tasks.file_stamps import files_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.tasks.file_claims import Claim
    from windrow.tasks.file_kinds import FileKind
    from windrow.tasks.file_reading import Read


class Write(NamedTuple):
    """A path that the body writes."""

    parameter: str
    kind: FileKind
    place: int | str
    item: int | None
    path: str  #: "" where a future says it
    output: str  #: by which the graph knows what is said of the files
    claim: Claim | None = None
    begins: bool = False  #: names of several files begin with the path
    keeping: bool = False  #: the version before may be read again
    read: Read | None = None  #: of a file that is changed


class Making(NamedTuple):
    """A path that is being written."""

    write: Write
    path: str  #: as the user knows it
    target: str  #: the same, without links
    own: str  #: where the body writes it
    place: str  #: in which its private directory is
    top: str  #: the session's directory there


def place_of(write: Write, target: str) -> str:
    """Say where a private directory is for an output: beside it, or in it, if nothing can be moved into it from there."""
    above = os.path.dirname(target)
    merges = write.kind.pattern and not write.begins and os.path.isdir(target)
    if merges and (os.path.ismount(target) or not os.access(above, os.W_OK)):
        return target
    return above


def files_made(making: Making) -> tuple[list[str], str]:
    """List the files of a declared output, relative to where the body was to write it; and say what is wrong with them."""
    own, write = making.own, making.write
    may_be_empty = write.kind.may_be_empty
    wrong = ""
    if write.kind.pattern:
        assert write.claim is not None
        pattern = glob.escape(own) + write.claim.path[len(glob.escape(making.path)) :]
        found = [one for one in matching(pattern) if os.path.isfile(one)]
        if not found and not (may_be_empty and os.path.isdir(own)):
            wrong = f"has no file that matches {os.path.basename(write.claim.path)!r}"
        empty = [one for one in sorted(found) if not os.path.getsize(one)]
        if empty and not may_be_empty:
            names = [os.path.relpath(one, os.path.dirname(own)) for one in empty[:10]]
            wrong = f"has empty files that match {os.path.basename(write.claim.path)!r}: {names}"
    elif os.path.isdir(own):
        found = list(files_in(own))
        if not write.kind.directory:
            wrong = "was made as a directory; annotate the parameter with wr.OutDir, or write a file"
        elif not found and not may_be_empty:
            wrong = "is an empty directory"
    else:
        found = [own]
        if os.path.exists(own):
            wrong = "" if os.path.getsize(own) or may_be_empty else "is an empty file"
        elif os.path.islink(own):
            wrong = f"is a link to {os.readlink(own)}, where nothing is"
        else:
            wrong = "was not written"
    return sorted(os.path.relpath(one, os.path.dirname(own)) for one in found), wrong


def unwritten(task: str, making: Making, together: Iterable[Making], what: str) -> TaskFileError:
    """Make the error that says what is wrong with an output, and what was made beside it."""
    private = os.path.dirname(making.own)
    declared = {os.path.basename(one.own) for one in together}
    others = [
        name
        for name in (os.path.relpath(one, private) for one in files_in(private))
        if name.split(os.sep)[0] not in declared
    ]
    beside = f"; it made {others[:10]} beside it" if others else ""
    write = making.write
    return TaskFileError(
        f"task {task!r} has ended, and {making.path} (parameter {write.parameter!r}, {write.kind.name}) "
        f"{what}{beside}; it has to be written to the path that the body is given, which is a private one until then"
    )


def is_special(path: str) -> bool:
    """Whether a path is a device or pipe, such as the one that swallows everything."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (modes.S_ISREG(mode) or modes.S_ISDIR(mode))
