"""What the user asked of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from windrow.core.records import ONE_CORE, Needs

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a run."""

    on_error: Literal["stop", "skip"] = "stop"
    row_limit: int | None = None  #: the first rows of every category, in input order
    retries: int = 2  #: of a read that may succeed the next time
    chunk: int | None = None  #: upper bound of a task's rows, snapped down to units
    needs: Needs = ONE_CORE  #: of every task
