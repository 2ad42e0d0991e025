"""Values that travel: which are small, which are plain, and copies for those who may change them."""

from __future__ import annotations

import copy
import sys
from itertools import chain
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

#: Bytes of a string or array, and items of a container.
BYTES, ITEMS = 16_384, 64

_PLAIN = frozenset({type(None), bool, int, float, complex})
_DEEPEST = 3
#: Items of a container that are looked at for what they are, and libraries whose things are known.
_MANY = 10_000
_LIBRARIES = frozenset({"awkward", "numpy", "pandas", "pyarrow", "scipy"})
#: Those whose memory nobody changes: what has it need not be copied.
UNCHANGED = frozenset({"awkward", "pyarrow"})


def library_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


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
    return library_of(value) in _LIBRARIES and not getattr(getattr(value, "dtype", None), "hasobject", False)


#: What nobody can change.
_FIXED = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, range, type, FunctionType, BuiltinFunctionType, ModuleType,
    }
)  # fmt: skip
_FIXED_OR_TUPLE = _FIXED | {tuple}


def own_copy(value: Any, memo: dict[int, Any]) -> Any:
    """Copy a value, unless nothing can change it; what cannot be copied is given as it is. The same twice is one copy."""
    kind = type(value)
    if kind in _FIXED:
        return value
    known = memo.get(id(value), memo)
    if known is not memo:
        return known
    library = library_of(value)
    if library == "pyarrow":  # its tables and arrays cannot be changed
        return value
    made: Any
    try:
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind is numpy.ndarray and not value.dtype.hasobject:
            made = value.copy(order="K")
        elif library == "awkward":  # setting a field of a copy leaves the other as it was
            made = copy.copy(value)
        elif kind in (list, tuple) or (kind is dict and _FIXED.issuperset(map(type, value))):
            made = _copy_items(value, memo)
        else:
            made = copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - a connection, a lock: there is no other one
        made = value
    memo[id(value)] = made
    memo.setdefault(id(memo), []).append(
        value
    )  # as deepcopy does: or another value could have its id while the memo lives
    return made


def _copy_items(value: Any, memo: dict[int, Any]) -> Any:
    """Copy a container and what in it can be changed; a long one of numbers and texts, or of tuples of them, at once."""
    kind = type(value)
    items = list(value.values()) if kind is dict else value
    inside = chain.from_iterable([one for one in items if type(one) is tuple])
    if _FIXED_OR_TUPLE.issuperset(map(type, items)) and _FIXED.issuperset(map(type, inside)):
        return value if kind is tuple else value.copy()
    if kind is tuple:
        made = tuple([own_copy(one, memo) for one in value])
        return memo.get(id(value), made)  # in a cycle it has been copied meanwhile
    made = memo[id(value)] = kind()  # before what is in it, which may lead back to it
    if kind is list:
        made.extend([own_copy(one, memo) for one in items])
    else:
        made.update([(key, own_copy(one, memo)) for key, one in value.items()])
    return made
