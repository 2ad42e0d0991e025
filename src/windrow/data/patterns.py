"""Which columns a user means: ``["*", "-HLT_*", "HLT_IsoMu*", "mass"]``. Reads no file."""

from __future__ import annotations

from fnmatch import translate
from re import compile as compiled
from typing import TYPE_CHECKING

from windrow.errors import UnknownNameError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


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
        if not found and not _has_wildcard(pattern):
            raise UnknownNameError(f"{what}: no column {pattern!r}{nearest(pattern, known)}")
        chosen.update(found)
    return tuple(name for name in known if name in chosen)


def _has_wildcard(pattern: str) -> bool:
    return any(mark in pattern for mark in "*?[")


def _matches(pattern: str, known: Sequence[str]) -> list[str]:
    if _has_wildcard(pattern):
        match = compiled(translate(pattern)).match
        return [name for name in known if match(name)]
    if pattern in known:
        return [pattern]
    members = [name for name in known if name.startswith((f"{pattern}_", f"{pattern}."))]
    counters = [name for name in known if name in (f"n{pattern}", f"N{pattern}")]
    return members + counters if members else []
