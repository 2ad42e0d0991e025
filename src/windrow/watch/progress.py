"""Stub until the real one lands."""
from __future__ import annotations
from contextlib import contextmanager
from typing import Any, Iterator
@contextmanager
def watching(scheduler: Any, *, progress: Any, name: str, rundir: Any = None) -> Iterator[Any]:
    """Stub."""
    yield None
