"""What code takes from where it cannot be followed: the environment, names it looks up itself, values that are frozen.

To the environment belong the command line and the directory that the program runs in.

A compiled function keeps the globals it read when it was compiled, and a cache keeps the answers that were given with
earlier ones. What is there now then says nothing about what comes out, and a fresh process would give something else.
"""

from __future__ import annotations

import functools
import importlib
import os
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from windrow.store.fingerprint_code import read_code
from windrow.store.fingerprint_libraries import PYTHON, full_name, library_of_names
from windrow.store.fingerprint_names import InLibrary, Missing, Source, resolve

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


_OF_OS = {"environ", "environb", "getenv", "getenvb", "getcwd", "getcwdb"}
_OF_SYS = {"argv", "orig_argv"}
#: What a source that is not loaded yet may name.
ENVIRONMENT = frozenset({*_OF_OS, *_OF_SYS, "expandvars", "cwd"})
LOOKS_UP = frozenset({"import_module", "__subclasses__"})

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


def unseen(name: str, bare: AbstractSet[str]) -> str:
    """Say what a name of Python's own reads that code does not show; nothing if it is harmless.

    ``bare`` are the names that are called without arguments.
    """
    plain = name.removeprefix("builtins.")
    if plain in _LOOKS_UP or (plain in _LOOKS_UP_IF_BARE and plain in bare):
        return f"looks up by itself ({plain}())"
    parts = name.split(".")
    for count in (2, 3):
        said = ".".join(parts[:count])
        if said in _ENVIRONMENT:
            return f"reads from the environment ({said})"
    return ""


def unseen_of(value: Any, attributes: tuple[str, ...]) -> str:
    """Say what attributes of a class read that code does not show; nothing if they are harmless."""
    if "cwd" in attributes and type(value) is type and issubclass(value, Path):
        return "reads from the environment (pathlib.Path.cwd)"
    if "__subclasses__" in attributes:
        return "looks up by itself (__subclasses__())"  # which there are is nowhere in the class
    return ""


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


def named_if_unseen(value: Any) -> Any:
    """Return the name of something that reads what code does not show, whatever it is called there; else the value."""
    for thing, name in _OBJECTS:
        if value is thing:
            return InLibrary(PYTHON, name)
    return value


def cannot_be_followed(value: Any) -> bool:
    """Whether something that was passed around reads what code does not show."""
    return named_if_unseen(value) is not value


# -- frozen values ---------------------------------------------------------------------------------


def has_frozen_something(function: Any) -> bool:
    """Whether a function, or one it calls, reads values from outside that may be others by now; code is none."""
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one) is not FunctionType or library_of_names(one.__globals__) is not None:
            continue
        for origin in read_code(one.__code__).reads:
            value = resolve(origin, one)[1]
            inside = _function_in(value)
            if inside is not None:
                waiting.append(inside)
            elif not _is_code(value):
                return True
    return False


def _function_in(value: Any) -> Any:
    if type(value) is FunctionType:
        return value
    if type(value) is functools._lru_cache_wrapper:
        return value.__wrapped__
    if full_name(type(value)).startswith("numba.") and hasattr(value, "py_func"):
        return value.py_func
    return None


def _is_code(value: Any) -> bool:
    if type(value) in (InLibrary, Missing, Source, BuiltinFunctionType):
        return True
    if issubclass(type(value), (type, ModuleType)):
        return True
    # Functions of libraries that are no functions to Python; types of numba; loggers, which make no result.
    name = full_name(type(value))
    if name.startswith("numba.") and not name.startswith("numba.typed."):
        return True
    return name in _LIKE_FUNCTIONS or name.endswith("cython_function_or_method")


_LIKE_FUNCTIONS = {"numpy.ufunc", "numpy._ArrayFunctionDispatcher", "logging.Logger"}
