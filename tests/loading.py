"""Loading programs that are no part of the package: examples and benchmarks."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


@functools.cache
def load(path: str, *, known: bool = False) -> ModuleType:
    """Load a file of this project, named from its root, as a script that nobody can import.

    Dataclasses look for their module while they are made. Afterwards it must not be known: other processes could not
    import it, so that what they are to run has to be sent to them whole. With ``known`` it stays known by the name that
    it has in its own directory, by which functions compiled earlier, and kept on disk, look for it.
    """
    name = Path(path).stem if known else path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    assert name not in sys.modules
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        if not known:
            del sys.modules[name]
    return module
