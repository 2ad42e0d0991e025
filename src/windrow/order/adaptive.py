"""The default policy: the order of least expected cost, taken only where it is sure to be worth it.

The cheapest order is found exactly for few cuts, else by search. It replaces the current one if the model says that it
is materially cheaper, and if that is more than chance: the difference between the two is computed again with groups of
windows left out (both orders with the same rows, so what they share cancels), and the gain must be twice the error that
this shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from windrow.order.constraints import all_needs, repair
from windrow.order.cost import expected_cost, jackknifed_costs, sampled_rows
from windrow.order.model import Decision
from windrow.order.planner import Best, find_order

if TYPE_CHECKING:
    from windrow.order.cost import Expected, SampledRows, StepExpected
    from windrow.order.model import Situation

#: With fewer sampled rows nothing is decided: shares of them say too little.
LEAST_ROWS = 8
#: How much dearer than the written order the one in force may be.
DEARER = 1.01
#: Errors by which a gain must exceed nothing.
SURE = 2.0
#: Sums that differ by less are equal but for rounding.
ROUNDING = 1e-9
#: A cut that drops less than this is said to drop little.
LITTLE = 0.1


def adaptive(situation: Situation, *, materially: float = 0.02, effort: float = 1.0) -> Decision:
    """Decide between the current order and the cheapest one; ``effort`` is the share of the usual work of planning."""
    sampled = sampled_rows(situation)
    current = _priced(situation, repair(situation.current, situation.needs), sampled)
    written = _priced(situation, situation.written, sampled)
    seen = sum(window.size for window in situation.windows)
    sure = False
    if seen < LEAST_ROWS:
        chosen, why = current, f"kept: {seen} rows were sampled, at least {LEAST_ROWS} are needed"
    else:
        best = min(find_order(situation, sampled, effort), written, key=lambda found: found.cost)
        chosen, why, sure = _choose(situation, sampled, best, current, written.cost, materially)
    return Decision(
        order=chosen.order,
        cost=chosen.cost,
        current_cost=current.cost,
        written_cost=written.cost,
        sure=sure,
        why=why,
        steps=reasons(situation, expected_cost(situation, chosen.order, sampled)),
    )


def _priced(situation: Situation, order: tuple[str, ...], sampled: SampledRows) -> Best:
    return Best(order, expected_cost(situation, order, sampled).total, exact=False)


def _choose(
    situation: Situation, sampled: SampledRows, best: Best, current: Best, written_cost: float, materially: float
) -> tuple[Best, str, bool]:
    """Keep the current order unless the best one is cheaper by enough, and for sure; say whether that is known."""
    gain = current.cost - best.cost
    if best.order == current.order or gain <= ROUNDING * current.cost:
        return current, "kept: no cheaper order is known", True
    saved = percent(gain / current.cost)
    error = _error(situation, sampled, best, current)
    if gain > materially * current.cost and gain > SURE * error:
        sureness = f", +- {percent(error / current.cost)}" if error else ""
        return best, f"changed: saves {saved} of the seconds{sureness}", True
    if current.cost > DEARER * written_cost:
        return best, f"changed: the order in force is dearer than the written one; saves {saved}", True
    if gain > materially * current.cost:
        rows = sum(window.size for window in situation.windows) * (SURE * error / gain) ** 2
        return (
            current,
            (
                f"kept: another would save {saved} of the seconds, but the error of that is {percent(error / current.cost)}; "
                f"some {rows:,.0f} rows shown to all cuts would tell"
            ),
            False,
        )
    return current, f"kept: the cheapest other order would save {saved} of the seconds", True


def _error(situation: Situation, sampled: SampledRows, best: Best, current: Best) -> float:
    """Estimate the error of the gain from how it changes with windows left out (jackknife)."""
    gains = jackknifed_costs(situation, current.order, sampled)
    gains = gains - jackknifed_costs(situation, best.order, sampled)
    return float(np.sqrt((len(gains) - 1) * gains.var()))


# -- why a step stands where it does, in words ------------------------------------------------------


def reasons(situation: Situation, expected: Expected) -> tuple[str, ...]:
    needs = all_needs(situation.written, situation.needs)
    cuts = [step for step in expected.steps if situation.steps[step.name].kind == "cut"]
    dearest = max((_per_row(situation, step) for step in cuts), default=0.0)
    said = []
    for step in expected.steps:
        if step not in cuts:
            readers = [cut.name for cut in cuts if step.name in needs[cut.name]]
            if readers:
                said.append(f"just before {readers[0]!r}, the first cut that needs it")
            else:
                said.append(f"at the end, for {percent(step.alive)} of the rows: no cut needs it")
            continue
        number = cuts.index(step) + 1
        words = _of_cut(situation, step, number, len(cuts), dearest)
        before = cuts[number - 2].name if number > 1 else ""
        if before in needs[step.name]:
            words += f"; after {before!r}, which it needs"
        said.append(words)
    return tuple(said)


def _of_cut(situation: Situation, step: StepExpected, number: int, cuts: int, dearest: float) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    place = "last" if number == cuts and cuts > 1 else f"{number}{ending}"
    if not step.alive:
        return f"{place}: no sampled row is left for it"
    drops, each = 1.0 - step.passes, _per_row(situation, step)
    if place == "last" and drops < LITTLE and each == dearest:
        return f"last: drops little ({percent(drops)}) and costs most ({duration(each)} a row)"
    left = "the rows" if number == 1 else "the rows left"
    words = f"{place}: drops {percent(drops)} of {left} for {duration(each)} each"
    if step.column_s > step.seconds:
        words += ", most of it for columns that nobody read before"
    return words


def _per_row(situation: Situation, step: StepExpected) -> float:
    rows = step.alive * situation.chunk_rows
    return (step.seconds + step.column_s) / rows if rows else 0.0


def percent(share: float) -> str:
    """Say a share; below ten per cent with one digit more."""
    return f"{100 * share:.1f} %" if 0 < abs(share) < 0.0995 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """Say a time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
