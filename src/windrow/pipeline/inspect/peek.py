"""``analysis.peek``: a step's values for the first rows that reach it, computing and reading nothing else.

Rows reach a step in the written order: they pass the cuts above it in a region that needs it. They are found by a chunk
run whose regions end above the step, file by file and cluster by cluster until there are enough; the step itself then runs
on these alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from functools import reduce
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow import data as windrow_data
from windrow.blocks.chunk import ChunkRun
from windrow.blocks.columns import concatenate
from windrow.blocks.kernels import EachKernel
from windrow.blocks.program import Argument
from windrow.blocks.results import UpDown, Verdict
from windrow.blocks.selection import Selection, union
from windrow.errors import StepError, UnknownNameError, UsageError, alternatives, nearest
from windrow.pipeline.binding.bind import bind
from windrow.pipeline.inspect.rows import (
    ROOM,
    STAND_IN,
    chunk_run,
    definition_at_desk,
    find_input,
    output_reading,
    pieces,
    row_number,
    short,
)
from windrow.pipeline.results.grid import Grid, box

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.program import BoundStep, Program
    from windrow.data.base import FileInfo, Input, Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.pipeline import Pipeline


def peek(
    pipeline: Pipeline,
    what: str | Sequence[str],
    data: Any,
    *,
    rows: int = 10,
    at: tuple[str | PathLike[str], int] | None = None,
    region: str | None = None,
    debug: bool = False,
    seed: int = 0,
) -> Peek:
    """Return what steps give, and file columns hold, for the first rows that reach them, or for one row."""
    definition = definition_at_desk(pipeline, seed)
    names = _checked_names(what, definition)
    if isinstance(rows, bool) or not hasattr(rows, "__index__") or rows.__index__() < 1:
        raise UsageError(f"rows= must be a whole number of at least 1, got {rows!r}")
    if region is not None and region not in definition.regions:
        there = alternatives("regions", region, definition.regions)
        raise UnknownNameError(f"region= names {region!r}, which is not defined{there}")
    source = windrow_data.open(data)
    look = _Look(definition, source, names, region, at, debug)
    count = 1 if at is not None else int(rows.__index__())
    look.through(source.inputs if at is None else [find_input(source, at[0])], count)
    return look.result(count)


def _checked_names(what: Any, definition: Definition) -> tuple[str, ...]:
    names = (what,) if isinstance(what, str) else what
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) for n in names):
        raise UsageError(f"peek looks at a name or a list of names, got {what!r}")
    for name in names:
        step = definition.steps.get(name)
        if step is not None and step.kind == "output":
            raise UsageError(
                f"{name!r} is an output, which is made of all rows of a region: look at what it reads "
                f"({', '.join(read.column for read in step.reads) or 'nothing'}), or run it with max_rows="
            )
    return tuple(dict.fromkeys(names))


def _columns_of(name: str, info: FileInfo) -> list[str]:
    if name in info.columns:
        return [name]
    return matching(info.columns, name) if any(letter in name for letter in "*?[") else []


def _in_file(name: str, info: FileInfo) -> bool:
    return name in info.collections or bool(_columns_of(name, info))


class _Look:
    """One call of peek."""

    def __init__(
        self, definition: Definition, source: Source, names: tuple[str, ...], region: str | None, at: Any, debug: bool
    ) -> None:
        self.definition = definition
        self.source = source
        self.names = names
        self.region = region
        if at is not None and not (isinstance(at, list | tuple) and len(at) == 2):
            raise UsageError(f"at= is (file, row), got {at!r}")
        self.at = at  #: file and number of the only row that is looked at, whatever the cuts say of it
        self.debug = debug
        self.steps = tuple(name for name in names if name in definition.steps)
        self.others = tuple(name for name in names if name not in definition.steps)
        self.parts: list[Peek] = []  #: the rows found so far, piece by piece
        self.looked_at = 0
        self.notes: dict[str, None] = {}

    # -- which rows --------------------------------------------------------------------------

    def through(self, inputs: Sequence[Input], count: int) -> None:
        """Go through files cluster by cluster, and show the first rows that reach every step that is looked at."""
        self._refuse_unknown_names(inputs)
        left = count
        try:
            for item in inputs:
                if not self._exists(item):
                    continue
                with closing(self.source.open(item.index)) as reader:
                    missing = [name for name in self.others if not _in_file(name, reader.info)]
                    if missing:
                        self.notes[f"{item.label} has no {', '.join(map(repr, missing))}"] = None
                        continue
                    ranges = pieces(item, reader.info)
                    if self.at is not None:
                        row = row_number(self.at[1], reader.info, item.label)
                        ranges = iter([(row, row + 1)])
                    whole = self._bound(self.definition, item, reader.info)
                    regions = {name: self._regions_of(whole, name) for name in self.steps}
                    find = self._bound(self._finding(regions), item, reader.info)
                    show = self._bound(self._showing(regions), item, reader.info)
                    for start, stop in ranges:
                        with chunk_run(find, reader, item, start, stop) as run:
                            rows = self._reached(regions, run)[:left]
                            if len(rows):
                                self._show(show, run, item, Selection(run.store.length, rows))
                        left -= len(rows)
                        # Rows below the last one shown were not needed.
                        self.looked_at += stop - start if left else int(rows[-1]) + 1
                        if not left:
                            return
        except KeyboardInterrupt:
            self.notes["interrupted: these are the rows found so far"] = None

    def _refuse_unknown_names(self, inputs: Sequence[Input]) -> None:
        """Raise for a name that is neither a step nor in the first file of any dataset."""
        missing, known = list(self.others), list[str]()
        for item in {item.dataset: item for item in reversed(inputs)}.values():
            if not missing:
                return
            with closing(self.source.open(item.index)) as reader:
                known += [*reader.info.columns, *reader.info.collections]
                missing = [name for name in missing if not _in_file(name, reader.info)]
        if missing:
            steps = [step for step in self.definition.steps if step != STAND_IN]
            raise UnknownNameError(
                f"{missing[0]!r} is no cut, column or weight of pipeline {self.definition.name!r} and no column of the "
                f"data{nearest(missing[0], [*steps, *known])} (steps: {', '.join(steps) or 'none'})"
            )

    def _exists(self, item: Input) -> bool:
        """Say whether every step exists in this dataset; notes it if not."""
        metadata = self.source.datasets[item.dataset]
        for name in self.steps:
            when = self.definition.steps[name].when
            if when is not None and not when.holds(metadata, item.dataset):
                text = f"{name!r} exists only when {when.text!r}, which is false for dataset {item.dataset!r}"
                self.notes[text] = None
                return False
        return True

    def _reached(self, regions: Mapping[str, Sequence[str | None]], run: ChunkRun) -> NDArray[np.int64]:
        """Execute the cuts above what is looked at; return the rows that reach all of it."""
        lanes = {lane.region: number for number, lane in enumerate(run.program.lanes)}
        reached: list[Selection] = []
        for name in self.definition.written:
            mine = regions.get(name, ())
            if None in mine:
                reached.append(run.rows)
            elif mine:
                reached.append(union([run.selections[lanes[region]] for region in mine]))
            if name in run.program.steps:
                step = run.program.steps[name]
                with self._debugging(run, step):
                    run.execute(step)
        if not self.steps and self.region is not None:
            reached.append(run.selections[lanes[self.region]])
        return reduce(np.intersect1d, (rows.positions() for rows in reached), run.rows.positions())

    @contextmanager
    def _debugging(self, run: ChunkRun, step: BoundStep) -> Iterator[None]:
        try:
            yield
        except StepError as failure:
            if self.debug:
                stop_where_it_raised(run, step, failure)
            raise

    # -- programs ----------------------------------------------------------------------------

    def _bound(self, definition: Definition, item: Input, info: FileInfo) -> Program:
        return bind(definition, item.dataset, self.source.datasets[item.dataset], info, item.label)

    def _regions_of(self, program: Program, name: str) -> list[str | None]:
        """Return the regions through which rows reach a step: those that need it, all if none does."""
        lanes = program.steps[name].lanes if name in program.steps else ()
        needing = [program.lanes[lane].region for lane in lanes]
        wanted = [region for region in needing if self.region in (None, region)]
        return wanted or [region for region in self.definition.regions if self.region in (None, region)]

    def _finding(self, regions: Mapping[str, Sequence[str | None]]) -> Definition:
        """Return a definition of cuts alone, whose regions end above the last step that is looked at in each."""
        place = {name: number for number, name in enumerate(self.definition.written)}
        ends = {self.region: len(place)} if not regions else {}  #: region -> where it ends
        for name, mine in regions.items():
            for region in mine:
                ends[region] = max(ends.get(region, 0), place[name])
        return replace(
            self.definition,
            steps={name: step for name, step in self.definition.steps.items() if step.kind in ("cut", "column")},
            regions={
                region: {
                    cut: side
                    for cut, side in self.definition.regions[region].items()
                    if place[cut] < end and self.at is None
                }
                for region, end in ends.items()
                if region is not None
            },
        )

    def _showing(self, regions: Mapping[str, Sequence[str | None]]) -> Definition:
        """Return a definition in which the same regions need the steps that are looked at, and no other steps."""
        steps = {
            name: step for name, step in self.definition.steps.items() if step.kind == "column" or name in self.steps
        }
        cuts = {name: False for name in self.steps if steps[name].kind == "cut"}
        columns = [name for name in self.steps if steps[name].kind == "column"]
        named = [region or "all rows" for mine in regions.values() for region in mine]
        return replace(
            self.definition,
            steps={**steps, STAND_IN: output_reading(columns)},
            regions=dict.fromkeys(named or ["all rows"], cuts),
        )

    # -- what is shown -----------------------------------------------------------------------

    def _show(self, program: Program, found: ChunkRun, item: Input, rows: Selection) -> None:
        """Evaluate what is looked at on the rows that are shown, and keep it."""
        reader, info = found.store.reader, found.store.reader.info
        # A run on these rows alone, so that nothing is read for another.
        run = ChunkRun(program, reader, found.chunk, program.written, {}, rows=rows, store=found.store)
        made: dict[str, dict[str, Any]] = {}
        for name, step in program.steps.items():
            with self._debugging(run, step):
                value = run.evaluate(step, rows)
            if step.kind == "column":
                run.store.put(name, rows, value)
            made[name] = _shown_as(name, value)
        # Fields that are read only to be shown belong to no step.
        run.caller.prepare("(shown)", (), rows)
        values: dict[str, Any] = {}
        for name in self.names:
            if name in self.steps:
                values.update(made[name])
            elif columns := _columns_of(name, info):
                values.update({column: run.store.file(column, rows) for column in columns})
            else:
                argument = Argument(name, "collection", name, info.collections[name])
                (values[name],) = run.caller.gather([argument], rows, tuple(range(len(program.lanes))))
        identity = {n: run.store.file(n, rows) for n in self.definition.identity if n in info.columns}
        # The file is closed when fields that were not read yet are looked at.
        values = {key: ak.materialize(v) if isinstance(v, ak.Array) else v for key, v in values.items()}
        places = run.start + rows.positions()
        self.parts.append(Peek("", values, identity, (item.label,) * rows.count, places, (item.dataset,) * rows.count))
        run.release()

    def result(self, asked: int) -> Peek:
        if not self.parts and self.notes and not self.looked_at:
            raise UsageError("nothing to look at: " + "; ".join(self.notes))
        kinds = [f"{self.definition.steps[name].kind} {name}" for name in self.steps]
        what = ", ".join([*kinds, *self.others])
        region = f" in region {self.region}" if self.region is not None else ""
        return Peek(
            f"{self.definition.name}: {what}{region}",
            _together([part.values for part in self.parts]),
            _together([part.identity for part in self.parts]),
            tuple(label for part in self.parts for label in part.file),
            np.concatenate([np.empty(0, np.int64), *(part.entry for part in self.parts)]),
            tuple(dataset for part in self.parts for dataset in part.dataset),
            asked,
            self.looked_at,
            tuple(self.notes),
        )


def _shown_as(name: str, value: Any) -> dict[str, Any]:
    """Return the columns that a step's answer is shown as: True, False or None of a cut, three of a weight that varies."""
    if isinstance(value, UpDown):
        return {name: value.nominal, f"{name}_up": value.up, f"{name}_down": value.down}
    if isinstance(value, Verdict):
        value = value.passed if value.undefined is None else ak.mask(ak.Array(value.passed), ~value.undefined)
    return {name: value}


