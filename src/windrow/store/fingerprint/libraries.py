"""Whose code is it: a library's, which counts by its version, or the user's own, which is looked into.

What is installed has a version and does not change under it. What is not installed, or installed to be edited, changes
from one minute to the next, so that only its content says anything.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import json
import os
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: A distribution, or a module that belongs to none, and its version.
Library = tuple[str, str]

#: What comes with Python changes with its minor version; fixes between are not thought to change results.
PYTHON: Library = ("python", f"{sys.version_info.major}.{sys.version_info.minor}")

_STANDARD = tuple(
    {os.path.realpath(place) + os.sep for place in map(sysconfig.get_path, ("stdlib", "platstdlib")) if place}
)
_INSTALLED = ("site-packages", "dist-packages")

# Asked of the types themselves: a class or module of the user may answer for its attributes with code.
_names_of_module = vars(ModuleType)["__dict__"].__get__
_names_of_class = type.__dict__["__dict__"].__get__
_module_of_class = type.__dict__["__module__"].__get__
_name_of_class = type.__dict__["__name__"].__get__
_long_name_of_class = type.__dict__["__qualname__"].__get__
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def full_name(kind: type) -> str:
    return f"{_module_of_class(kind)}.{_long_name_of_class(kind)}"


def names_in(module: ModuleType) -> dict[str, Any]:
    names: dict[str, Any] = _names_of_module(module)
    return names


def names_of(kind: type) -> Mapping[str, Any]:
    names: Mapping[str, Any] = _names_of_class(kind)
    return names


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
    for name in dict.fromkeys((top, top.replace("_", "-"))):
        found = _holds(name, place, installed=installed)
        if found is not None:
            return found
    if not installed:
        return None
    for name in _distributions().get(top, ()):
        found = _holds(name, place, installed=installed)
        if found is not None:
            return found
    return None


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
