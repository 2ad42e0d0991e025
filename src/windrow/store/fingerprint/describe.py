"""What functions, classes, modules and values consist of: the one place where it is decided what a thing is.

Nothing of the user's runs: attributes are taken from where they are kept, never asked for. Of an object of a library, the
library says how to make it again (``__reduce_ex__``), as for pickling. What may hide something, such as an open file or an
object made by compiled code, is ``Unknown`` rather than guessed at.
"""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import functools
import gc
import importlib
import io
import logging
import os
import struct
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.files import File
from windrow.store.fingerprint.adapters import A_KEY, ADAPTERS, DERIVABLE, Shape, Unknown, describe_array, words
from windrow.store.fingerprint.code import read_code
from windrow.store.fingerprint.libraries import (
    PYTHON,
    InLibrary,
    Library,
    Missing,
    Source,
    base_of,
    content_of,
    full_name,
    library_of_class,
    library_of_module,
    library_of_names,
    mro_of,
    names_in,
    names_of,
    resolve,
    static_attribute,
)
from windrow.store.fingerprint.randomness import draws_of_uses

if TYPE_CHECKING:
    from windrow.store.fingerprint.code import Origin, Reading


def describe(value: Any) -> Shape:
    kind = type(value)
    if name_if_opaque(value) is not value:
        raise Unknown
    if kind in _DESCRIBED:
        return _DESCRIBED[kind](value)
    if type in mro_of(kind):
        return _class(value)
    if ModuleType in mro_of(kind):
        return _module(value)
    knows = static_attribute(kind, "fingerprint")
    if type(knows) is property and knows.fget is not None:
        text = knows.fget(value)
        if type(text) is not str:
            raise Unknown
        if kind is File:
            said = words("the way it is loaded", "the class")
            return Shape(f"file {text}", [value._load, File], said, name=f"file {Path(value.path).name}")
        return Shape("fingerprint", [text, kind])
    shape = _by_name(value)
    if shape is not None:
        return shape
    for one in mro_of(kind):
        name = full_name(one)
        if name in ADAPTERS and library_of_class(one) is not None and (name in DERIVABLE or library_of_class(kind)):
            shape = ADAPTERS[name](value)
            return shape._replace(
                label=f"{shape.label} {len(shape.children)}", children=[*shape.children, kind], words=None
            )
    return _by_state(value) if library_of_class(kind) is None else _by_reduce(value)


def _by_name(value: Any) -> Shape | None:
    kind = type(value)
    # Functions that Cython compiled have a type that does not say where it is from.
    if library_of_class(kind) is None and not full_name(kind).endswith("cython_function_or_method"):
        return None
    module = sys.modules.get(str(getattr(value, "__module__", None)))
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if module is None or not issubclass(type(module), ModuleType) or type(name) is not str:
        return None
    library = library_of_module(module)
    owner, _, last = name.rpartition(".")
    holder = names_in(module).get(owner)
    names = names_of(holder) if isinstance(holder, type) else names_in(module)
    if library is None or names.get(last) is not value:
        return None
    return _of_library(library, names_in(module), name)


def _of_library(library: Library, names: Mapping[str, Any], name: str) -> Shape:
    # Where in a library something is kept is the library's business, and changes with its version.
    top = str(names.get("__name__")).partition(".")[0]
    return Shape(f"of a library {top} {name}", uses=(library,))


# -- functions -------------------------------------------------------------------------------------

#: Where a module is, which is no part of what it does.
_PLACES = {"__name__", "__file__", "__package__", "__path__", "__spec__", "__loader__", "__cached__"}

CONTAINERS = (
    list, dict, set, bytearray, collections.deque, collections.defaultdict, collections.OrderedDict, collections.Counter,
)  # fmt: skip
CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem",
    "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "subtract", "update",
}  # fmt: skip


