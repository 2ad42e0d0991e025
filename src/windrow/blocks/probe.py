"""Showing some rows of a chunk to all cuts, whatever the other cuts say of them: what an order is decided from.

Which rows: a few neighbours in some units, chosen by a keyed hash of the seed, the file and the unit's number alone - not
of chunks, workers or attempts - so that any later attempt at the unit chooses the same rows.

Steps are asked in the written order, each about all rows on which it legally can be: a row counts for a lane that needs
the step unless one of the step's guards rejects it there. The run itself is not touched: made columns, random numbers
and meters are of their own; only what is read from the file is shared. A step that raises here is no error. It has
shown that it needs a guard, which is learned, and it is not asked about the rows that the guard rejects.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.blocks.calls import Caller, Meter, Stopwatch
from windrow.blocks.failing import failing_rows, is_about_rows, quiet
from windrow.blocks.results import UpDown, Verdict
from windrow.blocks.selection import Selection
from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED, StepFacts, Terrain, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import Chunk, ChunkRun
    from windrow.blocks.columns import ColumnStore
    from windrow.blocks.program import BoundStep, Program
    from windrow.core.records import Plan
    from windrow.data.base import FileInfo

    Mask = NDArray[np.bool_]
    Guards = Iterable[tuple[str, str]]  #: (step, cut)

#: Times that a step is asked again with what was learned, the last but one with all cuts above it as guards.
ROUNDS = 6
#: Rows on which a step raises that are looked for to find its guard, and calls for that.
MOST_FOUND = 4
MOST_CALLS = 320
#: Answers of so many cuts, two bits each, are one number together with one for the row: a million rows have 20 bits.
AT_ONCE = 20


class Unreadable(Exception):
    """A column could not be read: the run will meet that, and say so."""


@dataclass(slots=True)
class Seen:
    """What the rows of a chunk that were looked at have shown."""

    windows: dict[int, Window] = field(default_factory=dict)  #: what all cuts say of them, by unit
    costs: dict[str, Meter] = field(default_factory=dict)  #: what asking took, by step
    guards: tuple[tuple[str, str], ...] = ()  #: (step, cut that protects it) learned on the way


def probe(run: ChunkRun, plan: Plan, units: Sequence[int], after: Guards) -> Seen:
    """Look at the rows of a chunk that were chosen for it.

    ``units`` are the unit borders of the whole input, ``after`` the guards that the user declared.
    """
    program, info = run.program, run.store.reader.info
    seen = Seen()
    if not any(step.kind == "cut" for step in program.steps.values()):
        return seen  # in any order every step has the same rows
    for place in places(run.chunk, units, program.seed, info.identity, plan.sample, plan.sample_rows):
        watch = Stopwatch()
        rows = Selection(run.store.length, np.arange(place.start - run.start, place.stop - run.start))
        store = run.store.excerpt(place.start - run.start, place.stop - run.start)
        look = Look(run, store, np.arange(rows.count), (*plan.guards, *after, *seen.guards))
        try:
            with quiet():
                look.fetch(rows)
                look.show(seen.costs)
                seen.guards = tuple(dict.fromkeys((*seen.guards, *look.learned)))
                seen.windows[place.unit] = look.window(place, watch.seconds())
        except (Unreadable, MemoryError):
            continue
        finally:
            look.release()
    return seen


class Look:
    """Some rows of a chunk, shown to steps in the written order."""

    def __init__(self, run: ChunkRun, store: ColumnStore, rows: NDArray[np.int64], guards: Guards) -> None:
        self.rows = rows  #: of the store, ascending
        self.program = run.program
        self.learned: list[tuple[str, str]] = []
        self._run = run
        self._store = store
        self._all = Selection(store.length, rows)
        self._caller = Caller(self.program, self._store, lambda _: self._all)
        self._selections: dict[bytes, Selection] = {}
        self._guards: dict[str, dict[str, None]] = {}
        for step, cut in guards:
            self._guards.setdefault(step, {})[cut] = None
        self.verdicts: dict[str, NDArray[np.int8]] = {}  #: by cut, in written order
        self._factors: dict[str, NDArray[np.float64]] = {}  #: by weight
        self._passing: dict[tuple[str, bool], Mask] = {}
        #: by column: for each lane the cuts that its rows have passed, and the rows it was made for
        self._conditions: dict[str, dict[int, frozenset[tuple[str, bool]]]] = {}
        self._made: dict[str, Mask] = {}
        self.answers: dict[str, tuple[Selection, Any]] = {}  #: by step, with the rows that it was asked about

    def release(self) -> None:
        """Let go of every column but those of the run; what reading took counts for it."""
        self._caller.clear()
        self._store.forget_made()
        self.answers.clear()
        self._run.store.read_seconds += self._store.read_seconds
        self._run.store.read_cpu_s += self._store.read_cpu_s
        self._store.read_seconds = self._store.read_cpu_s = 0.0

    def show(self, meters: dict[str, Meter], names: Container[str] | None = None) -> None:
        """Ask all steps, or some with all that they read; their costs are added to ``meters``."""
        for name, step in self.program.steps.items():
            self._run.stop_if_asked()
            if names is None or name in names:
                self._show(step, meters.setdefault(name, Meter()))

    def window(self, place: Place, seconds: float) -> Window:
        """Put together what was seen; rows that all cuts answer alike become one pattern."""
        size = len(self.rows)
        first, owner = _alike(list(self.verdicts.values()))
        count = len(first)
        sums = np.empty((count, 1 + len(self._factors), 2))
        weight = np.ones(size)
        for number, factor in enumerate((weight, *self._factors.values())):
            weight = weight * factor
            sums[:, number, 0] = np.bincount(owner, weight, count)
            sums[:, number, 1] = np.bincount(owner, weight * weight, count)
        return Window(
            input=self._run.chunk.input,
            start=place.start,
            stop=place.stop,
            unit=place.unit,
            unit_rows=place.unit_rows,
            cuts=tuple(self.verdicts),
            verdicts=np.stack([one[first] for one in self.verdicts.values()], axis=1),
            rows=np.bincount(owner, minlength=count).astype(np.int64),
            weights=tuple(self._factors),
            sums=sums,
            order=self._run.order,
            seconds=seconds,
            share=place.share,
        )

    # -- which rows --------------------------------------------------------------------------

    def _condition(self, step: BoundStep, lane: int) -> frozenset[tuple[str, bool]]:
        """Which cuts, on which side, a row must have passed for the step to be asked in a lane."""
        sides = self.program.lanes[lane].cuts
        cuts = set(self._guards.get(step.name, ()))
        if step.kind == "weight":
            cuts |= self.verdicts.keys()  # it is of interest for rows that a cut has let pass alone
        condition = {(cut, sides[cut]) for cut in cuts if cut in sides}
        for argument in step.arguments:
            if argument.kind == "made":
                condition |= self._conditions[argument.source][lane]
        return frozenset(condition)

    def _wanted(self, step: BoundStep, lanes: Sequence[int], lost: Mask) -> Mask:
        """Rows to ask a step about: those that any of the lanes has, with all that it reads."""
        rows = np.zeros(len(self.rows), dtype=bool)
        for condition in {self._condition(step, lane) for lane in lanes}:
            rows |= self._meets(condition)
        for argument in step.arguments:
            if argument.kind == "made":
                rows &= self._made[argument.source]
        return rows & ~lost

    def _meets(self, condition: Iterable[tuple[str, bool]]) -> Mask:
        rows = np.ones(len(self.rows), dtype=bool)
        for cut, inverted in condition:
            rows &= self.passes(cut, inverted=inverted)
        return rows

    def passes(self, cut: str, *, inverted: bool) -> Mask:
        """Which of the rows a cut leaves, on one of its sides."""
        key = (cut, inverted)
        if cut not in self.verdicts:
            return np.ones(len(self.rows), dtype=bool)  # it was not asked
        if key not in self._passing:
            self._passing[key] = self.verdicts[cut] == (FAILED if inverted else PASSED)
        return self._passing[key]

    def _selection(self, mask: Mask) -> Selection:
        """Turn a mask of these rows to a selection; the same rows are the same object, so that columns are shared."""
        key = mask.tobytes()
        if key not in self._selections:
            rows = self._all if mask.all() else Selection(self._all.length, self.rows[mask])
            self._selections[key] = rows
        return self._selections[key]

    # -- asking ------------------------------------------------------------------------------

    def fetch(self, rows: Selection) -> None:
        """Over a slow link: fetch what rows of the run need in one request."""
        run = self._run
        if run.store.link is None:
            return
        steps = self.program.steps.items()
        columns = [column for name, step in steps for column in self.program.file_columns(name, step.arguments)]
        try:
            run.store.fetch(run.store.lacking(columns, run.store.ranges(rows)))
        except Exception as error:
            run.store.read_error = None
            raise Unreadable from error

    def _show(self, step: BoundStep, meter: Meter) -> None:
        lanes: Sequence[int] = step.lanes
        lost = np.zeros(len(self.rows), dtype=bool)  #: rows that no guard explains
        for left in range(ROUNDS, 0, -1):
            mask = self._wanted(step, lanes, lost)
            try:
                value = self._ask(step, self._selection(mask), meter) if mask.any() else None
                break
            except Exception as error:
                if self._store.read_error is not None or isinstance(error, MemoryError):
                    raise Unreadable from error
                firm = [lane for lane in lanes if not self.program.lanes[lane].optional]
                if firm and len(firm) < len(lanes):
                    lanes = firm  # as in a run, the others are given up
                elif not self._protect(step, lanes, mask, lost, error, last=left <= 2):
                    mask, value = np.zeros_like(mask), None
                    break
        else:
            mask, value = np.zeros_like(lost), None
        self._keep(step, mask, value)
        if value is not None:
            self.answers[step.name] = self._selection(mask), value
        passed = value.passed if isinstance(value, Verdict) else mask
        meter.rows_out += int(passed.sum()) if value is not None else 0

    def _ask(self, step: BoundStep, rows: Selection, meter: Meter) -> Any:
        with meter.reading(self._store):
            return self._caller.answer(step, rows, meter)

    def _keep(self, step: BoundStep, mask: Mask, value: Any) -> None:
        if step.kind == "cut":
            verdict = np.full(len(self.rows), NOT_ASKED, dtype=np.int8)
            if isinstance(value, Verdict):
                codes = np.where(value.passed, PASSED, FAILED).astype(np.int8)
                if value.undefined is not None:
                    codes[value.undefined] = UNDEFINED
                verdict[mask] = codes
            self.verdicts[step.name] = verdict
        elif step.kind == "weight":
            self._factors[step.name] = factor = np.ones(len(self.rows))
            if value is not None:
                factor[mask] = value.nominal if isinstance(value, UpDown) else value
        else:
            self._conditions[step.name] = {lane: self._condition(step, lane) for lane in step.lanes}
            self._made[step.name] = mask
            if value is not None:
                self._store.put(step.name, self._selection(mask), value)

    # -- steps that raise --------------------------------------------------------------------

    def _protect(
        self, step: BoundStep, lanes: Sequence[int], mask: Mask, lost: Mask, error: Exception, *, last: bool
    ) -> bool:
        """Learn a guard for a step that raised on some rows, or do without a few rows; False if neither helps."""
        known = self._guards.setdefault(step.name, {})
        sides = [self.program.lanes[lane].cuts for lane in lanes]
        blamed = [cut for cut in self.verdicts if cut not in known and any(cut in one for one in sides)]
        complete = False
        if is_about_rows(error) and not last:
            ask = partial(self._exception, step)
            found, complete = failing_rows(ask, np.flatnonzero(mask), MOST_FOUND, MOST_CALLS, error)
            failing = np.array(sorted(found), dtype=np.int64)
            if found:
                rejected = {cut: self._rejected(cut, step, lanes, failing) for cut in reversed(blamed)}
                # Of cuts that reject as many, the nearest above the step. What no cut above rejects raises in the
                # written order too: the run will say so.
                best = max(rejected, key=lambda cut: rejected[cut], default=None)
                blamed = [best] if best is not None and rejected[best] else []
            if not blamed and complete:
                lost[failing] = True
        known.update(dict.fromkeys(blamed))
        self.learned += [(step.name, cut) for cut in blamed]
        return bool(blamed) or complete

    def _rejected(self, cut: str, step: BoundStep, lanes: Sequence[int], rows: NDArray[np.int64]) -> int:
        """Count the rows that a cut rejects, in each of the lanes that would show them to a step."""
        count = 0
        for lane in lanes:
            sides = self.program.lanes[lane].cuts
            if cut in sides:
                rejects = (self.verdicts[cut] != NOT_ASKED) & ~self.passes(cut, inverted=sides[cut])
                count += int((rejects & self._meets(self._condition(step, lane)))[rows].sum())
        return count

    def _exception(self, step: BoundStep, part: NDArray[np.int64]) -> Exception | None:
        self._run.stop_if_asked()
        try:
            self._ask(step, Selection(self._all.length, self.rows[part]), Meter())
        except Exception as error:
            if self._store.read_error is not None or isinstance(error, MemoryError):
                raise Unreadable from error
            return error
        return None


def _alike(answers: Sequence[NDArray[np.int8]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a row of each pattern of answers, and the number of each row's pattern."""
    owner = np.zeros(len(answers[0]), dtype=np.int64)
    first = owner[:1]
    for start in range(0, len(answers), AT_ONCE):
        # Numbers are sorted in a tenth of the time that rows of a table take.
        for answer in answers[start : start + AT_ONCE]:
            owner = owner * 4 + (answer - NOT_ASKED)
        _, first, owner = np.unique(owner, return_index=True, return_inverse=True)
    return first, owner


