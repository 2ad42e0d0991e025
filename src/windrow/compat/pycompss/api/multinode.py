"""``@multinode``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import multinode

__all__ = ["Multinode", "multinode"]

Multinode = multinode
