"""ROOT files as files: opening them, and what is wrong with them when uproot cannot.

All of uproot's errors are translated here; transient ``OSError`` stay what they are, so that a
retry can see them.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import cramjam
import numpy as np
import uproot

from windrow.data.paths import is_remote, missing_package, named_error
from windrow.data.remote.file import RemoteFile
from windrow.errors import CorruptFileError, DataError, MissingFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from queue import Queue


def is_local(location: str) -> bool:
    return not is_remote(location)


def open_file(location: str, remote: RemoteFile | None = None) -> Any:
    """Open a ROOT file with uproot, perhaps through a connection that is there; the caller closes it."""
    if not is_local(location):
        mine = RemoteFile(location) if remote is None else remote
        try:
            return uproot.open({location: None}, handler=RemoteSource, remote=mine)
        except BaseException:
            mine.close()
            raise
    refuse_truncated(location)
    # For local files a memory map needs no thread and no copy per request.
    return uproot.open({location: None}, handler=uproot.MemmapSource)


def remote_file(handle: Any) -> RemoteFile | None:
    """Take over the remote file of an open ROOT file; None if it is local."""
    source = handle.file.source
    return source.hand_over() if isinstance(source, RemoteSource) else None


class RemoteSource(uproot.source.chunk.Source):  # type: ignore[misc]  # uproot has no types
    """A remote file as uproot reads it: small reads from what was fetched, lists in one request."""

    def __init__(self, file_path: str, **options: Any) -> None:
        super().__init__()
        self._file_path = file_path
        self._executor = uproot.source.futures.TrivialExecutor()
        self._remote: RemoteFile = options["remote"]
        self._owns = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._owns:
            self._remote.close()

    def hand_over(self) -> RemoteFile:
        """Give the remote file to a reader, which closes it: uproot closes what nobody refers to."""
        self._owns = False
        return self._remote

    @property
    def num_bytes(self) -> int:
        return self._remote.size

    @property
    def closed(self) -> bool:
        return False

    def chunk(self, start: int, stop: int) -> Any:
        data = np.frombuffer(self._remote.read_metadata(start, stop), np.uint8)
        future = uproot.source.futures.TrivialFuture(data)
        return uproot.source.chunk.Chunk(self, start, start + len(data), future)

    def chunks(self, ranges: list[tuple[int, int]], notifications: Queue[Any]) -> list[Any]:
        self._remote.prefetch(ranges)
        pieces = []
        for start, stop in ranges:
            data = np.frombuffer(self._remote.read(start, stop), np.uint8)
            future = uproot.source.futures.TrivialFuture(data)
            pieces.append(uproot.source.chunk.Chunk(self, start, stop, future))
            notifications.put(pieces[-1])
        return pieces


@contextmanager
def translated(label: str) -> Iterator[None]:
    """Turn what uproot raises about a file into Windrow's errors; transient ``OSError`` stay."""
    try:
        yield
    except (DataError, UsageError):
        raise
    except ImportError as exc:
        raise UsageError(missing_package(label, exc), file=label) from exc
    except FileNotFoundError as exc:
        raise MissingFileError(f"no such file: {label}", file=label) from exc
    except uproot.deserialization.DeserializationError as exc:
        raise _corrupt(label, exc) from exc
    except OSError as exc:
        # What the operating system or a connection reports may not happen the next time; a
        # complaint of uproot's own about a local file has no error number.
        if exc.errno is None and is_local(label):
            raise _corrupt(label, exc) from exc
        raise named_error(label, exc) from exc
    except (
        ValueError, TypeError, KeyError, IndexError, AssertionError, NotImplementedError,
        AttributeError, struct.error, zlib.error, MemoryError, RuntimeError, EOFError,
        lzma.LZMAError, cramjam.DecompressionError,
    ) as exc:  # fmt: skip
        raise _corrupt(label, exc) from exc


def refuse_truncated(label: str) -> None:
    """Raise if a local file is shorter than its header says: what is missing may be in any column."""
    if not is_local(label):
        return
    with Path(label).open("rb") as file:
        head = file.read(4)
        size = file.seek(0, 2)
    if head == b"root" and (damage := _root_damage(size, label)).startswith("it is truncated"):
        raise CorruptFileError(f"{label} cannot be read as ROOT: {damage}", file=label)


def _corrupt(label: str, exc: BaseException) -> CorruptFileError:
    reason = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
    return CorruptFileError(f"{label} cannot be read as ROOT: {_looks_like(label)} ({reason[:200]})", file=label)


#: What the first bytes of a file that is not ROOT give away.
_MAGIC = {
    b"PAR1": "it is a Parquet file: give it the suffix .parquet",
    b"\x89HDF": "it is an HDF5 file",
    b"\x1f\x8b": "it is gzip-compressed: unpack it first",
    b"PK": "it is a zip archive",
    b"<": "it looks like a web page, perhaps an error from a download",
    b"{": "it looks like JSON",
}


def _looks_like(label: str) -> str:
    if not is_local(label):
        return "it is damaged or not a ROOT file"
    try:
        with Path(label).open("rb") as file:
            head = file.read(16)
            size = file.seek(0, 2)
    except OSError:
        return "it cannot be opened"
    if not head:
        return "it is empty (0 bytes)"
    if head[:4] == b"root":
        return _root_damage(size, label)
    for magic, meaning in _MAGIC.items():
        if head.startswith(magic):
            return meaning
    return f"it does not begin with 'root' but with {head[:8]!r}"


def _root_damage(size: int, label: str) -> str:
    """Compare the size with the one the header records, at the place its version has it."""
    with Path(label).open("rb") as file:
        file.seek(4)
        version = int.from_bytes(file.read(4), "big")
        file.seek(12)
        end = int.from_bytes(file.read(8 if version >= 1_000_000 else 4), "big")
    if end > size:
        return f"it is truncated: its header says {end} bytes, it has {size}"
    return "it is a ROOT file, but damaged"
