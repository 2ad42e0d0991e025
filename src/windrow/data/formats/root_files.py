"""ROOT files as uproot opens them: a map of a local file, byte ranges of a remote one."""

from __future__ import annotations

from queue import Queue
from typing import Any, Self

import numpy as np
import uproot

from windrow.data.formats.reader import truncation
from windrow.data.paths import is_remote
from windrow.data.remote.file import RemoteFile
from windrow.errors import CorruptFileError


def open_file(location: str, remote: RemoteFile | None = None) -> Any:
    """Open a ROOT file with uproot, perhaps through a connection that is there; the caller closes it."""
    if is_remote(location):
        mine = RemoteFile(location) if remote is None else remote
        try:
            return uproot.open({location: None}, handler=RemoteSource, remote=mine)
        except BaseException:
            mine.close()
            raise
    # What is missing of a file that is shorter than its header says may be in any column.
    if damage := truncation(location):
        raise CorruptFileError(f"{location} cannot be read as ROOT: {damage}", file=location)
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
        """Give the remote file to a reader, which closes it: uproot closes a source with its last handle."""
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
