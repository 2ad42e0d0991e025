"""The rows that peek found, piece by piece: what a name stands for in a file, and values put together."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import filter as matching
from typing import TYPE_CHECKING, Any

import awkward as ak

from windrow.blocks.columns import concatenate

if TYPE_CHECKING:
    from windrow.blocks.results import Verdict
    from windrow.data.base import FileInfo


@dataclass(slots=True)
class Found:
    """Rows found so far, piece by piece."""

    values: list[dict[str, Any]] = field(default_factory=list)
    identity: list[dict[str, Any]] = field(default_factory=list)
    entries: list[Any] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    looked_at: int = 0


def columns_of(name: str, info: FileInfo) -> list[str]:
    """File columns that a name stands for: itself, or those that match a pattern."""
    if name in info.columns:
        return [name]
    return matching(info.columns, name) if any(letter in name for letter in "*?[") else []


def in_file(name: str, info: FileInfo) -> bool:
    """Say whether a file has a column or collection of this name, or columns that match it."""
    return name in info.collections or bool(columns_of(name, info))


def keys_of(name: str, values: dict[str, Any], info: FileInfo) -> list[str]:
    """Names of the values that one asked name gives."""
    if name not in values:
        return columns_of(name, info)
    return [name, *(key for key in (f"{name}_up", f"{name}_down") if key in values)]


def verdicts(verdict: Verdict) -> Any:
    """True, False or None for each row."""
    if verdict.undefined is None:
        return verdict.passed
    return ak.mask(ak.Array(verdict.passed), ~verdict.undefined)


def read_now(value: Any) -> Any:
    """Read the fields that a value only promises: the file is closed when they are looked at."""
    return ak.materialize(value) if isinstance(value, ak.Array) else value


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the columns of several pieces; where one has no variations, the nominal stands for them."""
    names = dict.fromkeys(name for part in parts for name in part)
    joined = {}
    for name in names:
        nominal = name.removesuffix("_up").removesuffix("_down")
        arrays = [part[name] if name in part else part.get(nominal) for part in parts]
        if all(array is not None for array in arrays):
            joined[name] = concatenate(arrays)
    return joined
