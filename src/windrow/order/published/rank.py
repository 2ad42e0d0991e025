"""Cheap and selective first: ascending c / (1 - s), the best order of filters that are independent of each other.

J. M. Hellerstein, M. Stonebraker, "Predicate migration: optimizing queries with expensive predicates", SIGMOD 1993,
https://doi.org/10.1145/170035.170078: c is what a predicate costs per row, s the share of rows it passes. Exchanging
two neighbours shows that no other order of independent filters is cheaper.

What was left open: precedence. The next cut is always the one of the lowest rank among those whose needed cuts have
run ("cheapest available first"), and its cost is that of the cut and of the columns that have to be made for it first,
so a column made before is free. That is not optimal: a dear cut which a very selective one waits for comes late. Blocks
of chains, which would mend it, are exact for chains only. Correlations and lanes are unknown to it: s is marginal.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windrow.order.published.propositions import full_order, pick, propositions, total_seconds

if TYPE_CHECKING:
    from windrow.order.model import Situation
    from windrow.order.published.propositions import Proposition


def order(situation: Situation) -> tuple[str, ...]:
    """Take the available cut of the lowest rank until none is left; one that drops nothing comes last."""
    waiting = propositions(situation)
    chosen: list[str] = []
    made: set[str] = set()

    def rank(one: Proposition) -> float:
        if not one.discarded:
            return math.inf
        return total_seconds(situation, {one.name, *one.made} - made) / one.discarded

    while waiting:
        best = pick(waiting, chosen, rank)
        chosen.append(best.name)
        made |= best.made
        del waiting[best.name]
    return full_order(situation, chosen)
