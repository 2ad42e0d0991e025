"""Remote files: byte ranges in one round trip, and what was fetched ahead held until it is asked for.

A remote file belongs to one reader and its thread. It fetches (a list of ranges is one request wherever the protocol
allows), holds what was fetched, and measures the link while doing so. What to fetch ahead is decided elsewhere. Errors
of the link come out as ``OSError``: retries are the scheduler's.
"""

from __future__ import annotations

import errno
import io
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING

from windrow.data.remote.http import NEAR_SINGLE, Blocks, HttpFile, coalesced

if TYPE_CHECKING:
    from windrow.data.remote.http import Range


#: What is fetched when a file is opened: a ROOT file's directory is at its beginning, and what was written last (trees,
#: keys, streamers; a Parquet or RNTuple footer) at its end. NanoAOD of 1,500 branches has 0.3 MB there.
HEAD_BYTES, TAIL_BYTES = 1 << 16, 1 << 20

#: What is not at the ends is often read on: a miss while a file is looked at fetches this much.
READ_ON_BYTES = 1 << 16

#: What describes the file is held up to so many bytes.
METADATA_BYTES = 1 << 24

#: A link is taken to be like this until it was measured: a wide area network.
ASSUMED_ROUND_TRIP_S, ASSUMED_BYTES_PER_S = 0.05, 50e6

#: Answers smaller than this tell how long a round trip takes, larger ones how fast the link is.
MEASURABLE_BYTES = 1 << 18

#: Fetches that a link is judged by.
REMEMBERED = 8


class Link:
    """What fetching costs: a round trip, and bytes per second; both follow what is measured."""

    def __init__(self) -> None:
        self.round_trip_s = ASSUMED_ROUND_TRIP_S
        self.bytes_per_s = ASSUMED_BYTES_PER_S
        self._waits: deque[float] = deque(maxlen=REMEMBERED)
        self._transfers: deque[tuple[int, float]] = deque(maxlen=REMEMBERED)

    def saw(self, waited_s: float | None, total_s: float, size: int) -> None:
        """Learn from one fetch; ``waited_s`` until the first byte, None where the transport does not tell."""
        if waited_s is None and size < MEASURABLE_BYTES:
            waited_s = total_s
        if waited_s is not None:
            # What else is busy only adds to a round trip: the shortest is nearest to the truth.
            self._waits.append(waited_s)
            self.round_trip_s = min(self._waits)
        if size >= MEASURABLE_BYTES:
            # A transfer that seems to take no time had arrived while something else was done.
            spent = max(total_s - (self.round_trip_s if waited_s is None else waited_s), 1e-4)
            self._transfers.append((size, spent))
            carried = sum(size for size, _ in self._transfers)
            self.bytes_per_s = carried / sum(spent for _, spent in self._transfers)


class FilesystemFile:
    """A file of any other protocol that fsspec knows; several ranges are one call of it."""

    def __init__(self, location: str) -> None:
        import fsspec  # type: ignore[import-untyped]  # local files do not need it

        self._files, self._path = fsspec.core.url_to_fs(location)
        self.requests = 0
        self.first_byte_s: float | None = None  #: nobody says

    def ends(self, head: int, tail: int) -> Blocks:
        self.requests += 1
        size = self._files.size(self._path)
        if size is None:
            raise OSError(errno.EOPNOTSUPP, f"{self._path}: its size is not known", self._path)
        size = int(size)
        wanted = coalesced([(0, min(head, size)), (max(size - tail, 0), size)], 0)
        found = self.fetch(wanted) if size else Blocks()
        found.size = size
        return found

    def fetch(self, ranges: Sequence[Range]) -> Blocks:
        wanted = coalesced(ranges, NEAR_SINGLE)
        starts, stops = [one[0] for one in wanted], [one[1] for one in wanted]
        self.requests += 1
        parts = self._files.cat_ranges([self._path] * len(wanted), starts, stops, on_error="raise")
        found = Blocks()
        for start, data in zip(starts, parts, strict=True):
            found.add(start, data)
        return found

    def close(self) -> None:
        """Do nothing: fsspec keeps connections by itself."""


