"""``@prolog``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import prolog

__all__ = ["Prolog", "prolog"]

Prolog = prolog
