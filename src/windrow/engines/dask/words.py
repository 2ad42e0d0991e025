"""What the driver and the nodes of a cluster tell each other: batches of orders one way, of reports the other.

A batch is pickled here and is bytes to Dask. What is large crosses as the result of a task of its own, from node to node where it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.engines.processes.transport import Arrival, Parcel

if TYPE_CHECKING:
    from windrow.core.commands import Launch
    from windrow.core.records import Handle, Life

#: Bytes of an output that goes along with a batch; larger ones have a task of Dask to themselves.
ALONG = 1 << 20


class Content(NamedTuple):
    """What is in a parcel, as it crosses to another machine."""

    pickled: int  #: bytes of the pickle, with which the body begins
    sizes: tuple[int, ...]  #: of the buffers
    body: Any  #: bytes; of a large one an array, which Dask does not copy

    @classmethod
    def of(cls, arrival: Arrival) -> Content:
        large = arrival.bytes > ALONG
        return cls(
            arrival.pickled, arrival.sizes, np.frombuffer(arrival.body, np.uint8) if large else bytes(arrival.body)
        )

    def arrive(self) -> Arrival:
        return Arrival(0, 0, 0.0, len(self.body), self.pickled, self.sizes, memoryview(self.body), [])

    def parcel(self, kind: int, tag: int = 0) -> Parcel:
        return self.arrive().again(kind, tag)


class Setup(NamedTuple):
    """The first that a node hears of a run."""

    first: int  #: number of its first worker
    cores: int
    preload: list[str]
    versions: dict[str, str]  #: of what results depend on, at the driver
    place: tuple[str, list[str]]  #: the program's directory and search path, for where files are shared


class PackedCall(NamedTuple):
    """A call as it crosses: see ``messages.Packed``."""

    small: bytes | None
    content: Content | None
    common: tuple[int, ...]
    apart: str


class LaunchOrder(NamedTuple):
    """A launch, and what the node needs for it."""

    launch: Launch  #: without its plan
    plan: Any  #: its number, with the plan itself when it is sent for the first time
    described: str  #: the task in messages
    call: PackedCall | None  #: None: the payload says all
    common: dict[int, Content]  #: of what calls share, that the node has not heard of yet
    along: dict[Handle, Any]  #: what it reads: small values, and contents
    #: what it reads and is on its way: from a worker of the node, or (None) with another task of Dask
    awaited: tuple[tuple[Handle, Life | None], ...]


class Forgotten(NamedTuple):
    """What calls shared and none needs any more."""

    numbers: tuple[int, ...]


class NotComing(NamedTuple):
    """An output that launches wait for was lost on its way to the node."""

    handle: Handle


class NewWorkload(NamedTuple):
    """The work as workers that begin from now on are to know it."""

    workload: Content


class Value(NamedTuple):
    """An output that is with the driver from now on: a small value, or a content. Told before the event that says so."""

    handle: Handle
    value: Any


class TooLarge(NamedTuple):
    """An output that the driver asked for is with the node, to be fetched by a task of its own."""

    handle: Handle
    seconds: float  #: that packing it took


class Report(NamedTuple):
    """The answer to a batch of orders: what happened at the node since the one before."""

    number: int  #: of the batch
    said: bytes  #: pickled: events, ``News``, ``Value`` and ``TooLarge`` in order
    broken: str = ""  #: why the node is of no use
