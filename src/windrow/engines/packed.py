"""Calls of tasks as they travel to other processes: packed once, when the task is called.

What many calls have in common, their function above all, goes to every worker once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.engines.parcels import IN_SOCKET, Parcel, pack, parcel_of
from windrow.engines.pickles import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "COMMON", "CONTENT", "INPUT", "OUTPUT", "RELEASED", "ForgetCommon", "Packed", "pack_call", "pack_common",
]  # fmt: skip

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
    """Tells a worker, in the order of its launches, to forget all that calls have in common: what is needed comes again."""


def pack_call(task: int, content: Any, common: Mapping[int, Parcel]) -> Packed:
    """Pack a call; raises what pickling raises."""
    pickled, buffers = dumps(content, apart=4096)
    if not buffers and len(pickled) <= IN_SOCKET:
        return Packed(pickled, None, common)
    return Packed(None, parcel_of(pickled, buffers, CONTENT, task), common)


def pack_common(number: int, thing: Any) -> Parcel:
    """Pack what many calls need."""
    return pack(thing, COMMON, number, by_value=True)
