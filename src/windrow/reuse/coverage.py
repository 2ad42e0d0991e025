"""Which rows of an input still have to be run, and for which products, given what was kept of earlier runs.

A product is something a run makes that can be kept by itself (an output in a region, a region's cutflow), named by a
fingerprint: what was kept counts only where the name is the same. What was kept covers its rows, whole units of the
input, all or nothing, as sums cannot be taken apart; it counts only where all of them are wanted now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from windrow.core.intervals import Intervals

Ranges = tuple[tuple[int, int], ...]


class Covered(NamedTuple):
    """Something that was kept: which products, for which rows."""

    id: int
    products: frozenset[str]
    rows: Ranges


class Portion(NamedTuple):
    """Rows to run, and the products they lack."""

    products: frozenset[str]
    ranges: Ranges


class Reuse(NamedTuple):
    """What is taken over (by id: the products taken from it) and what is left to do."""

    used: dict[int, frozenset[str]]
    portions: tuple[Portion, ...]


def divide(wanted: Sequence[tuple[int, int]], products: frozenset[str], covered: Sequence[Covered]) -> Reuse:
    """Divide the wanted rows of an input into what is there already and portions that lack the same products."""
    whole = Intervals(wanted)
    taken: dict[str, Intervals] = {name: Intervals() for name in products}
    used: dict[int, frozenset[str]] = {}
    # The largest first: where two overlap, less is left to do.
    for kept in sorted(covered, key=lambda one: (-sum(stop - start for start, stop in one.rows), one.id)):
        if not kept.rows or any(whole.gaps(start, stop) for start, stop in kept.rows):
            continue
        of_it = kept.products & products
        mine = frozenset(name for name in of_it if all(taken[name].free(start, stop) for start, stop in kept.rows))
        for name in mine:
            for start, stop in kept.rows:
                taken[name].add(start, stop)
        if mine:
            used[kept.id] = mine
    return Reuse(used, _portions(whole, taken))


def first_rows(
    inputs: Iterable[tuple[str, Ranges | None]], limit: int | None
) -> tuple[list[Ranges | None], dict[str, int]]:
    """Cut the rows of inputs, in order, down to the first ``limit`` of each category.

    Inputs of unknown rows (None) stay so, and so do all after them in their category; the second answer is how many rows
    these may still have.
    """
    left: dict[str, int] = {}
    unknown: set[str] = set()
    result: list[Ranges | None] = []
    for category, ranges in inputs:
        if limit is None or ranges is None or category in unknown:
            if ranges is None or (limit is not None and category in unknown):
                unknown.add(category)
                ranges = None
            result.append(ranges)
            left.setdefault(category, limit or 0)
            continue
        mine = []
        budget = left.setdefault(category, limit)
        for start, stop in ranges:
            stop = min(stop, start + budget)
            if start < stop:
                mine.append((start, stop))
                budget -= stop - start
        left[category] = budget
        result.append(tuple(mine))
    return result, {} if limit is None else left


def _portions(whole: Intervals, taken: Mapping[str, Intervals]) -> tuple[Portion, ...]:
    """Group the wanted rows by the products they lack; those that lack most come first."""
    alike: dict[Ranges, list[str]] = {}  # products that lack the same rows
    for name in sorted(taken):
        gaps = tuple(gap for start, stop in whole for gap in taken[name].gaps(start, stop))
        if gaps:
            alike.setdefault(gaps, []).append(name)
    cuts = sorted({end for gaps in alike for gap in gaps for end in gap})
    lacking: list[list[str]] = [[] for _ in cuts]
    for gaps, names in alike.items():
        for start, stop in gaps:
            for place in range(bisect_left(cuts, start), bisect_left(cuts, stop)):
                lacking[place] += names
    found: dict[frozenset[str], Intervals] = {}
    for place, names in enumerate(lacking):
        if names:
            found.setdefault(frozenset(names), Intervals()).add(cuts[place], cuts[place + 1])
    portions = [Portion(names, tuple(rows)) for names, rows in found.items()]
    return tuple(sorted(portions, key=lambda one: (-len(one.products), one.ranges)))