_RANGE = 2.0**64

#: Windows that a result keeps of a dataset: so many say what more of them would say.
MOST_KEPT = 512


class Place(NamedTuple):
    """Rows [start, stop) of a file that are looked at, in one of its units."""

    unit: int
    unit_rows: int
    start: int
    stop: int
    share: float = 1.0  #: of units that are looked at


def lot(seed: int, identity: str, unit: int) -> tuple[float, float]:
    """Draw two numbers of [0, 1) for a unit of a file: whether it is chosen, and where in it."""
    text = f"{seed}\0{unit}\0{identity}".encode()
    digest = hashlib.blake2b(text, digest_size=16, person=b"windrow.window").digest()
    first, second = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    return (first >> 11) * 2048 / _RANGE, (second >> 11) * 2048 / _RANGE


def places(chunk: Chunk, units: Sequence[int], seed: int, identity: str, share: float, rows: int) -> list[Place]:
    """Return the rows of a chunk to look at: ``rows`` neighbours in a ``share`` of the units that it has whole.

    ``units`` are the unit borders of the whole file. Of a unit in parts, the part that has the chosen row is looked at.
    """
    found: list[Place] = []
    if share <= 0.0 or rows <= 0:
        return found
    for unit, (start, stop) in enumerate(pairwise(chunk.borders), start=chunk.first_unit):
        chosen, where = lot(seed, identity, unit)
        border, end = units[unit], units[unit + 1]
        if chosen >= share:
            continue
        size = min(rows, stop - start)
        if (border, end) == (start, stop):
            first = _first_row(chunk.clusters, start, stop, size, where)
        else:
            first = border + int(where * (end - border))
            if not (chunk.part and start <= first < stop):
                continue
            first = min(first, stop - size)
        found.append(Place(unit, end - border, first, first + size, min(share, 1.0)))
    return found


