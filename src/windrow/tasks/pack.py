"""Calls of a session's tasks as they travel to processes: functions once, arguments with every call."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from itertools import count
from time import sleep
from typing import TYPE_CHECKING, Any

from windrow.engines.processes.messages import Packed, pack_call, pack_common
from windrow.engines.processes.serialize import culprit
from windrow.engines.processes.transport import IN_SOCKET
from windrow.errors import UsageError
from windrow.tasks.captured import Outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.engines.processes.transport import Parcel
    from windrow.tasks.call import Content

__all__ = ["Packer"]

#: Functions that are remembered, and their bytes; of those made for one call each there is no end.
MOST, MOST_BYTES = 1000, 256 << 20
#: Bytes that may be packed for calls that have not ended, and the share of the granted memory; who calls more has to wait.
MOST_WAITING, WAITING_SHARE = 1 << 30, 1 / 8
#: Seconds between two looks of one who waits.
LOOK_S = 0.005


def _refuse_files(content: Content) -> None:
    """Refuse files that are open: pickled, each would be a copy of the text that is left in it."""
    for one in (*content.arguments, *content.keywords.values()):
        if type(one) is TextIOWrapper and one not in (sys.stdout, sys.stderr):
            raise UsageError(
                f"task {content.name!r} cannot be given an open file ({one.name!r}) in another process: it would get a copy "
                'of the text in it; give it the path and open it in the task, or use engine="threads"'
            )


class Packer:
    """Packs the calls of one session."""

    def __init__(self, memory: float = 0.0) -> None:
        self._room = min(MOST_WAITING, WAITING_SHARE * memory) if memory else MOST_WAITING
        self._waiting: dict[
            int, int
        ] = {}  #: by task that has not ended: bytes that were packed for it, if they are many
        #: by the function's identity, which is thus kept: what it took from outside, its number, and the parcel by that
        self._functions: dict[int, tuple[Callable[..., Any], Outside, int, dict[int, Parcel]]] = {}
        self._numbers = count()  # several threads may call tasks: no two functions have the same

    def wait_for_room(self, goes_on: Callable[[], bool]) -> None:
        """Wait until calls have ended for which much was packed, as long as that ``goes_on``."""
        while self._waiting and sum(list(self._waiting.values())) >= self._room and goes_on():
            sleep(LOOK_S)

    def ended(self, task: int) -> None:
        """A call has ended, well or badly."""
        self._waiting.pop(task, None)

    def pack(self, task: int, content: Content) -> Packed:
        """Pack a call as it is now: what the program does with the arguments later does not matter."""
        number, parcels, new = self._function(content)
        try:
            # A plain tuple: the name of its class would have to be found with every call.
            packed = pack_call(task, (content.name, number, *content[2:]), parcels)
        except Exception as error:
            given: dict[Any, Any] = {**dict(enumerate(content.arguments)), **content.keywords}
            raise UsageError(
                f"task {content.name!r} cannot be sent to another process: {culprit(given, 'its arguments')} cannot be "
                f'pickled ({type(error).__name__}: {error}); give it something that can be, or use engine="threads"'
            ) from error
        if packed.small is None or b"StringIO" in packed.small:  # what a file would arrive as
            _refuse_files(content)
        size = new + (0 if packed.parcel is None else packed.parcel.bytes)
        if size > IN_SOCKET:
            self._waiting[task] = size
        return packed

    def send_again(self, function: Callable[..., Any]) -> None:
        """What a function means has changed: the next call takes it along as it is then."""
        self._functions.pop(id(function), None)

    def _function(self, content: Content) -> tuple[int, dict[int, Parcel], int]:
        """Give the number of a function, what must be sent for it, and the bytes that were packed just now."""
        function = content.function
        found = self._functions.get(id(function))
        new = 0
        if found is None or not found[1].is_the_same():
            number = next(self._numbers)
            outside = Outside(getattr(function, "function", function))  # of a command: what it says
            try:
                parcel = pack_common(number, function)
            except Exception as error:
                raise UsageError(
                    f"task {content.name!r} cannot be sent to another process: {culprit(function, 'the function')} cannot "
                    f'be pickled ({type(error).__name__}: {error}); use engine="threads"'
                ) from error
            new = parcel.bytes
            known = sum(one.bytes for *_, parcels in list(self._functions.values()) for one in parcels.values())
            if len(self._functions) >= MOST or known + new > MOST_BYTES:
                self._functions.clear()  # calls that were packed have what they need
            found = self._functions[id(function)] = (function, outside, number, {number: parcel})
        return found[2], found[3], new