def _function(function: FunctionType) -> Shape:
    library = library_of_names(function.__globals__)
    file = function.__code__.co_filename
    # Code that was made up while running, in the name of a library, is not what was installed.
    if library is not None and (not file.startswith("<") or file.startswith("<frozen")):
        return _function_of_library(function, library)
    reading = read_code(function.__code__)
    parts = _defaults(function)  # what it is to the function -> what it is
    stores = list(reading.stores)
    hidden: dict[str, None] = {}
    random = list(draws_of_uses(function, reading))
    judged = {origin for origin, _ in random}
    called = f"function {_short(function.__qualname__)!r}"
    reads_values, is_settled = False, True
    of_random = set()
    for origin in reading.reads:
        if origin.kind == "global" and origin.name in _PLACES:
            continue
        word, value = resolve(origin, function)
        value = name_if_opaque(value)
        if how := opaque_use(value, origin, reading):
            hidden[f"what {called} {how}"] = None
        if type(value) in CONTAINERS and origin.attributes and origin.attributes[-1] in CHANGING:
            stores.append(f"{origin.said}()")
        if origin in judged:
            of_random.add(word)
        reads_values = reads_values or not _is_code(value)
        base = base_of(origin, function)
        is_users_module = issubclass(type(base), ModuleType) and library_of_module(base) is None
        is_settled = is_settled and not (is_users_module or type(base) is Source)
        parts.setdefault(word, value)
    for name, value in sorted(function.__dict__.items()):
        parts[f"attribute {name!r}"] = value
    written = [word for word in parts if _is_written(word, stores)]
    return Shape(
        f"function {reading.content.hex()} {list(parts)!r}",
        list(parts.values()),
        list(parts).__getitem__,
        name=called,
        stores=tuple(stores),
        hidden=tuple(hidden),
        written=frozenset(written),
        draws=tuple(said for _, said in random if said),
        judged=frozenset(of_random),
        reads_values=reads_values,
        is_settled=is_settled,
    )


def _defaults(function: FunctionType) -> dict[str, Any]:
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    given = [*zip(names, defaults, strict=True), *sorted((function.__kwdefaults__ or {}).items())]
    return {f"default {name!r}": value for name, value in given}


def _is_code(value: Any) -> bool:
    """Whether something holds no values that a compiled function or a cache could have frozen; functions are looked into."""
    kind = type(value)
    if kind in (FunctionType, BuiltinFunctionType, InLibrary, Missing, Source):
        return True
    if issubclass(kind, (type, ModuleType, logging.Logger)) or full_name(kind).endswith("cython_function_or_method"):
        return True
    return callable(value) and library_of_class(kind) is not None and kind not in (MethodType, functools.partial)


def _is_written(word: str, stores: list[str]) -> bool:
    kind, _, said = word.partition("'")
    said = said.rstrip("'")
    inside = (f"{said}.", f"{said}[")
    return kind in ("global ", "closure variable ") and any(
        store == said or store.startswith(inside) for store in stores
    )


def _short(name: str) -> str:
    return name.rpartition("<locals>.")[2]


def _function_of_library(function: FunctionType, library: Library) -> Shape:
    """By name; with what a decorator or factory of a library was given."""
    own = function.__dict__
    given: dict[str, Any] = {}
    if "registry" in own and function.__globals__.get("__name__") == "functools":
        given["the functions by type"] = own["registry"]  # singledispatch
    else:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            given[f"closure variable {name!r}"] = content_of(cell)
        if "__wrapped__" in own:
            given["the function inside"] = own["__wrapped__"]
    shape = _of_library(library, function.__globals__, function.__code__.co_qualname)
    return shape._replace(children=list(given.values()), words=list(given).__getitem__)


def _builtin(value: Any) -> Shape:
    owner = value.__self__
    module = owner if issubclass(type(owner), ModuleType) else None
    if owner is None or type(owner).__name__ == "PyCapsule":
        module = sys.modules.get(str(value.__module__))
    if module is None:
        return Shape(f"method {value.__name__}", [owner], words("the object"))
    library = library_of_module(module)
    if library is None:
        raise Unknown
    return _of_library(library, names_in(module), value.__qualname__)


