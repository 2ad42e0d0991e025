"""``@wr.command``: a command line as a task."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """How a command line is run."""
