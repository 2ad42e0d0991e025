"""Windrow runs scientific analyses as fast as the machine allows, with the same answer as the plain program.

Public names, nothing else; each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow import data, errors, hep, order, random
    from windrow.blocks.histogram import hist
    from windrow.blocks.results import updown
    from windrow.compat.coffea.processor import run_processor
    from windrow.files import file
    from windrow.loops.loop_report import LoopReport
    from windrow.loops.parallel_for import map_blocks, parallel_for
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.results.load import load
    from windrow.pipeline.results.merge import merge
    from windrow.pipeline.results.result import Result
    from windrow.tasks.body import ready
    from windrow.tasks.commands.command import command
    from windrow.tasks.declare import InOut, task
    from windrow.tasks.executor import Executor
    from windrow.tasks.files.annotations import InDir, InFile, InFiles, InOutFile, OutDir, OutFile, OutFiles
    from windrow.tasks.future import Future
    from windrow.tasks.resident import resident
    from windrow.tasks.session import Session

__version__ = "0.1.0.dev0"

__all__ = [
    "Executor",
    "Future",
    "InDir",
    "InFile",
    "InFiles",
    "InOut",
    "InOutFile",
    "LoopReport",
    "OutDir",
    "OutFile",
    "OutFiles",
    "Pipeline",
    "Result",
    "Session",
    "__version__",
    "command",
    "data",
    "errors",
    "file",
    "hep",
    "hist",
    "load",
    "map_blocks",
    "merge",
    "order",
    "parallel_for",
    "random",
    "ready",
    "resident",
    "run_processor",
    "task",
    "updown",
]

_HOMES = {
    "Executor": "windrow.tasks.executor",
    "Future": "windrow.tasks.future",
    "InDir": "windrow.tasks.files.annotations",
    "InFile": "windrow.tasks.files.annotations",
    "InFiles": "windrow.tasks.files.annotations",
    "InOut": "windrow.tasks.declare",
    "InOutFile": "windrow.tasks.files.annotations",
    "LoopReport": "windrow.loops.loop_report",
    "OutDir": "windrow.tasks.files.annotations",
    "OutFile": "windrow.tasks.files.annotations",
    "OutFiles": "windrow.tasks.files.annotations",
    "Pipeline": "windrow.pipeline.pipeline",
    "Result": "windrow.pipeline.results.result",
    "Session": "windrow.tasks.session",
    "command": "windrow.tasks.commands.command",
    "file": "windrow.files",
    "hist": "windrow.blocks.histogram",
    "load": "windrow.pipeline.results.load",
    "map_blocks": "windrow.loops.parallel_for",
    "merge": "windrow.pipeline.results.merge",
    "parallel_for": "windrow.loops.parallel_for",
    "ready": "windrow.tasks.body",
    "resident": "windrow.tasks.resident",
    "run_processor": "windrow.compat.coffea",
    "task": "windrow.tasks.declare",
    "updown": "windrow.blocks.results",
}
_MODULES = ("data", "errors", "hep", "order", "random")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"windrow.{name}")
    else:
        from windrow.errors import nearest

        hint = "" if name.startswith("__") else nearest(name, __all__)
        raise AttributeError(f"module 'windrow' has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
