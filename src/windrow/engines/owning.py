"""Copies of values that others may need too: whoever gets one in another process may change it, as with an argument."""

from __future__ import annotations

import copy
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

__all__ = ["own_copy"]

#: What nobody can change.
_FIXED = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, range, type, FunctionType, BuiltinFunctionType, ModuleType,
    }
)  # fmt: skip


def own_copy(value: Any, memo: dict[int, Any]) -> Any:
    """Copy a value, unless nothing can change it; what cannot be copied is given as it is. The same twice is one copy."""
    kind = type(value)
    if kind in _FIXED:
        return value
    known = memo.get(id(value), memo)
    if known is not memo:
        return known
    library = kind.__module__.partition(".")[0]
    if library == "pyarrow":  # its tables and arrays cannot be changed
        return value
    made: Any
    try:
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
            made = value.copy(order="K")
        elif library == "awkward":  # setting a field of a copy leaves the other as it was
            made = copy.copy(value)
        else:
            made = copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - a connection, a lock: there is no other one
        made = value
    memo[id(value)] = made
    return made
