"""A result knows which rows each region has."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.blocks.selection import Selection, row_set
from windrow.pipeline.run import workload


@given(length=st.integers(0, 400), share=st.floats(0, 1), start=st.integers(0, 10**9))
def test_a_row_set_gives_back_its_rows(length: int, share: float, start: int) -> None:
    index = np.flatnonzero(np.random.default_rng(length).random(length) < share)
    kept = row_set(Selection(length, index), start)
    assert kept.rows().tolist() == (index + start).tolist()
    assert kept.data.nbytes <= length // 8 + 8
    everything = row_set(Selection(length), start)
    assert everything.rows().tolist() == list(range(start, start + length))


def two_regions() -> wr.Pipeline:
    analysis = wr.Pipeline("kept")

    @analysis.cut
    def low(x: Any) -> Any:
        return x < 0.5

    @analysis.cut
    def rare(y: Any) -> Any:
        return y < 0.01

    analysis.region("low", "low")
    analysis.region("rare", "!low", "rare")

    @analysis.output
    def count(x: Any) -> int:
        return len(x)

    return analysis


def made(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(rows)
    return {"x": rng.random(rows), "y": rng.random(rows)}


@given(rows=st.integers(0, 500), grid=st.integers(1, 200), workers=st.integers(1, 3))
def test_rows_of_regions_are_kept(rows: int, grid: int, workers: int) -> None:
    data = {"a": made(rows), "b": made(rows + 1)}
    source = wr.data.open(data, grid=grid)
    result = two_regions().run(source, workers=workers, engine="threads", progress=False)
    assert [file.dataset for file in result.kept.files] == ["a", "b"]
    for number, columns in enumerate(data.values()):
        low = columns["x"] < 0.5
        rare = ~low & (columns["y"] < 0.01)
        assert result.kept.rows("low", number).tolist() == np.flatnonzero(low).tolist()
        assert result.kept.rows("rare", number).tolist() == np.flatnonzero(rare).tolist()


def test_too_many_rows_are_not_kept_and_that_is_said(monkeypatch: Any) -> None:
    monkeypatch.setattr(workload, "KEPT_BYTES", 50)
    result = two_regions().run(wr.data.open(made(1000), grid=100), progress=False)
    assert result.kept is None
    assert any("not kept" in note for note in result.notes)
    assert result["count", "low"] == (made(1000)["x"] < 0.5).sum()
