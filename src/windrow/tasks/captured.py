"""What a function sees outside of itself - globals, closures, defaults, attributes - and whether that is still what it was.

A function travels to processes once, and is asked about before every call. Names, cells and members are compared by identity.
What can be changed in place is pickled again and compared with what it was: arrays of 1 MB or more by ``SharedArrays``, which
need not be read for that, everything else by its bytes. A function that sees nothing which can be changed in place is
answered for in a microsecond. Functions and classes are walked through as far as they are the user's own.
"""

from __future__ import annotations

import io
import pickle
import re
import sys
from functools import partial
from hashlib import blake2b
from inspect import getattr_static
from itertools import chain
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.engines.processes.serialize import INITIALIZED, can_pickle, dumps, importable
from windrow.store.fingerprint.code import read_code
from windrow.store.fingerprint.describe import CHANGING, CONTAINERS
from windrow.store.fingerprint.libraries import library_of_class, library_of_module, library_of_names, names_of
from windrow.store.fingerprint.randomness import draws_of_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from windrow.tasks.shared_arrays import SharedArrays

#: Bytes of an array that is not copied into the pickle of what a function sees; of a pickle of which only the digest is kept.
APART, LONG = 4096, 1 << 20

_FIXED = frozenset(
    {
        type(None), bool, int, float, complex, str, bytes, range, CodeType, ModuleType, BuiltinFunctionType, MethodDescriptorType,
        MethodWrapperType, WrapperDescriptorType, MemberDescriptorType, GetSetDescriptorType, type(Ellipsis), type(NotImplemented),
    }
)  # fmt: skip


_CODE = (FunctionType, staticmethod, classmethod, property, type)


