"""``@constraint``: what a task needs while it runs."""

from __future__ import annotations

from windrow.compat.pycompss.needs import constraint

__all__ = ["Constraint", "constraint"]

Constraint = constraint
