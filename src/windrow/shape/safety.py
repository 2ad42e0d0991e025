"""How much work may be lost with a worker: bring it to safety when that is cheap, or due.

Cheap is under 1 % of the work that it saves. Once workers were lost, it is also due at the interval
that loses least in total, sqrt(2 * cost * life) (J. W. Young, "A first order approximation to the
optimum checkpoint interval", 1974, doi:10.1145/361147.361115).
"""

from __future__ import annotations

from math import sqrt

__all__ = ["Bounded"]

#: Share of the work that bringing it to safety may cost while nothing was lost.
CHEAP = 0.01

#: Seconds that it is taken to cost before it was done once: a partial of a few MB through a pipe.
UNKNOWN_S = 0.01

#: Seconds that it costs at least, whatever was measured: the driver's part of merge and fetch.
LEAST_S = 0.0005


class Bounded:
    """The safety decision of engines whose workers can be lost."""

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:
        """Say whether ``held_s`` seconds of work are to be brought to safety now."""
        cost = max(UNKNOWN_S if cost_s is None else cost_s, LEAST_S)
        if cost < CHEAP * held_s:
            return True
        return life_s is not None and 0 < held_s >= sqrt(2 * cost * life_s)
