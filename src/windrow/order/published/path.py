"""HEP-Frame's order for many cores: the shortest path through all propositions, as the paper describes it.

A. Pereira, A. Proenca, "HEP-Frame: improving the efficiency of pipelined data transformation & filtering for scientific
analyses", Computer Physics Communications 263 (2021), https://doi.org/10.1016/j.cpc.2021.107844, section 3.4. An edge
into a proposition costs the proposition's weight (see ``windrow.order.published.hepframe``); edges that break a dependency are
infinite; backtracking from every possible start finds the shortest path that visits all.

The description is degenerate. Every path pays for each proposition but its first, so its length is the sum of all
weights less the first one's: the shortest paths are all those that start with the *heaviest* proposition which may
start, whatever comes after. Which of these equals is found depends on the sequence in which backtracking tries the
edges, which the paper does not give; here it is the cheapest edge first, then the written order. The first complete path
from the best start is then the answer, and no search is needed to find it, however many propositions there are.

Also left open: the paper forbids the edge from a proposition to one it depends on, which alone would still let other
propositions come between the two. Here a proposition never runs before one that it depends on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.order.published.hepframe import weights
from windrow.order.published.propositions import full_order, pick, propositions

if TYPE_CHECKING:
    from windrow.order.model import Situation
    from windrow.order.published.propositions import Proposition


def order(situation: Situation) -> tuple[str, ...]:
    """Start with the heaviest proposition that may start; always go on to the lightest that may follow."""
    waiting = propositions(situation)
    weight = weights(waiting)
    chosen: list[str] = []

    def edge(one: Proposition) -> float:
        return weight[one.name] if chosen else -weight[one.name]

    while waiting:
        best = pick(waiting, chosen, edge)
        chosen.append(best.name)
        del waiting[best.name]
    return full_order(situation, chosen)
