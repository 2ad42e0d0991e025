"""``@IO``, for tasks that read and write."""  # noqa: N999 - the name that programs import

from __future__ import annotations

from windrow.compat.pycompss.needs import IO

__all__ = ["IO", "io"]

io = IO
