"""``@reduction``: a task that takes its collection in parts."""

from __future__ import annotations

from windrow.compat.pycompss.reducing import reduction

__all__ = ["Reduction", "reduction"]

Reduction = reduction
