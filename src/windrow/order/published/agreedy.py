"""A-Greedy: the cut that drops most of what is left per second comes next, correlations included.

S. Babu, R. Motwani, K. Munagala, I. Nishizawa, J. Widom, "Adaptive ordering of pipelined stream filters", SIGMOD 2004,
https://doi.org/10.1145/1007568.1007615. Rows are shown to all filters now and then; V[i][j] counts those which the
first i - 1 filters of the order in force pass and filter j drops. The greedy invariant is V[i][i]/t_i >= V[i][j]/t_j
for all j after i. Where it is violated, filters are chosen anew from that position on, and the ones before stay. Greedy
orders cost at most four times the best one (https://doi.org/10.1007/978-3-540-30570-5_6).

What was left open, and how it is read here: precedence - only cuts whose needed cuts have run are compared at a
position; columns - t is that of the cut and of what has to be made for it and is not made yet; lanes - a row is dropped
when it is in no lane any more; the window of profiled rows - all that the situation has; the thrashing tolerance - a
parameter. Cuts that drop nothing more are equal, whatever they take, and stay as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.order.adaptive import percent
from windrow.order.constraints import repair
from windrow.order.published.propositions import Rule, Verdicts, full_order, pick, propositions, total_seconds

if TYPE_CHECKING:
    from windrow.order.model import Situation
    from windrow.order.published.propositions import Proposition


@dataclass(frozen=True, slots=True, kw_only=True)
class AGreedy(Rule):
    """The greedy order that sees correlations, ``order="agreedy"``, with its parameter.

    Parameters
    ----------
    tolerance
        A cut stays while it drops this share per second of what the best one would. The paper has a tolerance of at most
        1 against orders that flip with every sample, but no value of it; 0.9 is what a few hundred rows leave unsure.
    """

    tolerance: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.tolerance <= 1:
            raise UsageError(f"tolerance= is above 0 and at most 1; got {self.tolerance}")

    def __call__(self, situation: Situation) -> tuple[str, ...]:
        return _greedy_order(situation, self.tolerance)

    def explain(self, situation: Situation) -> str:  # noqa: ARG002 - a Rule's
        return f"a cut stays while it drops {percent(self.tolerance)} per second of what the best one would"


order = AGreedy()


def _greedy_order(situation: Situation, tolerance: float) -> tuple[str, ...]:
    """Keep the order in force up to the first violation of the invariant; be greedy from there on."""
    verdicts = Verdicts(situation)
    alive = verdicts.everywhere()
    waiting = propositions(situation)
    chosen: list[str] = []
    made: set[str] = set()
    greedy = False

    def drops_per_second(one: Proposition) -> float:
        drops = verdicts.discards(one.name, alive)
        seconds = total_seconds(situation, {one.name, *one.made} - made)
        if not drops:
            return 0.0
        return drops / seconds if seconds > 0 else math.inf

    current = repair(situation.current, situation.needs)
    for standing in [waiting[name] for name in current if name in waiting]:
        best = pick(waiting, chosen, lambda one: -drops_per_second(one))
        greedy = greedy or drops_per_second(standing) < tolerance * drops_per_second(best)
        taken = best if greedy else standing
        chosen.append(taken.name)
        made |= taken.made
        alive = verdicts.kept(taken.name, alive)
        del waiting[taken.name]
    return full_order(situation, chosen)
