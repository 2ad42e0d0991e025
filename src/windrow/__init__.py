"""Windrow runs scientific analyses as fast as the machine allows, with the same answer as the plain program.

Public names, nothing else; each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow import data, errors, hep, random
    from windrow.blocks.results import updown
    from windrow.files import file
    from windrow.pipeline.keeping import load, merge
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.result import Result
    from windrow.tasks.body import ready
    from windrow.tasks.declare import InOut, task
    from windrow.tasks.executor import Executor
    from windrow.tasks.future import Future
    from windrow.tasks.session import Session

__version__ = "0.1.0.dev0"

__all__ = [
    "Executor",
    "Future",
    "InOut",
    "Pipeline",
    "Result",
    "Session",
    "__version__",
    "data",
    "errors",
    "file",
    "hep",
    "load",
    "merge",
    "random",
    "ready",
    "task",
    "updown",
]

_HOMES = {
    "Executor": "windrow.tasks.executor",
    "Future": "windrow.tasks.future",
    "InOut": "windrow.tasks.declare",
    "Pipeline": "windrow.pipeline.pipeline",
    "Result": "windrow.pipeline.result",
    "Session": "windrow.tasks.session",
    "file": "windrow.files",
    "load": "windrow.pipeline.keeping",
    "merge": "windrow.pipeline.keeping",
    "ready": "windrow.tasks.body",
    "task": "windrow.tasks.declare",
    "updown": "windrow.blocks.results",
}
_MODULES = ("data", "errors", "hep", "random")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"windrow.{name}")
    else:
        raise AttributeError(f"module 'windrow' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
