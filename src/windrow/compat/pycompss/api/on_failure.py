"""``@on_failure``: what becomes of a program when a task fails."""

from __future__ import annotations

from windrow.compat.pycompss.failing import on_failure

__all__ = ["OnFailure", "on_failure"]

OnFailure = on_failure
