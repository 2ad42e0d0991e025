"""Calls of a session's tasks as they travel to processes: functions and large arrays once, the rest with every call."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
import weakref
from functools import partial
from io import TextIOWrapper
from itertools import count
from time import thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.engines.machine_limits import granted_memory
from windrow.engines.processes.messages import Packed, pack_call, pack_common
from windrow.engines.processes.serialize import can_pickle, culprit, dumps
from windrow.errors import GlobalsWarning, UsageError
from windrow.tasks.captured import APART, Captured
from windrow.tasks.shared_arrays import SharedArrays
from windrow.tasks.unpack import EachCall, WithArrays, WithState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.engines.processes.transport import Parcel
    from windrow.tasks.call import Content

#: Functions that are remembered; of those made for one call each there is no end.
MOST = 1000
#: Of the memory that there is: what may wait for being sent after the program has let it go.
SHARE = 0.25
#: Seconds that looking at what a function sees may take in the mean, and in all, before the user is told.
SLOW_S, LONG_S = 0.02, 1.0


class Packer:
    """Packs the calls of one session."""

    def __init__(self, initializer: Callable[[], object] | None = None) -> None:
        self._functions: dict[int, _Sent] = {}  #: by the function's identity; forgotten with it
        self._numbers = count()  # several threads may call tasks: no two things have the same
        self.arrays = SharedArrays(self._numbers)
        self._most = SHARE * granted_memory(os.environ)
        self._told: set[tuple[str, str]] = set()  #: tasks and what was said of them
        #: where workers are prepared: values of modules at the first call, which each worker may have set for itself
        self._prepared: dict[tuple[str, str], Any] | None = None if initializer is None else {}

    def pack(self, task: int, content: Content) -> Packed:
        """Pack a call as it is now: what the program does with the arguments later does not matter."""
        sent = self._function(content)
        try:
            # A plain tuple: the name of its class would have to be found with every call.
            pickled, buffers = dumps((content.name, sent.number, *content[2:]), apart=APART)
        except Exception as error:
            given: dict[Any, Any] = {**dict(enumerate(content.arguments)), **content.keywords}
            raise UsageError(
                f"task {content.name!r} cannot be sent to another process: {culprit(given, 'its arguments')} cannot be "
                f'pickled ({type(error).__name__}: {error}); give it something that can be, or use engine="threads"'
            ) from error
        common = sent.common
        apart = sent.apart
        if content.outputs != 1 or content.around or content.changed:
            apart = "more is asked of it than one value"
        elif b"cloudpickle" in pickled:  # what that makes again of a class is the class itself, as it was then
            apart = "its arguments have classes of the program's own"
        if buffers:
            pickled, buffers, common = self._share(pickled, buffers, common)
        packed = pack_call(task, pickled, buffers, common, apart)
        if packed.small is None or b"StringIO" in packed.small:  # what a file would arrive as
            _refuse_files(content)
        return packed

    def send_again(self, function: Callable[..., Any]) -> None:
        """What a function means has changed: the next call takes it along as it is then."""
        self._functions.pop(id(function), None)

    def _share(
        self, pickled: bytes, buffers: list[memoryview], common: Mapping[int, Parcel]
    ) -> tuple[bytes, list[memoryview], Mapping[int, Parcel]]:
        places = [self.arrays.locate(raw) for raw in buffers]
        if not any(places):
            return pickled, buffers, common
        parts: list[Any] = []
        for raw, place in zip(buffers, places, strict=True):
            parts.append(pickle.PickleBuffer(raw) if place is None else place[0])
            if place is not None:
                number = place[0] if isinstance(place[0], int) else place[0][0]
                common = {**common, number: place[1]}
        pickled, buffers = dumps(WithArrays(pickled, parts), apart=APART)
        return pickled, buffers, common

    def _function(self, content: Content) -> _Sent:
        function = content.function
        found = self._functions.get(id(function))
        if found is None or not self._is_the_same(content.name, found.captured):
            number = next(self._numbers)
            captured = Captured(getattr(function, "function", function), self.arrays)  # of a command: what it says
            for one in captured.stores:
                self._tell(
                    content.name, one, f"changes {one!r}, which is not its own: in a worker's process that is a copy, which is gone "
                    "when the call ends. Return what is to be kept, or give it as an argument that is declared inout; what each "
                    "worker is to make once is wr.resident(...)"
                )  # fmt: skip
            try:
                pickled, buffers = self._dump_function(function, captured)
            except Exception as error:
                raise UsageError(
                    f"task {content.name!r} cannot be sent to another process: {culprit(function, 'the function')} cannot "
                    f'be pickled ({type(error).__name__}: {error}); use engine="threads"'
                ) from error
            pickled, buffers, common = self._share(pickled, buffers, {})
            if captured.stores:  # each call begins with it as it was at home
                pickled, buffers = dumps(EachCall(pickled, [pickle.PickleBuffer(one) for one in buffers]), apart=APART)
            if len(self._functions) >= MOST:
                self._functions.clear()  # calls that were packed have what they need
            common = {**common, number: pack_common(number, pickled, buffers)}
            prepared = self._prepared is not None or hasattr(function, "function")
            apart = "it is a command, or workers have an initializer" if prepared else captured.shared
            found = self._functions[id(function)] = _Sent(self._held(function), captured, number, common, apart)
        return found

    def _held(self, function: Any) -> Any:
        """See to it that no other function gets the identity of one that is remembered."""
        try:
            return weakref.ref(function, partial(_forget, self._functions, id(function)))
        except TypeError:
            return function

    def is_full(self) -> bool:
        """Whether so much waits in memory for being sent that a program which makes more should wait too."""
        return bool(self.arrays.left) and self.arrays.bytes_left() > self._most

    def _dump_function(self, function: Any, captured: Captured) -> tuple[bytes, list[memoryview]]:
        state = captured.state_of_modules()
        if self._prepared is not None:
            first = self._prepared
            state = [one for one in state if first.setdefault(one[:2], one[2]) is not one[2]]
        if state:
            try:
                return dumps(WithState(function, state), apart=APART, by_value=True)
            except Exception:  # noqa: BLE001 - a lock or the like: modules that are imported have their own
                state = [one for one in state if can_pickle(one[2])]
        return dumps(WithState(function, state) if state else function, apart=APART, by_value=True)

    def _is_the_same(self, name: str, captured: Captured) -> bool:
        if not captured.has_content:  # by far the most
            return captured.is_the_same()
        begin = thread_time()
        same = captured.is_the_same()
        captured.seconds += thread_time() - begin
        captured.looks += 1
        if captured.seconds > LONG_S and captured.seconds > SLOW_S * captured.looks:
            self._tell(
                name, "slow", f"sees globals or closures that take {captured.seconds / captured.looks:.2g} s to compare at every call: "
                "give them as arguments, as arrays, or as wr.resident(...), which each worker makes once"
            )  # fmt: skip
        return same

    def _tell(self, name: str, what: str, words: str) -> None:
        if (name, what) not in self._told:
            self._told.add((name, what))
            warnings.warn(f"task {name!r} {words}", GlobalsWarning, stacklevel=_levels_of_windrow())


class _Sent(NamedTuple):
    function: Any  #: or a weak reference
    captured: Captured
    number: int
    common: Mapping[int, Parcel]  #: it, and arrays that it sees
    apart: str  #: why calls cannot be opened in this process


def _forget(table: dict[int, _Sent], key: int, gone: Any) -> None:
    found = table.get(key)
    if found is not None and found.function is gone:
        del table[key]


def _levels_of_windrow() -> int:
    """Count the frames between the user's line and the one that warns."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "windrow":
        frame, levels = frame.f_back, levels + 1
    return levels


def _refuse_files(content: Content) -> None:
    """Refuse files that are open: pickled, each would be a copy of the text that is left in it."""
    for one in (*content.arguments, *content.keywords.values()):
        if type(one) is TextIOWrapper and one not in (sys.stdout, sys.stderr):
            raise UsageError(
                f"task {content.name!r} cannot be given an open file ({one.name!r}) in another process: it would get a copy "
                'of the text in it; give it the path and open it in the task, or use engine="threads"'
            )
