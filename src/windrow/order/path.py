"""HEP-Frame's order for many cores: the shortest path through all propositions, as the paper describes it.

A. Pereira, A. Proenca, "HEP-Frame: improving the efficiency of pipelined data transformation & filtering for scientific
analyses", Computer Physics Communications 263 (2021), https://doi.org/10.1016/j.cpc.2021.107844, section 3.4. An edge
into a proposition costs the proposition's weight (see ``windrow.order.hepframe``); edges that break a dependency are
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

from windrow.order.hepframe import weights
from windrow.order.rates import full_order, propositions

if TYPE_CHECKING:
    from windrow.order.model import Situation

__all__ = ["order"]


def order(situation: Situation) -> tuple[str, ...]:
    """Start with the heaviest proposition that may start; always go on to the lightest that may follow."""
    waiting = propositions(situation)
    weight = weights(waiting)
    chosen: list[str] = []
    while waiting:
        free = [name for name, one in waiting.items() if one.after <= set(chosen)]
        sign = 1 if chosen else -1
        best = min(free, key=lambda name: (sign * weight[name], waiting[name].place))
        chosen.append(best)
        del waiting[best]
    return full_order(situation, chosen)