class Captured:
    """What a function, and the user's functions and classes that it leads to, found outside of them."""

    __slots__ = (
        "_arrays", "_cells", "_classes", "_content", "_named", "_names", "_plain", "_seen", "_sizes", "_tables", "draws", "has_content",
        "looks", "seconds", "stores",
    )  # fmt: skip

    def __init__(self, function: Any, arrays: SharedArrays) -> None:
        self._arrays = arrays
        self._names: list[tuple[Mapping[str, Any], str, Any]] = []  #: where, under what name, what
        self._sizes: list[tuple[Mapping[str, Any], int]] = []  #: of classes and objects: how much there is
        self._cells: list[tuple[CellType, Any]] = []  #: of closures
        self._classes: list[type] = []  #: the user's
        # What can be changed in place: arrays, what has no code of the user's in it, and all else.
        self._tables: list[tuple[Any, Any]] = []
        self._plain: list[Any] = []
        self._named: list[Any] = []
        self._seen: dict[int, Any] = {}  #: which is kept, so that nothing else gets its identity
        self.stores: dict[str, None] = {}  #: names of what bodies change
        self.draws = ""  #: how one takes random numbers that nobody has chosen
        self.looks, self.seconds = 0, 0.0  #: how often it was asked about, and how long that took
        waiting = [function]
        while waiting:
            one = waiting.pop()
            if id(one) not in self._seen:
                self._seen[id(one)] = one
                waiting += self._look(one)
        del self._seen[id(function)]  # whoever asks has it, and when it is gone nobody will
        self.has_content = bool(self._tables or self._plain or self._named)
        self._content = self._pickle()
        self._sizes = [(one, len(one)) for one, _ in self._sizes]  # pickling leaves a note in classes

    def _look(self, one: Any) -> Iterable[Any]:
        kind = type(one)
        if kind in _FIXED or (kind is tuple and not one):
            return ()
        if kind is FunctionType:
            return self._look_at_function(one) if library_of_names(one.__globals__) is None else called_by(one)
        if isinstance(one, type):
            return self._look_at_class(one) if library_of_class(one) is None else ()
        if kind in (staticmethod, classmethod, property):
            return called_by(one)
        wrapped = getattr_static(one, "__wrapped__", None)
        if wrapped is not None:  # a task, a function with a cache, one that numba compiles
            own = [names_of(base).values() for base in kind.__mro__ if library_of_class(base) is None]
            return (wrapped, *chain.from_iterable(own))
        if kind.__module__ == "numpy" and kind.__name__ == "ufunc":
            return ()
        if kind is np.ndarray and not one.dtype.hasobject:
            self._tables.append((one, self._arrays.take(one)))
            return ()
        try:
            pickler = _Pickler(self._arrays)
            pickler.dump(one)
            is_plain = not (pickler.found or pickler.buffers or pickler.numbers) and pickle.dumps(one, 5)
        except Exception:  # noqa: BLE001 - a lock, a connection: what is in it may still be compared
            return self._look_inside(one)
        (self._plain if is_plain else self._named).append(one)
        return pickler.found

    def _look_at_function(self, function: FunctionType) -> Iterator[Any]:
        defaults = _defaults(function)
        changeable = tuple(name for name, one in defaults.items() if type(one) in (*CONTAINERS, np.ndarray))
        reading = read_code(function.__code__, changeable)
        for store in reading.stores:
            target = _found(function, re.split(r"[.[]", store)[0], ())
            if (
                type(target) is not ModuleType or library_of_module(target) is None
            ):  # a library's own state stays where it is
                self.stores[store] = None
        for origin in reading.reads:
            changing = origin.attributes and origin.attributes[-1] in CHANGING
            if changing and type(_found(function, origin.name, origin.attributes[:-1])) in CONTAINERS:
                self.stores[f"{origin.said}()"] = None
        plainly = read_code(function.__code__) if changeable else reading
        self.draws = next((said for _, said in draws_of_uses(function, plainly) if said), self.draws)
        names, spaces = sorted(reading.names), [function.__globals__]
        for cell in function.__closure__ or ():
            content = _content(cell)
            self._cells.append((cell, content))
            if type(content) is ModuleType and library_of_module(content) is None:
                spaces.append(vars(content))
            yield content
        for space in spaces:
            for name in names:
                if name in space:
                    value = space[name]
                    self._names.append((space, name, value))
                    if type(value) is not ModuleType:
                        yield value
                    elif library_of_module(value) is None and all(vars(value) is not one for one in spaces):
                        spaces.append(vars(value))  # of which attributes are used
        yield from defaults.values()

    def _look_at_class(self, kind: type) -> Iterator[Any]:
        names = names_of(kind)
        self._sizes.append((names, len(names)))
        self._classes.append(kind)
        yield from kind.__bases__
        for name, value in list(names.items()):
            if isinstance(value, _CODE) or not name.startswith("_") or not name.endswith("_"):
                self._names.append((names, name, value))
                yield value

    def _look_at_names(self, names: Mapping[str, Any]) -> Iterator[Any]:
        self._sizes.append((names, len(names)))
        for name, value in list(names.items()):
            self._names.append((names, name, value))
            yield value

    def _look_inside(self, one: Any) -> Iterator[Any]:
        """Note what is in something that cannot be pickled as a whole."""
        yield type(one)
        yield from called_by(one)
        if isinstance(one, dict):
            yield from self._look_at_names(one)
        elif isinstance(one, (list, tuple, set, frozenset)):
            self._names.extend((_Items(one), number, value) for number, value in enumerate(one))  # type: ignore[misc]
            self._sizes.append((one, len(one)))  # type: ignore[arg-type]
            yield from one
        elif library_of_class(type(one)) is None and isinstance(getattr(one, "__dict__", None), dict):
            yield from self._look_at_names(vars(one))

    def _pickle(self) -> tuple[Any, ...]:
        """Write down what can be changed in place; together, since that two names mean one thing counts."""
        plain = _shortened(pickle.dumps(self._plain, 5)) if self._plain else b""
        if not self._named:
            return (plain,)
        pickler = _Pickler(self._arrays)
        pickler.dump(self._named)
        return (plain, _shortened(pickler.file.getvalue()), pickler.numbers, [bytes(one) for one in pickler.buffers])

    def is_the_same(self) -> bool:
        for names, name, value in self._names:
            if names.get(name) is not value:
                return False
        for cell, value in self._cells:
            if _content(cell) is not value:
                return False
        for things, size in self._sizes:
            if len(things) != size:
                return False
        if not self.has_content:
            return True
        for array, taken in self._tables:
            if not self._arrays.is_same(array, taken):
                return False
        try:
            return self._pickle() == self._content
        except Exception:  # noqa: BLE001 - it could be pickled before: something was put into it
            return False

    @property
    def shared(self) -> str:
        """Say what a copy of the function in this process would share with it, or change in it; empty if nothing."""
        if self.draws:
            return f"it {self.draws}"
        if self.stores:
            return f"it changes {next(iter(self.stores))}"
        names = [kind.__name__ for kind in self._classes] or [name for _, name, _ in self.state_of_modules()]
        return f"it sees {names[0]}, of which there is one in a process" if names else ""

    def state_of_modules(self) -> list[tuple[str, str, Any]]:
        """Give the values that functions see in modules which are imported anew where they run: where, by what name, what."""
        found = []
        for names, name, value in self._names:
            module = names.get("__name__")
            if type(module) is str and _is_state(name, value) and _is_imported(module, names):
                found.append((module, name, value))
        for kind in self._classes:
            module, path = kind.__module__, kind.__qualname__
            if "<locals>" not in path and module in sys.modules and _is_imported(module, vars(sys.modules[module])):
                found += [
                    (module, f"{path}.{name}", one) for name, one in names_of(kind).items() if _is_state(name, one)
                ]
        return found


