"""Tables by region and dataset, as ``result.cutflow`` and ``result.nminus1`` give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import add
from typing import Any, Generic, TypeVar

from windrow.errors import UnknownNameError, alternatives, nearest

T = TypeVar("T")
Key = TypeVar("Key")


class UnknownKey(UnknownNameError, KeyError):
    """A key that a result or its tables do not have."""


def add_by_key(parts: Iterable[Mapping[Key, T]]) -> dict[Key, T]:
    """Add up what several mappings have under the same key."""
    total: dict[Key, Any] = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total[key] + value if key in total else value
    return total


class RegionTables(Mapping[str, T], Generic[T]):
    """Tables by region: ``tables["SR"]`` for all datasets together, ``tables["SR", "ttbar"]`` for one."""

    called = "table"
    no_region = "none"  #: said where there is no table at all

    def __init__(self, tables: Mapping[tuple[str, str], T]) -> None:
        self.tables = dict(tables)
        self.regions = tuple(dict.fromkeys(region for region, _ in self.tables))
        self.datasets = tuple(dict.fromkeys(dataset for _, dataset in self.tables))

    def __getitem__(self, key: Any) -> T:
        region, dataset = key if isinstance(key, tuple) and len(key) == 2 else (key, None)
        mine = {name: table for (other, name), table in self.tables.items() if other == region}
        if not mine:
            known = ", ".join(self.regions) or self.no_region
            raise UnknownKey(
                f"no {self.called} of region {region!r}{nearest(str(region), self.regions)} (regions: {known})"
            )
        if dataset is None:
            return reduce(add, mine.values())
        if dataset not in mine:
            there = alternatives("datasets", dataset, mine)
            raise UnknownKey(f"no {self.called} of region {region!r} for dataset {dataset!r}{there}")
        return mine[dataset]

    def __iter__(self) -> Iterator[str]:
        return iter(self.regions)

    def __len__(self) -> int:
        return len(self.regions)

    def __str__(self) -> str:
        return "\n\n".join(str(table) for table in self.values())

    def as_dict(self) -> dict[str, Any]:
        """Return all tables as plain data: by region, in all and by dataset."""
        tables: Mapping[tuple[str, str], Any] = self.tables
        whole: Mapping[str, Any] = self
        return {
            region: {
                "all": whole[region].as_dict(),
                "datasets": {d: t.as_dict() for (r, d), t in tables.items() if r == region},
            }
            for region in self
        }
