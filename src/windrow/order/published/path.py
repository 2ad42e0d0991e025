"""HEP-Frame's order for many cores: the shortest path through all propositions, found by backtracking.

A. Pereira, A. Proenca, "HEP-Frame: improving the efficiency of pipelined data transformation & filtering for scientific
analyses", Computer Physics Communications 263 (2021), https://doi.org/10.1016/j.cpc.2021.107844, section 3.4. Every
thread runs the whole pipeline on a chunk. At a checkpoint a barrier lets all threads end, and none begins before the new
order is there; the feeder of rows does that. The order is the shortest path through a graph whose nodes are the
propositions: an edge into one has its weight, edges that break a dependency are infinite, and backtracking from every
possible start finds the path that visits all.

As it is printed that is degenerate. If the edges into a proposition all cost the same, every path pays for each
proposition but its first, so only the first one matters, and the best first one is the *heaviest*. Here an edge costs
what the paper's own reason for ordering says it does: the seconds of the proposition for the share of rows that reach
it, where each discards by itself the share that was measured; and the first proposition is paid for, too.

Also left open: the paper forbids the edge from a proposition to one it depends on, which alone would still let other
propositions come between the two; here a proposition never runs before one that it depends on. A column that was made
for an earlier proposition is free. Backtracking tries edges by ascending rank (``windrow.order.published.rank``), and
turns back where the rest would be too long even if nothing depended on anything, or where the same propositions were
visited on a shorter way before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from windrow.order.published.propositions import full_order, propositions, total_seconds

if TYPE_CHECKING:
    from windrow.order.model import Situation
    from windrow.order.published.propositions import Proposition

#: Edges that are tried at most; then the shortest path so far is taken, the first of which is that of ascending ranks.
#: The paper has no bound: its 18 propositions with 33 dependencies need a tenth of this, and this takes some 50 ms.
TRIES = 5_000


class _Way(NamedTuple):
    """A path that is not at its end."""

    names: tuple[str, ...] = ()
    made: frozenset[str] = frozenset()
    alive: float = 1.0  #: share of rows that are left
    cost: float = 0.0  #: seconds per row


def order(situation: Situation) -> tuple[str, ...]:
    """Follow the most promising edge to the end of a path, turn back, and keep the shortest."""
    found = propositions(situation)
    least = _least_seconds(situation, found)
    by_rank = sorted(found.values(), key=lambda one: _rank(least[one.name], one))
    chosen: tuple[str, ...] = ()
    length, tries = math.inf, 0
    shortest: dict[frozenset[str], float] = {}  #: by what was visited
    ways = [_Way()]
    while ways and (tries < TRIES or not chosen):
        way = ways.pop()
        tries += 1
        visited = frozenset(way.names)
        alive, rest = way.alive, 0.0  # at least, by rank
        for one in by_rank:
            if one.name not in visited:
                rest += alive * least[one.name]
                alive *= 1 - one.discarded
        if way.cost >= shortest.get(visited, math.inf) or way.cost + rest >= length:
            continue
        shortest[visited] = way.cost
        if len(visited) == len(found):
            chosen, length = way.names, way.cost
        ways += _edges(situation, found, way)
    return full_order(situation, chosen)


def _edges(situation: Situation, found: Mapping[str, Proposition], way: _Way) -> list[_Way]:
    """Go on to every proposition that may come next; the best looking one last, as the last is tried first."""
    free = [one for name, one in found.items() if name not in way.names and one.after.issubset(way.names)]
    seconds = {one.name: total_seconds(situation, {one.name, *one.made} - way.made) for one in free}
    free.sort(key=lambda one: (_rank(seconds[one.name], one), one.place), reverse=True)
    return [
        _Way(
            (*way.names, one.name),
            way.made | one.made,
            way.alive * (1 - one.discarded),
            way.cost + way.alive * seconds[one.name],
        )
        for one in free
    ]


def _rank(seconds: float, one: Proposition) -> float:
    return seconds / one.discarded if one.discarded else math.inf


def _least_seconds(situation: Situation, found: Mapping[str, Proposition]) -> dict[str, float]:
    """Seconds of each proposition when all that other propositions need as well is made."""
    least = {}
    for name, one in found.items():
        others = frozenset[str]().union(*(other.made for other in found.values() if other is not one))
        least[name] = total_seconds(situation, {name, *one.made} - others)
    return least
