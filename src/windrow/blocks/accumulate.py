"""How two outputs become one: the rules of coffea's accumulators, without mutating either.

Mappings merge key by key, sets unite, everything else adds. What would add up to something nobody means (text, tuples,
None) is refused with a word on what to return instead.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from copy import copy
from typing import Any

import numpy as np

from windrow.errors import MergeError

__all__ = ["merge_values", "try_merging"]


def merge_values(left: Any, right: Any) -> Any:
    """Add two outputs of the same step."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        merged = dict(left)
        for key, value in right.items():
            merged[key] = merge_values(merged[key], value) if key in merged else value
        return _like(left, merged)
    if isinstance(left, AbstractSet) and isinstance(right, AbstractSet):
        return left | right
    if left is None or isinstance(left, (str, bytes, tuple)):
        raise MergeError(
            f"values of type {type(left).__name__} do not add up; return a number, an array, a histogram, a list, a set "
            "or a mapping of them, or say how with merge="
        )
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and left.shape != right.shape:
        raise MergeError(
            f"arrays of shapes {left.shape} and {right.shape} do not add up; to collect values return a list, or say "
            "merge=lambda a, b: np.concatenate([a, b])"
        )
    try:
        return left + right
    except MergeError:
        raise
    except Exception as error:
        raise MergeError(
            f"{type(left).__name__} and {type(right).__name__} do not add up ({type(error).__name__}: {error}); "
            "say how with merge="
        ) from error


def try_merging(value: Any) -> None:
    """Raise now if a value could not be merged with another of its kind, rather than at the end of a long run."""
    if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
        return  # whether shapes will agree is not known yet
    merge_values(value, value)


def _like(example: Mapping[Any, Any], merged: dict[Any, Any]) -> Mapping[Any, Any]:
    # defaultdict, Counter and coffea's own mappings keep their type where they can be copied and changed.
    if type(example) is dict or not isinstance(example, MutableMapping):
        return merged
    try:
        result = copy(example)
    except TypeError:
        return merged
    for key, value in merged.items():
        result[key] = value  # not update(), which adds once more in a Counter
    return result
