"""Columns as a file presents them, the collections their names make, and which of them a user means. Reads no file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from glob import has_magic
from re import compile as compiled
from typing import TYPE_CHECKING

from windrow.errors import MissingColumnError, UnknownNameError, UsageError, nearest

if TYPE_CHECKING:
    from windrow.data.base import ColumnInfo, FileInfo


def find_collections(columns: Mapping[str, ColumnInfo]) -> Mapping[str, tuple[str, ...]]:
    """Return prefix -> member columns for every prefix that names records.

    ``Muon_pt`` and ``Muon.pt`` belong to ``Muon`` where there is no column ``Muon``. If any member
    is jagged, the members are the jagged ones of one length; otherwise all flat ones.
    """
    members: dict[str, list[ColumnInfo]] = {}
    for column in columns.values():
        if column.kind == "other":
            continue
        for prefix in _prefixes(column):
            members.setdefault(prefix, []).append(column)
    return {
        prefix: tuple(c.name for c in _of_one_length(prefix, group))
        for prefix, group in members.items()
        if prefix not in columns
    }


def _prefixes(column: ColumnInfo) -> Iterable[str]:
    head, dot, _ = column.name.rpartition(".")
    if dot:
        return (head,) if head else ()
    first, underscore, rest = column.name.partition("_")
    if not (underscore and first and rest):
        return ()
    # A longer prefix (boosted_tau_pt -> boosted_tau) counts only if the counter says so: HLT_IsoMu24 must not become
    # "the records of HLT_IsoMu24_*" in the files that lack this trigger.
    counted = (column.counter or "")[1:]
    if counted != first and column.name.startswith(counted + "_") and counted:
        return (first, counted)
    return (first,)


def _of_one_length(prefix: str, group: Sequence[ColumnInfo]) -> Sequence[ColumnInfo]:
    jagged = [c for c in group if c.kind == "jagged"]
    if not jagged:
        return group
    counters = Counter(c.counter for c in jagged)
    if len(counters) == 1 or all(c.counter == f"n{c.name}" for c in jagged):
        # Files may count the objects for every branch anew; that they agree is checked when they are read.
        return jagged
    named = [name for name in (f"n{prefix}", f"N{prefix}") if name in counters]
    # most_common is stable: equal counts are decided by the order in the file.
    chosen = named[0] if named else counters.most_common(1)[0][0]
    return [c for c in jagged if c.counter == chosen]


def check_request(info: FileInfo, label: str, columns: Sequence[str], start: int, stop: int) -> None:
    """Refuse columns the file does not have and rows outside of it."""
    for name in columns:
        if name not in info.columns:
            hint = nearest(name, info.columns) or f" among its {len(info.columns)} columns"
            raise MissingColumnError(f"{label} has no column {name!r}{hint}", column=name, file=label)
    if not 0 <= start <= stop <= info.rows:
        raise UsageError(f"{label} has rows [0, {info.rows}), asked for [{start}, {stop})")


def choose(patterns: str | Sequence[str], names: Iterable[str], *, what: str) -> tuple[str, ...]:
    """Return the names that the patterns choose, in the order of ``names``.

    Patterns are applied from left to right: one adds what it matches, and with a ``-`` in front it
    takes that away again; a first pattern with a ``-`` takes away from everything. ``"Muon"`` where
    no column is called so means the columns of the collection and its counter. A plain name that
    is not there is an error of ``what``; a wildcard may match nothing, because files differ.
    """
    known = list(dict.fromkeys(names))
    asked = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in asked:
        if not str(pattern).removeprefix("-"):
            raise UsageError(
                f"{what}: {pattern!r} is no pattern; write names of columns with * and ?, "
                "and a - in front to leave them out"
            )
    if not asked:
        raise UsageError(f'{what}: no columns are named; write "*" for all of them')
    chosen: set[str] = set(known) if asked[0].startswith("-") else set()
    for pattern in asked:
        if pattern.startswith("-"):
            chosen.difference_update(_matches(pattern[1:], known))
            continue
        found = _matches(pattern, known)
        if not found and not has_magic(pattern):
            raise UnknownNameError(f"{what}: no column {pattern!r}{nearest(pattern, known)}")
        chosen.update(found)
    return tuple(name for name in known if name in chosen)


def _matches(pattern: str, known: Sequence[str]) -> list[str]:
    if has_magic(pattern):
        match = compiled(translate(pattern)).match
        return [name for name in known if match(name)]
    if pattern in known:
        return [pattern]
    members = [name for name in known if name.startswith((f"{pattern}_", f"{pattern}."))]
    counters = [name for name in known if name in (f"n{pattern}", f"N{pattern}")]
    return members + counters if members else []
