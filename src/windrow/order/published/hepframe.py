"""HEP-Frame's table of levels: lighter propositions first within a level, a barrier between levels.

A. Pereira, A. Proenca, "HEP-Frame: improving the efficiency of pipelined data transformation & filtering for scientific
analyses", Computer Physics Communications 263 (2021), https://doi.org/10.1016/j.cpc.2021.107844, section 3.3. The level
of a proposition is the length of the longest chain of dependencies above it. Within a level they run by ascending
weight: 70 % for the share of rows that are discarded and 30 % for the time. Heavy propositions that discard little get
an artificial dependency, which moves them to a later level.

What was left open, and how it is read here:

- *The weight.* No normalisation is given. The text says lighter ones come first, and heavy, weakly filtering ones
  later, hence 0.7 * (1 - discarded) + 0.3 * time / longest time; the shares are the user's to tune (``filtering``).
- *Heavy and weakly filtering.* No threshold is given. Heavy takes ``heavy`` times the median, weakly filtering
  discards less than the median. Such a proposition waits for all that do not wait, by dependencies, for one of its kind;
  in the paper's figure 5 it waits for all other propositions.
- *The barrier.* It keeps cores from starting a level of an element too early. Where all rows of a block take a step
  together, going level by level is all there is to it.
- *Propositions* that depend on a column which another step makes: see ``windrow.order.published.propositions``.

The weights do not estimate a cost, so the order may be worse than the written one.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.order.adaptive import duration, percent
from windrow.order.published.propositions import Rule, full_order, propositions

if TYPE_CHECKING:
    from windrow.order.model import Situation
    from windrow.order.published.propositions import Proposition


@dataclass(frozen=True, slots=True, kw_only=True)
class HepFrame(Rule):
    """HEP-Frame's table of levels, ``order="hepframe"``, with its parameters.

    Parameters
    ----------
    filtering
        The share of a weight that is for the rows a cut discards; the rest is for its time. 0.7 is the paper's default.
    heavy
        A cut that takes more than so many times the median and discards less than the median is moved to a later level.
        The paper moves those that take "considerably longer": ten times is the least that this can mean, and its own
        cases differ by up to six orders of magnitude.
    """

    filtering: float = 0.7
    heavy: float = 10.0

    def __post_init__(self) -> None:
        if not 0 <= self.filtering <= 1:
            raise UsageError(f"filtering= is a share from 0 to 1, the rest is for time; got {self.filtering}")
        if not self.heavy >= 1:
            raise UsageError(f"heavy= is how many times the median is heavy, at least 1; got {self.heavy}")

    def __call__(self, situation: Situation) -> tuple[str, ...]:
        """Go through the table level by level, the lightest first within each."""
        found = propositions(situation)
        weight = weights(found, self.filtering)
        level = _levels(found, _later(found, self.heavy)[0])
        chosen = sorted(found, key=lambda name: (level[name], weight[name], found[name].place))
        return full_order(situation, chosen)

    def explain(self, situation: Situation) -> str:
        found = propositions(situation)
        later, seconds, discarded = _later(found, self.heavy)
        moved = ", ".join(repr(name) for name in found if name in later) or "none"
        return (
            f"weights of {percent(self.filtering)} filtering and {percent(1 - self.filtering)} time; moved to a later "
            f"level are cuts that take over {duration(seconds)} a row ({self.heavy:g} times the median) and "
            f"discard less than {percent(discarded)} (the median): {moved}"
        )


order = HepFrame()


def weights(found: Mapping[str, Proposition], filtering: float = HepFrame().filtering) -> dict[str, float]:
    """Weigh propositions: the less one discards and the longer it takes, the heavier it is."""
    longest = max((one.seconds for one in found.values()), default=0.0)
    return {
        name: filtering * (1 - one.discarded) + ((1 - filtering) * one.seconds / longest if longest > 0 else 0.0)
        for name, one in found.items()
    }


def _later(found: Mapping[str, Proposition], heavy: float) -> tuple[set[str], float, float]:
    """Give what is heavy and filters weakly: what takes more than so long and discards less than such a share."""
    if not found:
        return set(), 0.0, 0.0
    seconds = heavy * statistics.median(one.seconds for one in found.values())
    discarded = statistics.median(one.discarded for one in found.values())
    return {n for n, one in found.items() if one.seconds > seconds and one.discarded < discarded}, seconds, discarded


def _levels(found: Mapping[str, Proposition], later: set[str]) -> dict[str, int]:
    early = {name for name, one in found.items() if not later & {name, *one.after}}
    level: dict[str, int] = {}
    # Nobody in ``early`` waits for anybody else, so in this sequence everybody comes after those it waits for.
    for name in (*(n for n in found if n in early), *(n for n in found if n not in early)):
        above = found[name].after | (early if name in later else frozenset())
        level[name] = max((level[need] + 1 for need in above), default=0)
    return level
