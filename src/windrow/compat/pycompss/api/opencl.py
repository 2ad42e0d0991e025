"""``@opencl``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import opencl

__all__ = ["Opencl", "opencl"]

Opencl = opencl
