"""Objects between two processes: small ones through a socket, large ones in memory that is handed over.

A parcel is a short head and a body: the pickle, then the buffers of arrays, which pickle protocol 5 keeps apart. Bodies
above ``IN_SOCKET`` bytes are written once into a memory file without a name, sealed, and the file descriptor is sent; the
receiver maps it privately, so that arrays can be written to and no other process sees it, and no copy is made. The memory is
gone when the last array is. A process that is killed at any point leaves nothing behind, since nothing has a name.

A link never waits for the other side to read while the socket is non-blocking: what does not fit stays in its queue.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pickle
import select
import socket
import struct
import weakref
from collections import deque
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.engines.processes.serialize import dumps
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

#: Larger bodies go into a memory file: handing one over costs some 30 us, copying twice through a socket as much per 64 KB.
IN_SOCKET = 64 * 1024
#: Smaller buffers are copied into the pickle: describing one costs more.
APART = 4096
#: Where buffers begin: what vector units like best.
ALIGNMENT = 64
#: Bytes read at a time.
READ = 256 * 1024
#: Parcels sent by one call.
TOGETHER = 16
#: Memory files that this process has open at a time: calls that wait have one each, and it may have few (often 1024) of
#: all kinds. What does not get one goes through the socket.
MOST_FILES = 128
#: Memory files that stay open here, to be mapped again. What has none is mapped twice, or copied.
MOST_KEPT = 128
#: Nothing that is sent has more bytes or buffers than this: a head that says so is not one of ours.
MOST_BYTES, MOST_BUFFERS = 1 << 48, 1 << 24

#: kind, whether the body is in a file, buffers, tag, bytes of the pickle and of the body, seconds that packing took
_HEAD = struct.Struct("<BB2xIQQQd")
# Plain numbers: flags of the enumeration take microseconds to combine.
_CLOSE_ON_EXEC, _CUT, _NO_SIGNAL = (
    int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CTRUNC), int(socket.MSG_NOSIGNAL),
)  # fmt: skip
_FILE_ROOM = socket.CMSG_SPACE(4 * array.array("i").itemsize)
#: no sealing, shrinking, growing or writing from here on
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class _Garbled(Exception):
    """What came is no parcel: another program wrote to the socket."""


class Parcel:
    """Something packed; may be sent over several links. Its memory file is closed with the last reference to it."""

    __slots__ = ("__weakref__", "bytes", "data", "file")

    def __init__(self, data: bytes, size: int, file: int = -1) -> None:
        self.data = data  #: what goes through the socket
        self.bytes = size  #: of the body
        self.file = file  #: of the body, or -1
        if file >= 0:
            _files.add(file)
            weakref.finalize(self, _close, file)

    def body(self) -> memoryview:
        """Give what is in it, to be looked at: mapped for as long as a reference to it is kept."""
        if self.file < 0:
            return memoryview(self.data)[len(self.data) - self.bytes :]
        return _map_private(self.file, self.bytes, writable=False)

    def arrive(self) -> Arrival:
        """Give what would come at the other end, without sending it."""
        kind, filed, buffers, tag, pickled, total, seconds = _HEAD.unpack_from(self.data)
        sizes = struct.unpack_from(f"<{buffers}Q", self.data, _HEAD.size)
        body = _map_private(self.file, total) if filed else memoryview(bytearray(self.body()))
        return Arrival(kind, tag, seconds, total, pickled, sizes, body, [], self if filed else None)


_files: set[int] = set()  #: those of parcels


def _close(file: int) -> None:
    _files.discard(file)  # before another one can get its number
    os.close(file)


def pack(
    thing: Any, kind: int = 0, tag: int = 0, *, by_value: bool = False, own: Callable[[ModuleType], bool] | None = None
) -> Parcel:
    """Pack a thing; raises what pickling raised where that is impossible."""
    begin = perf_counter()
    content, buffers = dumps(thing, apart=APART, by_value=by_value, own=own)
    return parcel_of(content, buffers, kind, tag, begin)


def parcel_of(
    content: bytes | memoryview, buffers: Sequence[memoryview], kind: int, tag: int, begin: float | None = None
) -> Parcel:
    begin = perf_counter() if begin is None else begin
    if not buffers and len(content) <= IN_SOCKET:  # by far the most
        size = len(content)
        head = _HEAD.pack(kind, 0, 0, tag, size, size, perf_counter() - begin)
        return Parcel(head + content, size)
    sizes = [buffer.nbytes for buffer in buffers]
    ends = [len(content)]
    for size in sizes:
        ends.append(_aligned(ends[-1]) + size)
    total = ends[-1]
    pieces: list[bytes | memoryview] = [content]
    for end, buffer in zip(ends, buffers, strict=False):
        pieces += (bytes(_aligned(end) - end), buffer)
    file = _memory_file(pieces) if total > IN_SOCKET else -1
    head = _HEAD.pack(kind, file >= 0, len(sizes), tag, len(content), total, perf_counter() - begin)
    table = struct.pack(f"<{len(sizes)}Q", *sizes)
    return Parcel(b"".join([head, table, *(pieces if file < 0 else ())]), total, file)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _memory_file(pieces: list[bytes | memoryview]) -> int:
    """Write pieces into a memory file; -1 where that cannot be had, and the socket must do."""
    if len(_files) >= MOST_FILES:
        return -1
    try:
        file = os.memfd_create("windrow", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:  # too many open files, most likely: those of the user's functions
        return -1
    try:
        offset = 0
        for piece in pieces:
            rest = memoryview(piece).cast("B") if len(piece) else memoryview(b"")
            while rest:
                written = os.pwrite(file, rest, offset)  # at most 2 GB at a time
                rest, offset = rest[written:], offset + written
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return file


class _KeptFile:
    """A memory file that stays open, to be mapped again."""

    __slots__ = ("file",)
    count = 0  #: of all

    def __init__(self, file: int) -> None:
        self.file = file
        _KeptFile.count += 1

    def __del__(self) -> None:
        _KeptFile.count -= 1
        os.close(self.file)


class Arrival(NamedTuple):
    """A parcel that came; ``open`` makes the thing again."""

    kind: int
    tag: int
    seconds: float  #: that packing took
    bytes: int  #: of the body
    pickled: int  #: bytes of the pickle, with which the body begins
    sizes: tuple[int, ...]  #: of the buffers
    body: memoryview
    spare: list[memoryview]  #: the same memory once more, for one who must not see what is written to the other
    file: _KeptFile | Parcel | None = None  #: of what is mapped more than once

    def fresh(self) -> memoryview:
        """Give what came to a caller that may write to it: no other process sees that."""
        if self.file is None:
            return self.spare.pop() if self.spare else memoryview(bytearray(self.body))
        return _map_private(self.file.file, self.bytes)

    def open(self, *, own: bool = False) -> Any:
        """Unpickle, without copying buffers; raises what that raises. ``own``: what came stays as it is, and can be sent on."""
        buffers = cut_buffers(self.fresh() if own and self.sizes else self.body, self.pickled, self.sizes)
        return pickle.loads(self.body[: self.pickled], buffers=buffers)  # noqa: S301 - from our own processes only

    def again(self, kind: int, tag: int) -> Parcel:
        """Make a parcel of what came, to be sent on, without looking into it."""
        if self.file is not None and len(_files) < MOST_FILES:
            head = _HEAD.pack(kind, True, len(self.sizes), tag, self.pickled, self.bytes, 0.0)
            return Parcel(head + struct.pack(f"<{len(self.sizes)}Q", *self.sizes), self.bytes, os.dup(self.file.file))
        buffers = cut_buffers(self.body, self.pickled, self.sizes)
        return parcel_of(self.body[: self.pickled].tobytes(), buffers, kind, tag)

    def lend(self) -> Lent | None:
        """Say where another process of this machine finds the body, as long as this is kept; None if it is in no memory file."""
        if self.file is None:
            return None
        file = self.file.file
        return Lent(os.getpid(), file, _identity(file), self.bytes, self.pickled, self.sizes)


class Lent(NamedTuple):
    """The memory file of an arrival in another process of this machine."""

    process: int
    file: int
    identity: tuple[int, int, int]  #: a number of a process may mean another one where that looks from
    bytes: int
    pickled: int
    sizes: tuple[int, ...]

    def arrive(self) -> Arrival:
        """Map it, without a copy; raises OSError where it is not to be had."""
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # should it be a pipe of somebody else
        kept = _KeptFile(os.open(f"/proc/{self.process}/fd/{self.file}", flags))
        if _identity(kept.file) != self.identity:
            raise FileNotFoundError("the memory that was lent is not there")
        body = _map_private(kept.file, self.bytes)
        file = kept if _KeptFile.count <= MOST_KEPT else None
        return Arrival(0, 0, 0.0, self.bytes, self.pickled, self.sizes, body, [], file)


def _identity(file: int) -> tuple[int, int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size


def cut_buffers(body: memoryview, pickled: int, sizes: Sequence[int]) -> list[memoryview]:
    """Cut a body, which begins with a pickle, into its buffers."""
    buffers, end = [], pickled
    for size in sizes:
        start = _aligned(end)
        end = start + size
        buffers.append(body[start:end])
    return buffers


def store(thing: Any) -> Arrival | None:
    """Put a thing where it can be mapped by each who reads it, as if it had come; None where no memory file can be had."""
    content, buffers = dumps(thing, apart=APART)
    parcel = parcel_of(content, buffers, 0, 0)
    return None if parcel.file < 0 else parcel.arrive()


class Link:
    """One end of a socket between two processes of ours; whether it blocks is the socket's own setting."""

    def __init__(self, sock: socket.socket, twice: frozenset[int] = frozenset()) -> None:
        self.socket = sock
        self._twice = twice  #: kinds of parcels that are opened here for several, or sent on as well
        self.ended = False  #: nothing more will come: the other side has closed, or is gone
        self.garbled = ""  #: what is wrong with what came; nothing is read after it
        #: Nothing can be sent any more, though what the other side had sent may still be read.
        self.deaf = False
        self._queue: deque[Parcel] = deque()
        self._sent = 0  #: bytes of the first parcel
        self._read = bytearray()  #: of parcels that are not whole yet
        self._files: deque[int] = deque()  #: came with parcels that were not given out yet
        self._room = bytearray(READ)
        self._waiting = select.poll()
        self._waiting.register(sock, select.POLLIN)

    def put(self, parcel: Parcel) -> None:
        self._queue.append(parcel)

    def send(self, parcel: Parcel) -> bool:
        """Send a parcel after all earlier ones; False if something is left that the socket did not take."""
        self._queue.append(parcel)
        return self.flush()

    @property
    def pending(self) -> bool:
        return bool(self._queue)

    def flush(self) -> bool:
        """Send what waits; False if something is left."""
        queue = self._queue
        try:
            while queue:
                files, pieces = self._next()
                self._sent += self.socket.sendmsg(pieces, files, _NO_SIGNAL)
                while queue and self._sent >= len(queue[0].data):
                    self._sent -= len(queue.popleft().data)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            self.deaf = True
            queue.clear()
        return True

    def _next(self) -> tuple[list[Any], list[bytes | memoryview]]:
        """What can be sent by one call: a parcel with its file, or several that have none."""
        first = self._queue[0]
        rest = memoryview(first.data)[self._sent :]
        if first.file >= 0 and not self._sent:
            files = array.array("i", [first.file])
            return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)], [rest]
        pieces: list[bytes | memoryview] = [rest]
        for parcel in islice(self._queue, 1, TOGETHER):
            if parcel.file >= 0:
                break
            pieces.append(parcel.data)
        return [], pieces

    def readable(self, *, wait: bool = False) -> bool:
        """Say whether something has come; costs a tenth of reading in vain.

        Waiting here is better than in reading: the kernel wakes a reader also when its own message was read.
        """
        return bool(self._waiting.poll(None if wait else 0))

    def receive(self) -> list[Arrival] | None:
        """Read once and return the parcels that are whole now; with ``ended`` set no more will come.

        A non-blocking socket returns at once: None if nothing was there to read.
        """
        try:
            count, extra, flags, _ = self.socket.recvmsg_into([self._room], _FILE_ROOM, _CLOSE_ON_EXEC)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            count, extra, flags = 0, [], 0
        for _, kind, data in extra:
            if kind == socket.SCM_RIGHTS:
                files = array.array("i")
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
                self._files.extend(files)
        if flags & _CUT:
            raise EngineError(
                "too many open files: the memory that a worker sent could not be received; close files, or allow "
                "more (ulimit -n)"
            )
        if not count:
            self.ended = True
            return []
        self._read += memoryview(self._room)[:count]
        found: list[Arrival] = []
        try:
            self._whole(found)
        except _Garbled as error:
            self.garbled = str(error)
            self.ended = True
        return found

    def _whole(self, found: list[Arrival]) -> None:
        while len(self._read) >= _HEAD.size:
            kind, filed, buffers, tag, pickled, total, seconds = _HEAD.unpack_from(self._read)
            if filed > 1 or buffers > MOST_BUFFERS or not pickled <= total <= MOST_BYTES:
                raise _Garbled("what came through its socket is not from Windrow")
            begin = _HEAD.size + 8 * buffers
            end = begin if filed else begin + total
            if len(self._read) < end:
                break
            sizes = struct.unpack_from(f"<{buffers}Q", self._read, _HEAD.size)
            _check(pickled, sizes, total)
            spare: list[memoryview] = []
            kept = None
            if filed:
                file = self._next_file(total)
                body = _map_private(file.file, total, writable=pickled > 0)
                if not pickled or (kind in self._twice and _KeptFile.count <= MOST_KEPT):
                    kept = file
                elif kind in self._twice:
                    spare.append(_map_private(file.file, total))
            else:
                body = memoryview(self._read[begin:end])  # a bytearray of its own
            del self._read[:end]
            found.append(Arrival(kind, tag, seconds, total, pickled, sizes, body, spare, kept))

    def _next_file(self, size: int) -> _KeptFile:
        """Take the next memory file that came; a mapping of it stays when it is closed, until the last view is gone."""
        if not self._files:
            raise _Garbled("it announced memory and sent none")
        file = _KeptFile(self._files.popleft())
        if os.fstat(file.file).st_size != size:
            raise _Garbled("it sent memory of another size than it announced")
        return file

    def close(self) -> None:
        self.socket.close()
        self._queue.clear()
        while self._files:
            with contextlib.suppress(OSError):
                os.close(self._files.popleft())


def _check(pickled: int, sizes: tuple[int, ...], total: int) -> None:
    end = pickled
    for size in sizes:
        end = _aligned(end) + size
    if end != total:
        raise _Garbled(f"it sent a parcel of {end} bytes that says it has {total}")


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_FAILED = ctypes.c_void_p(-1).value


def _map_private(file: int, size: int, *, writable: bool = True) -> memoryview:
    # mmap.mmap keeps a descriptor for each mapping, and a run may hold thousands of partials.
    protection = mmap.PROT_READ | mmap.PROT_WRITE * writable
    address = _libc.mmap(None, size, protection, mmap.MAP_PRIVATE, file, 0)
    if address == _FAILED:
        code = ctypes.get_errno()
        if code == errno.ENOMEM:
            raise MemoryError(f"no room to map {size} bytes that a worker sent")
        raise OSError(code, os.strerror(code))
    memory = (ctypes.c_ubyte * size).from_address(address)
    unmap = weakref.finalize(memory, _libc.munmap, address, size)
    unmap.atexit = False  # arrays may still be in use then
    return pickle.PickleBuffer(memory).raw()  # plain bytes to everybody
