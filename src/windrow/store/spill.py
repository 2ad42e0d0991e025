"""Things as bytes, arrays apart and never copied; and as bytes put aside on disk while a run goes on.

The file that things are put aside in has no name: nobody else sees it, and it is gone with the process, however that ends.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import weakref
from collections.abc import Sequence
from io import BytesIO, FileIO
from typing import Any

from windrow.core.intervals import Intervals
from windrow.errors import SaveError
from windrow.store.disk import write_all


def pieces_of(thing: Any) -> list[bytes | memoryview]:
    """Make bytes of a thing; raises what pickling raises."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = pickle.dumps((len(head), [len(part) for part in raw]))
    return [len(sizes).to_bytes(8, "little"), sizes, head, *raw]


def thing_of(stream: FileIO | BytesIO) -> Any:
    """Make the thing again of bytes; arrays may be changed, and none keeps the memory of another."""

    def part(size: int) -> bytearray:
        made = bytearray(size)
        rest = memoryview(made)
        while count := stream.readinto(rest):
            rest = rest[count:]
        return made

    head, sizes = pickle.loads(part(int.from_bytes(part(8), "little")))  # noqa: S301 - the caller knows that it is ours alone
    return pickle.loads(part(head), buffers=[part(size) for size in sizes])  # noqa: S301 - ours alone


class Aside:
    """A thing that was put aside, until nobody refers to it."""

    __slots__ = ("__weakref__", "_file", "_place", "bytes")

    def __init__(self, file: SpillFile, place: int, size: int) -> None:
        self.bytes = size
        self._file, self._place = file, place

    def read(self) -> Any:
        stream = self._file.stream
        assert stream is not None
        stream.seek(self._place)
        return thing_of(stream)


class SpillFile:
    """What is put aside in a directory: one file however many things, as a process may have few open."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.stream: FileIO | None = None  #: until something is put aside
        self._used = Intervals()
        self._freed: list[tuple[int, int]] = []  #: used before; anything may be let go of while something is put aside

    def put(self, pieces: Sequence[bytes | memoryview]) -> Aside:
        size = sum(memoryview(piece).nbytes for piece in pieces)
        while self._freed:
            self._used.remove(*self._freed.pop())
        place = next(start for start, stop in self._used.gaps(0, sys.maxsize) if stop - start >= size)
        try:
            if self.stream is None:
                self.stream = tempfile.TemporaryFile(dir=self.directory, buffering=0)  # noqa: SIM115
                weakref.finalize(self, self.stream.close)
            self.stream.seek(place)
            for piece in pieces:
                write_all(self.stream.fileno(), piece)
        except OSError as error:
            raise SaveError(
                f"{size:,} bytes of results, too much for memory with the others, cannot be put aside in {self.directory}: "
                f"{error.strerror or error}; have TMPDIR name a directory with more room",
                path=self.directory,
            ) from error
        self._used.add(place, place + size)
        aside = Aside(self, place, size)
        weakref.finalize(aside, self._freed.append, (place, place + size))
        return aside
