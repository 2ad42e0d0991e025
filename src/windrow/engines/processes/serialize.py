"""What leaves a process as bytes: whole workloads, plain records and results, exceptions.

Records and results are pickled by ``pickle``, which takes a third of the time, and by cloudpickle where that fails. A
workload is always pickled by cloudpickle: ``pickle`` would write down the functions of a script or notebook by a name
that means nothing in another process.
"""

from __future__ import annotations

import functools
import io
import linecache
import pickle
import re
import sys
import threading
import traceback
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import cloudpickle

from windrow.errors import EngineError, WindrowError, error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Causes of causes that are sent along with an exception.
CAUSES = 8
#: Steps into a thing that cannot be pickled, in search of what is at fault.
DEPTH = 12

#: In a worker: globals that its initializer has set, by module. Functions of these that are sent by value see them.
INITIALIZED: dict[str, dict[str, Any]] = {}


def dumps(
    thing: Any, *, apart: int | None = None, by_value: bool = False, own: Callable[[ModuleType], bool] | None = None
) -> tuple[bytes, list[memoryview]]:
    """Pickle; buffers of at least ``apart`` bytes are not copied but returned beside the pickle.

    Modules of which ``own`` says so are written down by value with their state, as far as that is possible.

    Raises whatever cloudpickle raises for what cannot be pickled at all.
    """
    buffers: list[memoryview] = []

    def goes_inside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if apart is None or raw.nbytes < apart:
            return True
        buffers.append(raw)
        return False

    if not by_value:
        try:
            pickled = pickle.dumps(thing, 5, buffer_callback=goes_inside)
            # What is defined in a script is written down by a name that means nothing in another process.
            if b"__main__" not in pickled:
                return pickled, buffers
        except Exception:  # noqa: BLE001, S110 - a lambda, a class of a notebook: the other one can, or says why not
            pass
        buffers.clear()
    if own is not None:
        try:
            return _dumps_by_value(thing, goes_inside, own), buffers
        except Exception:  # noqa: BLE001 - something in a module cannot be pickled: it may not be needed
            buffers.clear()
    return _dumps_by_value(thing, goes_inside), buffers


def _dumps_by_value(
    thing: Any, goes_inside: Callable[[pickle.PickleBuffer], bool], own: Callable[[ModuleType], bool] | None = None
) -> bytes:
    """Pickle so that a process which has none of our modules loaded can read it.

    Functions and classes are written down by value where their module cannot be imported by its name: in ``__main__``,
    and in files that were executed by hand.
    """
    file = io.BytesIO()
    pickler = _ByValue(file, goes_inside, own)
    try:
        pickler.dump(thing)
    finally:
        for module in pickler.registered:
            cloudpickle.unregister_pickle_by_value(module)
    return file.getvalue()


