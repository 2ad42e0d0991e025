"""Fetching ahead over a slow link: what a chunk will need is asked for in as few requests as pay.

Local files never come here. When a step needs a column that is not there, one request also brings
what the steps and outputs after it will need, as far as ``waves`` says, for the rows that are wanted
now. Bytes are fetched, nothing is decoded: that stays as late as it is for local files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.blocks.collections import length_columns
from windrow.blocks.waves import Moment, companions, wave_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from windrow.blocks.columns import ColumnStore, Ranges
    from windrow.blocks.program import Argument, Program
    from windrow.blocks.selection import Selection
    from windrow.blocks.waves import Link

__all__ = ["Lookahead", "needed_columns", "outputs_of"]


def outputs_of(lane: int) -> str:
    """Name the moment at which the outputs of a lane are evaluated."""
    return f"outputs of lane {lane}"


def needed_columns(program: Program, name: str, arguments: Iterable[Argument]) -> list[str]:
    """Return the file columns that a function is known to need."""
    columns: list[str] = []
    for argument in arguments:
        if argument.kind == "file":
            columns.append(argument.source)
        elif argument.kind == "glob":
            columns.extend(argument.members)
        elif argument.kind == "collection":
            columns.extend(length_columns(argument.members, program.columns))
    touched = program.touched.get(name, frozenset())
    columns.extend(sorted(touched & program.columns.keys()))
    return columns


@dataclass(frozen=True, slots=True)
class _Coming:
    """A moment of a chunk: who needs columns then, and for the rows of which lanes."""

    name: str
    lanes: tuple[int, ...]
    functions: tuple[tuple[str, tuple[Argument, ...]], ...]
    more: tuple[str, ...] = ()  #: columns besides the arguments


class Lookahead:
    """The moments of one chunk, and what was fetched for them."""

    def __init__(
        self,
        program: Program,
        store: ColumnStore,
        link: Link,
        alive: Callable[[tuple[int, ...]], Selection],
        order: Sequence[str],
    ) -> None:
        self._program = program
        self._store = store
        self._link = link
        self._alive = alive
        hidden = store.reader.info.identity_column
        identity = program.identity or (() if hidden is None else (hidden,))
        self._moments = _moments(program, order, identity)
        self._place = {moment.name: n for n, moment in enumerate(self._moments)}
        self._moment_of = {f: moment.name for moment in self._moments for f, _ in moment.functions}
        self._shares: dict[str, float] = {}

    def need(self, name: str, columns: Sequence[str], selection: Selection) -> None:
        """Make sure that the bytes of ``columns`` are here; if not, fetch a wave."""
        ranges = self._store.ranges(selection)
        if selection.count:
            share = _rows(ranges) / max(self._store.length, 1)
            self._shares[name] = max(share, self._shares.get(name, 0.0))
        place = self._place.get(name)
        now = None if place is None else self._moments[place]
        wanted = [*columns, *(self._columns(now) if now else ())]
        lacking = self._store.lacking(wanted, ranges)
        if not lacking or now is None or place is None:
            self._store.fetch(lacking)
            return
        waves = [lacking]
        moments = [Moment(self._bytes(lacking), 1.0, 1.0, frozenset(now.lanes))]
        for coming, later, alive in self._after(place, set(wanted)):
            waves.append(later)
            moments.append(self._expected(now, coming, later, alive))
        length = wave_length(moments, self._link.round_trip_s, self._link.bytes_per_s)
        together: dict[Ranges, list[str]] = {}
        for wave in waves[:length]:
            for where, names in wave.items():
                together.setdefault(where, []).extend(names)
        self._store.fetch(together)

    def touch(self, step: str, column: str, members: Sequence[str], ranges: Ranges) -> None:
        """Fetch a field that nobody expected, and its likely companions if the step is new."""
        if not self._store.lacking((column,), ranges):
            return
        lacking = self._store.lacking(members, ranges)
        whole = lacking.get(ranges, [])
        names = [column]
        moment = self._moment_of.get(step, step)
        if column in whole and not self._program.access.knows(self._program.dataset, moment):
            sizes = {name: self._bytes({ranges: [name]}) for name in whole}
            names = companions(column, sizes, self._link.round_trip_s * self._link.bytes_per_s)
        self._store.fetch(self._store.lacking(names, ranges))

    def finish(self) -> None:
        """Tell what this chunk needed: the next ones are planned by it."""
        if self._shares:
            shares = {one.name: self._shares.get(one.name, 0.0) for one in self._moments}
            self._program.access.note(self._program.dataset, shares)
            self._shares.clear()

    def _after(self, place: int, seen: set[str]) -> Iterable[tuple[_Coming, dict[Ranges, list[str]], float]]:
        """Yield the later moments that lack columns no earlier one brings, and their rows now."""
        ranges: dict[tuple[int, ...], Ranges] = {}
        for coming in self._moments[place + 1 :]:
            if coming.lanes not in ranges:
                alive = self._alive(coming.lanes)
                ranges[coming.lanes] = self._store.ranges(alive) if alive.count else ()
            where = ranges[coming.lanes]
            columns = [name for name in self._columns(coming) if name not in seen]
            lacking = self._store.lacking(columns, where) if where else {}
            if lacking:
                seen.update(columns)
                yield coming, lacking, _rows(where) / max(self._store.length, 1)

    def _expected(self, now: _Coming, coming: _Coming, wanted: Mapping[Ranges, Sequence[str]], alive: float) -> Moment:
        log, dataset = self._program.access, self._program.dataset
        reached, share = log.expected(dataset, coming.name)
        # Both given that this chunk came so far, with so many rows.
        reached = min(reached / max(log.expected(dataset, now.name)[0], reached, 1e-9), 1.0)
        share = min(share / alive, reached)
        return Moment(self._bytes(wanted), reached, share, frozenset(coming.lanes))

    def _columns(self, coming: _Coming) -> list[str]:
        columns = list(coming.more)
        for name, arguments in coming.functions:
            columns.extend(needed_columns(self._program, name, arguments))
        return list(dict.fromkeys(columns))

    def _bytes(self, wanted: Mapping[Ranges, Sequence[str]]) -> float:
        info = self._store.reader.info
        total = 0.0
        for ranges, names in wanted.items():
            # What is not listed is the hidden column of a skim: a number per row.
            known = [info.columns[name] for name in names if name in info.columns]
            stored = sum(column.stored_bytes for column in known)
            total += stored * _rows(ranges) / max(info.rows, 1)
        return total


def _rows(ranges: Ranges) -> int:
    return sum(last - first for first, last in ranges)


def _moments(program: Program, order: Sequence[str], identity: tuple[str, ...]) -> tuple[_Coming, ...]:
    """List when columns are needed: at each step, then at the outputs of each lane."""
    found = []
    for name in order:
        step = program.steps.get(name)
        if step is not None:
            more = identity if step.wants_rng else ()
            found.append(_Coming(name, step.lanes, ((name, step.arguments),), more))
    for lane in range(len(program.lanes)):
        outputs = [output for output in program.outputs if output.lane == lane]
        functions = tuple((output.name, output.arguments) for output in outputs)
        more = identity if any(output.wants_rng for output in outputs) else ()
        found.append(_Coming(outputs_of(lane), (lane,), functions, more))
    return tuple(found)
