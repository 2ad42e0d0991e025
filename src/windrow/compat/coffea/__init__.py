"""Coffea's processors on Windrow's machinery, unchanged: ``run_processor``, and an executor for coffea's ``Runner``."""

try:
    import coffea.processor  # noqa: F401 - missed here, once for all modules of this room
except ImportError as error:
    from windrow.errors import UsageError

    raise UsageError(f"processors need coffea ({error}): pip install 'windrow[coffea]'") from error

from windrow.compat.coffea.executor import Executor
from windrow.compat.coffea.processor import run_processor

__all__ = ["Executor", "run_processor"]
