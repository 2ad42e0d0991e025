"""What a file is like: size and time say whether it is still the same, its content on demand."""

# ruff: noqa: PTH100, PTH110, PTH112, PTH114, PTH116, PTH118, PTH123
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import hashlib
import os
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.globs import matching

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from windrow.tasks.files.claims import Claim


#: How names of private directories begin; they are no part of what a directory holds.
OURS = ".windrow-"
#: How a hidden file is called that says which files tasks have put into the directory beside it; see ``ownership``.
MARK = f"{OURS}made-"
#: Where results are kept unless another directory is named, and how the part of any store is called that tasks use.
STORE, RESULTS = ".windrow", "results"
#: A file that was touched so many seconds ago may be changed again without another time, on any disk.
YOUNG_S = 0.1


class Stamp(NamedTuple):
    """A file as it was. Of a directory: all its files together, by the sum of sizes and the latest time."""

    path: str  #: absolute
    size: int
    mtime_ns: int


def stamp(path: str | os.PathLike[str]) -> Stamp:
    """Look at a file, or at all files of a directory; FileNotFoundError if there is none."""
    text = os.path.abspath(path)
    if os.path.isdir(text):
        found = [os.stat(one) for one in files_in(text, follow=True)]
        latest = max((one.st_mtime_ns for one in found), default=0)
        return Stamp(text, sum(one.st_size for one in found), latest)
    status = os.stat(text)
    return Stamp(text, status.st_size, status.st_mtime_ns)


def matches(stamps: Any) -> bool:
    try:
        return all(stamp(one.path) == one for one in stamps_of(stamps))
    except OSError:
        return False


def stamps_of(value: Any) -> list[Stamp]:
    """Read what a task says of files that it wrote: a stamp, several, or nothing; plain tuples mean the same."""
    if not value:
        return []
    if isinstance(value[0], str):
        return [Stamp(*value)]
    return [Stamp(*one) for one in value]


def files_in(directory: str, *, follow: bool = False) -> Iterator[str]:
    """List the files below a directory, without those that are private to a session; behind links too, if that is asked for."""
    for place, _, names in places_in(directory, follow=follow):
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(MARK) and os.path.exists(path):  # a link to nowhere is no file
                yield path


def places_in(directory: str, *, follow: bool = False) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk through a directory, without what is private to a session, and without the store.

    A directory behind a link comes after all that are there by themselves, and each one once: links may go in circles.
    """
    waiting, known = [directory], set()
    while waiting:
        for place, directories, names in os.walk(waiting.pop(0)):
            directories[:] = sorted(one for one in directories if not _is_ours(place, one))
            if follow:
                try:
                    status = os.stat(place)
                except OSError:
                    continue  # it has just gone
                if (status.st_dev, status.st_ino) in known:
                    directories.clear()
                    continue
                known.add((status.st_dev, status.st_ino))
                below = [os.path.join(place, one) for one in directories]
                waiting += [one for one in below if os.path.islink(one)]
            yield place, directories, names


def _is_ours(place: str, name: str) -> bool:
    """Whether a directory is private to a session, or where results are kept: those change all the time."""
    if name.startswith(OURS) or name == STORE:
        return True
    if name != RESULTS:
        return False
    try:
        with open(os.path.join(place, name, ".gitignore")) as ignored:
            return ignored.read(3) == "*\n" and os.path.isdir(os.path.join(place, name, "sessions"))
    except (OSError, ValueError):
        return False


def there(claims: Iterable[Claim]) -> Iterator[str]:
    known: set[str] = set()
    for claim in claims:
        if claim.shape == "file":
            # Where names begin there may be a directory: what else is in that does not matter.
            exists = os.path.exists(claim.path) and not os.path.isdir(claim.path)
            found: Iterable[str] = [claim.path] if exists else []
        elif claim.shape == "glob":
            found = filter(os.path.isfile, matching(claim.path))
        else:
            found = files_in(claim.path, follow=True)
        for one in found:
            if one not in known:
                known.add(one)
                yield one


def content_digest(path: str | os.PathLike[str]) -> str:
    """Give the SHA-256 of a file's content, or of all files of a directory; read once as long as the file is not touched."""
    text = os.path.abspath(path)
    if os.path.isdir(text):
        whole = hashlib.sha256()
        for one in files_in(text, follow=True):
            whole.update(os.fsencode(os.path.relpath(one, text)) + b"\0")
            whole.update(content_digest(one).encode())
        return whole.hexdigest()
    status = os.stat(text)
    # The program can set the time of a file, but not when that was done. Within a step of the clock both may be the same.
    settled = time.time() - status.st_ctime > YOUNG_S
    digest = _digest if settled else _digest.__wrapped__
    return digest(text, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=100_000)
def _digest(path: str, *_: int) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
