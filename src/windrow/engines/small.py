"""Which values are small: they travel with the report of the task that made them, instead of being asked for."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_plain", "is_small"]

#: Bytes of a string or array, and items of a container.
BYTES, ITEMS = 16_384, 64

_PLAIN = frozenset({type(None), bool, int, float, complex})
_DEEPEST = 3
#: Items of a container that are looked at for what they are, and libraries whose things are known.
_MANY = 10_000
_LIBRARIES = frozenset({"awkward", "numpy", "pandas", "pyarrow", "scipy"})


def is_small(value: Any, depth: int = 0) -> bool:
    """Say whether a value is surely small, without pickling it; of what is not known, it is not said."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is str or kind is bytes:
        return len(value) <= BYTES
    if kind is tuple or kind is list:
        return len(value) <= ITEMS and depth < _DEEPEST and all(is_small(one, depth + 1) for one in value)
    if kind is dict:
        return (
            len(value) <= ITEMS
            and depth < _DEEPEST
            and all(is_small(k, depth + 1) and is_small(v, depth + 1) for k, v in value.items())
        )
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return False
    if kind is numpy.ndarray:
        return bool(value.nbytes <= BYTES and not value.dtype.hasobject)
    return isinstance(value, numpy.generic) and value.nbytes <= BYTES and not value.dtype.hasobject


def is_plain(value: Any, depth: int = 0) -> bool:
    """Say whether pickling a value surely runs none of the user's code, however large it is."""
    kind = type(value)
    if kind in _PLAIN or kind is str or kind is bytes or kind is bytearray:
        return True
    if kind is dict:
        return is_plain(list(value), depth) and is_plain(list(value.values()), depth)
    if kind in (tuple, list, set, frozenset):
        return len(value) <= _MANY and depth < _DEEPEST and all(is_plain(one, depth + 1) for one in value)
    known = kind.__module__.partition(".")[0] in _LIBRARIES
    return known and not getattr(getattr(value, "dtype", None), "hasobject", False)
