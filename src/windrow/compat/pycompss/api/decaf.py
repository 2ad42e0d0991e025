"""``@decaf``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import decaf

__all__ = ["Decaf", "decaf"]

Decaf = decaf
