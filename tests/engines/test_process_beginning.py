"""What the processes of workers import before they are made."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from windrow.engines import process_beginning

if TYPE_CHECKING:
    import pytest


def test_many_workers_find_imported_what_few_import_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_beginning, "HEAVY", ("numpy", "heavy_one", "heavy_two"))
    monkeypatch.setitem(sys.modules, "windrow.pipeline", ModuleType("windrow.pipeline"))
    monkeypatch.setitem(sys.modules, "heavy_one", ModuleType("heavy_one"))
    few = process_beginning.preload_for_tasks(process_beginning.FEW)
    many = process_beginning.preload_for_tasks(process_beginning.FEW + 1)
    assert "numpy" in few
    assert "windrow.engines.process_worker" in few
    assert "windrow.pipeline" not in few
    assert {"heavy_one", "windrow.pipeline"} <= set(many) - set(few)
    assert "heavy_two" not in many
    assert process_beginning.preload() == many
