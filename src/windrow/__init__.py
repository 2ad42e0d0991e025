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

__version__ = "0.1.0.dev0"

__all__ = [
    "Pipeline",
    "Result",
    "__version__",
    "data",
    "errors",
    "file",
    "hep",
    "load",
    "merge",
    "random",
    "updown",
]

_HOMES = {
    "Pipeline": "windrow.pipeline.pipeline",
    "Result": "windrow.pipeline.result",
    "file": "windrow.files",
    "load": "windrow.pipeline.keeping",
    "merge": "windrow.pipeline.keeping",
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
