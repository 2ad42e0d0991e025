"""``@epilog``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import epilog

__all__ = ["Epilog", "epilog"]

Epilog = epilog
