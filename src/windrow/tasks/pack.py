"""Calls of a session's tasks as they travel to processes: functions once, arguments with every call."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from itertools import count
from typing import TYPE_CHECKING, Any

from windrow.engines.processes.messages import Packed, pack_call, pack_common
from windrow.engines.processes.serialize import culprit
from windrow.errors import UsageError
from windrow.tasks.captured import Outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.engines.processes.transport import Parcel
    from windrow.tasks.call import Content

__all__ = ["Packer"]

#: Functions that are remembered; of those made for one call each there is no end.
MOST = 1000


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

    def __init__(self) -> None:
        #: by the function's identity, which is thus kept: what it took from outside, its number, and the parcel by that
        self._functions: dict[int, tuple[Callable[..., Any], Outside, int, dict[int, Parcel]]] = {}
        self._numbers = count()  # several threads may call tasks: no two functions have the same

    def pack(self, task: int, content: Content) -> Packed:
        """Pack a call as it is now: what the program does with the arguments later does not matter."""
        number, parcels = self._function(content)
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
        return packed

    def send_again(self, function: Callable[..., Any]) -> None:
        """What a function means has changed: the next call takes it along as it is then."""
        self._functions.pop(id(function), None)

    def _function(self, content: Content) -> tuple[int, dict[int, Parcel]]:
        function = content.function
        found = self._functions.get(id(function))
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
            if len(self._functions) >= MOST:
                self._functions.clear()  # calls that were packed have what they need
            found = self._functions[id(function)] = (function, outside, number, {number: parcel})
        return found[2:]
