"""What code takes from where it cannot be followed: the environment, and names that it looks up by itself.

To the environment belong the command line and the directory that the program runs in.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.store.fingerprint.libraries import PYTHON
from windrow.store.fingerprint.names import InLibrary

if TYPE_CHECKING:
    from windrow.store.fingerprint.code import Origin, Reading


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
        return _opaque_name(value.name, reading)
    if "cwd" in origin.attributes and type(value) is type and issubclass(value, Path):
        return "reads from the environment (pathlib.Path.cwd)"
    if "__subclasses__" in origin.attributes:
        return "looks up by itself (__subclasses__())"  # which there are is nowhere in the class
    return ""


def _opaque_name(name: str, reading: Reading) -> str:
    plain = name.removeprefix("builtins.")
    if plain in _LOOKS_UP or (plain in _LOOKS_UP_IF_BARE and plain in reading.bare):
        return f"looks up by itself ({plain}())"
    parts = name.split(".")
    for count in (2, 3):
        said = ".".join(parts[:count])
        if said in _ENVIRONMENT:
            return f"reads from the environment ({said})"
    return ""
