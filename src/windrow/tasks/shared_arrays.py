"""Large arrays that functions and calls are given: each travels to a worker once, as it was when it was given.

An array is known by where it lies in memory. Whether it still is what was sent is known without reading it where the system
tells of writes (``WriteWatch``); elsewhere it is compared with what was sent, which takes 15 to 30 ms for 100 MB. It is
forgotten, here and in the workers, when the array is gone and no call needs it any more.
"""

from __future__ import annotations

import ctypes
import pickle
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.engines.processes.messages import pack_common
from windrow.engines.write_watch import write_watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.engines.processes.transport import Parcel

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
    watched: bool  #: whether writes to the array are known


class SharedArrays:
    """The large arrays of a session."""

    least = LEAST

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._known: dict[tuple[int, int], SharedArray] = {}  #: by address and size
        #: bytes, by number, of arrays that are gone and wait in calls for being sent
        self.left: dict[int, int] = {}
        self._watch = write_watch()

    def bytes_left(self) -> int:
        """Count what waits in memory although nobody but calls has it."""
        return sum(list(self.left.values()))

    def take(self, array: Any) -> tuple[Any, ...]:
        large = array.nbytes >= self.least and array.flags.forc
        content = self.find(pickle.PickleBuffer(array).raw()).number if large else array.tobytes("A")
        return array.shape, array.strides, array.dtype, large, content

    def is_same(self, array: Any, taken: tuple[Any, ...]) -> bool:
        if (array.shape, array.strides, array.dtype) != taken[:3]:
            return False
        *_, large, content = taken
        if large:
            return bool(self.find(pickle.PickleBuffer(array).raw()).number == content)
        if not array.flags.forc:
            return bool(array.tobytes("A") == content)
        return not _libc.memcmp(array.__array_interface__["data"][0], content, array.nbytes)

    def find(self, raw: memoryview) -> SharedArray:
        address, size = _address(raw), raw.nbytes
        known = self._known.get((address, size))
        if known is not None:
            if known.watched and self._watch.is_untouched(address, size):
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
            return SharedArray(number, parcel, parcel.body(), None, watched=False)
        made = SharedArray(number, parcel, parcel.body(), weakref.ref(owner, forget), watched=watched)
        self._known[key] = made
        return made


def _address(raw: memoryview) -> int:
    where: int = np.frombuffer(raw, dtype=np.uint8).__array_interface__["data"][0]
    return where
