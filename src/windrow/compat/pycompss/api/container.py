"""``@container``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import container

__all__ = ["Container", "container"]

Container = container
