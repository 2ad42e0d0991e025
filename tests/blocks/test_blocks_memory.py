"""A chunk's columns go when the chunk is done, not when Python next looks for cycles."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import awkward as ak
import numpy as np

import windrow as wr


def test_columns_are_freed_without_the_garbage_collector() -> None:
    counts = np.arange(600) % 4
    pt = ak.unflatten(np.linspace(0, 1, int(counts.sum())), counts)
    source = wr.data.open({"x": np.arange(600.0), "Muon_pt": pt, "Muon_eta": pt}, grid=100)
    analysis = wr.Pipeline("memory")
    made: list[weakref.ref[Any]] = []

    @analysis.column
    def doubled(x: Any) -> Any:
        value = x * 2
        made.append(weakref.ref(value))
        return value

    @analysis.column
    def muons(Muon: Any) -> Any:
        return Muon[Muon.pt > 0.2]

    @analysis.cut
    def some(muons: Any, doubled: Any) -> Any:
        return (ak.num(muons) > 1) & (doubled >= 0)

    @analysis.output
    def total(doubled: Any, muons: Any) -> Any:
        return float(np.sum(doubled) + ak.sum(muons.eta))

    analysis.run(source, chunk=100, engine="inline", progress=False)
    made.clear()
    gc.collect()
    gc.disable()
    try:
        result = analysis.run(source, chunk=100, engine="inline", progress=False)
        assert len(made) == 6
        assert [ref() is None for ref in made] == [True] * 6
    finally:
        gc.enable()
    assert result.complete
