"""PyCOMPSs' names on Windrow's machinery: a program runs after changing ``pycompss.api`` in its imports.

``_MODULES`` says which names the modules of ``pycompss.api`` have. No files stand for them: they are made here, and are known
to Python as ``windrow.compat.pycompss.api.task`` and so on before anybody can import one. All names are here, too.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss import arguments, decorators, options, tasks, waiting

if TYPE_CHECKING:
    from types import ModuleType

    def __getattr__(name: str) -> Any: ...


def _functions() -> dict[str, Any]:
    homes = (arguments, waiting)
    found = {name: one for home in homes for name, one in vars(home).items() if name.startswith("compss_")}
    return {"TaskGroup": waiting.TaskGroup, **found}


def _parameters() -> dict[str, Any]:
    keys = ("Cache", "Depth", "Direction", "Keep_rename", "Prefix", "StdIOStream", "Type", "Weight")
    return {**options.ALIASES, **{key: getattr(options, key) for key in keys}}


#: Decorators that are modules with a class of another name; the class does the same.
_CLASSES = {
    "binary": "Binary", "compss": "COMPSs", "constraint": "Constraint", "container": "Container",
    "data_transformation": "DataTransformation", "decaf": "Decaf", "epilog": "Epilog", "http": "HTTP",
    "implement": "Implement", "julia": "Julia", "mpi": "MPI", "mpmd_mpi": "MPMDMPI", "multinode": "Multinode",
    "ompss": "Ompss", "on_failure": "OnFailure", "opencl": "Opencl", "prolog": "Prolog", "reduction": "Reduction",
    "software": "Software",
}  # fmt: skip

_MODULES: dict[str, dict[str, Any]] = {
    "api": _functions(),
    "parameter": _parameters(),
    "exceptions": {"COMPSsException": arguments.COMPSsException},
    "task": {"task": tasks.task, "Task": tasks.task},
    "local": {"local": waiting.local},
    "IO": {"IO": decorators.IO},
    **{name: dict.fromkeys((name, other), getattr(decorators, name)) for name, other in _CLASSES.items()},
}
_MODULES["mpi"]["Mpi"] = decorators.mpi

__all__ = sorted({name for names in _MODULES.values() for name in names})
globals().update({name: one for names in _MODULES.values() for name, one in names.items()})


def _module(name: str, names: dict[str, Any]) -> ModuleType:
    """Make a module that can be imported, also by reference from a pickle."""
    made = module_from_spec(ModuleSpec(f"{__name__}.{name}", None, origin=__file__, is_package=name == "api"))
    vars(made).update(names, __all__=sorted(names))
    sys.modules[made.__name__] = made
    return made


_MODULES["IO"]["io"] = decorators.IO
api = _module("api", {name: _module(f"api.{name}", names) for name, names in _MODULES.items()})
