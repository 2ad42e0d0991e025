"""What an order is decided from: steps with what they cost, lanes with their cuts, and what the cuts say of sampled rows.

An order policy is a function ``policy(situation) -> order``: a legal order of all steps. It knows no clock and no
chance of its own. ``expected_cost`` in ``windrow.order.cost`` says what an order costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from windrow.core.records import Window


class Step(NamedTuple):
    """A step and what it costs."""

    name: str
    kind: str  #: "cut", "column" or "weight"
    lanes: tuple[int, ...]  #: the lanes that need it: it runs once, on the rows that any of them still wants
    fixed_s: float = 0.0  #: seconds per call
    row_s: float = 0.0  #: seconds per row
    block: int = 0  #: rows per call at most; 0: all of a chunk
    columns: tuple[str, ...] = ()  #: file columns that it reads


class Column(NamedTuple):
    """A column of the file."""

    name: str
    row_s: float  #: seconds it takes to read and decompress it, per row of the units that are read
    bytes: float = 0.0  #: stored bytes per row


class Lane(NamedTuple):
    """A region's cuts, and for each whether it is inverted. A row is in it while none has rejected it."""

    cuts: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything a policy may look at."""

    written: tuple[str, ...]  #: all steps in the order in the user's file: legal, by construction
    current: tuple[str, ...]  #: the order in force
    steps: Mapping[str, Step]
    #: step -> steps that must run before it: what it reads, ``after=``, guards, barriers, weights above the first cut
    needs: Mapping[str, tuple[str, ...]]
    lanes: tuple[Lane, ...]
    windows: tuple[Window, ...] = ()  #: sampled rows and what every cut says of them
    columns: Mapping[str, Column]
    chunk_rows: float = 0.0  #: rows of a chunk: what a step is called for at once
    unit_rows: float = 0.0  #: rows of a unit: what a column is read or left out for
    guards: tuple[tuple[str, str], ...] = ()  #: (step, cut): learned; they are in ``needs`` too

    @property
    def cuts(self) -> tuple[str, ...]:
        return tuple(name for name in self.written if self.steps[name].kind == "cut")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An order, what it is expected to cost, and why it was chosen."""

    order: tuple[str, ...]
    why: str
    cost: float  #: seconds per chunk
    current_cost: float  #: of the order in force
    written_cost: float  #: of the order in the user's file
    sure: bool = True  #: more rows would hardly change it
    steps: tuple[str, ...] = ()  #: why each step stands where it does, in the order; nothing where a rule chose it


OrderPolicy: TypeAlias = "Callable[[Situation], tuple[str, ...]]"
