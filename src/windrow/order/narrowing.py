"""Which cuts protect a step: blaming as few as explain the rows on which it raises.

A step that raises where it runs early was protected by a cut that is written above it. All of them are a safe answer,
but it keeps the step where it was. The cuts that reject the rows on which it raises are a sharper one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["narrow"]


def narrow(cuts: Sequence[str], rejects: NDArray[np.bool_]) -> tuple[str, ...] | None:
    """Return the cuts that are to blame, in written order; None where they do not explain every case.

    ``rejects[case, cut]`` says whether a cut rejects a case: a row on which the step raises, in a lane that has it. One
    cut that rejects every case is preferred to several, the nearest above the step to others; several are chosen
    greedily. Whatever is not blamed wrongly shows itself: the step raises again.
    """
    if not len(rejects) or not rejects.any(axis=1).all():
        return None
    alone = np.flatnonzero(rejects.all(axis=0))
    if len(alone):
        return (cuts[alone[-1]],)
    left = np.ones(len(rejects), dtype=bool)
    chosen: list[int] = []
    while left.any():
        explained = rejects[left].sum(axis=0)
        # Of equals, the last.
        best = len(cuts) - 1 - int(np.argmax(explained[::-1]))
        chosen.append(best)
        left &= ~rejects[:, best]
    return tuple(cuts[number] for number in _without_idle(sorted(chosen), rejects))


def _without_idle(chosen: list[int], rejects: NDArray[np.bool_]) -> list[int]:
    """Leave out cuts that later choices made needless, those farthest above first."""
    for number in list(chosen):
        others = [other for other in chosen if other != number]
        if rejects[:, others].any(axis=1).all():
            chosen = others
    return chosen
