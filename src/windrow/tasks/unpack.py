"""What a worker makes of functions and calls that were sent: ``pack`` is the other side."""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from windrow.engines.processes.serialize import culprit, dumps
from windrow.engines.processes.values import is_plain
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.engines.base import Job
    from windrow.engines.processes.transport import Parcel

#: Functions that were opened in the process that packed them, as long as calls have them.
_functions: WeakKeyDictionary[Parcel, Any] = WeakKeyDictionary()


def open_here(job: Job) -> Job:
    """Open a packed call in the process that packed it, as another process would."""
    packed = job.content

    def common(number: int, *, shared: bool = False) -> Any:
        parcel = packed.common[number]
        if parcel in _functions:
            return _functions[parcel]
        thing = parcel.arrive()
        if not thing.pickled:
            return thing.body.toreadonly() if shared else thing.fresh()
        return _functions.setdefault(parcel, thing.open())

    content = packed.parcel.arrive().open() if packed.small is None else pickle.loads(packed.small)  # noqa: S301
    return job._replace(content=content, common=common)


def refuse_unsendable(value: Any) -> None:
    """Refuse a result that could not leave a process: whether the next call runs in one depends on time alone."""
    try:
        _ = is_plain(value) or dumps(value)
    except Exception as error:
        raise EngineError(
            f"a result cannot be sent to other processes: {culprit(value, 'the result')} cannot be pickled "
            f'({type(error).__name__}: {error}); return something that can be pickled, or use engine="threads"'
        ) from error


class WithArrays:
    """Something pickled whose large arrays travel apart; opened in the worker."""

    __slots__ = ("_parts", "_pickled", "_value")

    def __init__(self, pickled: bytes, parts: list[Any]) -> None:
        self._pickled = pickled
        self._parts = parts  #: buffers, numbers of arrays, or where in memory that is shared

    def __reduce__(self) -> Any:
        return type(self), (self._pickled, self._parts)

    def open(self, common: Callable[..., Any] | None) -> Any:
        assert common is not None
        buffers = list(self._parts)
        for place, one in enumerate(buffers):
            if type(one) is int:
                buffers[place] = common(one)
            elif type(one) is tuple:
                number, begin, end = one
                buffers[place] = common(number, shared=True)[begin:end]
        return pickle.loads(self._pickled, buffers=buffers)  # noqa: S301

    def once(self, common: Callable[..., Any] | None) -> Any:
        if not hasattr(self, "_value"):
            self._value = self.open(common)
        return self._value


class EachCall(WithArrays):
    """A function that changes what is not its own: made anew for every call, so that no call sees what another one did."""

    __slots__ = ()

    def once(self, common: Callable[..., Any] | None) -> Any:
        parts = [one if type(one) in (int, tuple) else bytearray(one) for one in self._parts]
        return open_function(type(self)(self._pickled, parts).open(common), common)


class WithState:
    """A function whose modules are imported anew where it runs, and what the program has made of them since."""

    __slots__ = ("_function", "_state")

    def __init__(self, function: Any, state: list[tuple[str, str, Any]]) -> None:
        self._function = function
        self._state = state

    def __reduce__(self) -> Any:
        return WithState, (self._function, self._state)

    def restore(self) -> Any:
        for module, path, value in self._state:
            place: Any = sys.modules.get(module) or import_module(module)
            *classes, name = path.split(".")
            for one in classes:
                place = vars(place)[one]
            if vars(place).get(name, self) is not value:
                setattr(place, name, value)
        return self._function


def open_function(thing: Any, common: Callable[..., Any] | None) -> Any:
    if isinstance(thing, WithArrays):
        thing = thing.once(common)
    return thing.restore() if type(thing) is WithState else thing