def _cached(value: Any) -> Shape:
    inside = value.__wrapped__
    said = f"what cached function {inside.__name__!r} remembers of earlier globals"
    has_any = bool(value.cache_info().currsize)
    return Shape("cached", [inside], words("the function"), frozen=(inside, said) if has_any else None)


def _unloaded(source: Source) -> Shape:
    said = f"module {source.name!r}"
    return Shape("source", name=said, hidden=(f"{said}, which is not loaded yet: import it at the top",))


# -- classes and modules ---------------------------------------------------------------------------

#: What Python puts into a class besides what is written there, and annotations.
_NOT_WRITTEN = {
    "__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "_abc_impl",
    "__abstractmethods__", "__orig_bases__", "__parameters__", "__type_params__", "__classdictcell__",
    "__slotnames__",
}  # fmt: skip

_bases_of = names_of(type)["__bases__"].__get__


def _class(kind: type) -> Shape:
    library = library_of_class(kind)
    module, _, name = full_name(kind).rpartition(".")
    if library is not None:
        return _of_library(library, {"__name__": module}, name)
    own = {key: value for key, value in names_of(kind).items() if key not in _NOT_WRITTEN}
    keys = sorted(own)
    return Shape(
        f"class {name} {keys!r}",
        [type(kind), _bases_of(kind), *(own[key] for key in keys)],
        words("the class", "the bases", *(f"attribute {key!r}" for key in keys)),
        name=f"class {_short(name)!r}",
    )


def _module(module: ModuleType) -> Shape:
    names = names_in(module)
    library = library_of_module(module)
    if library is not None:
        return _of_library(library, {}, str(names.get("__name__")))
    own = sorted(name for name in names if type(name) is str and (name[:2] != "__" or name == "__getattr__"))
    called = str(names.get("__name__"))
    return Shape(
        f"module {own!r}",
        [names[name] for name in own],
        lambda number: f"global {f'{called}.{own[number]}'!r}",
        name=f"module {called!r}",
    )


# -- values ----------------------------------------------------------------------------------------


class _Pairs(NamedTuple):
    """Keys and values of a mapping of another type; no mapping, as making one asks the keys whether they are equal."""

    items: list[tuple[Any, Any]]


class _Members(NamedTuple):
    """Members of a set of another type."""

    members: list[Any]


def _pairs(items: list[tuple[Any, Any]]) -> Shape:
    """In the order it has: what goes through a mapping may depend on it, if only in the last digit of a sum."""
    children = [part for pair in items for part in pair]
    return Shape("dict", children, lambda n: f"item {_key(items[n // 2][0])}" if n % 2 else A_KEY)


def _key(key: Any) -> str:
    return repr(key) if type(key) in (str, int, float, bool, bytes) else f"of a {type(key).__name__}"


