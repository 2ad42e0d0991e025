"""The lines of cutflow tables: what each says, and how it is made of what was counted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["INITIAL", "SELECTED", "Line", "line_of", "total_of"]

INITIAL = "initial"
SELECTED = "selected"  #: the line of what passed all cuts, where they ran in several orders


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a cutflow: a cut, the rows that reached it and those that passed."""

    name: str
    entered: int
    passed: int
    sumw: float
    sumw2: float
    undefined: int | None  #: rows for which the cut was None: on neither side; None: not counted
    nan: int | None  #: rows with NaN among the cut's inputs; None: not counted
    applies: bool = True  #: False where ``when=`` keeps the cut out: every row passes
    inverted: bool = False
    kind: Literal["exact", "estimated"] = "exact"
    passed_error: float = 0.0  #: standard error of ``passed``; 0: it is exact
    interval: tuple[int, int] | None = None  #: where ``passed`` is, with 95 % confidence; None: exact
    sumw_sampling: float = 0.0  #: standard error of ``sumw`` that comes from sampling
    sampled: int = 0  #: rows that were looked at for it

    @property
    def error(self) -> float:
        """The statistical uncertainty of ``sumw``; that of an estimate comes on top, as ``sumw_sampling``."""
        return math.sqrt(self.sumw2)

    @property
    def label(self) -> str:
        """The cut's name, with "!" if it is inverted."""
        return f"!{self.name}" if self.inverted else self.name

    def as_dict(self) -> dict[str, Any]:
        """Return the line as plain data."""
        return {
            "cut": self.label,
            "kind": self.kind,
            "entered": self.entered,
            "passed": self.passed,
            "passed_error": self.passed_error,
            "interval": list(self.interval or (self.passed, self.passed)),
            "sampled": self.sampled,
            "sumw": self.sumw,
            "sumw_error": self.error,
            "sumw_sampling": self.sumw_sampling,
            "undefined": self.undefined,
            "nan": self.nan,
            "applies": self.applies,
        }


def line_of(name: str, numbers: list[float], applies: bool, inverted: bool) -> Line:
    """Make a line of what was counted: rows entered, passed, undefined, NaN, and the sums of weights."""
    entered, passed, undefined, nan = (int(number) for number in numbers[:4])
    sumw, sumw2 = map(float, numbers[4:])
    return Line(name, entered, passed, sumw, sumw2, undefined, nan, applies, inverted)


def total_of(name: str, numbers: list[float]) -> Line:
    """Make a line that stands for no cut."""
    return line_of(name, numbers, applies=True, inverted=False)