class _ByValue(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle ships no types
    """Cloudpickle that looks whether a module can be imported before it relies on its name."""

    def __init__(
        self,
        file: io.BytesIO,
        goes_inside: Callable[[pickle.PickleBuffer], bool],
        own: Callable[[ModuleType], bool] | None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=goes_inside)
        self.registered: list[ModuleType] = []
        self._own = own
        self._seen = {"__main__", "builtins"}

    def reducer_override(self, obj: Any) -> Any:
        """See to the module of a function or class, then go on as cloudpickle does."""
        if type(obj) is functools._lru_cache_wrapper and self._goes_along(obj.__module__):
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        if type(obj) is functools.cached_property:  # has a lock before Python 3.12
            return _cached_property, (obj.func, obj.attrname)
        if isinstance(obj, (FunctionType, type)):
            name = getattr(obj, "__module__", None)
            if isinstance(name, str):
                self._look_at(name)
        elif isinstance(obj, ModuleType):
            self._look_at(obj.__name__)
        reduced = super().reducer_override(obj)
        if type(obj) is FunctionType and isinstance(reduced, tuple):  # by value: it can be filled when it exists
            return (*reduced[:5], functools.partial(_fill_function, reduced[5]))
        return _with_slots(obj, reduced) if isinstance(obj, type) else reduced

    def _goes_along(self, name: str) -> bool:
        """Whether functions of a module are sent, as it cannot be imported where they go."""
        self._look_at(name)
        module = sys.modules.get(name)
        return name == "__main__" or module is None or module in self.registered

    def _look_at(self, name: str) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        module = sys.modules.get(name)
        if module is None or name in cloudpickle.list_registry_pickle_by_value():
            return
        if not importable(name) or (self._own is not None and self._own(module)):
            cloudpickle.register_pickle_by_value(module)
            self.registered.append(module)


def _fill_function(fill: Callable[[Any, Any], None], function: FunctionType, state: Any) -> None:
    fill(function, state)
    function.__globals__.update(INITIALIZED.get(function.__globals__.get("__name__", ""), {}))


def _with_slots(kind: type, reduced: Any) -> Any:
    """See to it that a class which is sent is made with its slots.

    Cloudpickle makes it without: what is an object of it there has a ``__dict__``, and cannot be made again here.
    """
    slots = vars(kind).get("__slots__")
    if not isinstance(slots, (str, tuple, list, dict)) or not isinstance(reduced, tuple):
        return reduced
    make, given, *rest = reduced
    if given[:2] != (type(kind), kind.__name__) or issubclass(kind, tuple):
        return reduced  # made in another way, as an enumeration; or it can have none, and NamedTuple refuses them
    meta, name, bases, names, *more = given
    return (make, (meta, name, bases, {**names, "__slots__": slots}, *more), *rest)


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _cached_property(function: Any, name: str | None) -> Any:
    """Make the property of a class again; the class is filled when it exists, so Python does not tell it its name."""
    made = functools.cached_property(function)
    made.attrname = name
    return made


def importable(name: str) -> bool:
    """Say whether a module would be found by its name, and would be the same file."""
    top = name.partition(".")[0]
    module = sys.modules.get(top)
    if module is None or top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find(top, None) if find is not None else None
        if spec is not None:
            file = getattr(module, "__file__", None)
            return file is None or spec.origin is None or spec.origin == file
    return False


# -- who is at fault


def culprit(thing: Any, name: str) -> str:
    """Say which part of a thing cannot be pickled, as a path into it and its type."""
    path, part = name, thing
    seen: set[int] = set()
    for _ in range(DEPTH):
        seen.add(id(part))
        for label, child in _parts(part):
            if id(child) not in seen and not can_pickle(child):
                path, part = path + label, child
                break
        else:
            break
    return f"{path} ({type(part).__module__}.{type(part).__qualname__})"


def can_pickle(thing: Any) -> bool:
    try:
        dumps(thing, apart=0, by_value=True)
    except (Exception, SystemExit):  # noqa: BLE001 - whatever it is, it is why we are here
        return False
    return True


def _refuses(thing: Any) -> bool:
    """Whether a thing itself says that it cannot be pickled, whatever it is made of."""
    try:
        thing.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    except (Exception, SystemExit):  # noqa: BLE001 - a user's method, whatever it likes to raise
        return True
    return False


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        yield from ((f"[{key!r}]", value) for key, value in list(thing.items()))
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from ((f"[{number}]", value) for number, value in enumerate(thing))
    elif isinstance(thing, FunctionType):
        cells = zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True)
        for variable, cell in cells:
            try:
                yield f" -> its variable {variable!r}", cell.cell_contents
            except ValueError:  # not bound yet
                continue
        for variable in thing.__code__.co_names:
            if variable in thing.__globals__:
                yield f" -> the global {variable!r} it uses", thing.__globals__[variable]
        yield from ((" -> a default value", value) for value in thing.__defaults__ or ())
    elif not isinstance(thing, (type, ModuleType)) and not _refuses(thing):
        yield from ((f".{key}", value) for key, value in getattr(thing, "__dict__", {}).items())
        for key in getattr(type(thing), "__slots__", ()):
            if hasattr(thing, key):
                yield f".{key}", getattr(thing, key)
        if hasattr(thing, "__func__"):
            yield " -> its object", thing.__self__


# -- exceptions

_keeping = threading.local()  #: whether this thread hands exceptions on as they came

#: A frame of a traceback without a line of its source.
_FRAME = re.compile(r'^( *)File "(.+)", line (\d+), in .+$(?!\n\1  )', re.MULTILINE)


@contextmanager
def kept_sealed() -> Iterator[None]:
    """Let exceptions that come from workers stay as they were sent, as this thread only hands them on."""
    _keeping.sealed = True
    try:
        yield
    finally:
        _keeping.sealed = False


