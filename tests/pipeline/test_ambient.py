"""What a step relies on is the same in a worker process, or the run says that it is not."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

import windrow as wr
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

SETTINGS = """
SCALE = 1.0
TABLE = {"a": 1.0}


def scaled(x):
    return x * SCALE * TABLE["a"]


class Cuts:
    low = 1.0
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module of the user's own, imported from a directory of theirs."""
    (tmp_path / "settings_of_mine.py").write_text(SETTINGS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("settings_of_mine")
    sys.modules.pop("settings_of_mine", None)


def data() -> Any:
    return wr.data.open({"x": np.ones(400)}, grid=100)


def answer(function: Callable[[Any], Any], engine: str) -> float:
    made = wr.Pipeline("ambient")
    made.column(name="z")(function)

    @made.output
    def total(z: Any) -> float:
        return float(np.sum(z))

    return float(made.run(data(), engine=engine, workers=2, progress=False)["total"])


def test_state_of_own_modules_goes_along(settings: ModuleType) -> None:
    """What the program made of a module counts, not what its file says."""
    settings.SCALE = 3.0  # type: ignore[attr-defined]
    settings.TABLE["a"] = 5.0
    settings.Cuts.low = 7.0

    def z(x: Any) -> Any:
        return settings.scaled(x) + settings.Cuts.low * settings.SCALE

    assert answer(z, "inline") == answer(z, "processes") == 400 * (15.0 + 21.0)


def test_functions_taken_from_a_module_have_its_state(settings: ModuleType) -> None:
    settings.SCALE = 3.0  # type: ignore[attr-defined]
    scaled = settings.scaled

    def z(x: Any) -> Any:
        return scaled(x)

    assert answer(z, "inline") == answer(z, "processes") == 1200.0


@pytest.mark.usefixtures("settings")
def test_a_module_imported_while_a_step_runs() -> None:
    def z(x: Any) -> Any:
        from settings_of_mine import scaled  # type: ignore[import-not-found]

        return scaled(x)

    assert answer(z, "processes") == answer(z, "inline") == answer(z, "processes") == 400.0


def test_a_step_that_would_give_another_answer_is_refused(settings: ModuleType) -> None:
    def z(x: Any) -> Any:
        from settings_of_mine import scaled

        return scaled(x)

    settings.SCALE = 3.0  # type: ignore[attr-defined]
    assert answer(z, "inline") == 1200.0
    with pytest.raises(EngineError, match=r"step 'z' is not the same in a worker process.*'SCALE'"):
        answer(z, "processes")


class Doubling(ak.Array):  # type: ignore[misc] # awkward ships no types
    @property
    def twice(self) -> Any:
        return self.value * 2


def test_behaviours_and_settings_go_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ak.behavior, ("*", "doubling"), Doubling)

    def z(x: Any) -> Any:
        assert np.geterr()["divide"] == "ignore"
        return ak.with_name(ak.zip({"value": x}), "doubling").twice

    with np.errstate(divide="ignore"):
        assert answer(z, "inline") == answer(z, "processes") == 800.0


def test_a_run_that_is_continued_elsewhere_has_one_answer(settings: ModuleType, tmp_path: Path) -> None:
    settings.SCALE = 3.0  # type: ignore[attr-defined]

    def made() -> wr.Pipeline:
        pipeline = wr.Pipeline("ambient")

        @pipeline.output
        def total(x: Any) -> float:
            return float(np.sum(x) * settings.SCALE)

        return pipeline

    first = made().run(data(), engine="processes", workers=2, rundir=tmp_path / "run", progress=False)
    again = made().run(data(), engine="inline", rundir=tmp_path / "run", resume=True, progress=False)
    assert first["total"] == again["total"] == 1200.0
    assert again.reads == []
