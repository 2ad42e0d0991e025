"""HEP-Frame's table of levels: lighter propositions first within a level, a barrier between levels.

A. Pereira, A. Proenca, "HEP-Frame: improving the efficiency of pipelined data transformation & filtering for scientific
analyses", Computer Physics Communications 263 (2021), https://doi.org/10.1016/j.cpc.2021.107844, section 3.3. The level
of a proposition is the length of the longest chain of dependencies above it. Within a level they run by ascending
weight: 70 % for the share of rows that are discarded and 30 % for the time. Heavy propositions that discard little get
an artificial dependency, which moves them to a later level.

What was left open, and how it is read here:

- *The weight.* No normalisation is given. The text says lighter ones come first, and heavy, weakly filtering ones
  later, hence 0.7 * (1 - discarded) + 0.3 * time / longest time.
- *Heavy and weakly filtering.* No threshold is given. Heavy takes ``HEAVY`` times the median, weakly filtering
  discards less than the median. Such a proposition waits for all that do not wait, by dependencies, for one of its kind;
  in the paper's figure 5 it waits for all others.
- *The barrier.* It keeps cores from starting a level of an element too early. Where all rows of a block take a step
  together, going level by level is all there is to it.
- *Propositions* that depend on a column which another step makes: see ``windrow.order.published.propositions``.

The weights do not estimate a cost, so the order may be worse than the written one.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from windrow.order.published.propositions import full_order, propositions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.order.model import Situation
    from windrow.order.published.propositions import Proposition

#: The paper's default shares of a weight.
DISCARDED, TIME = 0.7, 0.3
#: How many times the median time is heavy. The paper moves propositions that take "considerably longer"; an order of
#: magnitude is the least that this can mean, and its own cases differ by up to six.
HEAVY = 10.0


def order(situation: Situation) -> tuple[str, ...]:
    """Go through the table level by level, the lightest first within each."""
    found = propositions(situation)
    weight = weights(found)
    level = _levels(found)
    chosen = sorted(found, key=lambda name: (level[name], weight[name], found[name].place))
    return full_order(situation, chosen)


def weights(found: Mapping[str, Proposition]) -> dict[str, float]:
    """Weigh propositions: the less one discards and the longer it takes, the heavier it is."""
    longest = max((one.seconds for one in found.values()), default=0.0)
    return {
        name: DISCARDED * (1 - one.discarded) + (TIME * one.seconds / longest if longest > 0 else 0.0)
        for name, one in found.items()
    }


def _levels(found: Mapping[str, Proposition]) -> dict[str, int]:
    later = _moved_to_later_levels(found)
    early = {name for name, one in found.items() if not later & {name, *one.after}}
    level: dict[str, int] = {}
    # Nobody in ``early`` waits for anybody else, so in this sequence everybody comes after those it waits for.
    for name in (*(n for n in found if n in early), *(n for n in found if n not in early)):
        above = found[name].after | (early if name in later else frozenset())
        level[name] = max((level[need] + 1 for need in above), default=0)
    return level


def _moved_to_later_levels(found: Mapping[str, Proposition]) -> set[str]:
    if not found:
        return set()
    usual_s = statistics.median(one.seconds for one in found.values())
    usual_discarded = statistics.median(one.discarded for one in found.values())
    return {name for name, one in found.items() if one.seconds > HEAVY * usual_s and one.discarded < usual_discarded}
