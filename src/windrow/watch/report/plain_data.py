"""Plain data for a report that may be passed on: files by their names alone, numbers that JSON has."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from numbers import Number
from pathlib import PurePath
from typing import Any

#: An absolute path of at least one directory, or the address of a remote file.
_PATH = re.compile(
    r"""(?:(?<![\w./~-])(?:[A-Za-z][\w+.-]*://|[A-Za-z]:[\\/]|~?/))"""
    r"""[^\s'"<>()\[\],;|]*"""
)


def file_name(label: str) -> str:
    """Return the last part of an absolute path or an address; any other label as it is."""
    if _PATH.match(label) is None:
        return label
    return re.split(r"[\\/]", label.rstrip("\\/"))[-1] or label


def without_paths(text: str, keep: Collection[str] = ()) -> str:
    """Write absolute paths and addresses in a text by their last part; ``keep`` stays as it is.

    Names of datasets may begin with a slash too, which is why they can be kept.
    """

    def shorten(match: re.Match[str]) -> str:
        found = match[0]
        end = found.rstrip(".:")
        if end in keep or len(re.split(r"[\\/]+", end.strip("\\/"))) < 2:
            return found
        return file_name(end) + found[len(end) :]

    return _PATH.sub(shorten, text)


def pathless(value: Any, keep: Collection[str] = ()) -> Any:
    """Write every text in nested plain data without paths; keys stay."""
    if isinstance(value, Mapping):
        return {key: pathless(item, keep) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pathless(item, keep) for item in value]
    if isinstance(value, PurePath):
        return value.name
    return without_paths(value, keep) if isinstance(value, str) else value


def strict(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """Return plain data that JSON has words for: arrays as lists, sets as sorted lists, NaN and infinity as None.

    For what is no plain data, also as a key, stands what ``other`` makes of it; without it, its text.
    """
    other = other or (lambda odd: strict(str(odd)))
    if isinstance(value, Mapping):
        found = {
            str(key if isinstance(key, str | Number) else other(key)): strict(item, other)
            for key, item in value.items()
        }
        return found if len(found) == len(value) else other(value)  # two keys that read the same
    if isinstance(value, list | tuple):
        return [strict(item, other) for item in value]
    if isinstance(value, set | frozenset):
        items = [strict(item, other) for item in value]
        try:
            return sorted(items)
        except TypeError:
            return sorted(items, key=repr)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # A lone surrogate, as odd file names have, cannot be written as UTF-8.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    # Dates of NumPy's would become numbers that nobody could tell from others.
    if hasattr(value, "tolist") and getattr(getattr(value, "dtype", None), "kind", "") not in ("m", "M"):
        return strict(value.tolist(), other)
    return other(value)
