"""``@task``: functions that run elsewhere."""

from __future__ import annotations

from windrow.compat.pycompss.tasks import task

__all__ = ["Task", "task"]

Task = task
