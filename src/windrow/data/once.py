"""Things that are worked out once for all threads of a process, and forgotten in the order they were used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")


class Once(Generic[T]):
    """At most ``limit`` values by key; threads that want the same one wait for the first to make it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._making: dict[Any, threading.Lock] = {}
        self._values: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            mine = self._making.setdefault(key, threading.Lock())
        with mine:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            value = make()
            with self._lock:
                self._values[key] = value
                while len(self._values) > self._limit:
                    self._values.popitem(last=False)
            return value
