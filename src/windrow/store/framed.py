"""Files with a frame: what they are, in which format, how long, and a checksum, in front of their content."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from windrow.errors import CorruptFileError, DataError
from windrow.store.private import check_private
from windrow.store.whole import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_HEADER = struct.Struct("<16sIQ16s")  # magic, format, length of what follows, its xxh3 digest


@dataclass(frozen=True, slots=True)
class Frame:
    """One kind of file: written for its owner alone, read if nobody else can have written it and all of it is there."""

    magic: bytes  #: 16 bytes
    format: int  #: raised when older code cannot read it
    what: str  #: "a result"
    again: str  #: what to do when a file is damaged

    def write(self, path: Path, pieces: Sequence[bytes | memoryview]) -> tuple[int, str]:
        """Write a file, whole or not at all; returns the length and the digest of its content."""
        length = sum(memoryview(piece).nbytes for piece in pieces)
        digest = xxhash.xxh3_128()
        for piece in pieces:
            digest.update(piece)
        header = _HEADER.pack(self.magic, self.format, length, digest.digest())
        write_whole(path, [header, *pieces], mode=0o600)
        return length, digest.hexdigest()

    def read(self, path: Path) -> tuple[bytes, str]:
        """Return the content of a file and its digest."""
        # What is checked is what is read: the open file, not a name that may come to mean another one.
        with path.open("rb") as stream:
            check_private(path, os.fstat(stream.fileno()))
            head = stream.read(_HEADER.size)
            if not head.startswith(self.magic):
                raise self._corrupt(path, f"is not {self.what} that Windrow wrote")
            if len(head) < _HEADER.size:
                raise self._corrupt(path, f"is cut off after {len(head)} bytes; {self.again}")
            _, version, length, digest = _HEADER.unpack(head)
            if version > self.format:
                raise DataError(
                    f"{path} has format {version}, this Windrow reads formats up to {self.format}: use a newer Windrow"
                )
            content = stream.read()
        if len(content) != length:
            raise self._corrupt(
                path, f"should hold {length} bytes and holds {len(content)}: it is cut off or has grown; {self.again}"
            )
        found = xxhash.xxh3_128(content)
        if version < 1 or found.digest() != digest:
            raise self._corrupt(path, f"has changed: the checksum is wrong or the format is none; {self.again}")
        return content, found.hexdigest()

    def _corrupt(self, path: Path, why: str) -> CorruptFileError:
        return CorruptFileError(f"{path} {why}", file=str(path))
