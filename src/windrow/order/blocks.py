"""Cuts to be put in order among each other, and what each of them would have to pay for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from windrow.order.tables import Tables, lanes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from windrow.order.layout import Layout
    from windrow.order.model import Situation, Step
    from windrow.order.survival import Bools, Sample

__all__ = ["Amount", "Block", "Reading", "after", "mask_of", "runs_of"]

#: What a cost is proportional to: ("rows" | "units" | "calls", lanes as bits, rows per call, cuts as
#: bits); nothing is to be paid any more once one of these cuts has run.
Amount: TypeAlias = "tuple[str, int, int, int]"

#: Too many states, lanes in one union or ways to have read a column: other ways are better then.
MOST_CUTS, MOST_LANES, MOST_READERS = 24, 12, 12
#: Elementary operations that an array operation is worth however small the arrays are.
CALL = 2000


@dataclass(slots=True)
class Reading:
    """A column that cuts of a block read: each pays for the lanes that it adds."""

    seconds: float  #: per chunk of which all units are read
    owned: int  #: lanes for which it was read before the block
    readers: dict[int, int] = field(default_factory=dict)  #: cut of the block -> lanes

    def covers(self) -> set[int]:
        """Give every set of lanes for which it may have been read at some time."""
        found = {self.owned}
        for lanes in set(self.readers.values()):
            found |= {cover | lanes for cover in found}
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some cuts, after others that have run. Cuts are numbered within the block here."""

    cuts: tuple[int, ...]  #: numbers in the layout
    before: tuple[int, ...]  #: by cut: cuts of the block that must have run, as bits
    prices: tuple[dict[Amount, float], ...]  #: by cut: seconds per amount
    readings: tuple[Reading, ...]  #: columns that the cuts read for different lanes
    tables: Tables

    @classmethod
    def of(
        cls,
        situation: Situation,
        layout: Layout,
        sample: Sample,
        alive: Sequence[Bools],
        done: Iterable[int],
        cuts: Sequence[int],
    ) -> Block:
        """Collect the prices, given the cells ``alive`` in each lane now that some cuts are ``done``."""
        ran = {step for cut in done for step in (*layout.along[cut], layout.cuts[cut])}
        todo = [[step for step in (*layout.along[cut], layout.cuts[cut]) if step not in ran] for cut in cuts]
        users: dict[str, int] = defaultdict(int)
        for number, names in enumerate(todo):
            for name in names:
                users[name] |= 1 << number
        prices: list[dict[Amount, float]] = [defaultdict(float) for _ in cuts]
        for mine, names in zip(prices, todo, strict=True):
            for name in names:
                step, unless = situation.steps[name], _several(users[name])
                mine["rows", mask_of(step), 0, unless] += step.row_s
                mine["calls", mask_of(step), step.block, unless] += step.fixed_s
        readings = []
        for reading in _readings(situation, sample, ran, todo):
            covers = reading.covers()
            if len(covers) > 2:
                readings.append(reading)
                continue
            unless = _several(sum(1 << number for number in reading.readers))
            for number in reading.readers:
                prices[number]["units", max(covers), 0, unless] += reading.seconds
                prices[number]["units", reading.owned, 0, unless] -= reading.seconds
        place = {cut: number for number, cut in enumerate(cuts)}
        before = tuple(
            sum(1 << number for other, number in place.items() if layout.before[cut] >> other & 1) for cut in cuts
        )
        tables = Tables(sample, alive, [layout.cuts[cut] for cut in cuts])
        return cls(tuple(cuts), before, tuple(prices), tuple(readings), tables)

    def amounts(self) -> tuple[Amount, ...]:
        """Give all that any price asks about."""
        asked = {amount for prices in self.prices for amount in prices}
        for reading in self.readings:
            asked |= {("units", cover, 0, 0) for cover in reading.covers()}
        return tuple(sorted(amount for amount in asked if amount[1]))

    def operations(self) -> float:
        """Estimate the elementary operations of solving it, so that a budget can be kept to."""
        cuts, sample = len(self.cuts), self.tables.sample
        if cuts > MOST_CUTS or any(len(r.readers) > MOST_READERS for r in self.readings):
            return float("inf")
        amounts = self.amounts()
        masks = {sample.without_contained(amount[1]) for amount in amounts}
        if any(mask.bit_count() > MOST_LANES for mask in masks):
            return float("inf")
        words = -(-len(sample.sizes) // 64)
        lanes = len({lane for mask in masks for lane in lanes_of(mask)})
        per_state = cuts * (len(masks) + words * lanes)
        per_state += len(masks) * (20 * words + 20 * len(sample.kinds))
        per_state += 5 * len(amounts) + cuts * (6 + len(amounts))
        per_state += sum(20 * len(reading.readers) for reading in self.readings)
        # Unions are counted by inclusion and exclusion: a cell has a term for every subset of its lanes.
        per_cell = 4 * lanes * cuts + sum(10 * 2.0 ** mask.bit_count() for mask in masks)
        calls = sum(5 * mask.bit_count() ** 2 + 60 for mask in masks)
        readers = sum(10 + 6 * len(reading.readers) for reading in self.readings)
        calls += cuts * (4 * cuts + 3 * len(amounts) + readers)
        operations = (1 << cuts) * per_state + len(sample.rows) * per_cell + CALL * calls
        return float(operations)


def _several(users: int) -> int:
    """A step that just one cut needs is paid by that one, whatever has run."""
    return users if users & (users - 1) else 0


def mask_of(step: Step) -> int:
    """Give the lanes that need a step, as bits."""
    return sum(1 << lane for lane in set(step.lanes))


def after(sample: Sample, alive: Sequence[Bools], cuts: Iterable[str]) -> list[Bools]:
    """Let cuts reject cells in every lane."""
    result = list(alive)
    for cut in cuts:
        for lane, cells in enumerate(result):
            kept = sample.lanes[lane].get(cut)
            if kept is not None:
                result[lane] = cells & kept
    return result


def runs_of(layout: Layout) -> Iterator[list[int]]:
    """Part the cuts wherever all that come later need all that came before: between barriers."""
    every = range(len(layout.cuts))
    done = 0
    for ready in sorted({*layout.before, (1 << len(every)) - 1}, key=int.bit_count):
        later = [cut for cut in every if not ready >> cut & 1]
        if ready != done and all(layout.before[cut] & ready == ready for cut in later):
            yield [cut for cut in every if (ready & ~done) >> cut & 1]
            done = ready


def _readings(situation: Situation, sample: Sample, ran: set[str], todo: Sequence[Sequence[str]]) -> Iterable[Reading]:
    """Find the columns that cuts of a block may be the first to read for some lane."""
    owned: dict[str, int] = defaultdict(int)
    for name in ran:
        for column in situation.steps[name].columns:
            owned[column] |= mask_of(situation.steps[name])
    found: dict[str, Reading] = {}
    for number, names in enumerate(todo):
        for name in names:
            lanes = mask_of(situation.steps[name])
            for column in situation.steps[name].columns:
                if column in situation.columns and lanes & ~owned[column]:
                    seconds = situation.columns[column].row_s * sample.chunk_rows
                    reading = found.setdefault(column, Reading(seconds, owned[column]))
                    reading.readers[number] = reading.readers.get(number, 0) | lanes
    alike: dict[tuple[int, tuple[tuple[int, int], ...]], Reading] = {}
    for reading in found.values():
        key = reading.owned, tuple(sorted(reading.readers.items()))
        if key in alike:
            alike[key].seconds += reading.seconds
        else:
            alike[key] = reading
    return alike.values()
