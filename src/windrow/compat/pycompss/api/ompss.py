"""``@ompss``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import ompss

__all__ = ["Ompss", "ompss"]

Ompss = ompss
