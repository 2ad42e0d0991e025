"""One session for the tests of a module on each engine, as a program of PyCOMPSs has one for all it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=["processes", "threads"])
def opened(request: pytest.FixtureRequest) -> Iterator[wr.Session]:
    session = wr.Session(engine=request.param, workers=3)
    yield session
    session.close()
