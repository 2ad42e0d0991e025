"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import awkward as ak
import pytest
from hypothesis import settings

from windrow.pipeline import adapting

# How long a run takes is no test result either: whether an order is looked for must not depend on it. Tests that want one
# looked for say so.
adapting.STAY_OUT_S = 1e9

# Examples open files, and machines are shared: how long one takes is no test result.
settings.register_profile("windrow", deadline=None)
settings.load_profile("windrow")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Return the directory of the real sample files; their absence fails a CI run, skips others."""
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    directory = Path(os.environ.get("WINDROW_SAMPLES", default))
    if not (directory / "nanoaodv5_sample.root").is_file():
        reason = f"no sample files in {directory} (set WINDROW_SAMPLES)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return directory


@pytest.fixture
def new_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing registered for awkward arrays, as in a program that has just begun.

    Other tests of the same worker may have registered something for the whole process, once and for all. A run is then
    rightly not the same as one in another process, which has not got it.
    """
    monkeypatch.setattr(ak, "behavior", {})
