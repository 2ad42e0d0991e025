"""Histograms as plain data, compared with NumPy."""

from __future__ import annotations

import json
from typing import Any

import hist
import numpy as np
import pytest
from hist import Hist
from hypothesis import given
from hypothesis import strategies as st

from windrow.watch.report import outputs as report_outputs
from windrow.watch.report.outputs import (
    drawn_histograms,
    histograms_in,
    is_data,
    is_histogram,
    plain_histograms,
    said_values,
)


@st.composite
def axes(draw: Any) -> tuple[Any, Any]:
    """An axis of hist, and its edges for NumPy."""
    kind = draw(st.sampled_from(["regular", "variable", "integer"]))
    bins = draw(st.integers(1, 12))
    low = draw(st.integers(-5, 5))
    if kind == "regular":
        return hist.axis.Regular(bins, low, low + 2, name="x"), np.linspace(low, low + 2, bins + 1)
    if kind == "integer":
        return hist.axis.Integer(low, low + bins, name="n"), np.arange(low, low + bins + 1.0)
    widths = draw(st.lists(st.integers(1, 4), min_size=bins, max_size=bins))
    edges = low + np.concatenate([[0], np.cumsum(widths)]) * 0.25
    return hist.axis.Variable(edges, label="with a label"), edges


@given(axes(), st.lists(st.tuples(st.floats(-9, 9), st.floats(-2, 2)), max_size=40), st.booleans())
def test_one_dimension_is_what_numpy_has(
    axis: tuple[Any, Any], filled: list[tuple[float, float]], weighted: bool
) -> None:
    x = np.array([value for value, _ in filled])
    if isinstance(axis[0], hist.axis.Integer):
        x = np.floor(x)
    # NumPy counts what lies on the last edge, hist does not.
    inside = x < axis[1][-1]
    weight = np.array([w for _, w in filled]) if weighted else np.ones(len(x))
    storage = hist.storage.Weight() if weighted else hist.storage.Double()
    histogram = Hist(axis[0], storage=storage)
    histogram.fill(
        x.astype(int) if isinstance(axis[0], hist.axis.Integer) else x, **({"weight": weight} if weighted else {})
    )
    (plain,) = plain_histograms(histogram)
    expected, _ = np.histogram(x[inside], bins=axis[1], weights=weight[inside])
    squares, _ = np.histogram(x[inside], bins=axis[1], weights=weight[inside] ** 2)
    if isinstance(axis[0], hist.axis.Regular):
        # On an inner edge the two may round to different sides.
        near = np.abs(x[:, None] - axis[1][None, :]).min(axis=1, initial=np.inf) < 1e-9
        if near.any():
            return
    assert np.allclose(plain["values"], expected)
    assert np.allclose(plain["variances"], squares)
    below, above = weight[x < axis[1][0]].sum(), weight[x >= axis[1][-1]].sum()
    assert np.allclose(plain["flow"], [below, above])
    (found,) = plain["axes"]
    if "edges" in found:
        assert np.allclose(found["edges"], axis[1])
    else:
        assert found["categories"] == [str(int(edge)) for edge in axis[1][:-1]]
    assert found["bins"] == len(expected)
    json.dumps(plain, allow_nan=False)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), max_size=40))
def test_more_dimensions_are_shown_by_each_axis(points: list[Any]) -> None:
    rows = np.array(points, dtype=float).reshape(-1, 3) * 0.999 + 0.0005
    histogram = Hist.new.Reg(3, 0, 1, name="a").Reg(4, 0, 1, name="b").Reg(5, 0, 1, name="c").Double()
    histogram.fill(*rows.T)
    projected = plain_histograms(histogram)
    assert [one["projected"] for one in projected] == ["a", "b", "c"]
    for number, one in enumerate(projected):
        assert np.array_equal(one["values"], histogram.values().sum(axis=tuple({0, 1, 2} - {number})))
        assert "summed over" in one["notes"][0]
    (flat,) = plain_histograms(histogram.project("a", "b"))
    assert np.array_equal(flat["values"], histogram.values().sum(axis=2))


