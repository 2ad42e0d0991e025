"""The files of a journal: one per merged partial, named by a number, whole or not there.

They are kept as they come. Sums of weights hardly compress, and zstd at its fastest (170-900 MB/s) was slower than the
local disk (900 MB/s with fsync) on everything but zeros.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from windrow.errors import CorruptFileError, WindrowError
from windrow.store.framed import Frame
from windrow.store.whole import sync_directory

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from pathlib import Path


#: The directory, in that of the run.
BLOBS = "blobs"

_FRAME = Frame(
    magic=b"windrow blob\n\0\0\0",
    format=1,
    what="a part of a run",
    again="run with resume=False, which starts from the beginning",
)
_OURS = re.compile(r"(\d{8,})\.blob(\.part)?")


def blob_path(directory: Path, number: int) -> Path:
    """Say where a blob stands."""
    return directory / BLOBS / f"{number:08d}.blob"


def write_blob(directory: Path, number: int, content: Sequence[bytes | memoryview]) -> tuple[int, str]:
    """Write a blob so that not even a power cut takes it away; returns the length and digest of its content."""
    path = blob_path(directory, number)
    facts = _FRAME.write(path, content)
    sync_directory(path.parent)
    return facts


def read_blob(directory: Path, number: int, length: int, digest: str) -> bytes:
    """Return the content of a blob, which must be that of this length and digest."""
    path = blob_path(directory, number)
    try:
        content, found = _FRAME.read(path)
    except WindrowError:
        raise
    except OSError as error:
        raise CorruptFileError(
            f"{path}, which the journal of the run speaks of, is missing or cannot be read ({error}); {_FRAME.again}",
            file=str(path),
        ) from error
    if (len(content), found) != (length, digest):
        raise CorruptFileError(
            f"{path} is whole, but not the one the journal of the run speaks of; {_FRAME.again}", file=str(path)
        )
    return content


def remove_blobs(directory: Path, numbers: Iterable[int]) -> None:
    """Remove blobs that nobody knows any more; one that cannot be removed now is removed another time."""
    for number in numbers:
        with contextlib.suppress(OSError):
            blob_path(directory, number).unlink()


def remove_unknown_blobs(directory: Path, known: Container[int] = ()) -> None:
    """Remove what a killed run left half done, and nothing that is not ours."""
    place = directory / BLOBS
    if not place.is_dir():
        return
    for entry in place.iterdir():
        match = _OURS.fullmatch(entry.name)
        if match and (match[2] or int(match[1]) not in known):
            entry.unlink(missing_ok=True)
