"""Events: facts about the past, reported by engines and the loop, the only input of the scheduler.

Every event of a task, inspection or merge names the worker's incarnation, so that late reports of a
worker's former life are recognised. More kinds may be added; these do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from windrow.core.records import (
        Evidence,
        Failure,
        Handle,
        InputSpec,
        Measurement,
        Needs,
        Plan,
        Worker,
    )

__all__ = [
    "AttemptEvent",
    "CancelRequested",
    "Cancelled",
    "Discovered",
    "Event",
    "Failed",
    "Fetched",
    "Finished",
    "InspectFailed",
    "MergeFailed",
    "Merged",
    "OffersChanged",
    "OutputLost",
    "Planned",
    "Progress",
    "Started",
    "Submitted",
    "Tick",
    "WorkerJoined",
    "WorkerLost",
]


class Submitted(NamedTuple):
    """More inputs belong to the run."""

    inputs: tuple[InputSpec, ...]


class Discovered(NamedTuple):
    """An input was opened: its rows and unit borders are known."""

    input: int
    rows: int
    borders: tuple[int, ...]
    worker: int
    incarnation: int


class InspectFailed(NamedTuple):
    """An input could not be opened."""

    input: int
    worker: int
    incarnation: int
    failure: Failure


class WorkerJoined(NamedTuple):
    """A worker (or a new life of one) is ready."""

    worker: Worker


class WorkerLost(NamedTuple):
    """A worker is gone, with all it kept."""

    worker: int
    incarnation: int


class OffersChanged(NamedTuple):
    """A worker has more or less to offer than before."""

    worker: int
    incarnation: int
    offers: Needs


class Started(NamedTuple):
    """An attempt left the worker's queue and runs."""

    attempt: int
    worker: int
    incarnation: int


class Progress(NamedTuple):
    """An attempt has done so many of its rows."""

    attempt: int
    worker: int
    incarnation: int
    rows: int


class Finished(NamedTuple):
    """An attempt is done; its worker keeps the partial under the handle."""

    attempt: int
    worker: int
    incarnation: int
    handle: Handle
    measurement: Measurement
    evidence: Evidence | None = None


class Failed(NamedTuple):
    """An attempt ended with an exception."""

    attempt: int
    worker: int
    incarnation: int
    failure: Failure


class Cancelled(NamedTuple):
    """An attempt was stopped before it was done; it left nothing."""

    attempt: int
    worker: int
    incarnation: int


class Merged(NamedTuple):
    """The partials of ``inputs`` are now one partial, ``handle``."""

    handle: Handle
    inputs: tuple[int, ...]  #: handle ids
    worker: int
    incarnation: int


class MergeFailed(NamedTuple):
    """A merge raised: its inputs are lost, as it may have been done in place."""

    handle: Handle
    inputs: tuple[int, ...]
    worker: int
    incarnation: int
    failure: Failure


class Fetched(NamedTuple):
    """The partial has left the worker; the engine holds it until it is taken or discarded."""

    handle: Handle


class OutputLost(NamedTuple):
    """A kept partial is gone although its worker lives."""

    handle: Handle


class CancelRequested(NamedTuple):
    """Somebody wishes the whole run to end (Ctrl-C)."""

    reason: str


class Planned(NamedTuple):
    """The answer to a ``Replan``."""

    plan: Plan


class Tick(NamedTuple):
    """Time has passed; sent when a ``WakeAt`` is due."""


#: What is told of an attempt; all of them name it and the life of the worker it runs in.
AttemptEvent: TypeAlias = Started | Progress | Finished | Failed | Cancelled

Event: TypeAlias = (
    Submitted
    | Discovered
    | InspectFailed
    | WorkerJoined
    | WorkerLost
    | OffersChanged
    | Started
    | Progress
    | Finished
    | Failed
    | Cancelled
    | Merged
    | MergeFailed
    | Fetched
    | OutputLost
    | CancelRequested
    | Planned
    | Tick
)
