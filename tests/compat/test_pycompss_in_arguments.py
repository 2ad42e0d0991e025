"""A body that changes what it only reads: no other task sees that, and no call sees what is done after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from windrow.compat.pycompss import FILE_OUT, INOUT, compss_stop, compss_wait_on, task


@task(returns=1)
def make(count: int) -> Any:
    return [[0]] * 2 + [(1, [2])] if not count else np.zeros(count)


@task(returns=1)
def spoil(thing: Any) -> Any:
    """Say what is there, and change it."""
    found = _first(thing)
    _change(thing)
    return found


@task(returns=1, path=FILE_OUT)
def spoil_and_write(thing: Any, path: str) -> Any:
    found = _first(thing)
    _change(thing)
    with open(path, "w") as file:  # noqa: PTH123 - as PyCOMPSs programs do
        file.write("x")
    return found


@task(thing=INOUT, returns=1)
def grow(thing: Any, other: Any) -> Any:
    found = _first(other)
    _change(other)
    _change(thing)
    return found


def _first(thing: Any) -> float:
    return float(thing[0] if isinstance(thing, np.ndarray) else thing[0][0])


def _change(thing: Any) -> None:
    if isinstance(thing, np.ndarray):
        thing[0] += 1
    else:
        thing[0][0] += 1


@pytest.mark.parametrize("count", [0, 10, 300_000])
@pytest.mark.parametrize("engine", ["processes", "threads", "inline"])
def test_what_is_read_is_each_bodys_own(
    engine: str, count: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("WINDROW_ENGINE", engine)
    monkeypatch.setenv("WINDROW_WORKERS", "2")
    made = make(count)
    mine: Any = [[0], [5]] if not count else np.zeros(count)
    found = [spoil(made) for _ in range(4)]
    found += [spoil(mine) for _ in range(2)] + [spoil([[made][0], 0][0])]
    found += [spoil_and_write(made, str(tmp_path / f"{number}")) for number in range(2)]
    changed: Any = [[0]] if not count else np.zeros(count)
    found += [grow(changed, made), grow(changed, made)]
    before = spoil(changed)
    try:
        assert compss_wait_on(found) == [0.0] * len(found)
        assert compss_wait_on(before) == 2.0
        assert _first(compss_wait_on(changed)) == 2.0
        assert _first(mine) == 0.0
    finally:
        compss_stop()
