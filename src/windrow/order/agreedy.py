"""A-Greedy: the cut that drops most of what is left per second comes next, correlations included.

S. Babu, R. Motwani, K. Munagala, I. Nishizawa, J. Widom, "Adaptive ordering of pipelined stream filters", SIGMOD 2004,
https://doi.org/10.1145/1007568.1007615. Rows are shown to all filters now and then; V[i][j] counts those which the
first i - 1 filters of the order in force pass and filter j drops. The greedy invariant is V[i][i]/t_i >= V[i][j]/t_j
for all j after i. Where it is violated, filters are chosen anew from that position on, and the ones before stay. Greedy
orders cost at most four times the best one (https://doi.org/10.1007/978-3-540-30570-5_6).

What was left open, and how it is read here: precedence - only cuts whose needed cuts have run are compared at a
position; columns - t is that of the cut and of what has to be made for it and is not made yet; lanes - a row is dropped
when it is in no lane any more; the window of profiled rows - all that the situation has; the thrashing tolerance - see
``TOLERANCE``. Cuts that drop nothing more are equal, whatever they take, and stay as they are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from windrow.order.constraints import repair
from windrow.order.rates import Verdicts, full_order, propositions, total_seconds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from windrow.order.model import Situation
    from windrow.order.rates import Proposition

__all__ = ["TOLERANCE", "order"]

#: A filter stays while it drops this share per second of what the best one would. The paper has a tolerance of at most
#: 1 against orders that flip with every sample, but no value of it; a tenth is what a few hundred rows leave unsure.
TOLERANCE = 0.9


def order(situation: Situation) -> tuple[str, ...]:
    """Keep the order in force up to the first violation of the invariant; be greedy from there on."""
    verdicts = Verdicts(situation)
    alive = verdicts.everywhere()
    waiting = propositions(situation)
    chosen: list[str] = []
    made: set[str] = set()
    greedy = False
    for standing in _cuts_in_force(situation):
        gain = {
            name: _drops_per_second(situation, verdicts, alive, one, made)
            for name, one in waiting.items()
            if one.after <= set(chosen)
        }
        best = max(gain, key=lambda name: (gain[name], -waiting[name].place))
        greedy = greedy or gain[standing] < TOLERANCE * gain[best]
        name = best if greedy else standing
        chosen.append(name)
        made |= waiting.pop(name).made
        alive = verdicts.kept(name, alive)
    return full_order(situation, chosen)


def _cuts_in_force(situation: Situation) -> list[str]:
    """The cuts as they run now, which must be legal still after a guard was learned."""
    known = set(situation.current) == set(situation.written)
    needs = {name: tuple(situation.needs.get(name, ())) for name in situation.written}
    legal = repair(situation.current if known else situation.written, needs, situation.guards)
    cuts = set(situation.cuts)
    return [name for name in legal if name in cuts]


def _drops_per_second(
    situation: Situation, verdicts: Verdicts, alive: NDArray[np.bool_], one: Proposition, made: set[str]
) -> float:
    drops = verdicts.discards(one.name, alive)
    seconds = total_seconds(situation, {one.name, *one.made} - made)
    if not drops:
        return 0.0
    return drops / seconds if seconds > 0 else math.inf
