"""Launches, beginnings and ends as plain tuples: pickling the records takes three to five times as long, and every task has one of each.

A plan is the same for thousands of launches: it is sent once for each life of a worker, and named by number from then on.
All else travels as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.commands import NO_LIMITS, Launch
from windrow.core.events import Finished, Started
from windrow.core.records import ONE_CORE, Evidence, Handle, Measurement, Needs, Rows, StepCost, Task
from windrow.engines.processes.transport import IN_SOCKET, Parcel, parcel_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.core.records import Plan

#: Kinds of parcels: to a worker ...
CONTENT, COMMON, INPUT = range(21, 24)
#: ... and from it.
OUTPUT = 31
#: One that a running task released: it is sent unasked, as others wait for it.
RELEASED = 32


class Packed(NamedTuple):
    """A call of a task, ready to be sent."""

    small: bytes | None  #: the pickle, where it goes along with the launch
    parcel: Parcel | None  #: else, under the task's number
    common: Mapping[int, Parcel]  #: what must be there before, by number


class ForgetCommon(NamedTuple):
    """Tells a worker, in the order of its launches, to forget what calls have in common: what is needed comes again."""

    numbers: tuple[int, ...] = ()  #: nothing: all of it


def pack_call(task: int, pickled: bytes, buffers: list[memoryview], common: Mapping[int, Parcel]) -> Packed:
    """Pack the pickle of a call."""
    if not buffers and len(pickled) <= IN_SOCKET:
        return Packed(pickled, None, common)
    return Packed(None, parcel_of(pickled, buffers, CONTENT, task), common)


def pack_common(number: int, pickled: bytes, buffers: list[memoryview]) -> Parcel:
    """Pack what many calls need; without a pickle it is memory, of which each call gets its own."""
    return parcel_of(pickled, buffers, COMMON, number)


class Writer:
    """The driver's side, for one life of a worker."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, Plan]] = {}  #: by the plan's identity, which it thus keeps

    def write(self, command: Launch) -> tuple[Any, ...]:
        """Make a tuple of a launch."""
        task, attempt, worker, incarnation, plan, limits, *more = command
        number, rows, size, needs, rest = task[:2], task[2], task[3], task[4], task[5:]
        known = self._numbers.get(id(plan))
        if known is None:
            known = self._numbers[id(plan)] = (len(self._numbers), plan)
            named: Any = known
        else:
            named = known[0]
        where = (attempt, worker, incarnation)
        plain = tuple(map(tuple, rows))
        return (where, named, limits.amounts, more, number, plain, size, needs.amounts, rest)


class Reader:
    """The worker's side."""

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}

    def read(self, written: tuple[Any, ...]) -> Launch:
        """Make a launch of a tuple."""
        where, named, limits, more, number, plain, size, needs, rest = written
        if isinstance(named, int):
            plan = self._plans[named]
        else:
            plan = self._plans[named[0]] = named[1]
        rows = tuple([Rows(*part) for part in plain])
        core = ONE_CORE if needs == ONE_CORE.amounts else Needs(needs)
        task = Task._make((*number, rows, size, core, *rest))
        return Launch._make((task, *where, plan, Needs(limits) if limits else NO_LIMITS, *more))


def write_report(event: Any) -> Any:
    """Make a number of a beginning and a tuple of an end; the driver knows which worker they are from."""
    if type(event) is Started:
        return event.attempt
    if type(event) is not Finished:
        return event
    attempt, _, _, handle, measurement, evidence, *more = event
    number, _, _, _, rows, *rest = handle
    known = None
    if evidence is not None:
        steps = tuple([(name, tuple(cost)) for name, cost in evidence.steps])
        known = (steps, evidence.guards, evidence.notes, *_looks(evidence))
    plain = tuple(map(tuple, rows))
    return (attempt, (number, handle.attempt, plain, rest), tuple(measurement), known, more)


def _looks(evidence: Evidence) -> tuple[Any, ...]:
    """What was seen where rows were shown to all cuts; most tasks have none of it."""
    if not (evidence.windows or evidence.probed):
        return ()
    return evidence.windows, evidence.terrain, evidence.probed


def read_report(written: Any, worker: int, incarnation: int) -> Any:
    """Make the event again."""
    if type(written) is int:
        return Started(written, worker, incarnation)
    if type(written) is not tuple:
        return written
    attempt, (number, of, plain, rest), measurement, known, more = written
    rows = tuple([Rows(*part) for part in plain])
    handle = Handle._make((number, of, worker, incarnation, rows, *rest))
    evidence = None
    if known is not None:
        steps = tuple([(name, StepCost(*cost)) for name, cost in known[0]])
        evidence = Evidence(steps, *known[1:])
    used = Measurement(*measurement)
    return Finished._make((attempt, worker, incarnation, handle, used, evidence, *more))
