"""Running one chunk: steps in the order of a plan, each on the rows its lanes still want, then the outputs.

A lane is a region; each has its selection. A step runs once, on the union of the rows of the lanes that need it; a cut
shrinks the selections of the lanes that contain it. Nothing is read for units in which no lane has rows left. Outputs
are evaluated unit by unit and merged in the fixed tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.calls import Caller, Meter
from windrow.blocks.columns import ColumnStore, rows_reading_nan
from windrow.blocks.cutflow_counts import CountRecorder
from windrow.blocks.failing import RowSearch, RowsFailed, data_error, is_about_rows, named_error, quiet, raise_from
from windrow.blocks.fragments import SavedPart, write_down
from windrow.blocks.outputs import Leaf, evaluate_outputs, merge_leaves
from windrow.blocks.purity import check_row_purity
from windrow.blocks.results import UpDown, Verdict, fewer_rows
from windrow.blocks.selection import RowSet, Selection, everything, keep, keep_packed, row_set, union
from windrow.blocks.side_by_side import answer_ahead, remember_costs, take_over
from windrow.blocks.tree import Nodes, grow
from windrow.errors import RowPurityError, StepError, error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.program import BoundStep, Program
    from windrow.core.records import Window
    from windrow.data.base import Reader


class Stopped(Exception):
    """The run ends and does not wait for this chunk."""


#: Positions of rows that the lanes of a chunk may hold at once, 256 MB of them; beyond it they are packed.
MOST_POSITIONS = 32_000_000


@dataclass(slots=True)
class Partial:
    """What a chunk gives: tree nodes by order of execution are inside the leaves."""

    input: int
    nodes: Nodes[Leaf] = field(default_factory=Nodes)
    fragments: tuple[SavedPart, ...] = ()  #: rows written down for files
    kept: tuple[tuple[str, RowSet], ...] = ()  #: (region, rows of it)
    others: tuple[Partial, ...] = ()  #: partials of inputs beside this one's in its family, sent along with it
    inputs: Nodes[Leaf] = field(default_factory=Nodes)  #: of the tree over inputs: those of these that are whole

    @property
    def nbytes(self) -> int:
        """Bytes of the outputs, as far as they are known."""
        trees = [self.inputs, self.nodes, *(other.nodes for other in self.others)]
        return sum(leaf.nbytes for tree in trees for leaf in tree.values.values())


@dataclass(frozen=True, slots=True)
class Chunk:
    """Which rows: whole units of one input, or a part of one."""

    input: int
    label: str
    first_unit: int  #: index of the first unit in the input's tree
    borders: tuple[int, ...]  #: of its units, in rows of the file
    clusters: tuple[int, ...]  #: of what columns are read or left out for: units or finer
    part: bool = False  #: of a unit


class ChunkRun:
    """One attempt at one chunk in one order."""

    recorder = CountRecorder

    def __init__(
        self,
        program: Program,
        reader: Reader,
        chunk: Chunk,
        order: tuple[str, ...],
        blocks: Mapping[str, int],
        force_rows: int | None = None,
        forced: bool = False,
        stopping: Callable[[], bool] | None = None,
        rows: Selection | None = None,
        store: ColumnStore | None = None,
    ) -> None:
        self.program = program
        self.chunk = chunk
        self.order = order
        self.start = chunk.borders[0]
        length = chunk.borders[-1] - self.start
        self.borders = np.asarray(chunk.borders, dtype=np.int64) - self.start
        clusters = np.asarray(chunk.clusters, dtype=np.int64) - self.start
        self.store = store or ColumnStore(reader, self.start, length, clusters)
        self.caller = Caller(program, self.store, self.alive, order)
        self.caller.blocks, self.caller.block_rows = blocks, force_rows
        self.rows = rows or everything(length)  #: there is no other row, for this attempt
        self.selections: list[Selection] = [self.rows] * len(program.lanes)
        self.meters: dict[str, Meter] = {}
        self.windows: dict[int, Window] = {}  #: what all cuts say of sampled rows, by unit
        self.moved = program.needed(order) != program.written  #: whether steps run in another order than written
        self.watched: int | None = None  #: a row of which is noted what removes it
        self.removed: dict[int, str] = {}  #: lane -> the cut that removed that row
        self.counts = self.recorder(self)
        self.varied: dict[str, bool] = {}  #: weights that ran, and whether they have variations
        self.forced = forced  #: call everything, even on no rows, to learn what an empty lane gives
        self.failed_empty: dict[str, str] = {}  #: steps and outputs that fail on no rows, and how
        self.given_up: dict[int, str] = {}  #: optional lanes, and why
        self.search: RowSearch | None = None  #: for rows that can be left out; None: a failure is the chunk's
        self.spare = 0  #: threads that may run steps beside this one
        self.answered: dict[str, tuple[Selection, Any, Meter]] = {}  #: by such threads, before their turn
        self.look: Callable[[ChunkRun], None] | None = None  #: what is done when all steps have run
        self.unchecked = program.unchecked  #: steps to be checked for row-purity
        self.samples: dict[str, tuple[Selection, Any]] = {}  #: by step: what it answered for a few scattered rows
        self.aside_s = 0.0  #: seconds of checks and looks, which later chunks do not take
        #: by step: what it answered for some rows, and what one of them takes
        self.known: dict[str, tuple[Selection, Any, float]] = {}
        self._answers: dict[str, tuple[BoundStep, Selection, Any]] = {}  #: that twins may take over
        self._stopping = stopping

    def run(self) -> Partial:
        """Execute every step and output; return the partial."""
        self.run_steps()
        return self.finish()

    def again(self, order: tuple[str, ...], rows: Selection) -> ChunkRun:
        """Give this attempt up for another one, on some of the rows; what was read is not read again."""
        self.caller.clear()
        self._answers.clear()
        run = type(self)(
            self.program, self.store.reader, self.chunk, order, self.caller.blocks, self.caller.block_rows,
            stopping=self._stopping, rows=rows, store=self.store,
        )  # fmt: skip
        for name, meter in self.meters.items():
            run.meters[name] = Meter(bytes_read=meter.bytes_read, read_s=meter.read_s)
        run.windows = {unit: replace(seen, order=order) for unit, seen in self.windows.items()}
        run.search, run.spare, run.look, run.unchecked = self.search, self.spare, self.look, self.unchecked
        return run

    def stop_if_asked(self) -> None:
        if self._stopping is not None and self._stopping():
            raise Stopped

    def run_steps(self) -> None:
        """Execute every step; outputs are left."""
        used = self.program.used_cuts
        first_cut = next((name for name in self.order if name in used), None)
        with quiet(self.moved):
            for at, name in enumerate(self.order):
                self.stop_if_asked()
                if name == first_cut:
                    self.counts.record_initial()
                if self.spare and name not in self.answered:
                    answer_ahead(self, self.order[at:])
                if name in self.program.steps:
                    self.execute(self.program.steps[name])
                elif name in self.program.cuts:
                    self._pass_all(name)
        if first_cut is None:
            self.counts.record_initial()
        if self.spare:
            remember_costs(self)
        if self.look is not None:
            began = perf_counter()
            self.look(self)
            self.aside_s += perf_counter() - began

    def release(self) -> None:
        """Let go of every column: virtual fields hold on to the chunk, and the chunk to them, until Python looks."""
        self.store.clear()
        self.caller.clear()
        self._answers.clear()
        self.known.clear()
        self.samples.clear()

    def product(self, names: Sequence[str], selection: Selection) -> NDArray[np.float64] | None:
        """Multiply weights in the order of definition for the rows of ``selection``; None if there are none."""
        result: NDArray[np.float64] | None = None
        for name in names:
            factor = self.store.made(name, selection)
            result = factor if result is None else result * factor
        return result

    def regions_with(self, lanes: tuple[int, ...], row: int | None) -> str:
        """Name the regions of some lanes that still have a row of the chunk; all of them for None."""
        having = [lane for lane in lanes if row is None or self.selections[lane].has(row)]
        return ", ".join(sorted(str(self.program.lanes[lane].region) for lane in having))

    def asking(self, step: BoundStep) -> Callable[[NDArray[np.int64]], Exception | None]:
        """Return a function that says what a step raises on rows of the chunk; None: nothing."""

        def ask(index: NDArray[np.int64]) -> Exception | None:
            self.stop_if_asked()
            try:
                self.caller.answer(step, Selection(self.store.length, index))
            except Exception as error:
                if self.store.read_error is not None:
                    raise data_error(self, self.store.read_error) from error
                return error
            return None

        return ask

    # -- steps -------------------------------------------------------------------------------

    def alive(self, lanes: tuple[int, ...]) -> Selection:
        """Give the rows that any of some lanes still wants."""
        return union([self.selections[lane] for lane in lanes])

    def pack(self, *selections: Selection) -> None:
        """Let go of the positions of rows that are not needed for now, where those of all lanes would take too much."""
        if self.is_tight:
            for selection in selections:
                selection.pack()

    @property
    def is_tight(self) -> bool:
        """Whether selections are packed."""
        return len(self.selections) * self.store.length > MOST_POSITIONS

    def execute(self, step: BoundStep) -> None:
        """Evaluate a step on the rows of its lanes, keep its column and shrink the lanes of a cut."""
        rows = self.alive(step.lanes)
        meter = self.meters.setdefault(step.name, Meter())
        try:
            value = self._answer(step, rows, meter) if rows.count or self.forced else None
        except StepError as error:
            self._leave_out_rows(step, rows, error)
            # In a moved order the step may just be too early: the chunk is done again in the written one.
            if self.moved or isinstance(error, RowPurityError) or not self.give_up_lanes(step, rows):
                raise
            rows = self.alive(step.lanes)
            value = self._answer(step, rows, meter) if rows.count else None
        if step.kind == "cut":
            assert value is None or isinstance(value, Verdict)
            meter.rows_out += int(value.passed.sum()) if value is not None else 0
            self.shrink(step, rows, value)
        else:
            meter.rows_out += rows.count
            if step.kind == "weight":
                self.varied[step.name] = isinstance(value, UpDown)
            self.keep_column(step.name, rows, np.empty(0) if value is None else value)

    def keep_column(self, name: str, rows: Selection, value: Any) -> None:
        """Have what a column or a weight answered for some rows at hand."""
        if isinstance(value, UpDown):
            self.store.put(f"{name} up", rows, value.up)
            self.store.put(f"{name} down", rows, value.down)
            value = value.nominal
        self.store.put(name, rows, value)

    def _answer(self, step: BoundStep, rows: Selection, meter: Meter) -> Any:
        """Evaluate a step, or take over what it or one that is the same answered for these rows and perhaps more rows."""
        if (ahead := take_over(self, step, meter)) is not None:
            return fewer_rows(ahead[1], ahead[0], rows)
        if step.name in self.known:
            home, value, row_s = self.known[step.name]
            if home.covers(rows):
                meter.call(rows.count, rows.count * row_s)
                return fewer_rows(value, home, rows)
        if step.same_as is None:
            return self.evaluate(step, rows, meter)
        known = self._answers.get(step.same_as)
        if known is not None and set(step.lanes) <= set(known[0].lanes):
            # Selections only shrink, so the other one saw all rows that the lanes have now.
            if known[0].name not in self.program.unchecked:
                self.program.unchecked.discard(step.name)
            return fewer_rows(known[2], known[1], rows)
        value = self.evaluate(step, rows, meter)
        self._answers[step.same_as] = (step, rows, value)
        return value

    def _leave_out_rows(self, step: BoundStep, rows: Selection, error: StepError) -> None:
        """Raise ``RowsFailed`` where a step fails on rows that can be left out, each by itself."""
        cause = error.__cause__
        if self.search is None or not isinstance(cause, Exception) or not is_about_rows(cause):
            return
        lanes = self.program.lanes
        others = [self.selections[n] for n in step.lanes if not lanes[n].optional]
        # Rows that only optional lanes have are no reason to leave out anything: the lane is given up.
        mine = union(others) if others else None
        if mine is not None and mine.count:
            known = cause if mine.count == rows.count else None
            found = self.search.find(self, step, mine.positions(), self.asking(step), known)
            if found:
                raise RowsFailed(found)

    def give_up_lanes(self, step: BoundStep, rows: Selection) -> bool:
        """Empty the optional lanes on whose own rows a step fails; say whether there were any."""
        lanes = self.program.lanes
        optional = [n for n in step.lanes if lanes[n].optional]
        others = [self.selections[n] for n in step.lanes if not lanes[n].optional]
        if not optional or (others and union(others).count == rows.count):
            return False
        nothing = Selection(rows.length, np.empty(0, dtype=np.int64))
        for number in optional:
            mine = self.selections[number]
            try:
                if mine.count:
                    self.evaluate(step, mine)
            except StepError as error:
                self.selections[number] = nothing
                cause = error_text(error.__cause__ or error).split(" (in compiled code")[0]
                self.given_up[number] = f"{step.kind} {step.name!r} fails without it ({cause})"
        return bool(self.given_up)

    def evaluate(self, step: BoundStep, rows: Selection, meter: Meter | None = None) -> Any:
        """Return what a step answers for some rows; what it raises names the step, the file and the row."""
        meter = meter or Meter()
        with meter.reading(self.store):
            try:
                value = self.caller.answer(step, rows, meter)
                if step.name in self.unchecked and step.kernel is None and rows.count > 1:
                    began = perf_counter()
                    check_row_purity(self, step, rows, value)
                    self.aside_s += perf_counter() - began
            except Exception as error:  # noqa: BLE001 - it is raised again, named
                if self.forced:
                    # Not every function takes an empty array; what then reads its column gets an empty one.
                    self.failed_empty[step.name] = f"{step.kind} {step.name!r} fails on zero rows ({error_text(error)})"
                    return None
                raise_from(named_error(self, step, rows, error), error)
        return value

    # -- cuts --------------------------------------------------------------------------------

    def nan_rows(self, step: BoundStep, rows: Selection) -> NDArray[np.bool_] | None:
        """Say which of the rows have NaN in a column that a step reads; None if there are none."""
        return rows_reading_nan(self.store, step.arguments, rows)

    def shrink(self, step: BoundStep, rows: Selection, verdict: Verdict | None) -> None:
        """Take the rows out of the lanes that a cut rejects, and count."""
        nan = None if verdict is None else self.nan_rows(step, rows)
        after: dict[tuple[int, bool], Selection] = {}
        sides: dict[bool, NDArray[np.bool_]] = {}  #: by whether inverted: of all rows of the chunk
        for lane_number in step.lanes:
            lane = self.program.lanes[lane_number]
            if step.name not in lane.cuts:
                continue
            before, inverted = self.selections[lane_number], lane.cuts[step.name]
            key = (id(before), inverted)
            if key not in after and verdict is not None and self.is_tight:
                if inverted not in sides:
                    sides[inverted] = np.zeros(self.store.length, dtype=bool)
                    sides[inverted][rows.positions()] = verdict.side(inverted)
                after[key] = keep_packed(before, sides[inverted])
            elif key not in after:
                after[key] = before if verdict is None else keep(before, verdict.side(inverted), rows)
            passed = self.selections[lane_number] = after[key]
            if self.watched is not None and before.has(self.watched) and not passed.has(self.watched):
                self.removed[lane_number] = step.name
            if lane.hidden:
                self.pack(before, passed)
                continue  # only its end counts
            undefined = None
            if verdict is not None and verdict.undefined is not None:
                undefined = keep(before, verdict.undefined, rows)
            odd = None if nan is None else keep(before, nan, rows)
            self.counts.record_cut(lane_number, step.name, before, passed, undefined, odd)
            self.pack(before, passed)

    def _pass_all(self, cut: str) -> None:
        """Fill the lines of a cut that does not apply to this dataset: it passes every row."""
        for lane_number, lane in enumerate(self.program.lanes):
            if cut in lane.declared and not lane.hidden:
                rows = self.selections[lane_number]
                self.counts.record_cut(lane_number, cut, rows, rows)
                self.pack(rows)

    # -- outputs -----------------------------------------------------------------------------

    def finish(self) -> Partial:
        """Evaluate the outputs on the rows that are left, and give all that the chunk makes."""
        units = len(self.borders) - 1
        outputs = evaluate_outputs(self)
        partial = Partial(self.chunk.input, fragments=() if self.forced else write_down(self))
        lanes = self.program.lanes
        if self.program.keep_rows:
            partial.kept = tuple(
                (lane.region, row_set(self.selections[number], self.start))
                for number, lane in enumerate(lanes)
                if lane.region is not None and not lane.hidden
            )
        self.counts.record_ends()
        given_up = {str(lanes[number].region): why for number, why in self.given_up.items()}
        for unit in range(units):
            place = self.chunk.first_unit + unit
            seen = (self.windows[place],) if place in self.windows else ()
            leaf = Leaf(outputs[unit], self.counts.unit(unit), given_up, seen)
            grow(partial.nodes, (0, place), leaf, merge_leaves)
        return partial
