"""What the processes of workers import before they are made."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from windrow.engines.processes import startup

if TYPE_CHECKING:
    import pytest


def test_many_workers_find_imported_what_few_import_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "HEAVY", ("numpy", "heavy_one", "heavy_two"))
    monkeypatch.setitem(sys.modules, "windrow.pipeline", ModuleType("windrow.pipeline"))
    monkeypatch.setitem(sys.modules, "heavy_one", ModuleType("heavy_one"))
    few = startup.preload_for_tasks(startup.FEW)
    many = startup.preload_for_tasks(startup.FEW + 1)
    assert "numpy" in few
    assert "windrow.engines.processes.worker" in few
    assert "windrow.pipeline" not in few
    assert {"heavy_one", "windrow.pipeline"} <= set(many) - set(few)
    assert "heavy_two" not in many
    assert startup.preload() == many
