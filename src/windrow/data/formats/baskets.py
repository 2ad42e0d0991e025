"""A lean way to read plain numbers and lists of numbers out of TTree baskets.

uproot builds several Python objects per basket under the interpreter lock, which is what keeps two threads from being
twice as fast. This module reads, decompresses and byte-swaps straight into the result, for the two layouts nearly all
columns have; it says ``Unsupported`` to everything else and uproot reads that. It never guesses.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import awkward as ak
import cramjam
import numpy as np
import uproot
import xxhash

if TYPE_CHECKING:
    from windrow.data.remote.file import RemoteFile


_Array = np.ndarray[Any, Any]

#: fNbytes, version, fObjlen, fDatime, fKeylen, fCycle: the head of the key each basket begins with.
_KEY = struct.Struct(">ihiIhh")
#: fVersion, fBufferSize, fNevBufSize, fNevBuf, fLast and a flag byte: the tail of that key.
_BASKET = struct.Struct(">HiiiiB")
#: ROOT's head of a compressed block: algorithm, method, compressed and uncompressed size in 3 bytes each.
_BLOCK_HEAD = 9
_LZ4_CHECKSUM = 8

_DECOMPRESSORS = {
    b"ZL": uproot.compression.ZLIB(1),
    b"XZ": uproot.compression.LZMA(1),
    b"L4": uproot.compression.LZ4(1),
}


class Unsupported(Exception):
    """The basket is not laid out in a way this module knows: uproot has to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baskets:
    """Where one column's baskets are and what is in them."""

    name: str
    path: str  #: what uproot finds the branch by
    plain: bool  #: no: uproot has to read them
    stored: np.dtype[Any]  #: of one number, in the file's byte order
    jagged: bool
    counter: str | None
    entries: array[int]  #: first row of each basket, and the end
    seeks: array[int]
    sizes: array[int]

    def overlapping(self, start: int, stop: int) -> Iterator[int]:
        number = max(bisect_right(self.entries, start) - 1, 0)
        while number < len(self.seeks) and self.entries[number] < stop:
            if self.entries[number + 1] > start:
                yield number
            number += 1


@dataclass(slots=True)
class _Basket:
    """One basket's bytes, before and after decompression."""

    number: int
    seek: int
    packed: bytes
    key_length: int
    length: int  #: of the decompressed bytes
    border: int  #: where the numbers end and the offsets begin
    raw: _Array | None = None


@dataclass(slots=True)
class _Lists:
    """List borders that the columns of one counter share."""

    start: int
    stop: int
    offsets: ak.index.Index64
    #: by basket: first row, numbers in it, and which of them (from, to) are in [start, stop)
    borders: tuple[tuple[int, int, int, int], ...]


