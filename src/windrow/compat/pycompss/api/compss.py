"""``@compss``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import compss

__all__ = ["COMPSs", "compss"]

COMPSs = compss
