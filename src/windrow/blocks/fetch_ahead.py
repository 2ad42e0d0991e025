"""Fetching ahead over a slow link: what a chunk will need is asked for in as few requests as pay.

A chunk needs columns at several moments: when a step runs, and when the outputs of a region do. Each request costs a
round trip; fetching early costs the bytes of rows that are cut before the moment comes. The wave that starts now reaches
as far ahead as makes the expected sum of both least. Bytes are fetched, nothing is decoded: that stays as late as it is
for local files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from windrow.blocks.columns import ColumnStore, Ranges
    from windrow.blocks.program import Argument, Program
    from windrow.blocks.selection import Selection

#: Requests a chunk is planned to make at most. The second is most of the gain; a third is planned
#: only where the bytes it saves take longer than its round trip.
MOST_WAVES = 3

#: Chunks after which what was learned is half forgotten: files of one dataset may differ.
MEMORY = 20


class Link(Protocol):
    """What fetching costs."""

    @property
    def round_trip_s(self) -> float:
        """Seconds until a request's first byte."""
        ...

    @property
    def bytes_per_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in a chunk at which columns are needed that are not here yet."""

    size: float  #: bytes, for the rows that are wanted now
    reached: float  #: the probability that the moment comes
    share: float  #: of the bytes that is still wanted then, on average; 0 where it does not come
    lanes: frozenset[int]  #: whose rows are wanted then


def wave_length(moments: Sequence[Moment], round_trip_s: float, bytes_per_s: float, most: int = MOST_WAVES) -> int:
    """Return how many of the coming moments a request that is sent now should serve.

    The first moment is now. Waves serve moments that follow each other: had a later one been served
    by an earlier wave, it would have brought more rows at no gain. Which rows are wanted when a
    wave starts is bounded by the moments until then that want the rows of at least the same lanes.
    """
    count = len(moments)
    if count < 2:
        return count
    cost = _costs(moments, round_trip_s, bytes_per_s)
    rest = np.full(count + 1, np.inf)
    rest[count] = 0.0
    for _ in range(most - 1):
        rest[:count] = np.min(cost + rest[1:], axis=1)
    first = cost[0] + rest[1:]
    # Of equal plans the one with fewer requests: the last.
    return count - int(np.argmin(first[::-1]))


def _costs(moments: Sequence[Moment], round_trip_s: float, bytes_per_s: float) -> np.ndarray:
    """Return [i, j]: the seconds a wave is expected to cost that starts at i and serves i to j."""
    count = len(moments)
    size = np.array([one.size for one in moments]) / bytes_per_s
    share = np.array([one.share for one in moments])
    reached = np.array([one.reached for one in moments])
    kinds = {lanes: n for n, lanes in enumerate(dict.fromkeys(one.lanes for one in moments))}
    kind = np.array([kinds[one.lanes] for one in moments])
    covers = np.array([[a >= b for b in kinds] for a in kinds])[np.ix_(kind, kind)]
    left = np.minimum.accumulate(np.where(covers, share[:, None], 1.0), axis=0)
    left = np.maximum(left, share)
    # The wave of now brings what is wanted now, and comes for certain.
    left[0] = 1.0
    later = np.triu(np.ones((count, count), dtype=bool))
    transfer = np.cumsum(np.where(later, left * size, 0.0), axis=1)
    chance = np.maximum.accumulate(np.where(later, reached, 0.0), axis=1)
    chance[0] = 1.0
    return np.where(later, chance * round_trip_s + transfer, np.inf)


def companions(column: str, sizes: Mapping[str, float], budget: float) -> list[str]:
    """Return ``column`` and the smallest further columns that fit into ``budget`` bytes.

    For a step whose fields are not known yet: with a budget of what a round trip could carry, a
    wrong guess at most doubles what the request costs, and a right one saves a request.
    """
    chosen = [column]
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        if name == column:
            continue
        budget -= sizes[name]
        if budget < 0:
            break
        chosen.append(name)
    return chosen


class AccessLog:
    """How often the moments of a dataset come, and for which share of a chunk's rows.

    Shared by all workers and kept between runs. A lost update costs a request, not an answer, so
    there is no lock.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, float, float]] = {}

    def note(self, dataset: str, shares: Mapping[str, float]) -> None:
        """Learn from one chunk: the share of its rows that each moment was for; 0 if it never came."""
        fade = 0.5 ** (1 / MEMORY)
        for moment, share in shares.items():
            chunks, came, rows = self._seen.get((dataset, moment), (0.0, 0.0, 0.0))
            self._seen[dataset, moment] = (fade * chunks + 1, fade * came + (share > 0), fade * rows + share)

    def knows(self, dataset: str, moment: str) -> bool:
        """Say whether any chunk was seen."""
        return (dataset, moment) in self._seen

    def expected(self, dataset: str, moment: str) -> tuple[float, float]:
        """Return the probability of the moment and the expected share of the rows; 1 if unknown."""
        chunks, came, rows = self._seen.get((dataset, moment), (0.0, 0.0, 0.0))
        if not chunks:
            return 1.0, 1.0
        # Half a chunk of doubt: what one chunk did not need, the next may.
        reached = (came + 0.5) / (chunks + 1) if came < chunks else 1.0
        return reached, min((rows + 0.5) / (chunks + 1) if rows < chunks else 1.0, reached)


def outputs_of(lane: int) -> str:
    """Name the moment at which the outputs of a lane are evaluated."""
    return f"outputs of lane {lane}"


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
        """Fetch a field that was not planned, and its likely companions if the step is new."""
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
            columns.extend(self._program.file_columns(name, arguments))
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
