"""``@http``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import http

__all__ = ["HTTP", "http"]

HTTP = http
