"""``@local``, for plain functions that wait for their arguments."""

from __future__ import annotations

from windrow.compat.pycompss.synchronising import local

__all__ = ["local"]
