"""``@implement``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import implement

__all__ = ["Implement", "implement"]

Implement = implement