class _Sealed:
    """An exception as it is sent: when it is unpickled it *is* the exception that a function makes, or a stand-in for it."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self._made = make, parts

    def __reduce__(self) -> Any:
        return self._made


def portable(error: BaseException, worker: int) -> Any:
    """Make what is to be sent in place of an exception.

    Pickling an exception loses its traceback, its cause and sometimes its notes, and many exceptions can be pickled but
    not be made again. So what was seen here is written down as text, and nothing is trusted.
    """
    words = f"{type(error).__module__}.{type(error).__qualname__}: {error_text(error)}"
    notes = [str(note) for note in getattr(error, "__notes__", ())]
    if error.__traceback__ is not None:
        story = "".join(traceback.format_exception(error)).rstrip()
        notes.append(f"\nIn the process of worker {worker}:\n{story}")
    causes: list[bytes | None] = []
    cause = error.__cause__
    while cause is not None and len(causes) < CAUSES:
        causes.append(_round_trip(cause))
        cause = cause.__cause__
    return _Sealed(_unseal, _round_trip(error), words, notes, causes)


def _remade(error: BaseException, *, whole: bool) -> _Sealed:
    """Have an exception made again without its own ``__init__``, which may ask for other arguments than it passes on."""
    reduced: Any = error.__reduce__()
    state = dict(reduced[2]) if whole and len(reduced) > 2 and reduced[2] else {}
    return _Sealed(_remake, reduced[0], _without_init(reduced[1]), _without_init(error.args), state)


def _remake(
    kind: type[BaseException], given: tuple[Any, ...], args: tuple[Any, ...], state: dict[str, Any]
) -> BaseException:
    error = kind.__new__(kind, *given)
    of_python: Any = next(one for one in kind.__mro__ if not _is_of_user(one))
    of_python.__init__(error, *given)  # which has more of it than its arguments, such as the code of SystemExit
    error.args = args
    error.__setstate__(state)
    return error


def _without_init(thing: Any) -> Any:
    """Put stand-ins where exceptions are among the arguments of another one, as in a group."""
    if isinstance(thing, BaseException) and _is_plain(thing):
        return _remade(thing, whole=True)
    return type(thing)(map(_without_init, thing)) if type(thing) in (list, tuple) else thing


def _is_plain(error: BaseException) -> bool:
    own = {name for kind in type(error).__mro__ if _is_of_user(kind) for name in vars(kind)}
    return own.isdisjoint(("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"))


def _is_of_user(kind: type) -> bool:
    """Whether a ``class`` statement has made a class, not the interpreter."""
    return bool(kind.__flags__ & 1 << 9)


def _round_trip(error: BaseException) -> bytes | None:
    ways: list[Any] = [error]
    if isinstance(error, WindrowError):
        # Libraries register for all exceptions what pickles causes too (tblib, which Dask has).
        make, parts = error.__reduce__()
        ways = [_Sealed(make, *parts)]
    elif _is_plain(error):
        ways = [_remade(error, whole=True), error, _remade(error, whole=False)]
    for way in ways:
        try:
            content, _ = dumps(way)
            again = pickle.loads(content)  # noqa: S301 - our own bytes
        except Exception:  # noqa: BLE001, S112 - users' exceptions raise anything: the stand-in has the words
            continue
        if isinstance(again, BaseException):
            return content
    return None


def _unseal(content: bytes | None, words: str, notes: list[str], causes: list[bytes | None]) -> BaseException | _Sealed:
    if getattr(_keeping, "sealed", False):
        return _Sealed(_unseal, content, words, notes, causes)
    error = _open(content, words)
    error.__notes__ = [_FRAME.sub(_with_source, note) for note in notes]
    last = error
    for cause in causes:
        last.__cause__ = _open(cause, "an exception that cannot be pickled")
        last = last.__cause__
    return error


def _with_source(frame: re.Match[str]) -> str:
    """Add the line of the source to a frame, if only this process has it, as of a notebook's cell."""
    line = linecache.getline(frame[2], int(frame[3])).strip()
    return f"{frame[0]}\n{frame[1]}  {line}" if line else frame[0]


def _open(content: bytes | None, words: str) -> BaseException:
    if content is not None:
        try:
            error = pickle.loads(content)  # noqa: S301 - written by a process we started
        except Exception:  # noqa: BLE001 - it could be made there and cannot here
            content = None
        else:
            if isinstance(error, BaseException):
                return error
    return EngineError(
        f"{words} (the exception itself could not leave its worker's process: it cannot be pickled and made again)"
    )