def _together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the columns of several pieces; where one has no variations, the nominal stands for them."""
    joined = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        nominal = name.removesuffix("_up").removesuffix("_down")
        arrays = [part[name] if name in part else part.get(nominal) for part in parts]
        if all(array is not None for array in arrays):
            joined[name] = concatenate(arrays)
    return joined


# -- the table ---------------------------------------------------------------------------------------

#: A table is read, not scrolled through; values are all there.
SHOWN_ROWS = 60


@dataclass(frozen=True, slots=True)
class Peek:
    """Rows that reach a step, and what it gives for them: ``peek["mass"]``."""

    title: str
    values: Mapping[str, Any]  #: NumPy or awkward arrays, one entry per row
    identity: Mapping[str, Any]  #: the pipeline's identity columns
    file: tuple[str, ...]  #: label of each row's file
    entry: NDArray[np.int64]  #: number of each row in its file
    dataset: tuple[str, ...]
    asked: int = 0
    looked_at: int = 0  #: rows that were looked at to find these
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        for known in (self.values, self.identity):
            if name in known:
                return known[name]
        names = self.keys()
        raise UnknownNameError(f"peek has no {name!r}{nearest(name, names)} (it has {', '.join(names)})")

    def __contains__(self, name: object) -> bool:
        return name in self.values or name in self.identity

    def __len__(self) -> int:
        return len(self.entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.values, *self.identity]))

    def summary(self) -> str:
        """Say how many rows were found and how many had to be looked at for it."""
        rows = "row" if len(self) == 1 else "rows"
        if len(self) < self.asked:
            text = f"only {len(self):,} of the {self.asked:,} rows asked for"
        else:
            text = f"{len(self):,} {rows}"
        looked = "row was" if self.looked_at == 1 else "rows were"
        return f"{text}; {self.looked_at:,} {looked} looked at"

    def __repr__(self) -> str:
        return self._grid().text()

    def _repr_html_(self) -> str:
        return box([self._grid().html()])

    def _grid(self) -> Grid:
        count = min(len(self), SHOWN_ROWS)
        names = [label.rsplit("/", 1)[-1] or label for label in self.file]
        tails = [name if len(name) <= ROOM else "…" + name[1 - ROOM :] for name in names]
        columns: dict[str, Any] = {"file": tails, "row": self.entry}
        if len(set(self.dataset)) > 1:
            columns = {"dataset": self.dataset, **columns}
        # A column shown for its own sake need not be shown as identity too.
        columns.update({n: v for n, v in self.identity.items() if n not in self.values})
        columns.update(self.values)
        texts, numbers = [], []
        for place, values in enumerate(columns.values()):
            cells = [values[number] for number in range(count)]
            numeric = (int, float, np.integer, np.floating, type(None))
            if all(isinstance(one, numeric) and not isinstance(one, bool) for one in cells):
                numbers.append(place)
            plain = isinstance(values, tuple | list)  # files and datasets
            texts.append([str(cell) if plain else short(cell) for cell in cells])
        more = [f"… {len(self) - count:,} more rows"] if len(self) > count else []
        rows = list(zip(*texts, strict=True))
        return Grid(self.title, list(columns), rows, [*more, self.summary(), *self.notes], numbers)


# -- stopping where a step raises ---------------------------------------------------------------


#: Where Windrow's own files are: their frames are not what a user wants to see.
OURS = str(Path(__file__).resolve().parents[2])


def stop_where_it_raised(run: ChunkRun, step: BoundStep, failure: StepError) -> None:
    """Show file, row and arguments of a failed call, and open the debugger in the step's function."""
    import pdb

    first, last = int(failure.facts["start"]), int(failure.facts["stop"])
    rows, where = union([run.selections[lane] for lane in step.lanes]), f"rows {first} to {last - 1} together"
    if last == first + 1:
        rows, where = Selection(rows.length, np.array([first - run.start])), f"row {first}"
    arguments = run.caller.gather(step.arguments, rows, step.lanes)
    lines = [f"{failure}", f"  file {run.chunk.label}, {where}"]
    lines += [f"  {one.name} = {short(values, 72)}" for one, values in zip(step.arguments, arguments, strict=True)]
    sys.stdout.write("\n".join(lines) + "\n")
    found = _user_frames(lambda: _call(run, step, arguments, rows), step.function)
    if found is None:
        sys.stdout.write("  The function itself does not raise, so there is nothing to step into.\n")
    else:
        pdb.post_mortem(found)


