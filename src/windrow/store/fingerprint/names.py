"""What a name in code means: the global, closure variable or module that is there now, without running anything."""

from __future__ import annotations

import builtins
import sys
from importlib.util import resolve_name
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.store.fingerprint.libraries import PYTHON, Library, library_of_module, library_to_be_loaded, names_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.store.fingerprint.code import Origin


class InLibrary(NamedTuple):
    """Something of a library that the code names."""

    library: Library
    name: str


class Missing(NamedTuple):
    """Nothing is there: a name that would be an error when the code runs."""


class Source(NamedTuple):
    """A module of the user's that is loaded when the code runs, and not before: nobody knows what will be used of it."""

    name: str


def resolve(origin: Origin, function: FunctionType) -> tuple[str, Any]:
    """Return what a name in code means now, and how to call it: as far as modules lead to it, by its full name."""
    said, value = take(base_of(origin, function), origin)
    if origin.kind == "free":
        return f"closure variable {said!r}", value
    if origin.kind == "import":
        return f"import {said!r}", value
    return f"global {said!r}", value


def base_of(origin: Origin, function: FunctionType) -> Any:
    if origin.kind == "free":
        place = function.__code__.co_freevars.index(origin.name)
        return content_of((function.__closure__ or ())[place])
    if origin.kind == "import":
        return imported(absolute(origin.name, function.__globals__))
    if origin.name in function.__globals__:
        return function.__globals__[origin.name]
    own = function.__globals__.get("__builtins__", builtins)
    value = (own if type(own) is dict else vars(own)).get(origin.name, Missing())
    if vars(builtins).get(origin.name) is value:
        return InLibrary(PYTHON, origin.name)
    return value


def take(value: Any, origin: Origin) -> tuple[str, Any]:
    """Go along the attributes as long as they lead through modules of the user's."""
    said = origin.name
    for number, attribute in enumerate(origin.attributes):
        if issubclass(type(value), ModuleType):
            value = _or_library(value, str(names_in(value).get("__name__")))
        if type(value) is InLibrary:
            name = ".".join((value.name, *origin.attributes[number:]))
            return origin.said, InLibrary(value.library, name)
        if not issubclass(type(value), ModuleType):
            break
        said = f"{said}.{attribute}"
        value = _member(value, attribute)
    return said, value


def _member(module: ModuleType, name: str) -> Any:
    names = names_in(module)
    if name in names:
        return names[name]
    if "__getattr__" in names:
        return module  # anything may come out of it, so all of it counts
    return imported(f"{names.get('__name__')}.{name}")


def _or_library(module: Any, name: str) -> Any:
    library = library_of_module(module)
    return module if library is None else InLibrary(library, name)


def absolute(name: str, names: Mapping[str, Any]) -> str:
    if not name.startswith("."):
        return name
    own = str(names.get("__name__"))
    package = names.get("__package__") or (own if "__path__" in names else own.rpartition(".")[0])
    return resolve_name(name, package)


def imported(name: str) -> Any:
    """Return what an import would give; of a library the same, whether somebody has loaded it or not."""
    module = sys.modules.get(name)
    if module is not None:
        return _or_library(module, name) if issubclass(type(module), ModuleType) else module
    library, file = library_to_be_loaded(name)
    if library is not None:
        return InLibrary(library, name)
    return Missing() if file is None else Source(name)


def content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Missing()  # not bound yet
