"""What a journal knows: inputs, and merged partials with the products and the rows they hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from windrow.core.intervals import Intervals
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class KnownInput:
    """An input of a run, as it was when its rows were counted."""

    key: str  #: unique among the inputs of the run
    dataset: str
    label: str
    identity: str  #: changes when the content does
    rows: int
    borders: tuple[int, ...]  #: of its units
    size: int | None
    mtime_ns: int | None

    def has_the_rows_of(self, other: KnownInput) -> bool:
        """Whether partials over rows of the other one are partials over rows of this one."""
        return (self.dataset, self.identity, self.rows, self.borders) == (
            other.dataset, other.identity, other.rows, other.borders,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blob:
    """A merged partial that is written down."""

    id: int
    input: str  #: key of the input
    products: tuple[str, ...]
    rows: Ranges  #: sorted, disjoint, coalesced
    bytes: int
    digest: str


def plain(value: Any) -> str:
    """Write a value as JSON, the same value always as the same text."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def seal(*values: Any) -> str:
    """Give the checksum of an entry: a database notices that its pages are damaged, not that a digit has changed."""
    return xxhash.xxh3_64_hexdigest(plain(values).encode())


def set_of_rows(ranges: Iterable[Sequence[int]], rows: int) -> Ranges:
    """Bring ranges of an input of so many rows in order; a row outside it, or given twice, is a bug."""
    found = Intervals()
    for start, stop in ranges:
        if not 0 <= start <= stop <= rows or not found.add(start, stop):
            raise InternalError(f"rows [{start}, {stop}) are outside of an input with {rows} rows, or given twice")
    return tuple(found)


def check_disjoint(blobs: Iterable[Blob]) -> None:
    """Refuse two blobs that hold the same rows of one product of one input."""
    # Products mostly come in the same sets: rows are put together per set first.
    held: dict[str, dict[tuple[str, ...], Intervals]] = {}
    for blob in blobs:
        for products, rows in held.setdefault(blob.input, {}).items():
            shared = set(products).intersection(blob.products)
            if shared and not all(rows.free(*part) for part in blob.rows):
                raise InternalError(f"rows of input {blob.input!r} are held twice for the product {min(shared)}")
        own = held[blob.input].setdefault(blob.products, Intervals())
        for part in blob.rows:
            own.add(*part)
