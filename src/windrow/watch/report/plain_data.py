"""Plain data for a report that may be passed on: files by their names alone, numbers that JSON has."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

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


def strict(value: Any) -> Any:
    """Return plain data that JSON has words for: NaN and infinity become None, the unknown its text."""
    if isinstance(value, Mapping):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict(item) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # A lone surrogate, as odd file names have, cannot be written as UTF-8.
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        return strict(value.item())  # a number of NumPy's
    if callable(getattr(value, "tolist", None)):
        return strict(value.tolist())
    return strict(str(value))
