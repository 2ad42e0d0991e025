"""``@julia``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import julia

__all__ = ["Julia", "julia"]

Julia = julia
