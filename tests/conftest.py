"""Fixtures for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
