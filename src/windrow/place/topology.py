"""The places of a loop's workers: which of them are near each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windrow.errors import UsageError


@dataclass(frozen=True, slots=True)
class Topology:
    """The places of workers: of each the group (a processor package or memory domain), and the core if it is known."""

    groups: tuple[int, ...]
    cores: tuple[int, ...] = ()  #: numbers of the system, for pinning

    def __len__(self) -> int:
        return len(self.groups)

    def first(self, workers: int) -> Topology:
        """Take as many workers."""
        return Topology(self.groups[:workers], self.cores[:workers])


def parse_topology(given: Any) -> Topology:
    """Read "2x10", two groups of ten, or the group of each worker as numbers."""
    if isinstance(given, Topology):
        return given
    if isinstance(given, str):
        parts = given.lower().split("x")
        if len(parts) == 2 and all(part.strip().isdigit() and int(part) for part in parts):
            groups, size = map(int, parts)
            return Topology(tuple(group for group in range(groups) for _ in range(size)))
    elif isinstance(given, Sequence) and given and all(isinstance(one, int) and one >= 0 for one in given):
        names = {group: place for place, group in enumerate(sorted(set(given)))}
        return Topology(tuple(names[group] for group in given))
    raise UsageError(
        f'topology= is groups x workers of each, such as "2x10", or the group of each worker; got {given!r}'
    )