def _field(value: dataclasses.Field[Any]) -> Shape:
    kept = ("name", "default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    return Shape("field", [getattr(value, name) for name in kept], words(*kept))


def _descriptor(value: Any) -> Shape:
    return Shape(f"descriptor {value.__name__}", [value.__objclass__])


def _wrapper(value: Any) -> Shape:
    return Shape(type(value).__name__, [value.__func__], words("the function"))


_DESCRIBED: dict[type, Callable[[Any], Shape]] = {
    FunctionType: _function,
    MethodType: lambda v: Shape("method", [v.__func__, v.__self__], words("the function", "the object")),
    BuiltinFunctionType: _builtin,
    types.MethodWrapperType: lambda v: Shape(f"method {v.__name__}", [v.__self__], words("the object")),
    types.MethodDescriptorType: _descriptor,
    types.WrapperDescriptorType: _descriptor,
    types.ClassMethodDescriptorType: _descriptor,
    types.GetSetDescriptorType: _descriptor,
    types.MemberDescriptorType: lambda v: Shape(f"slot {v.__name__}"),
    functools._lru_cache_wrapper: _cached,
    staticmethod: _wrapper,
    classmethod: _wrapper,
    property: lambda v: Shape("property", [v.fget, v.fset, v.fdel]),
    functools.cached_property: lambda v: Shape("cached_property", [v.func], words("the function")),
    dataclasses.Field: _field,
    InLibrary: lambda v: Shape(f"of a library {v.name}", uses=(v.library,)),
    Missing: lambda _: Shape("missing"),
    Source: _unloaded,
    dict: lambda v: _pairs(list(v.items())),
    list: lambda v: Shape("list", list(v)),
    tuple: lambda v: Shape("tuple", v),
    set: lambda v: Shape("set", list(v), is_set=True),
    frozenset: lambda v: Shape("frozenset", list(v), is_set=True),
    _Pairs: lambda v: _pairs(v.items),
    _Members: lambda v: Shape("set", v.members, is_set=True),
    # What it shows; asking it could run code of the user's.
    types.MappingProxyType: lambda v: Shape("mappingproxy", gc.get_referents(v)),
    np.ndarray: describe_array,
    np.memmap: describe_array,
}


# -- objects ---------------------------------------------------------------------------------------


def _by_reduce(value: Any) -> Shape:
    kind = type(value)
    if static_attribute(kind, "__next__") is not None or issubclass(kind, io.IOBase):
        raise Unknown  # it is used up
    reduce = copyreg.dispatch_table.get(kind)
    made: Any = value.__reduce_ex__(4) if reduce is None else reduce(value)
    if type(made) is not tuple:
        raise Unknown  # a name, which does not lead to it
    parts: list[Any] = [*made, None, None, None]
    function, arguments, state, items, pairs = parts[:5]
    content = [None if items is None else list(items), None if pairs is None else _Pairs(list(pairs))]
    said = ("the class", "how it is made", "its arguments", "its state", "its items", "its content")
    return Shape("made", [kind, function, arguments, state, *content], words(*said))


#: Types of which one knows all that is in them, though compiled; classes of the user's may be made of them.
_BASES: dict[type, Callable[[Any], Any]] = {
    object: lambda _: None,
    dict: lambda v: _Pairs(list(dict.items(v))),
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    set: lambda v: _Members(list(set.__iter__(v))),
    frozenset: lambda v: _Members(list(frozenset.__iter__(v))),
    str: str.__str__,
    bytes: bytes.__bytes__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    np.ndarray: lambda v: np.ndarray.view(v, np.ndarray),
    collections.OrderedDict: lambda v: _Pairs(list(collections.OrderedDict.items(v))),
    collections.defaultdict: lambda v: [_factory(v), _Pairs(list(dict.items(v)))],
    collections.deque: lambda v: list(collections.deque.__iter__(v)),
    functools.partial: lambda v: [functools.partial.__reduce__(v)[2][:3]],
}

_factory: Callable[[Any], Any] = names_of(collections.defaultdict)["default_factory"].__get__
_POINTER = struct.calcsize("P")


def _by_state(value: Any) -> Shape:
    """Describe an object of the user's by its class, its attributes, and what it is by the type its class is made of."""
    kind = type(value)
    classes = mro_of(kind)
    base = next(one for one in classes if one in _BASES)
    if _hides_something(kind, base, classes[: classes.index(base)]):
        raise Unknown
    own: dict[str, Any] = {}
    for one in reversed(classes):
        kept = names_of(one)
        holder = kept.get("__dict__")
        if type(holder) is types.GetSetDescriptorType:
            own |= holder.__get__(value, kind)
        for name, slot in kept.items():
            if type(slot) is types.MemberDescriptorType:
                try:
                    own[name] = slot.__get__(value, kind)
                except AttributeError:
                    continue  # not set yet
    if any(type(name) is not str for name in own):
        raise Unknown
    names = sorted(own)
    children = [kind, _BASES[base](value), *(own[name] for name in names)]
    return Shape(
        f"object {names!r}", children, words("the class", "the content", *(f"attribute {name!r}" for name in names))
    )


def _hides_something(kind: type, base: type, above: tuple[type, ...]) -> bool:
    """Whether an object is larger than what is known of it: then compiled code keeps something there."""
    slots = sum(type(entry) is types.MemberDescriptorType for one in above for entry in names_of(one).values())
    names = _offset_of_names(kind)
    # Counted from the end if an object may have any size, and in front of the object if it is just negative.
    slots += _offset_of_names(base) == 0 and (names > 0 or (names < 0 and _size_of_item(base) > 0))
    slots += _offset_of_weak(kind) > 0 and _offset_of_weak(base) <= 0
    return _size(kind) - _size(base) != slots * _POINTER


_size: Callable[[type], int] = names_of(type)["__basicsize__"].__get__
_size_of_item: Callable[[type], int] = names_of(type)["__itemsize__"].__get__
_offset_of_names: Callable[[type], int] = names_of(type)["__dictoffset__"].__get__
_offset_of_weak: Callable[[type], int] = names_of(type)["__weakrefoffset__"].__get__


# -- what code takes from where it cannot be followed: the environment, and names that it looks up by itself

_OF_OS = {"environ", "environb", "getenv", "getenvb", "getcwd", "getcwdb"}
_OF_SYS = {"argv", "orig_argv"}
_ENVIRONMENT = {
    *(f"os.{name}" for name in _OF_OS),
    *(f"sys.{name}" for name in _OF_SYS),
    *(f"{module}.expandvars" for module in ("os.path", "posixpath", "ntpath")),
    "pathlib.Path.cwd",
}
#: How it ends what is said of code that reads no more than the current directory.
CURRENT = ("(os.getcwd)", "(os.getcwdb)", "(pathlib.Path.cwd)")
_LOOKS_UP = {"eval", "exec", "globals", "locals", "__import__", "importlib.import_module"}
#: With an argument they are about that one alone.
_LOOKS_UP_IF_BARE = {"vars", "dir"}

_OBJECTS = (
    (os.environ, "os.environ"),
    (os.getenv, "os.getenv"),
    (os.path.expandvars, "os.path.expandvars"),
    (os.getcwd, "os.getcwd"),
    (os.getcwdb, "os.getcwdb"),
    (importlib.import_module, "importlib.import_module"),
    (__import__, "__import__"),
    (eval, "eval"),
    (exec, "exec"),
    (globals, "globals"),
    (locals, "locals"),
)


def name_if_opaque(value: Any) -> Any:
    """Return the name of something that reads what code does not show, whatever it is called there; else the value."""
    for thing, name in _OBJECTS:
        if value is thing:
            return InLibrary(PYTHON, name)
    return value


def opaque_use(value: Any, origin: Origin, reading: Reading) -> str:
    """Say what code reads through something that it uses without showing it; nothing if that is harmless."""
    if type(value) is InLibrary:
        plain = value.name.removeprefix("builtins.")
        if plain in _LOOKS_UP or (plain in _LOOKS_UP_IF_BARE and plain in reading.bare):
            return f"looks up by itself ({plain}())"
        parts = value.name.split(".")
        said = [".".join(parts[:count]) for count in (2, 3)]
        return next((f"reads from the environment ({name})" for name in said if name in _ENVIRONMENT), "")
    if "cwd" in origin.attributes and type(value) is type and issubclass(value, Path):
        return "reads from the environment (pathlib.Path.cwd)"
    if "__subclasses__" in origin.attributes:
        return "looks up by itself (__subclasses__())"  # which there are is nowhere in the class
    return ""
