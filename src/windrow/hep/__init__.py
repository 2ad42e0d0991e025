"""Helpers for particle physics: certified luminosity sections, and momenta made of any columns.

Each name is imported when it is first used; nothing here is needed to run an analysis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.hep.lumi import LumiMask, lumi_mask, lumi_ranges
    from windrow.hep.vectors import momenta

__all__ = ["LumiMask", "lumi_mask", "lumi_ranges", "momenta"]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in __all__:
        raise AttributeError(f"module 'windrow.hep' has no attribute {name!r}")
    home = "vectors" if name == "momenta" else "lumi"
    return getattr(importlib.import_module(f"windrow.hep.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