class BasketFile:
    """An open file, read with ``pread``: a map would crash where a local file shrinks or fails.

    The bytes of a remote one were fetched ahead; closing it is its owner's.
    """

    def __init__(self, path: str, remote: RemoteFile | None = None) -> None:
        self._remote = remote
        self._descriptor = -1
        if remote is None:
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        self._scratch: _Array = np.empty(0, np.uint8)
        self._lists: dict[str, _Lists] = {}
        #: a basket that the last read of a column used in part: the next read usually begins in it
        self._open_baskets: dict[str, _Basket] = {}
        self.bytes_read = 0

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self._open_baskets.clear()
        self._lists.clear()

    def locate(self, column: Baskets, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the bytes [first, end) of the baskets that reading these rows would fetch."""
        kept = self._open_baskets.get(column.name)
        for number in column.overlapping(start, stop):
            offset = column.seeks[number]
            if kept is None or (kept.number, kept.seek) != (number, offset):
                yield offset, offset + column.sizes[number]

    def read(self, column: Baskets, start: int, stop: int) -> Any:
        """Read rows [start, stop): a NumPy array if flat, lists as an awkward array if jagged."""
        if not column.plain:
            raise Unsupported(column.name)
        if column.jagged:
            return self._read_jagged(column, start, stop)
        return self._read_flat(column, start, stop)

    # -- flat -------------------------------------------------------------------------------------

    def _read_flat(self, column: Baskets, start: int, stop: int) -> _Array:
        size = column.stored.itemsize
        out = np.empty(stop - start, column.stored.newbyteorder("="))
        for basket in self._fetch(column, start, stop):
            first = column.entries[basket.number]
            rows = column.entries[basket.number + 1] - first
            if basket.border != rows * size or basket.length < basket.border:
                raise Unsupported(f"{column.name}: {basket.border} bytes for {rows} rows")
            low, high = max(start - first, 0), min(stop - first, rows)
            # Swapping the bytes while copying out of the cache is faster than in place afterwards.
            raw = self._unpacked(basket, keep=first + rows > stop, name=column.name)
            numbers = raw[low * size : high * size].view(column.stored)
            out[first + low - start : first + high - start] = numbers
        return out

    # -- jagged -----------------------------------------------------------------------------------

    def _read_jagged(self, column: Baskets, start: int, stop: int) -> ak.Array:
        size = column.stored.itemsize
        shared = self._lists.get(column.counter) if column.counter is not None else None
        if shared is not None and (shared.start, shared.stop) != (start, stop):
            shared = None
        baskets = list(self._fetch(column, start, stop))
        known = self._shared_borders(column, shared, baskets)
        offsets = None if known else np.zeros(stop - start + 1, np.int64)
        numbers = np.empty(sum(b.border for b in baskets) // size, column.stored.newbyteorder("="))
        used = 0
        borders: list[tuple[int, int, int, int]] = []
        for place, basket in enumerate(baskets):
            first = column.entries[basket.number]
            rows = column.entries[basket.number + 1] - first
            raw = self._unpacked(basket, keep=first + rows > stop, name=column.name)
            if known:
                low, high = known[place]
            else:
                row, end = max(start - first, 0), min(stop - first, rows)
                assert offsets is not None
                local = offsets[first + row - start : first + end - start + 1]
                low, high = _list_borders(column, basket, raw, rows, row, end, local, used)
            borders.append((first, basket.border // size, low, high))
            numbers[used : used + high - low] = raw[low * size : high * size].view(column.stored)
            used += high - low
        if offsets is None:
            assert shared is not None
            index = shared.offsets
        else:
            index = ak.index.Index64(offsets)
            if column.counter is not None:
                self._lists[column.counter] = _Lists(start, stop, index, tuple(borders))
        # A range that takes little of its first and last basket must not keep all of their memory.
        numbers = numbers[:used] if used * 2 >= len(numbers) else numbers[:used].copy()
        content = ak.contents.NumpyArray(numbers)
        return ak.Array(ak.contents.ListOffsetArray(index, content))

    def _shared_borders(
        self, column: Baskets, shared: _Lists | None, baskets: list[_Basket]
    ) -> list[tuple[int, int]] | None:
        """Return (from, to) by basket if another column of the same counter was cut alike.

        ROOT writes as many numbers per row as the counter says, so that columns with one counter
        differ in their offsets by nothing but the size of a number.
        """
        if shared is None or len(shared.borders) != len(baskets):
            return None
        size = column.stored.itemsize
        for (first, count, _, _), basket in zip(shared.borders, baskets, strict=True):
            if first != column.entries[basket.number] or basket.border != count * size:
                return None
        return [(low, high) for _, _, low, high in shared.borders]

    # -- bytes ------------------------------------------------------------------------------------

    def _fetch(self, column: Baskets, start: int, stop: int) -> Iterator[_Basket]:
        for number in column.overlapping(start, stop):
            kept = self._open_baskets.get(column.name)
            offset, size = column.seeks[number], column.sizes[number]
            if kept is not None and (kept.number, kept.seek) == (number, offset):
                yield kept
                continue
            if self._remote is None:
                packed = os.pread(self._descriptor, size, offset)
            else:
                packed = bytes(self._remote.read(offset, offset + size))
            if len(packed) != size:
                raise ValueError(f"{column.name}: basket {number} ends after {len(packed)} of {size} bytes")
            self.bytes_read += size
            yield _parsed(column, number, packed)

    def _unpacked(self, basket: _Basket, *, keep: bool, name: str) -> _Array:
        """Return the decompressed bytes, in scratch memory unless kept for the next read."""
        raw = basket.raw
        if raw is None:
            if keep:
                raw = np.empty(basket.length, np.uint8)
            else:
                if len(self._scratch) < basket.length:
                    self._scratch = np.empty(basket.length, np.uint8)
                raw = self._scratch[: basket.length]
            _unpack(basket.packed, basket.key_length, raw)
        if keep:
            basket.raw, basket.packed = raw, b""
            self._open_baskets[name] = basket
        else:
            self._open_baskets.pop(name, None)
        return raw


def _parsed(column: Baskets, number: int, packed: bytes) -> _Basket:
    stored, _, length, _, key_length, _ = _KEY.unpack_from(packed)
    if stored != len(packed) or not _KEY.size + _BASKET.size <= key_length <= stored:
        raise Unsupported(f"{column.name}: basket {number} does not begin with its key")
    _, _, _, rows, last, _ = _BASKET.unpack_from(packed, key_length - _BASKET.size)
    border = last - key_length
    expected = column.entries[number + 1] - column.entries[number]
    if rows != expected or not 0 <= border <= length or border % column.stored.itemsize:
        raise Unsupported(f"{column.name}: basket {number} has an unknown layout")
    return _Basket(number, column.seeks[number], packed, key_length, length, border)


def _list_borders(
    column: Baskets, basket: _Basket, raw: _Array, rows: int, row: int, end: int, local: _Array, used: int
) -> tuple[int, int]:
    """Fill ``local`` with offsets of rows [row, end], counted from ``used``; return (from, to)."""
    size = column.stored.itemsize
    # After the numbers: how many offsets, then one per row (counted from the key) and one that is meaningless.
    tail = raw[basket.border :]
    if len(tail) != 4 * (rows + 2):
        raise Unsupported(f"{column.name}: {len(tail)} bytes of offsets for {rows} rows")
    np.copyto(local, tail.view(">i4")[1 + row : 2 + end])
    local -= basket.key_length
    if end == rows:
        local[-1] = basket.border
    if size > 1:
        if size & (size - 1):
            local //= size
        else:
            local >>= size.bit_length() - 1
    low, high = int(local[0]), int(local[-1])
    # Compiled steps index with these: offsets that go backwards must not reach them.
    if not 0 <= low <= high <= basket.border // size or (local[1:] < local[:-1]).any():
        raise ValueError(f"{column.name}: basket {basket.number} has impossible offsets")
    local += used - low
    return low, high


def _unpack(packed: bytes, start: int, out: _Array) -> None:
    if len(packed) - start == len(out):  # ROOT's sign for "not compressed"
        out[:] = np.frombuffer(packed, np.uint8, offset=start)
        return
    view = memoryview(packed)
    filled = 0
    while filled < len(out):
        if start + _BLOCK_HEAD > len(packed):
            raise ValueError(f"compressed data end after {filled} of {len(out)} bytes")
        algorithm = packed[start : start + 2]
        inside = int.from_bytes(packed[start + 3 : start + 6], "little")
        length = int.from_bytes(packed[start + 6 : start + 9], "little")
        start += _BLOCK_HEAD
        block = view[start : start + inside]
        start += inside
        into = out[filled : filled + length]
        if len(block) != inside or len(into) != length or not length:
            raise ValueError("a compressed block does not fit the basket it is in")
        _unpack_block(algorithm, block, into)
        filled += length


def _unpack_block(algorithm: bytes, block: memoryview, into: _Array) -> None:
    if algorithm == b"ZS":
        count = cramjam.zstd.decompress_into(block, into.data)
        if count != len(into):
            raise ValueError(f"a block decompressed to {count} of {len(into)} bytes")
        return
    if algorithm not in _DECOMPRESSORS:
        raise Unsupported(f"compression {algorithm!r}")
    if algorithm == b"L4":
        checksum = int.from_bytes(block[:_LZ4_CHECKSUM], "big")
        block = block[_LZ4_CHECKSUM:]
        if xxhash.xxh64(block).intdigest() != checksum:
            raise ValueError("an LZ4 block does not have its checksum")
    data = _DECOMPRESSORS[algorithm].decompress(block, len(into))
    if len(data) != len(into):
        raise ValueError(f"a block decompressed to {len(data)} of {len(into)} bytes")
    into[:] = np.frombuffer(data, np.uint8)
