"""Large arrays that functions and calls are given: each travels to a worker once, as it was when it was given.

An array is known by where it lies in memory. Whether it still is what was sent is known without reading it where the system
tells of writes (``WriteWatch``); elsewhere it is compared with what was sent, which takes 15 to 30 ms for 100 MB. It is
forgotten, here and in the workers, when the array is gone and no call needs it any more.

What the program shares lies in memory that cannot be written to, here or in a worker: it need not be looked at again, and
any part of it is known.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
import weakref
from bisect import bisect, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.engines.processes.messages import pack_common
from windrow.engines.processes.serialize import dumps
from windrow.engines.processes.transport import cut_buffers
from windrow.engines.write_watch import write_watch
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windrow.engines.processes.transport import Parcel
    from windrow.engines.write_watch import Protection

#: Bytes from which on an array is worth a memory file of its own, which stays.
LEAST = 1 << 20

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(slots=True)
class SharedArray:
    """An array as it was sent."""

    number: int  #: by which workers know it
    parcel: Parcel
    body: memoryview
    owner: Any  #: a weak reference
    watched: Protection | None  #: by which writes to the array are known


class SharedArrays:
    """The large arrays of a session."""

    least = LEAST

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._known: dict[tuple[int, int], SharedArray] = {}  #: by address and size
        #: bytes, by number, of arrays that are gone and wait in calls for being sent
        self.left: dict[int, int] = {}
        #: where memory that is shared begins and ends, and by which number and as what it is sent; sorted
        self._shared: list[tuple[int, int, int, Parcel]] = []
        self._watch = write_watch()

    def share(self, buffers: Sequence[memoryview]) -> list[memoryview]:
        """Copy memory to where workers map it, and give that: for reading, and known for as long as any of it is referred to."""
        number = next(self._numbers)
        parcel = pack_common(number, b"", list(buffers))
        body = parcel.body()
        if parcel.file >= 0:  # else it is sent with every call
            begin = _address(body)
            entry = begin, begin + body.nbytes, number, parcel
            insort(self._shared, entry)
            weakref.finalize(body.obj, self._shared.remove, entry).atexit = False
        return cut_buffers(body.toreadonly(), 0, [one.nbytes for one in buffers])

    def locate(self, raw: memoryview) -> tuple[int | tuple[int, int, int], Parcel] | None:
        """Say where a call finds memory as it is now: by the number of an array, or of what is shared and where in it; None: in itself."""
        if self._shared:
            address = _address(raw)
            place = bisect(self._shared, (address, sys.maxsize)) - 1
            begin, end, number, parcel = self._shared[place] if place >= 0 else (0, 0, 0, None)
            if parcel is not None and address + raw.nbytes <= end:
                return (number, address - begin, address - begin + raw.nbytes), parcel
        if raw.nbytes < self.least:
            return None
        found = self.find(raw)
        return found.number, found.parcel

    def bytes_left(self) -> int:
        """Count what waits in memory although only calls refer to it."""
        return sum(list(self.left.values()))

    def take(self, array: Any) -> tuple[Any, ...]:
        large = array.nbytes >= self.least and array.flags.forc
        content = self._number(array) if large else array.tobytes("A")
        return array.shape, array.strides, array.dtype, large, content

    def is_same(self, array: Any, taken: tuple[Any, ...]) -> bool:
        if (array.shape, array.strides, array.dtype) != taken[:3]:
            return False
        *_, large, content = taken
        if large:
            return bool(self._number(array) == content)
        if not array.flags.forc:
            return bool(array.tobytes("A") == content)
        return not _libc.memcmp(array.__array_interface__["data"][0], content, array.nbytes)

    def _number(self, array: Any) -> Any:
        found = self.locate(pickle.PickleBuffer(array).raw())
        return None if found is None else found[0]

    def find(self, raw: memoryview) -> SharedArray:
        address, size = _address(raw), raw.nbytes
        known = self._known.get((address, size))
        if known is not None:
            if known.watched is not None and self._watch.is_untouched(known.watched):
                return known
            # Watched from before it is compared: what is written meanwhile is seen the next time.
            known.watched = self._watch.protect(address, size)
            if not _libc.memcmp(address, _address(known.body), size):
                return known
        return self._add(raw, address, size)

    def _add(self, raw: memoryview, address: int, size: int) -> SharedArray:
        key = address, size
        owner: Any = raw.obj
        while isinstance(getattr(owner, "base", None), np.ndarray):
            owner = owner.base
        watched = self._watch.protect(address, size)
        number = next(self._numbers)
        parcel = pack_common(number, b"", [raw])

        sent = weakref.ref(parcel)
        weakref.finalize(parcel, self.left.pop, number, None).atexit = False

        def forget(_: Any) -> None:
            known = self._known.get(key)
            if known is not None and known.number == number:
                del self._known[key]
            if sent() is not None:
                self.left[number] = size

        if not isinstance(owner, np.ndarray):  # of which nobody tells when it is gone
            return SharedArray(number, parcel, parcel.body(), None, None)
        made = SharedArray(number, parcel, parcel.body(), weakref.ref(owner, forget), watched)
        self._known[key] = made
        return made


def share(thing: Any, arrays: SharedArrays | None) -> Any:
    """Make a thing again whose arrays are for reading, and lie where all workers read them; without processes they do anyway."""
    if isinstance(thing, np.ndarray) and not thing.flags.forc:
        thing = thing.copy()
    content, buffers = dumps(thing, apart=1)
    if not buffers:
        raise UsageError(
            f"session.share(...) is for arrays and things made of them; in this {type(thing).__qualname__} there are none that can "
            "be shared: give it as an argument, make arrays of it, or have each worker make it with wr.resident(...)"
        )
    held = [one.toreadonly() for one in buffers] if arrays is None else arrays.share(buffers)
    return pickle.loads(content, buffers=held)  # noqa: S301 - our own bytes


def _address(raw: memoryview) -> int:
    where: int = np.frombuffer(raw, dtype=np.uint8).__array_interface__["data"][0]
    return where