def test_labels_names_and_categories() -> None:
    histogram = Hist.new.Reg(2, 0, 1, name="mass", label="m [GeV]").StrCat(["e", "mu"]).Double()
    (plain,) = plain_histograms(histogram)
    assert [axis["label"] for axis in plain["axes"]] == ["m [GeV]", "Axis 1"]
    assert plain["axes"][1]["categories"] == ["e", "mu"]


def test_too_many_bins_are_joined_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_outputs, "MOST_BINS", 10)
    monkeypatch.setattr(report_outputs, "MOST_CELLS", 4)
    x = np.linspace(0.001, 0.999, 500)
    (line,) = plain_histograms(Hist.new.Reg(33, 0, 1, name="x").Weight().fill(x, weight=2.0))
    assert len(line["values"]) == 9
    assert sum(line["values"]) == 1000
    assert sum(line["variances"]) == 2000
    assert len(line["axes"][0]["edges"]) == 10
    assert line["notes"] == ["4 bins of x are drawn as one"]
    (plane,) = plain_histograms(Hist.new.Reg(6, 0, 1).Reg(3, 0, 1).Double().fill(x, x))
    assert np.array(plane["values"]).shape == (3, 3)
    assert np.array(plane["values"]).sum() == 500
    profile = Hist.new.Reg(30, 0, 1, name="x").Mean().fill(x, sample=x)
    assert plain_histograms(profile) == []  # means do not add up


def test_what_json_does_not_have() -> None:
    histogram = Hist.new.Var([-np.inf, 0, 1, np.inf]).Mean()
    histogram.fill([0.5], sample=[np.nan])
    (plain,) = plain_histograms(histogram)
    assert plain["axes"][0]["edges"] == [-1.0, 0.0, 1.0, 2.0]
    assert plain["values"][1] is None
    json.dumps(plain, allow_nan=False)


def test_histograms_are_found_wherever_they_hide() -> None:
    one = Hist.new.Reg(2, 0, 1).Double()
    nested = {"a": [one, {"b": [one, 5]}], 3: Hist, "c": {"d": np.zeros(3)}}
    assert [path for path, _ in histograms_in(nested)] == [("a", 0), ("a", 1, "b", 0)]
    assert not is_histogram(Hist)
    assert not is_histogram({"values": 1})
    outputs = {"set": {("out", None, "nominal"): nested, ("n", "SR", "up"): {"rows": 12_345, "mean": 0.5}}}
    drawn, notes = drawn_histograms(outputs)
    assert [item["name"] for item in drawn] == ["out / a / 0", "out / a / 1 / b / 0"]
    assert notes == []
    (value,) = said_values(outputs)
    assert value["text"] == "rows: 12,345, mean: 0.5"


def test_a_histogram_that_cannot_be_read_is_named() -> None:
    class Broken(Hist):  # type: ignore[misc]
        def values(self, flow: bool = False) -> Any:
            raise RuntimeError("no")

    broken = Broken(hist.axis.Regular(2, 0, 1))
    cube = Hist.new.Reg(2, 0, 1).Reg(2, 0, 1).Reg(2, 0, 1).Mean()
    drawn, notes = drawn_histograms({"set": {("a", None, "nominal"): broken, ("b", None, "nominal"): cube}})
    assert drawn == []
    assert "RuntimeError: no" in notes[0]
    assert "more dimensions" in notes[1]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({"is_mc": False}, True), ({"isMC": True}, False), ({"is_data": True}, True), ({"kind": "data"}, True),
     ({"type": "Background"}, False), ({"year": 2018}, None), ({"is_mc": None}, None), ({}, None)],
)  # fmt: skip
def test_what_is_data(metadata: dict[str, Any], expected: bool | None) -> None:
    assert is_data(metadata) is expected
