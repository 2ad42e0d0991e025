"""``result.compare(other)``: which outputs, cutflow lines and rows are not the same in two runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.pipeline.results.compare_rows import ChangedRow, Changes, changed_rows
from windrow.pipeline.results.differences import OutputDifference, output_differences
from windrow.pipeline.results.result import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.pipeline.cutflow.table import Line, Table


#: Sums of weights that are this close may have been added in another order.
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class LineDifference:
    """A line of a cutflow that is not the same in two results; None where one has no such line."""

    region: str
    dataset: str
    cut: str
    first: int | None  #: rows that passed
    second: int | None
    sumw: tuple[float, float] | None = None  #: sums of weights, where only they differ

    def __str__(self) -> str:
        if self.sumw is not None:
            text = f"weighted {self.sumw[0]:.10g} -> {self.sumw[1]:.10g}"
        else:
            one, two = ("none" if n is None else f"{n:,}" for n in (self.first, self.second))
            text = f"{one} -> {two}"
        return f"{self.region} ({self.dataset}) {self.cut}: {text}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two results; ``print`` it, or look at its parts."""

    outputs: tuple[OutputDifference, ...]
    cutflow: tuple[LineDifference, ...]
    changes: Changes

    @property
    def rows(self) -> tuple[ChangedRow, ...]:
        """The first rows that changed side, with their identity where it could be read."""
        return self.changes.shown

    @property
    def changed(self) -> int | None:
        """How many times a row left or entered a region; None where rows could not be compared."""
        return self.changes.count

    @property
    def same(self) -> bool:
        """Whether outputs, cutflows and rows are equal, outputs to the last bit."""
        return not (self.outputs or self.cutflow or self.changes.count)

    def __str__(self) -> str:
        if self.same:
            text = ["the results are the same"]
        else:
            text = [f"{len(self.outputs)} outputs differ"]
            text += [f"  {difference}" for difference in self.outputs]
            text.append(f"{len(self.cutflow)} cutflow lines differ")
            text += [f"  {difference}" for difference in self.cutflow]
        return "\n".join([*text, *self.changes.text()])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from windrow.pipeline.results.html import comparison_html

        return comparison_html(self)


def compare(first: Result, second: Result, *, rows: int = 20) -> Comparison:
    """Compare two results; ``rows`` is how many changed rows are shown, all of them are counted."""
    if not isinstance(second, Result):
        raise UsageError(f"compare takes another result, got {type(second).__name__}")
    if rows < 0:
        raise UsageError(f"rows= is how many changed rows to show, got {rows!r}")
    return Comparison(
        tuple(output_differences(first.outputs, second.outputs)),
        tuple(_cutflow_differences(first, second)),
        changed_rows(first, second, rows),
    )


def _cutflow_differences(first: Result, second: Result) -> list[LineDifference]:
    found: list[LineDifference] = []
    tables = [_tables(result) for result in (first, second)]
    for key in dict.fromkeys([*tables[0], *tables[1]]):
        region, dataset = key
        one, two = (table.get(key) for table in tables)
        if one is not None and two is not None and one.labels == two.labels:
            found += _line_differences(region, dataset, one.executed, two.executed)
            continue
        # Lines of another order count other rows: only the ends can be compared then.
        ends = [None if table is None else table.passed for table in (one, two)]
        if ends[0] != ends[1]:
            found.append(LineDifference(region, dataset, "selected", ends[0], ends[1]))
    return found


def _tables(result: Result) -> dict[tuple[str, str], Table]:
    flow = result.cutflow
    return {(region, d): flow[region, d] for region in flow.regions for d in flow.datasets}


def _line_differences(region: str, dataset: str, first: Sequence[Line], second: Sequence[Line]) -> list[LineDifference]:
    found = []
    for one, two in zip(first, second, strict=True):
        if one.passed != two.passed:
            found.append(LineDifference(region, dataset, one.label, one.passed, two.passed))
        elif not math.isclose(one.sumw, two.sumw, rel_tol=ROUNDING):
            sums = (one.sumw, two.sumw)
            found.append(LineDifference(region, dataset, one.label, one.passed, two.passed, sums))
    return found
