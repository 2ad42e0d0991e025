"""Things as bytes, arrays apart and never copied; and as bytes put aside on disk while a run goes on.

A file that something is put aside in has no name: nobody else sees it, and it is gone with the process, however that ends.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

from windrow.errors import SaveError
from windrow.store.disk import write_all


def pieces_of(thing: Any) -> list[bytes | memoryview]:
    """Make bytes of a thing; raises what pickling raises."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    sizes = pickle.dumps((len(head), [len(part) for part in raw]))
    return [len(sizes).to_bytes(8, "little"), sizes, head, *raw]


def thing_of(content: bytearray) -> Any:
    """Make the thing again; arrays are in ``content``, and may be changed."""
    view = memoryview(content)
    begin = 8 + int.from_bytes(view[:8], "little")
    head, sizes = pickle.loads(view[8:begin])  # noqa: S301 - the caller knows that it is ours alone
    buffers, place = [], begin + head
    for size in sizes:
        buffers.append(view[place : place + size])
        place += size
    return pickle.loads(view[begin : begin + head], buffers=buffers)  # noqa: S301 - ours alone


class Aside:
    """Bytes that were put aside, until nobody refers to them."""

    __slots__ = ("__weakref__", "_file", "bytes")

    def __init__(self, pieces: Sequence[bytes | memoryview], directory: str) -> None:
        self.bytes = sum(memoryview(piece).nbytes for piece in pieces)
        try:
            with tempfile.TemporaryFile(dir=directory, buffering=0) as stream:
                self._file = os.dup(stream.fileno())
            weakref.finalize(self, os.close, self._file)
            for piece in pieces:
                write_all(self._file, piece)
        except OSError as error:
            raise SaveError(
                f"{self.bytes:,} bytes of results, too much for memory with the others, cannot be put aside in {directory}: "
                f"{error.strerror or error}; have TMPDIR name a directory with more room",
                path=directory,
            ) from error

    def read(self) -> Any:
        content = bytearray(self.bytes)
        place = 0
        while count := os.preadv(self._file, [memoryview(content)[place:]], place):
            place += count
        return thing_of(content)
