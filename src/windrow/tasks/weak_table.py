"""A table that does not keep what is in it.

That of the standard library makes a reference with a callback for every entry, in Python: 3 us. Here dead entries stay until
there are as many of them as living ones, and are swept out then.
"""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import ref

Key = TypeVar("Key", int, str)
Value = TypeVar("Value")

#: Entries that are never worth sweeping.
FEW = 1000


class WeakTable(Generic[Key, Value]):
    """Things by their keys, as long as they are referred to elsewhere; any thread may use it."""

    __slots__ = ("_refs", "_sweep_at")

    def __init__(self) -> None:
        self._refs: dict[Key, ref[Value]] = {}
        self._sweep_at = FEW

    def __setitem__(self, key: Key, value: Value) -> None:
        refs = self._refs
        refs[key] = ref(value)
        if len(refs) > self._sweep_at:
            self._sweep()

    def __getitem__(self, key: Key) -> Value:
        value = self._refs[key]()
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: Key) -> Value | None:
        """Give what is there under a key; None if nothing is, or is not any more."""
        found = self._refs.get(key)
        return None if found is None else found()

    def values(self) -> list[Value]:
        found = [one() for one in list(self._refs.values())]
        return [one for one in found if one is not None]

    def _sweep(self) -> None:
        # Each step is atomic, so that others may put things in meanwhile.
        self._sweep_at = 1 << 62
        for key, one in list(self._refs.items()):
            if one() is None and self._refs.get(key) is one:
                del self._refs[key]
        self._sweep_at = max(FEW, 2 * len(self._refs))
