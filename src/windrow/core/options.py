"""What the user asked of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from windrow.core.commands import NO_LIMITS
from windrow.core.records import ONE_CORE, Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked of a run."""

    on_error: Literal["stop", "skip"] = "stop"
    row_limit: int | None = None  #: the first rows of every category, in input order
    retries: int = 2  #: of a read that may succeed the next time
    chunk: int | None = None  #: upper bound of a task's rows, snapped down to units
    needs: Needs = ONE_CORE  #: of every task
    limits: Needs = NO_LIMITS  #: "memory" in bytes and "seconds" of every attempt at rows
    row_limits: Mapping[str, int] | None = None  #: by category, in place of ``row_limit``
    crashes: int = 2  #: times that rows may end their worker before they are at fault
    restart: bool = False  #: start a worker again when it is lost
    open: bool = False  #: more may be submitted; the run does not end before ``Closed``
    ahead: bool = False  #: short tasks are launched behind those that they read from; needs an engine that gives back
    speculate: bool = False  #: run a straggler twice near the end; needs an engine that can kill
