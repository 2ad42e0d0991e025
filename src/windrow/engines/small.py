"""Which values are small: they travel with the report of the task that made them, instead of being asked for."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_small"]

#: Bytes of a string or array, and items of a container.
BYTES, ITEMS = 16_384, 64

_PLAIN = frozenset({type(None), bool, int, float, complex})
_DEEPEST = 3


def is_small(value: Any, depth: int = 0) -> bool:
    """Say whether a value is surely small, without pickling it; of what is not known, it is not said."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is str or kind is bytes:
        return len(value) <= BYTES
    if kind is tuple or kind is list:
        return (
            len(value) <= ITEMS
            and depth < _DEEPEST
            and all(is_small(one, depth + 1) for one in value)
        )
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
        return bool(value.nbytes <= BYTES and value.dtype.kind != "O")
    return isinstance(value, numpy.generic)
