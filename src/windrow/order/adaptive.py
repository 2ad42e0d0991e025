"""The default policy: the order of least expected cost, taken only where it is sure to be worth it.

The cheapest order is found exactly where planning stays cheap, else by search. It replaces the
current one if the model says that it is materially cheaper, and if that is more than chance: the
difference between the two is computed again with groups of windows left out (both orders with the
same rows, so what they share cancels), and the gain must be twice the error that this shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windrow.order.constraints import repair
from windrow.order.cost import expected_cost, jackknifed_costs
from windrow.order.layout import layout_of
from windrow.order.reasons import percent, reasons
from windrow.order.search import good_order, quick_order
from windrow.order.subsets import BUDGET, Best, best_order
from windrow.order.survival import sample_of

if TYPE_CHECKING:
    from windrow.order.layout import Layout
    from windrow.order.model import Situation
    from windrow.order.survival import Sample

__all__ = ["Decision", "adaptive", "order"]

#: With fewer sampled rows nothing is decided: shares of them say too little.
LEAST_ROWS = 16
#: With fewer windows their differences say nothing about chance: of few rows only a large gain counts then.
LEAST_WINDOWS, FEW_ROWS = 4, 1024
LARGE = 0.2
#: How much dearer than the written order the one in force may be.
DEARER = 1.01
#: Errors by which a gain must exceed nothing.
SURE = 2.0
#: Where finding the cheapest order takes no more operations than this, nothing else is tried before.
QUICK = 2e6
#: Sums that differ by less are equal but for rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An order, what it is expected to cost, and why it was chosen."""

    order: tuple[str, ...]
    cost: float  #: seconds per chunk
    current_cost: float  #: of the order in force
    written_cost: float  #: of the order in the user's file
    exact: bool  #: no order is cheaper, as far as the model knows; else a good one was searched for
    why: str
    steps: tuple[str, ...]  #: why each step stands where it does, in the order


def order(situation: Situation) -> tuple[str, ...]:
    """Decide the order: the policy as every other one is called."""
    return adaptive(situation).order


def adaptive(situation: Situation, *, materially: float = 0.02, budget: float = BUDGET) -> Decision:
    """Decide between the current order and the cheapest one; ``budget`` bounds the work of planning."""
    layout, sample = layout_of(situation), sample_of(situation)
    current = repair(situation.current, layout.needs, ())
    written = repair(situation.written, layout.needs, ())
    current_cost = expected_cost(situation, current, sample).total
    written_cost = current_cost
    if written != current:
        written_cost = expected_cost(situation, written, sample).total
    seen = sum(int(window.rows.sum()) for window in situation.windows)
    exact = False
    if seen < LEAST_ROWS:
        chosen = Best(current, current_cost)
        why = f"kept: {seen} rows were sampled, at least {LEAST_ROWS} are needed"
    else:
        best = best_order(situation, budget=min(budget, QUICK), layout=layout, sample=sample)
        exact = best is not None
        if best is None:
            best, exact = _searched(situation, layout, sample, budget, current_cost)
        best = min(best, Best(written, written_cost), key=lambda found: found.cost)
        chosen, why = _choose(situation, sample, best, Best(current, current_cost), written_cost, materially)
    return Decision(
        order=chosen.order,
        cost=chosen.cost,
        current_cost=current_cost,
        written_cost=written_cost,
        exact=exact,
        why=why,
        steps=reasons(situation, expected_cost(situation, chosen.order, sample), layout),
    )


def _searched(
    situation: Situation, layout: Layout, sample: Sample, budget: float, current_cost: float
) -> tuple[Best, bool]:
    """Find a good order, and the cheapest if there is time; say whether it is that."""
    start = quick_order(situation, layout, sample)
    # Planning may take a share of a run, and what has been found makes that shorter already.
    budget *= min(start.cost / current_cost, 1.0) if current_cost else 1.0
    best = best_order(situation, budget=budget, layout=layout, sample=sample)
    if best is not None:
        return best, True
    best = good_order(situation, budget=budget, layout=layout, sample=sample, start=start)
    return best, False


def _choose(
    situation: Situation, sample: Sample, best: Best, current: Best, written_cost: float, materially: float
) -> tuple[Best, str]:
    """Keep the current order unless the best one is cheaper by enough, and for sure."""
    gain = current.cost - best.cost
    if best.order == current.order or gain <= ROUNDING * current.cost:
        return current, "kept: no cheaper order is known"
    saved = percent(gain / current.cost)
    error = 0.0
    if len(sample.sizes) >= LEAST_WINDOWS:
        error = _error(situation, sample, best, current)
    elif sample.sizes.sum() < FEW_ROWS:
        materially = max(materially, LARGE)
    if gain > materially * current.cost and gain > SURE * error:
        sureness = f", +- {percent(error / current.cost)}" if error else ""
        return best, f"changed: saves {saved} of the seconds{sureness}"
    if current.cost > DEARER * written_cost:
        return best, f"changed: the order in force is dearer than the written one; saves {saved}"
    if gain > materially * current.cost:
        return current, (
            f"kept: another would save {saved} of the seconds, but the error of that is {percent(error / current.cost)}"
        )
    return current, f"kept: the cheapest would save {saved} of the seconds"


def _error(situation: Situation, sample: Sample, best: Best, current: Best) -> float:
    """Estimate the error of the gain from how it changes with windows left out (jackknife)."""
    gains = jackknifed_costs(situation, current.order, sample)
    gains = gains - jackknifed_costs(situation, best.order, sample)
    return float(np.sqrt((len(gains) - 1) * gains.var()))
