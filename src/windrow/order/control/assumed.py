"""Windows that were never looked at: what cuts would say of rows, given how many rows passed each cut in the run.

Showing rows to all cuts costs what all steps cost, which is too much where a row takes long. How many of the rows that a
cut saw it let pass is known for nothing: HEP-Frame decides from just that (A. Pereira and A. Proença, "HEP-Frame: Improving
the efficiency of pipelined data transformation & filtering for scientific analyses", sec. 3). Rows are drawn as if cuts were
independent, and then weighed so that in every order that ran each cut passes the share of rows that it did pass there
(W. E. Deming and F. F. Stephan 1940, doi:10.1214/aoms/1177731829): what two orders say of a cut tells how it depends on other cuts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from windrow.core.records import FAILED, PASSED, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.core.records import StepCost, Terrain

    Rates = Mapping[str, float]  #: by cut: the share of the rows that it saw and let pass

#: Rows that a cut must have seen: eight tell 30 % from 90 % nearly always.
LEAST_SEEN = 8
#: Windows, so that leaving one out shows what is chance, and rows of each.
WINDOWS, ROWS = 8, 256
#: Times that all orders are gone through: each upsets what the others have put right, less every time.
ROUNDS = 3
#: What the weight of one row is counted as.
GRAIN = 64


def assumed_windows(
    terrain: Terrain,
    ran: Sequence[tuple[tuple[str, ...], Iterable[tuple[str, StepCost]]]],
    seen: Mapping[str, StepCost],
    unit_rows: int,
    numbers: np.random.Generator,
) -> tuple[Window, ...]:
    """Make windows of what is known; none where a cut saw too few rows. How unsure it is shows in how they differ.

    ``ran`` is what passed by order, the latest last; ``seen`` what passed in all, also where rows were only looked at.
    """
    cuts = [step.name for step in terrain.steps if step.kind == "cut"]
    least = min((seen[cut].rows_in if cut in seen else 0 for cut in cuts), default=0)
    if least < LEAST_SEEN:
        return ()
    size, rates = ROWS, _rates(seen)
    orders = [(order, _rates(dict(costs))) for order, costs in ran]
    for _, latest in orders:
        rates |= latest
    counted = {cut: max(seen[cut].rows_in, 1) for cut in cuts}
    sides = np.array([(rates[cut] * counted[cut], (1 - rates[cut]) * counted[cut]) for cut in cuts])
    drawn = numbers.beta(sides[:, 0] + 0.5, sides[:, 1] + 0.5, (WINDOWS, len(cuts)))
    passed = numbers.random((WINDOWS * size, len(cuts))) < np.repeat(drawn, size, axis=0)
    weights = _fit(terrain, {cut: passed[:, number] for number, cut in enumerate(cuts)}, orders)
    found = []
    for number in range(WINDOWS):
        mine = slice(number * size, (number + 1) * size)
        said = np.where(passed[mine], PASSED, FAILED).astype(np.int8)
        verdicts, pattern = np.unique(said, axis=0, return_inverse=True)
        counts = np.rint(GRAIN * np.bincount(pattern.ravel(), weights[mine])).astype(np.int64)
        found.append(Window(-1, 0, size, number, max(unit_rows, size), tuple(cuts), verdicts, counts))
    return tuple(found)


def _rates(costs: Mapping[str, StepCost]) -> dict[str, float]:
    """Half a row more of each: none among few is no certainty."""
    return {
        name: (cost.rows_out + 0.5) / (cost.rows_in + 1) for name, cost in costs.items() if cost.rows_in >= LEAST_SEEN
    }


def _fit(
    terrain: Terrain, passed: Mapping[str, NDArray[np.bool_]], orders: Sequence[tuple[tuple[str, ...], Rates]]
) -> NDArray[np.float64]:
    """Weigh rows so that in each order every cut passes the share of those left to it that it did pass."""
    lanes_of = {step.name: list(step.lanes) for step in terrain.steps}
    weights = np.ones(len(next(iter(passed.values()))))
    for order, rates in ROUNDS * list(orders):
        alive = np.ones((len(terrain.lanes), len(weights)), np.bool_)
        for cut in order:
            if cut not in passed:
                continue
            here = alive[lanes_of[cut]].any(axis=0)
            sides = here & passed[cut], here & ~passed[cut]
            shares = [float(weights[side].sum()) for side in sides]
            if cut in rates and all(shares):
                for side, share, wanted in zip(sides, shares, (rates[cut], 1 - rates[cut]), strict=True):
                    weights[side] *= wanted * sum(shares) / share
            for lane, names in zip(alive, terrain.lanes, strict=True):
                for name, inverted in names:
                    if name == cut:
                        lane &= passed[cut] ^ inverted
    return weights
