"""What functions, classes, modules and other things consist of: the one place where it is decided what a thing is."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from windrow.files import File
from windrow.store.fingerprint_code import read_code
from windrow.store.fingerprint_known import describe_known
from windrow.store.fingerprint_libraries import (
    Library,
    full_name,
    library_of_class,
    library_of_module,
    library_of_names,
    names_in,
    names_of,
)
from windrow.store.fingerprint_names import InLibrary, Missing, Source, absolute, content_of, imported, resolve, take
from windrow.store.fingerprint_unseen import (
    ENVIRONMENT,
    LOOKS_UP,
    cannot_be_followed,
    named_if_unseen,
    unseen,
    unseen_of,
)
from windrow.store.fingerprint_values import Shape, Unknown, describe_state, describe_value, mro_of, static_attribute

if TYPE_CHECKING:
    from collections.abc import Mapping


def describe(value: Any) -> Shape:
    """Describe anything; ``Unknown`` if it cannot be looked into."""
    kind = type(value)
    if cannot_be_followed(value):
        raise Unknown
    if kind in _DESCRIBED:
        return _DESCRIBED[kind](value)
    if type in mro_of(kind):
        return _class(value)
    if ModuleType in mro_of(kind):
        return _module(value)
    shape = describe_value(value)
    if shape is not None:
        return shape
    knows = static_attribute(kind, "fingerprint")
    if type(knows) is property and knows.fget is not None:
        return _by_its_fingerprint(value, knows.fget(value))
    return _by_name(value) or describe_known(value) or describe_state(value)


def _by_its_fingerprint(value: Any, text: Any) -> Shape:
    if type(text) is not str:
        raise Unknown
    if type(value) is File:
        words = ("the way it is loaded", "the class").__getitem__
        name = f"file {Path(value.path).name}"
        return Shape(f"file {text}", [value._load, File], words, name=name)
    return Shape("fingerprint", [text, type(value)])


def _by_name(value: Any) -> Shape | None:
    """Describe what a library offers under a name, such as a compiled function."""
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

CONTAINERS = (list, dict, set, bytearray, deque, defaultdict, OrderedDict, Counter)
CHANGING = {
    "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem",
    "popleft", "remove", "reverse", "rotate", "setdefault", "sort", "subtract", "update",
}  # fmt: skip


def _function(function: FunctionType) -> Shape:
    names = function.__globals__
    library = library_of_names(names)
    file = function.__code__.co_filename
    # Code that was made up while running, in the name of a library, is not what was installed.
    if library is not None and (not file.startswith("<") or file.startswith("<frozen")):
        return _function_of_library(function, library)
    reading = read_code(function.__code__)
    parts: dict[str, Any] = {}  # what it is to the function -> what it is
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    for name, value in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
        parts[f"default {name!r}"] = value
    for name, value in sorted((function.__kwdefaults__ or {}).items()):
        parts[f"default {name!r}"] = value
    keys = list(parts)
    stores = list(reading.stores)
    hidden: dict[str, None] = {}
    called = f"function {_short(function.__qualname__)!r}"
    for origin in reading.reads:
        if origin.kind == "global" and origin.name in _PLACES:
            continue
        word, value = resolve(origin, function)
        value = named_if_unseen(value)
        how = unseen(value.name, reading.bare) if type(value) is InLibrary else ""
        if how := how or unseen_of(value, origin.attributes):
            hidden[f"what {called} {how}"] = None
        if word not in parts:
            parts[word] = value
            free = origin.kind == "free"
            place = function.__code__.co_freevars.index(origin.name) if free else origin.name
            keys.append(f"{origin.kind} {place} {word.partition('.')[2]}")
        if type(value) in CONTAINERS and origin.attributes and origin.attributes[-1] in CHANGING:
            stores.append(f"{origin.said}()")
    for name, value in sorted(function.__dict__.items()):
        parts[f"attribute {name!r}"] = value
        keys.append(name)
    words = list(parts)
    return Shape(
        f"function {reading.content.hex()} {keys!r}",
        list(parts.values()),
        words.__getitem__,
        name=called,
        stores=tuple(stores),
        hidden=tuple(hidden),
        written=frozenset(n for n, word in enumerate(words) if _is_written(word, stores)),
    )


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
        return Shape(f"method {value.__name__}", [owner], lambda _: "the object")
    library = library_of_module(module)
    if library is None:
        raise Unknown
    return _of_library(library, names_in(module), value.__qualname__)


def _unloaded(source: Source) -> Shape:
    """All of its source, and of what that imports: nobody knows yet what will be used of it."""
    path = Path(source.file)
    if path.suffix != ".py":
        raise Unknown
    reading = read_code(compile(path.read_bytes(), path.name, "exec", dont_inherit=True))
    looks_up = (unseen(one.said, reading.bare) for one in reading.reads if one.kind == "global")
    hidden = {f"what module {source.name!r} {words}" for words in looks_up if words}
    if reading.names & ENVIRONMENT:
        hidden.add(f"what module {source.name!r} reads from the environment")
    if reading.names & LOOKS_UP:
        hidden.add(f"what module {source.name!r} looks up by itself")
    names: dict[str, Any] = {"__name__": source.name}
    if path.stem == "__init__":
        names["__path__"] = []
    imports = [origin for origin in reading.reads if origin.kind == "import"]
    taken = [take(imported(absolute(origin.name, names)), origin) for origin in imports]
    return Shape(
        f"source {reading.content.hex()}",
        [value for _, value in taken],
        lambda number: f"import {taken[number][0]!r}",
        name=f"module {source.name!r}",
        hidden=tuple(sorted(hidden)),
    )


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
        ["the class", "the bases", *(f"attribute {key!r}" for key in keys)].__getitem__,
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


def _descriptor(value: Any) -> Shape:
    return Shape(f"descriptor {value.__name__}", [value.__objclass__])


_DESCRIBED = {
    FunctionType: _function,
    MethodType: lambda v: Shape("method", [v.__func__, v.__self__], ("the function", "the object").__getitem__),
    BuiltinFunctionType: _builtin,
    MethodWrapperType: lambda v: Shape(f"method {v.__name__}", [v.__self__], lambda _: "the object"),
    MethodDescriptorType: _descriptor,
    WrapperDescriptorType: _descriptor,
    ClassMethodDescriptorType: _descriptor,
    GetSetDescriptorType: _descriptor,
    InLibrary: lambda v: Shape(f"of a library {v.name}", uses=(v.library,)),
    Missing: lambda _: Shape("missing"),
    Source: _unloaded,
}
