"""Helpers for particle physics: certified luminosity sections, and momenta made of any columns.

Each name is imported when it is first used; nothing here is needed to run an analysis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.hep.lumi import LumiMask, lumi_mask, lumi_ranges
    from windrow.hep.vectors import momenta

__all__ = ["LumiMask", "lumi_mask", "lumi_ranges", "momenta"]

_HOMES = {
    "LumiMask": "windrow.hep.lumi",
    "lumi_mask": "windrow.hep.lumi",
    "lumi_ranges": "windrow.hep.lumi",
    "momenta": "windrow.hep.vectors",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'windrow.hep' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
