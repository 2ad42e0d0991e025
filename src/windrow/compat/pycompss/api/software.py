"""``@software``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import software

__all__ = ["Software", "software"]

Software = software
