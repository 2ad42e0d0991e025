"""What follows for a graph when a worker is gone: outputs that only it had, attempts, and who is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.failures import EXPLAINED
from windrow.core.verdicts import UNTOUCHED

if TYPE_CHECKING:
    from windrow.core.records import Failure
    from windrow.core.tasks import Tasks

__all__ = ["lose_life"]


def lose_life(tasks: Tasks, life: tuple[int, int], failure: Failure) -> None:
    """One life of a worker is over; what ran is held responsible, else what was being sent, else what came next.

    Nobody is if it was ended because of an attempt that is over already.
    """
    idle = not tasks.runs_at(*life) and failure.type != EXPLAINED
    sent = idle and tasks.copies.blame(life, failure)
    while outputs := tasks.places.kept.get(life):  # each may take others along
        tasks.copies.lose(next(iter(outputs.values())))
    attempts = list(tasks.at.get(life, {}).values())
    suspects = attempts[: not sent] if idle else [one for one in attempts if one.started]
    for attempt in attempts:
        tasks.ended_badly(attempt, failure if attempt in suspects else UNTOUCHED)
    tasks.places.kept.pop(life, None)
    tasks.at.pop(life, None)