class _Items:
    """Items of a container by number, as names are by name."""

    __slots__ = ("_items",)

    def __init__(self, items: Any) -> None:
        self._items = items

    def get(self, number: int) -> Any:
        items = list(self._items) if isinstance(self._items, (set, frozenset)) else self._items
        return items[number] if number < len(items) else self


class _Pickler(pickle.Pickler):
    """Pickles things to be compared: functions and classes in them are looked at apart."""

    def __init__(self, arrays: SharedArrays) -> None:
        self.file = io.BytesIO()
        self.found: list[Any] = []  #: functions and classes
        self.buffers: list[memoryview] = []
        self.numbers: list[Any] = []  #: of large arrays
        # No method of its own: as garbage it would keep all that it has seen until that is collected.
        super().__init__(self.file, 5, buffer_callback=partial(_take, arrays, self.buffers, self.numbers))

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, (type, FunctionType, ModuleType, CodeType)):
            self.found.append(thing)
            return id, (id(thing),)
        return NotImplemented


def _take(arrays: SharedArrays, buffers: list[memoryview], numbers: list[Any], buffer: pickle.PickleBuffer) -> bool:
    raw = buffer.raw()
    found = arrays.locate(raw)
    if found is not None:
        numbers.append(found[0])
    elif raw.nbytes >= APART:
        buffers.append(raw)
    else:
        return True
    return False


def _shortened(pickled: bytes) -> bytes:
    return blake2b(pickled).digest() if len(pickled) > LONG else pickled


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return cell


def _found(function: FunctionType, name: str, attributes: tuple[str, ...]) -> Any:
    """Give what a name means in a function, and the attributes behind it; None if that is not known."""
    free = function.__code__.co_freevars
    value = _content(function.__closure__[free.index(name)]) if name in free and function.__closure__ else None
    value = _defaults(function).get(name, function.__globals__.get(name)) if value is None else value
    for one in attributes:
        value = getattr_static(value, one, None)
    return value


def _defaults(function: FunctionType) -> dict[str, Any]:
    values = function.__defaults__ or ()
    names = function.__code__.co_varnames[function.__code__.co_argcount - len(values) :]
    return {**dict(zip(names, values, strict=False)), **(function.__kwdefaults__ or {})}


def _is_state(name: str, value: Any) -> bool:
    """Whether a name of a module or class means a value, not code."""
    inner = name.startswith("_") and name.endswith("_")
    return not (
        inner
        or isinstance(value, (*_CODE, ModuleType))
        or hasattr(type(value), "__get__")
        or hasattr(value, "__wrapped__")
    )


def _is_imported(name: str, names: Mapping[str, Any]) -> bool:
    """Whether names are those of a module which another process imports by its name."""
    module = sys.modules.get(name)
    return name != "__main__" and module is not None and vars(module) is names and importable(name)


def called_by(thing: Any) -> Iterator[Any]:
    """Give what something runs that is no function: a method, one with arguments bound, one with a decorator of a library."""
    if type(thing) is MethodType:
        yield from (thing.__func__, thing.__self__)
    elif type(thing) is partial:
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif type(thing) in (staticmethod, classmethod):
        yield thing.__func__
    elif type(thing) is property:
        yield thing.fget
    else:
        yield getattr_static(thing, "__wrapped__", None)


def initialize(initializer: Callable[[], object]) -> None:
    """Call an initializer in a worker; what it sets in a script or notebook, functions of that see which come later."""
    run: list[Any] = [initializer]
    for one in run:
        run += [inner for inner in called_by(one) if inner is not None]
    spaces = [one.__globals__ for one in run if type(one) is FunctionType]
    spaces = [one for one in spaces if vars(sys.modules.get(one.get("__name__", ""), sys)) is not one]  # sent by value
    before = [{name: (value, _written(value)) for name, value in names.items()} for names in spaces]
    initializer()
    for names, then in zip(spaces, before, strict=True):
        for name, value in names.items():
            if name not in then or value is not then[name][0] or _written(value) != then[name][1]:
                INITIALIZED.setdefault(names.get("__name__", ""), {})[name] = value


def _written(value: Any) -> bytes | None:
    return dumps(value, apart=APART)[0] if can_pickle(value) else None