def _first_row(clusters: Sequence[int], start: int, stop: int, size: int, where: float) -> int:
    """Choose where a window begins: inside of one cluster, or at the border of one where they are smaller.

    Columns are read by whole clusters, so a window across a border would cost twice.
    """
    row = start + int(where * (stop - start))
    number = bisect_right(clusters, row) - 1
    low, high = max(clusters[number], start), min(clusters[number + 1], stop)
    if high - low >= size:
        # Where in the cluster the row fell is as good as another number.
        return low + (row - low) * (high - low - size + 1) // (high - low)
    while low > stop - size and low > start:
        number -= 1
        low = max(clusters[number], start)
    return low


def bounded(windows: tuple[Window, ...]) -> tuple[Window, ...]:
    """Keep so many windows at most: those with the lowest lots, so that it does not matter in which order they came."""
    if len(windows) <= MOST_KEPT:
        return windows
    chosen = sorted(windows, key=lambda one: (lot(0, str(one.input), one.unit), one.start))
    return tuple(chosen[:MOST_KEPT])


def terrain(program: Program, info: FileInfo, *, in_memory: bool = False) -> Terrain:
    """Describe a program; the bytes are those of the file at hand, or none for arrays in memory."""
    return Terrain(
        steps=tuple(_facts(program, step, info, in_memory) for step in program.steps.values()),
        lanes=tuple(tuple(lane.cuts.items()) for lane in program.lanes),
    )


def _facts(program: Program, step: BoundStep, info: FileInfo, in_memory: bool) -> StepFacts:
    columns = program.file_columns(step.name, step.arguments)
    if step.wants_rng:
        hidden = () if info.identity_column is None else (info.identity_column,)
        columns.extend(program.identity or hidden)

    def size(column: str) -> float:
        known = info.columns.get(column)
        return 0.0 if in_memory or known is None else known.stored_bytes / max(info.rows, 1)

    return StepFacts(
        name=step.name,
        kind=step.kind,
        lanes=step.lanes,
        columns=tuple((column, size(column)) for column in dict.fromkeys(columns)),
    )
