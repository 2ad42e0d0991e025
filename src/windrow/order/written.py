"""The order in the user's file: what every other policy has to beat, and what runs while nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.order.model import Situation

__all__ = ["order"]


def order(situation: Situation) -> tuple[str, ...]:
    """Leave the steps as they are written."""
    return situation.written