class RemoteFile:
    """One remote file: fetches, holds what was fetched ahead, counts and measures."""

    def __init__(self, location: str, size: int | None = None) -> None:
        self.location = location
        self.link = Link()
        self.bytes_read = 0  #: fetched, with what lay between ranges that were joined
        self._size = size
        self._ends: Blocks | None = None
        self._held = Blocks()
        self._transport: HttpFile | FilesystemFile | None = None
        self._requests = 0

    @property
    def requests(self) -> int:
        return self._requests + (self._transport.requests if self._transport else 0)

    @property
    def size(self) -> int:
        if self._size is None:
            self.look_at_ends()
        assert self._size is not None
        return self._size

    def look_at_ends(self) -> None:
        """Fetch both ends, where formats keep what they say about themselves; they stay held."""
        if self._ends is None:
            found = self._timed(lambda transport: transport.ends(HEAD_BYTES, TAIL_BYTES))
            self._ends, self._size = found, found.size

    def read(self, start: int, stop: int) -> bytes | memoryview:
        if start >= stop:
            return b""
        found = self._find(start, stop)
        if found is None:
            self.prefetch([(start, stop)])
            found = self._find(start, stop)
        if found is None:
            raise EOFError(f"{self.location} has no bytes {start} to {stop}: it is truncated")
        return found

    def read_metadata(self, start: int, stop: int) -> bytes | memoryview:
        """Return bytes of what describes the file: its ends, or a piece that is read on."""
        self.look_at_ends()
        assert self._ends is not None
        stop = min(stop, self.size)
        if start < stop and self._find(start, stop) is None:
            wanted = (start, min(max(stop, start + READ_ON_BYTES), self.size))
            found = self._timed(lambda transport: transport.fetch([wanted]))
            piece = found.find(*wanted)
            if piece is None:
                raise EOFError(f"{self.location} has no bytes {start} to {stop}: it is truncated")
            # Libraries read such things more than once; should it ever be data, memory is bounded.
            much = self._ends.total_bytes > METADATA_BYTES
            (self._held if much else self._ends).add(start, piece)
        return self.read(start, stop)

    def prefetch(self, ranges: Iterable[Range]) -> None:
        """Fetch what is not held of the ranges, in one request, and hold it until ``forget``."""
        wanted = dict.fromkeys(ranges)
        missing = [one for one in wanted if one[0] < one[1] and self._find(*one) is None]
        if not missing:
            return
        found = self._timed(lambda transport: transport.fetch(missing))
        for start, stop in missing:
            piece = found.find(start, stop)
            if piece is not None and len(piece) == stop - start:
                self._held.add(start, piece)

    def forget(self) -> None:
        self._held.clear()

    def close(self) -> None:
        self._held.clear()
        self._ends = None
        if self._transport is not None:
            self._requests += self._transport.requests
            self._transport.close()
            self._transport = None

    def _find(self, start: int, stop: int) -> memoryview | None:
        found = self._held.find(start, stop)
        return self._ends.find(start, stop) if found is None and self._ends else found

    def _timed(self, fetch: Callable[[HttpFile | FilesystemFile], Blocks]) -> Blocks:
        if self._transport is None:
            is_web = self.location.lower().startswith(("http://", "https://"))
            self._transport = (HttpFile if is_web else FilesystemFile)(self.location)
        before = self._transport.requests
        began = perf_counter()
        found = fetch(self._transport)
        total = perf_counter() - began
        size = found.total_bytes
        self.bytes_read += size
        if self._transport.requests == before + 1:  # several at once tell little of one
            self.link.saw(self._transport.first_byte_s, total, size)
        return found


class RemoteHandle(io.RawIOBase):
    """A remote file as the kind of file that pyarrow reads."""

    def __init__(self, remote: RemoteFile) -> None:
        super().__init__()
        self.remote = remote
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        self._at = offset + (self.remote.size if base is None else base)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self.remote.size
        stop = end if size is None or size < 0 else min(self._at + size, end)
        data = bytes(self.remote.read(self._at, stop))
        self._at += len(data)
        return data

    def close(self) -> None:
        with suppress(AttributeError):
            self.remote.close()
        super().close()
