"""Coffea's processors on Windrow's machinery, unchanged: ``run_processor``, and an executor for coffea's ``Runner``."""

from __future__ import annotations

try:
    import coffea.processor  # noqa: F401 - said here once, for all modules of this room
except ImportError as error:
    from windrow.errors import UsageError

    raise UsageError(f"coffea's processors need coffea, which is not here ({error}): pip install 'windrow[coffea]'") from error

from windrow.compat.coffea.executor import Executor
from windrow.compat.coffea.processor import run_processor

__all__ = ["Executor", "run_processor"]
