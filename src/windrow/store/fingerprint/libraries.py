"""Whose code is it: a library's, which counts by its version, or the user's own, which is looked into.

What is installed has a version and does not change under it. What is not installed, or installed to be edited, changes
from one minute to the next, so that only its content says anything.
"""

from __future__ import annotations

import builtins
import functools
import hashlib
import importlib.machinery
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.util import resolve_name
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from windrow.store.fingerprint.code import Origin


#: A distribution, or a module that belongs to none, and its version.
Library = tuple[str, str]

#: What comes with Python changes with its minor version; fixes between are not thought to change results.
PYTHON: Library = ("python", f"{sys.version_info.major}.{sys.version_info.minor}")

_STANDARD = tuple(
    {os.path.realpath(place) + os.sep for place in map(sysconfig.get_path, ("stdlib", "platstdlib")) if place}
)
_INSTALLED = ("site-packages", "dist-packages")

# Asked of the types themselves: a class or module of the user may answer for its attributes with code.
names_in: Callable[[ModuleType], dict[str, Any]] = vars(ModuleType)["__dict__"].__get__
names_of: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
_module_of_class = type.__dict__["__module__"].__get__
_name_of_class = type.__dict__["__name__"].__get__
_long_name_of_class = type.__dict__["__qualname__"].__get__
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def full_name(kind: type) -> str:
    return f"{_module_of_class(kind)}.{_long_name_of_class(kind)}"


def static_attribute(kind: type, name: str) -> Any:
    for one in mro_of(kind):
        names = names_of(one)
        if name in names:
            return names[name]
    return None


def library_of_module(module: ModuleType) -> Library | None:
    return library_of_names(names_in(module))


def library_of_names(names: Mapping[str, Any]) -> Library | None:
    name = names.get("__name__")
    if type(name) is not str:
        return None
    return _library(name, _place(names))


def library_of_class(kind: type) -> Library | None:
    name = _module_of_class(kind)
    if type(name) is not str:
        return None
    if name == "builtins" and names_in(sys.modules["builtins"]).get(_name_of_class(kind)) is kind:
        return PYTHON
    module = sys.modules.get(name)
    if module is None or not issubclass(type(module), ModuleType):
        return None
    if name == "builtins":
        # Types of the interpreter say they are from there without being there, such as that of a generator. So do
        # classes of code that runs without a module name; those were made by Python.
        return None if kind.__flags__ & _MADE_BYPYTHON else PYTHON
    return library_of_module(module)


def library_to_be_loaded(module: str) -> tuple[Library | None, str | None]:
    """Find a module that is not loaded yet, without loading it: the library it belongs to, and its file."""
    search, spec, name = None, None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = importlib.machinery.PathFinder.find_spec(name, search)
        if spec is None:
            break
        search = spec.submodule_search_locations
    if spec is None:
        top = module.partition(".")[0]
        return (PYTHON if top in sys.stdlib_module_names else None), None
    return _library(module, spec.origin), spec.origin


#: Set for classes that a ``class`` statement makes, and not for those of the interpreter itself.
_MADE_BYPYTHON = 1 << 9


def _place(names: Mapping[str, Any]) -> str | None:
    file = names.get("__file__")
    if type(file) is str:
        return file
    search = names.get("__path__")  # a package without a file of its own
    if search is not None and type(search) is not str:
        return next((os.path.join(entry, "") for entry in list(search) if type(entry) is str), None)  # noqa: PTH118 - a marker, not a path
    return None


@functools.cache
def _library(module: str, file: str | None) -> Library | None:
    """Look it up once: what is loaded keeps its version as long as the process lives."""
    top = module.partition(".")[0]
    if top == "windrow":
        return ("windrow", _version("windrow") or "")
    if top in ("__main__", "__mp_main__"):
        return None
    if file is None:
        return PYTHON if top in sys.stdlib_module_names else None
    if not os.path.exists(file):  # noqa: PTH110 - called for every module once
        # Made up, or frozen into the interpreter.
        return PYTHON if top in sys.stdlib_module_names and file.startswith("<frozen") else None
    place = os.path.realpath(file)
    installed = any(f"{os.sep}{folder}{os.sep}" in place for folder in _INSTALLED)
    if not installed and place.startswith(_STANDARD):
        return PYTHON
    found = _distribution(top, place, installed=installed)
    if found is not None:
        return found
    if place.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
        # Compiled by the user: it cannot be looked into, but it is all in one file.
        content = hashlib.blake2b(Path(place).read_bytes(), digest_size=8).hexdigest()
        return (module, f"content {content}")
    return None


def _distribution(top: str, place: str, *, installed: bool) -> Library | None:
    likely = dict.fromkeys((top, top.replace("_", "-")))
    held = (_holds(name, place, installed=installed) for name in likely)
    found = next(filter(None, held), None)
    if found is None and installed:
        held = (_holds(name, place, installed=installed) for name in _distributions().get(top, ()))
        found = next(filter(None, held), None)
    return found


def _holds(name: str, place: str, *, installed: bool) -> Library | None:
    """Return a distribution if the file at ``place`` came with it and is not there to be edited."""
    try:
        distribution = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None
    root = os.path.join(os.path.realpath(str(distribution.locate_file(""))), "")  # noqa: PTH118
    if not place.startswith(root) or _is_from_directory(distribution):
        return None
    # Next to sources lies what a build left behind, which says nothing of what they hold now.
    if not installed and distribution.read_text("RECORD") is None:
        return None
    return (str(distribution.metadata["Name"]), distribution.version)


def _is_from_directory(distribution: metadata.Distribution) -> bool:
    """Whether it was installed from sources on this machine, which change more often than their version."""
    origin = distribution.read_text("direct_url.json")
    if not origin:
        return False
    try:
        return "dir_info" in json.loads(origin)
    except (ValueError, TypeError):
        return False


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return all packages with their distributions: a quarter of a second, for names that do not say it."""
    return metadata.packages_distributions()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


# -- what a name in code means: the global, closure variable or module that is there now, without running anything


class InLibrary(NamedTuple):
    """Something of a library that the code names."""

    library: Library
    name: str


class Missing(NamedTuple):
    """Nothing is there: a name that would be an error when the code runs."""


class Source(NamedTuple):
    """A module of the user's that is loaded when the code runs, and not before: what will be used of it is not known."""

    name: str


def resolve(origin: Origin, function: FunctionType) -> tuple[str, Any]:
    """Return what a name in code means now, and how to call it: as far as modules lead to it, by its full name."""
    said, value = take(base_of(origin, function), origin)
    word = "closure variable" if origin.kind == "free" else origin.kind
    return f"{word} {said!r}", value


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
    """Return what an import would give; of a library the same, whether it is loaded or not."""
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
