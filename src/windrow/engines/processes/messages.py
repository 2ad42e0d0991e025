"""Messages between the driver and its worker processes: one for a launch, one for a report, and a few records that are rare.

Launches and reports are named here and travel as plain tuples: pickling records takes three to five times as long, and every task has
one of each. A plan is the same for thousands of launches: it is sent once for each life of a worker, and named by number from then
on. Calls of tasks are packed once, when the task is called; what many calls have in common, their function above all, goes to every
worker once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.engines.processes.transport import IN_SOCKET, Parcel, parcel_of

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Kinds of parcels to a worker: SETUP has its life, whether it meters and where it works; COMMANDS has outputs to be forgotten and
#: commands, launches as plain tuples and others as they are ...
SETUP, WORKLOAD, COMMANDS, CONTENT, COMMON, INPUT = range(1, 7)
#: ... and from it: RELEASED is an output sent unasked, as others wait for it; BROKEN has a Failure, UNCLOSED an exception.
READY, REPORTS, OUTPUT, RELEASED, BROKEN, UNCLOSED = range(11, 17)


class LaunchMessage(NamedTuple):
    """A launch as it travels."""

    attempt: int
    task: int
    category: str
    size: int
    payload: Any  #: of tasks that are no calls
    makes: tuple[str, ...]
    plan: Any  #: its number, with the plan itself when it is sent for the first time
    limits: tuple[tuple[str, float], ...]
    inputs: tuple[tuple[str, int], ...]  #: output and attempt
    along: dict[int, Any]  #: small inputs, by position, that the worker lacks
    parcels: dict[int, int]  #: other inputs that it lacks, by position: the number of the parcel that came before
    #: pickled; None: it came before, in a parcel with the number of the task, or it is the payload
    content: bytes | None
    consumes: bool
    ahead: bool
    mine: tuple[int, ...]


#: What reports tell of.
STARTED, RELEASED_OUTPUT, FINISHED, FAILED, CANCELLED = range(5)


class ReportMessage(NamedTuple):
    """A report of an attempt as it travels."""

    what: int
    attempt: int
    made: tuple[tuple[str, int], ...] = ()  #: outputs and how large they are
    values: Mapping[str, Any] | None = None  #: the small ones among them
    parcel: bool = False  #: the output that was released came before, in a parcel
    used: tuple[float, ...] = ()  #: a Measurement
    report: Any = None  #: of the workload; a Failure if the attempt failed


class News(NamedTuple):
    """What a worker learned beside its results, for the workload at home."""

    news: Any


class Forget(NamedTuple):
    """Tells a worker to forget outputs, after what it was told to send before."""

    handles: list[tuple[str, int]]  #: output and attempt


class ForgetCommon(NamedTuple):
    """Tells a worker, in the order of its launches, to forget what calls have in common: what is needed comes again."""

    numbers: tuple[int, ...]


class Packed(NamedTuple):
    """A call of a task, ready to be sent."""

    small: bytes | None  #: the pickle, where it goes along with the launch
    parcel: Parcel | None  #: else, under the task's number
    common: Mapping[int, Parcel]  #: what must be there before, by number
    apart: str = ""  #: why it cannot be opened in the process that packed it, if so


def pack_call(
    task: int, pickled: bytes, buffers: list[memoryview], common: Mapping[int, Parcel], apart: str = ""
) -> Packed:
    if not buffers and len(pickled) <= IN_SOCKET:
        return Packed(pickled, None, common, apart)
    return Packed(None, parcel_of(pickled, buffers, CONTENT, task), common, apart)


def pack_common(number: int, pickled: bytes, buffers: list[memoryview]) -> Parcel:
    """Pack what many calls need; without a pickle it is memory, of which each call gets its own."""
    return parcel_of(pickled, buffers, COMMON, number)
