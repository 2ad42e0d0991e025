"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import awkward as ak
import pytest
from hypothesis import settings

from windrow.pipeline import adapting

if TYPE_CHECKING:
    from collections.abc import Iterator

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


@pytest.fixture(autouse=True)
def registered_behaviours() -> Iterator[None]:
    """Take back what a test registers for all awkward arrays: other programs have not got it, so nothing is the same there."""
    before = dict(ak.behavior)
    yield
    if ak.behavior != before:
        ak.behavior.clear()
        ak.behavior.update(before)
