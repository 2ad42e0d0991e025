"""Parts of a unit: steps run on each part by itself, outputs once for the unit, from what its parts hand over.

Sums of floats depend on what is added first, so outputs and weighted counts are made unit by unit whatever the chunks are.
A part hands over which rows each lane has left after each cut, the weights, and the columns that outputs and files need
of the rows that are left. What is read from the file is not handed over: the unit reads it again, late, as any chunk does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import awkward as ak
import numpy as np

from windrow.blocks.chunk import ChunkRun
from windrow.blocks.columns import concatenate
from windrow.blocks.selection import Selection, union

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from windrow.blocks.chunk import Chunk, Partial
    from windrow.blocks.program import Program
    from windrow.core.records import Window
    from windrow.data.base import Reader

    Rows = NDArray[np.int64]  #: of the file, ascending


class CutLine(NamedTuple):
    """What one cut did in one lane."""

    lane: int
    cut: str
    rows: tuple[Rows, Rows, Rows | None, Rows | None]  #: entered, passed, undefined, NaN
    weights: tuple[str, ...]  #: that had run before it


@dataclass(slots=True)
class UnitPart:
    """Rows of a unit on which all steps have run."""

    start: int  #: rows of the file
    stop: int
    order: tuple[str, ...]
    rows: Rows  #: that the run wants
    lanes: list[Rows]  #: by lane: the rows that are left
    made: dict[str, tuple[Rows, Any]]  #: columns and weights
    varied: dict[str, bool]  #: weights that ran, and whether they have variations
    initial: tuple[str, ...]  #: weights that had run before the first cut
    lines: list[CutLine]
    windows: dict[int, Window]  #: what all cuts say of some of the rows


@dataclass(slots=True)
class CutNotes:
    """What a recorder of counts would be told, noted until the whole unit is there."""

    run: ChunkRun
    initial: tuple[str, ...] = ()
    lines: list[CutLine] = field(default_factory=list)

    def record_initial(self) -> None:
        self.initial = tuple(self.run.varied)

    def record_cut(
        self,
        lane: int,
        cut: str,
        entered: Selection,
        passed: Selection,
        undefined: Selection | None = None,
        nan: Selection | None = None,
    ) -> None:
        start = self.run.start
        rows = entered.positions() + start, passed.positions() + start
        odd = tuple(None if one is None else one.positions() + start for one in (undefined, nan))
        self.lines.append(CutLine(lane, cut, (*rows, *odd), tuple(self.run.varied)))  # type: ignore[arg-type]


def take_part(run: ChunkRun) -> UnitPart:
    """Run the steps of a chunk that is a part of a unit, and give what the unit needs of it."""
    notes = CutNotes(run)
    run.counts = notes  # type: ignore[assignment]
    run.run_steps()
    start, length = run.start, run.store.length
    made: dict[str, tuple[Rows, Any]] = {}
    for name, lanes in _columns_needed(run.program).items():
        rows = union([run.selections[lane] for lane in lanes])
        if rows.count:
            values = run.store.made(name, rows)
            made[name] = rows.positions() + start, ak.materialize(values) if isinstance(values, ak.Array) else values
    for name, has_variations in run.varied.items():
        for one in (name, f"{name} up", f"{name} down") if has_variations else (name,):
            home, values = run.store.made_for(one)
            if home.count:
                made[one] = home.positions() + start, values
    return UnitPart(
        start=start, stop=start + length, order=run.order, rows=run.rows.positions() + start,
        lanes=[one.positions() + start for one in run.selections], made=made, varied=dict(run.varied),
        initial=notes.initial, lines=notes.lines, windows=run.windows,
    )  # fmt: skip


def _columns_needed(program: Program) -> dict[str, list[int]]:
    """Say which made columns outputs and files read, and in which lanes."""
    needed: dict[str, list[int]] = {}
    for output in program.outputs:
        for argument in output.arguments:
            if argument.kind == "made":
                needed.setdefault(argument.source, []).append(output.lane)
    for save in program.saves:
        for name in save.made:
            needed.setdefault(name, []).extend(save.lanes)
    return {name: lanes for name, lanes in needed.items() if name not in program.weights}


def evaluate_unit(
    program: Program, reader: Reader, chunk: Chunk, parts: Sequence[UnitPart], stopping: Callable[[], bool]
) -> tuple[ChunkRun, Partial]:
    """Make the partial of a unit from all of its parts, in the order of their rows; also give the run, for its meters."""
    unit = _Unit(chunk, parts)
    run = ChunkRun(program, reader, chunk, parts[0].order, {}, stopping=stopping, rows=unit.selection(unit.rows()))
    run.varied = unit.varied()
    for name in {name: None for part in parts for name in part.made}:
        run.store.put(name, *unit.column(name))
    run.selections = unit.lanes(run.rows)
    run.windows = {place: window for part in parts for place, window in part.windows.items()}
    orders = {part.order: [one for one in parts if one.order == part.order] for part in parts}
    if len(orders) == 1:
        unit.count(run, parts)
    else:
        for order, mine in orders.items():
            some = _Unit(chunk, mine)
            other = ChunkRun(
                program, reader, chunk, order, {}, rows=some.selection(some.rows()), store=run.store
            )  # fmt: skip
            some.count(other, mine)
            run.counts.counts.update({key: lines for key, lines in other.counts.counts.items() if key[0] == order})
        # Of all rows: what is the same in all orders.
        kept = {key: lines.copy() for key, lines in run.counts.counts.items() if key[0]}
        run.counts.record_initial()
        run.counts.counts.update(kept)
    return run, run.finish()


class _Unit:
    """Several parts of one unit, joined."""

    def __init__(self, chunk: Chunk, parts: Sequence[UnitPart]) -> None:
        self._start = chunk.borders[0]
        self._length = chunk.borders[-1] - self._start
        self._parts = parts

    def selection(self, rows: Rows) -> Selection:
        whole = len(rows) == self._length
        return Selection(self._length, None if whole else rows - self._start)

    def rows(self) -> Rows:
        return np.concatenate([part.rows for part in self._parts])

    def varied(self) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for part in self._parts:
            for name, has_variations in part.varied.items():
                found[name] = found.get(name, False) or has_variations
        return found

    def column(self, name: str) -> tuple[Selection, Any]:
        """Join a made column; a part in which a weight has no variations has its nominal values for them."""
        nominal = name.rsplit(" ", 1)[0]
        found = [part.made.get(name) or part.made.get(nominal) for part in self._parts]
        having = [one for one in found if one is not None]
        rows = np.concatenate([rows for rows, _ in having])
        return self.selection(rows), concatenate([values for _, values in having])

    def lanes(self, everything: Selection) -> list[Selection]:
        """Join the rows of the lanes; the same rows are the same object, so that columns are shared."""
        known: dict[bytes, Selection] = {everything.positions().tobytes(): everything}
        found = []
        for lane in range(len(self._parts[0].lanes)):
            rows = np.concatenate([part.lanes[lane] for part in self._parts])
            found.append(known.setdefault((rows - self._start).tobytes(), self.selection(rows)))
        return found

    def count(self, run: ChunkRun, parts: Sequence[UnitPart]) -> None:
        """Record what the parts noted, all of which ran in the order of the run."""
        varied: Mapping[str, bool] = self.varied()
        run.varied = {name: varied[name] for name in parts[0].initial}
        run.counts.record_initial()
        for lines in zip(*[part.lines for part in parts], strict=True):
            first = lines[0]
            run.varied = {name: varied[name] for name in first.weights}
            entered, passed, undefined, nan = (self._joined([line.rows[place] for line in lines]) for place in range(4))
            assert entered is not None
            assert passed is not None
            run.counts.record_cut(first.lane, first.cut, entered, passed, undefined, nan)
        run.varied = dict(varied)

    def _joined(self, rows: Sequence[Rows | None]) -> Selection | None:
        having = [one for one in rows if one is not None]
        return self.selection(np.concatenate(having)) if having else None
