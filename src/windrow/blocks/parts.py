"""Parts of a unit: steps run on each part by itself, outputs once for the unit, from what its parts hand over.

Sums of floats depend on what is added first, so outputs and weighted counts are made unit by unit whatever the chunks are.
A part hands over a bit for every row that a cut was asked about, the weights, and the columns that outputs and files need of
the rows that are left. Which rows each lane has follows from the bits, however many lanes there are: the unit goes through its
steps once more with the answers that its parts got. What is read from the file is not handed over: the unit reads it again,
late, as any chunk does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import awkward as ak
import numpy as np

from windrow.blocks.chunk import ChunkRun
from windrow.blocks.columns import concatenate, take
from windrow.blocks.cutflow_counts import INITIAL
from windrow.blocks.failing import MOST_ROWS, RowSearch, RowsFailed
from windrow.blocks.results import UpDown, Verdict, fewer_rows, joined, take_answer
from windrow.blocks.selection import Selection, union
from windrow.errors import StepError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.calls import Meter
    from windrow.blocks.chunk import Chunk, Partial
    from windrow.blocks.failing import LeftOut
    from windrow.blocks.program import BoundStep, Program
    from windrow.core.records import Window
    from windrow.data.base import Reader

    Mask = NDArray[np.bool_]


class CutAnswer(NamedTuple):
    """What a cut said of the rows that it was asked about, a bit each."""

    rows: int
    passed: NDArray[np.uint8]
    undefined: NDArray[np.uint8] | None  #: None where there are no such rows
    nan: NDArray[np.uint8] | None

    @property
    def verdict(self) -> Verdict:
        passed = self.unpacked(self.passed)
        return Verdict(passed, None if self.undefined is None else self.unpacked(self.undefined))

    def unpacked(self, bits: NDArray[np.uint8] | None) -> Mask:
        if bits is None:
            return np.zeros(self.rows, dtype=bool)
        return np.unpackbits(bits, count=self.rows).astype(bool)


@dataclass(slots=True)
class UnitPart:
    """Rows of a unit on which all steps have run."""

    start: int  #: rows of the file
    stop: int
    order: tuple[str, ...]
    rows: NDArray[np.int64] | None  #: of the part, that were run; None: all
    cuts: dict[str, CutAnswer]
    weights: dict[str, Any]  #: of the rows that they were asked about
    columns: dict[str, Any]  #: of the rows that are left to whoever reads them
    given_up: dict[str, dict[int, str]]  #: by step: the lanes that it fails for, and how
    windows: dict[int, Window]  #: what all cuts say of some of the rows
    failed: tuple[str, ...] = ()  #: for each row that was left out: what raised

    @property
    def nbytes(self) -> int:
        """Bytes that it takes to carry."""
        answers = [one for answer in self.cuts.values() for one in answer[1:]]
        weights = [one for weight in self.weights.values() for one in getattr(weight, "parts", (weight,))]
        return sum(int(one.nbytes) for one in (*answers, *weights, *self.columns.values()) if one is not None)


class _NoCounts:
    """Stands where counts are recorded: those of a part follow from what it hands over."""

    def __init__(self, run: ChunkRun) -> None:
        """Record nothing of a run."""

    def record_initial(self, *rows: Any) -> None:
        """Record nothing of rows."""

    record_cut = record_initial


class PartRun(ChunkRun):
    """One attempt at a chunk that is a part of a unit: its steps are run, and its outputs left to the unit."""

    recorder: Any = _NoCounts

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._answered: dict[str, CutAnswer] = {}
        self._nan: Mask | None = None
        self._given_up_at: dict[str, dict[int, str]] = {}

    def run(self) -> UnitPart:  # type: ignore[override]  # what a part makes is no partial
        self.run_steps()
        everything = self.rows.count == self.store.length
        columns: dict[str, Any] = {}
        for name, lanes in columns_needed(self.program).items():
            rows = union([self.selections[lane] for lane in lanes])
            if rows.count:
                values = self.store.made(name, rows)
                columns[name] = ak.to_packed(ak.materialize(values)) if isinstance(values, ak.Array) else values
        return UnitPart(
            start=self.start, stop=self.start + self.store.length, order=self.order,
            rows=None if everything else self.rows.positions(), cuts=self._answered,
            weights={name: self._weight(name) for name in self.varied}, columns=columns,
            given_up=self._given_up_at, windows=self.windows,
        )  # fmt: skip

    def _weight(self, name: str) -> Any:
        names = (name, f"{name} up", f"{name} down") if self.varied[name] else (name,)
        values = [self.store.made_for(one)[1] for one in names]
        return UpDown(*values) if len(values) > 1 else values[0]

    def nan_rows(self, step: BoundStep, rows: Selection) -> Mask | None:
        self._nan = super().nan_rows(step, rows)
        return self._nan

    def shrink(self, step: BoundStep, rows: Selection, verdict: Verdict | None) -> None:
        self._nan = None
        super().shrink(step, rows, verdict)
        if verdict is not None:
            masks = (verdict.passed, verdict.undefined, self._nan)
            packed = [None if mask is None else np.packbits(mask) for mask in masks]
            self._answered[step.name] = CutAnswer(rows.count, *packed)  # type: ignore[arg-type]

    def give_up_lanes(self, step: BoundStep, rows: Selection) -> bool:
        before = set(self.given_up)
        found = super().give_up_lanes(step, rows)
        lanes = {lane: why for lane, why in self.given_up.items() if lane not in before}
        self._given_up_at.setdefault(step.name, {}).update(lanes)
        return found


def columns_needed(program: Program) -> dict[str, list[int]]:
    """Say which made columns outputs and files read, and in which lanes; weights are handed over anyway."""
    needed: dict[str, list[int]] = {}
    for output in program.outputs:
        for argument in output.arguments:
            if argument.kind == "made":
                needed.setdefault(argument.source, []).append(output.lane)
    for save in program.saves:
        for name in save.made:
            needed.setdefault(name, []).extend(save.lanes)
    return {name: lanes for name, lanes in needed.items() if name not in program.weights}


@dataclass(slots=True)
class UnitOfParts:
    """One unit that is evaluated from all of its parts, in the order of their rows."""

    program: Program
    reader: Reader
    chunk: Chunk
    parts: Sequence[UnitPart]
    stopping: Callable[[], bool]
    left_out: dict[int, LeftOut] = field(default_factory=dict)  #: by row of the file: on which an output raises
    _answers: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)  #: by order

    def evaluate(self, *, skip: bool) -> tuple[ChunkRun, Partial]:
        """Make the partial; also give the run, for its meters."""
        failed = [what for part in self.parts for what in part.failed]
        if len(failed) > MOST_ROWS:
            raise StepError(f"{failed[0]}; so do {len(failed) - 1} other rows of its unit, each by itself")
        search = RowSearch(MOST_ROWS - len(failed)) if skip else None
        while True:
            run = self._replayed()
            run.search = search
            try:
                return run, run.finish()
            except RowsFailed as found:
                self.left_out.update({row.row: row for row in found.rows})

    def _replayed(self) -> ChunkRun:
        """Go through the steps once more, those of each order by themselves."""
        orders = list(dict.fromkeys(part.order for part in self.parts))
        runs = [self._replay(order, [part for part in self.parts if part.order == order]) for order in orders]
        run: ChunkRun = runs[0] if len(runs) == 1 else self._together(runs)
        run.meters.clear()  # of steps: their parts have told
        run.windows = {place: window for part in self.parts for place, window in part.windows.items()}
        return run

    def _replay(self, order: tuple[str, ...], parts: list[UnitPart]) -> UnitRun:
        run = UnitRun(
            self.program, self.reader, self.chunk, order, {}, stopping=self.stopping, rows=self._rows(parts)
        )  # fmt: skip
        run.parts, run.answers = parts, self._answers.setdefault(order, {})
        run.run_steps()
        run.put_columns()
        run.parts = ()
        return run

    def release(self) -> None:
        """Let go of what its steps answered, which runs hold in a circle with their columns."""
        for answers in self._answers.values():
            answers.clear()

    def _rows(self, parts: list[UnitPart]) -> Selection:
        first, stop = self.chunk.borders[0], self.chunk.borders[-1]
        rows = np.concatenate(
            [np.arange(one.start, one.stop) if one.rows is None else one.rows + one.start for one in parts]
        )
        if self.left_out:
            rows = np.setdiff1d(rows, list(self.left_out))
        return Selection(stop - first, None if len(rows) == stop - first else rows - first)

    def _together(self, runs: list[UnitRun]) -> ChunkRun:
        """Join what parts gave that ran in several orders; each order has counted its own rows."""
        run = ChunkRun(
            self.program, self.reader, self.chunk, runs[0].order, {}, stopping=self.stopping, rows=_joined([one.rows for one in runs])
        )  # fmt: skip
        known: dict[tuple[int, ...], Selection] = {}  # the same rows are the same object, so that columns are shared
        for lane in range(len(run.selections)):
            mine = [one.selections[lane] for one in runs]
            key = tuple(map(id, mine))
            run.selections[lane] = known.get(key) or known.setdefault(key, _joined(mine))
            run.pack(run.selections[lane], *mine)
        for name in {name: None for one in runs for name in one.answers if name not in self.program.cuts}:
            homes, values, _ = zip(*(one.answers[name] for one in runs if name in one.answers), strict=True)
            order = np.argsort(np.concatenate([home.positions() for home in homes]))
            run.keep_column(name, _joined(homes), take_answer(joined(list(values)), order))
        lines = {key: lines for one in runs for key, lines in one.counts.counts.items() if key[0]}
        first = [lines[:, INITIAL, 4] for one in runs for key, lines in one.counts.counts.items() if not key[0]]
        varied = {name: any(one.varied.get(name) for one in runs) for one in runs for name in one.varied}
        run.varied = {} if np.isnan(np.concatenate([np.empty(0), *first])).any() else varied
        run.counts.record_initial()
        run.counts.counts.update(lines)
        run.varied = varied
        run.given_up = {lane: why for one in reversed(runs) for lane, why in one.given_up.items()}
        return run


class UnitRun(ChunkRun):
    """The steps of parts that ran in one order, once more: their answers are there, and all else follows."""

    parts: Sequence[UnitPart] = ()
    answers: dict[str, tuple[Selection, Any, Mask | None]]  #: by step: of these rows, with those that have NaN

    def execute(self, step: BoundStep) -> None:
        for part in self.parts:
            for lane, why in part.given_up.get(step.name, {}).items():
                rows = self.selections[lane].positions()
                others = (rows < part.start - self.start) | (rows >= part.stop - self.start)
                self.selections[lane] = Selection(self.store.length, rows[others])
                self.given_up.setdefault(lane, why)
        if step.kind != "column":
            super().execute(step)

    def _answer(self, step: BoundStep, rows: Selection, meter: Meter) -> Any:  # noqa: ARG002 - nobody is called
        if step.name not in self.answers:
            self.answers[step.name] = rows, *self._answers_of(step)
        home, value, _ = self.answers[step.name]
        return fewer_rows(value, home, rows)

    def _answers_of(self, step: BoundStep) -> tuple[Any, Mask | None]:
        if step.kind == "weight":
            return joined([part.weights[step.name] for part in self.parts]), None
        found = [part.cuts[step.name] for part in self.parts if step.name in part.cuts]
        nan = None
        if any(one.nan is not None for one in found):
            nan = np.concatenate([one.unpacked(one.nan) for one in found])
        return joined([one.verdict for one in found]), nan

    def nan_rows(self, step: BoundStep, rows: Selection) -> Mask | None:
        home, _, nan = self.answers[step.name]
        return None if nan is None else take(nan, rows.within(home))

    def put_columns(self) -> None:
        """Have the columns at hand that outputs and files read."""
        for name, lanes in columns_needed(self.program).items():
            rows = union([self.selections[lane] for lane in lanes])
            if not rows.count:
                continue
            if name not in self.answers:
                values = concatenate([part.columns[name] for part in self.parts if name in part.columns])
                self.answers[name] = rows, values, None
            self.store.put(name, *self.answers[name][:2])


def _joined(selections: Sequence[Selection]) -> Selection:
    """Unite selections that have no row in common."""
    rows, length = np.sort(np.concatenate([one.positions() for one in selections])), selections[0].length
    return Selection(length, None if len(rows) == length else rows)
