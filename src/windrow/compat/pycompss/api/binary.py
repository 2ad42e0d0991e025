"""``@binary``, for tasks that run a program."""

from __future__ import annotations

from windrow.compat.pycompss.binaries import binary

__all__ = ["Binary", "binary"]

Binary = binary
