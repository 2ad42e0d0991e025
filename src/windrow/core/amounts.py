"""Amounts of what tasks need and use, as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.core.events import Exhausted

__all__ = ["in_words", "too_much"]


def in_words(resource: str, amount: float) -> str:
    """Write an amount with the unit of its resource."""
    return _bytes(amount) if resource == "memory" else f"{amount:g}"


def too_much(event: Exhausted) -> str:
    """Say what was used, and what the limit was."""
    if event.resource == "seconds":
        return f"took more than {event.used:.3g} s; the limit is {event.limit:.3g} s"
    if event.resource == "memory":
        return f"used {_bytes(event.used)} of memory or more; the limit is {_bytes(event.limit)}"
    return f"used {event.used:g} of {event.resource!r} or more; the limit is {event.limit:g}"


def _bytes(amount: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"