def _user_frames(call: Callable[[], Any], function: Callable[..., Any]) -> TracebackType | None:
    """Return the traceback of a call, from the user's function to the deepest line of its file; None without."""
    frames: list[TracebackType] = []
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its traceback is what is asked for
        part = error.__traceback__
        while part is not None:
            frames.append(part)
            part = part.tb_next
    codes = [frame.tb_frame.f_code for frame in frames]
    wanted = getattr(function, "__code__", None)
    if wanted is None:  # an object that is called: the first code that is not ours
        wanted = next((code for code in codes if not code.co_filename.startswith(OURS)), None)
    if wanted not in codes:
        return None
    last = max(number for number, code in enumerate(codes) if code.co_filename == wanted.co_filename)
    frames[last].tb_next = None
    return frames[codes.index(wanted)]


def _call(run: ChunkRun, step: BoundStep, arguments: list[Any], rows: Selection) -> Any:
    if step.kernel is None:
        return run.caller.call(step, arguments, rows)
    # Compiled code has no frames: the plain function is called, with the numbers it would see.
    kernel = step.kernel
    plain = EachKernel(kernel.function, kernel.parameters, name=kernel.name, kind=kernel.kind, use_numba=False)
    return run.caller.each(replace(step, kernel=plain), rows)(None)
