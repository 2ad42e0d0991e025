"""Datasets normalised and stacked equal plain NumPy; the original result stays as it was."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boost_histogram as bh
import hist
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_analysis as small
from windrow.errors import MergeError, UnknownNameError, UsageError
from windrow.pipeline.results.histograms import scaled
from windrow.pipeline.results.load import keep, load
from windrow.pipeline.results.merge import add_outputs

if TYPE_CHECKING:
    from pathlib import Path

    import windrow as wr

LUMI = 59.7


@pytest.fixture(scope="module")
def result() -> wr.Result:
    return small.run()


def selected(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """What NumPy says about the signal region of one dataset."""
    mask = (data["y"] > 0.2) & (data["x"] > 0.5)
    weights = data["w"][mask]
    return {
        "x": data["x"][mask],
        "w": weights,
        "up": weights * (1 + data["x"][mask]) if small.METADATA[name]["is_mc"] else weights,
        "norm": small.METADATA[name].get("xsec", 0) * LUMI / data["w"].sum(),
    }


def normalise(metadata: Any, out: Any) -> float:
    return float(metadata["xsec"] * LUMI / out["sums"]["sumw"]) if metadata["is_mc"] else 1.0


def test_a_normalised_stack_equals_numpy(result: wr.Result) -> None:
    stack = result.scale(normalise).group({"top": ["tt*", "st"]})
    parts = [selected(name, data) for name, data in small.arrays().items()]
    top, data = parts[:2], parts[2]
    for variation, column in (("nominal", "w"), ("pileup_up", "up")):
        expected = sum(np.histogram(p["x"], small.EDGES, weights=p["norm"] * p[column])[0] for p in top)
        squares = sum(np.histogram(p["x"], small.EDGES, weights=(p["norm"] * p[column]) ** 2)[0] for p in top)
        got = stack["spectrum", "SR", variation, "top"]
        np.testing.assert_allclose(got.values(), expected, rtol=1e-12)
        np.testing.assert_allclose(got.variances(), squares, rtol=1e-12)
    recorded = stack["spectrum", "SR", "data"]
    plain = np.histogram(data["x"], small.EDGES, weights=data["w"])[0]
    np.testing.assert_allclose(recorded.values(), plain, rtol=1e-12)
    line = stack.cutflow["SR", "top"].executed[-1]
    assert line.passed == sum(len(p["x"]) for p in top)
    assert math.isclose(line.sumw, sum(p["norm"] * p["w"].sum() for p in top), rel_tol=1e-12)
    squared = sum(((p["norm"] * p["w"]) ** 2).sum() for p in top)
    assert math.isclose(line.sumw2, squared, rel_tol=1e-12)
    assert stack["count", "SR", "top"] == line.passed


def test_the_original_is_untouched(result: wr.Result) -> None:
    before = pickle.dumps((result.outputs, result.cutflow.as_dict(), result.notes))
    result.scale(3.0).group({"all": "*"})
    assert pickle.dumps((result.outputs, result.cutflow.as_dict(), result.notes)) == before


def test_groups_come_first_and_others_stay(result: wr.Result) -> None:
    grouped = result.group({"top": ["tt", "st"]})
    assert list(grouped.outputs) == ["top", "data"]
    assert grouped.cutflow.datasets == ("top", "data")
    assert grouped.cutflow["SR", "top"].dataset == "top"
    top = grouped.datasets["top"]
    assert top["is_mc"] is True
    assert "xsec" not in top
    assert top["members"]["st"]["xsec"] == 2.0
    assert result.cutflow["SR"].as_dict() == grouped.cutflow["SR"].as_dict()


def test_a_variation_some_lack_meets_their_nominal(result: wr.Result) -> None:
    everything = result.group({"all": "*"})
    got = everything["spectrum", "SR", "pileup_up"]
    parts = [selected(name, data) for name, data in small.arrays().items()]
    expected = sum(np.histogram(p["x"], small.EDGES, weights=p["up"])[0] for p in parts)
    np.testing.assert_allclose(got.values(), expected, rtol=1e-12)


def test_groups_of_one_and_groups_of_groups(result: wr.Result) -> None:
    twice = result.group({"top": ["tt", "st"]}).group({"everything": ["top", "data"]})
    once = result.group({"everything": "*"})
    assert twice["count", "CR"] == once["count", "CR"]
    assert list(result.group({"TT": "tt"}).outputs) == ["TT", "st", "data"]
    assert list(result.group({"tt": "*t"}).outputs) == ["tt", "data"]
    assert list(result.group({}).outputs) == ["tt", "st", "data"]


@pytest.mark.parametrize(
    ("groups", "error", "words"),
    [
        ({"top": ["tta"]}, UnknownNameError, "did you mean 'tt'"),
        ({"top": ["x*"]}, UnknownNameError, "datasets: tt, st, data"),
        ({"a": "tt", "b": "*t"}, UsageError, "'tt' is in two groups, 'a' and 'b'"),
        ({"data": ["tt"]}, UsageError, "called as a dataset"),
        ({"top": []}, UsageError, "names no dataset"),
        (["tt"], UsageError, "takes a mapping"),
    ],
)
def test_wrong_groups_are_refused(result: wr.Result, groups: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        result.group(groups)


# --- factors --------------------------------------------------------------------------------------


def test_factors_by_dataset(result: wr.Result) -> None:
    got = result.scale({"tt": 2.0})
    for name, by in (("tt", 2.0), ("st", 1.0)):
        one, two = result["spectrum", "SR", name], got["spectrum", "SR", name]
        np.testing.assert_allclose(two.values(), by * one.values())
        np.testing.assert_allclose(two.variances(), by**2 * one.variances())
    assert got["count", "SR", "tt"] == result["count", "SR", "tt"]
    assert "tt by 2" in got.notes[-2]
    assert got.notes[-1].endswith("count, sums")


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        ({"ttt": 1.0}, "no dataset 'ttt'; did you mean 'tt'"),
        ("2x", "must be a finite number, got str '2x'"),
        (math.nan, "must be a finite number, got float nan"),
        (lambda meta, out: meta["xsec"], "for dataset 'data', KeyError: 'xsec'"),
        (lambda meta, out: out["sum"], "no output 'sum'; did you mean 'sums'"),
        (lambda meta, out: 1 / 0, "for dataset 'tt', ZeroDivisionError"),
        (lambda meta, out: out["spectrum", "SR"], "must be a finite number"),
        (lambda meta, out: math.inf, "got float inf"),
    ],
)
def test_wrong_factors_are_refused(result: wr.Result, factor: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        result.scale(factor)


def test_the_function_sees_one_dataset_as_a_result(result: wr.Result) -> None:
    seen = {}

    def factor(metadata: Any, out: Any) -> float:
        seen[metadata["dataset"]] = (
            out["count", "SR"], out["spectrum", "CR", "nominal"].sum().value, list(out.outputs),
            out.cutflow["SR"].passed,
        )  # fmt: skip
        return 1.0

    result.scale(factor)
    for name in ("tt", "st", "data"):
        count, total, datasets, passed = seen[name]
        assert count == passed == result["count", "SR", name]
        assert total == result["spectrum", "CR", name].sum().value
        assert datasets == [name]


def test_scaling_an_unweighted_table_shows_weights(result: wr.Result) -> None:
    table = result.cutflow["SR", "tt"]
    plain = replace(table, weights=frozenset())
    assert "weighted" not in str(plain)
    assert "weighted" in str(replace(plain, scaled=True))


# --- histograms -----------------------------------------------------------------------------------

values = st.lists(st.floats(-0.5, 1.5), max_size=20)
factors = st.floats(-3, 3).filter(lambda f: abs(f) > 1e-3)


@given(values, factors, st.sampled_from(["Int64", "Double", "AtomicInt64", "Unlimited"]))
def test_counts_become_weights(xs: list[float], by: float, storage: str) -> None:
    histogram = bh.Histogram(bh.axis.Regular(4, 0, 1), storage=getattr(bh.storage, storage)())
    histogram.fill(xs)
    got = scaled(histogram, by, variances=True)
    expected = bh.Histogram(bh.axis.Regular(4, 0, 1), storage=bh.storage.Weight())
    expected.fill(xs, weight=np.full(len(xs), by))
    np.testing.assert_allclose(got.values(flow=True), expected.values(flow=True), atol=1e-12)
    np.testing.assert_allclose(got.variances(flow=True), expected.variances(flow=True), atol=1e-12)
    assert got.storage_type is bh.storage.Weight


@given(values, factors, st.booleans())
def test_profiles_keep_their_means(xs: list[float], by: float, weighted: bool) -> None:
    by = abs(by)
    weights = np.linspace(0.5, 2.0, len(xs)) if weighted else None
    samples = np.square(xs)
    storage = bh.storage.WeightedMean() if weighted else bh.storage.Mean()
    histogram = bh.Histogram(bh.axis.Regular(4, 0, 1), storage=storage)
    histogram.fill(xs, weight=weights, sample=samples)
    got = scaled(histogram, by, variances=True)
    expected = bh.Histogram(bh.axis.Regular(4, 0, 1), storage=bh.storage.WeightedMean())
    expected.fill(xs, weight=by * (np.ones(len(xs)) if weights is None else weights), sample=samples)
    for name in expected.view().dtype.names:
        np.testing.assert_allclose(got.view(flow=True)[name], expected.view(flow=True)[name], atol=1e-9)


def test_sums_of_weights_without_squares_stay_sums() -> None:
    histogram = hist.Hist(hist.axis.Regular(4, 0, 1, name="x"), name="h", label="my label")
    histogram.fill([0.1, 0.1, 5.0], weight=[2.0, 3.0, 4.0])
    got = scaled(histogram, 0.5, variances=False)
    assert got.storage_type is bh.storage.Double
    assert got.values(flow=True).tolist() == [0, 2.5, 0, 0, 0, 2.0]
    assert got.variances() is None
    assert (got.name, got.label, got.axes[0].name) == ("h", "my label", "x")
    assert type(got) is hist.Hist
    assert histogram.values(flow=True).tolist() == [0, 5.0, 0, 0, 0, 4.0]


def with_outputs(result: wr.Result, make: Any) -> wr.Result:
    outputs: Any = {d: {("h", "SR", "nominal"): make(d)} for d in result.outputs}
    return replace(result, outputs=outputs, output_names=("h",))


def test_datasets_can_still_be_added_after_scaling_some(result: wr.Result) -> None:
    def make(name: str) -> Any:
        histogram = hist.Hist(hist.axis.Regular(2, 0, 1), storage=hist.storage.Int64())
        return {"inner": [histogram.fill([0.1, 0.2, 0.7])]}

    got = with_outputs(result, make).scale({"tt": 0.5}).group({"mc": ["tt", "st"]})
    total = got["h", "SR", "mc"]["inner"]
    assert len(total) == 2  # lists are joined
    assert total[0].values().tolist() == [1.0, 0.5]

    def half(name: str) -> Any:
        histogram = hist.Hist(hist.axis.Regular(2, 0, 1))  # filled with weights in one dataset only
        return histogram.fill([0.1], weight=[3.0]) if name == "tt" else histogram.fill([0.1])

    both = with_outputs(result, half).scale({"tt": 0.5}).group({"mc": ["tt", "st"]})
    assert both["h", "SR", "mc"].values().tolist() == [2.5, 0.0]
    assert both["h", "SR", "mc"].variances() is None


def test_other_kinds_are_left_alone(result: wr.Result) -> None:
    made = Counter({"a": 2})
    got = with_outputs(result, lambda name: made).scale(5)
    assert got["h", "SR", "tt"] is made


# --- outputs with a merge of their own ------------------------------------------------------------


def test_a_merge_of_ones_own_is_used_and_changes_nothing() -> None:
    def longest(left: list[int], right: list[int]) -> list[int]:
        left.extend(right)  # changes what it is given
        left.sort()
        return left[-2:]

    one: Any = {("h", "SR", "nominal"): [5, 1]}
    two: Any = {("h", "SR", "nominal"): [4, 3]}
    assert add_outputs([one, two], {"h": longest})[0] == {("h", "SR", "nominal"): [4, 5]}
    assert (one, two) == ({("h", "SR", "nominal"): [5, 1]}, {("h", "SR", "nominal"): [4, 3]})
    assert add_outputs([one, two], {})[0] == {("h", "SR", "nominal"): [5, 1, 4, 3]}


def test_a_merge_that_was_lost_is_not_guessed() -> None:
    one: Any = {("h", None, "nominal"): [5]}
    two: Any = {("h", None, "nominal"): [4]}
    with pytest.raises(MergeError, match="was not kept on disk"):
        add_outputs([one, two], {"h": None})


def joined(left: Any, right: Any) -> Any:
    return np.concatenate([left, right])


def test_arrays_that_are_joined_in_a_run_are_joined_in_groups(tmp_path: Path) -> None:
    made = small.analysis()

    @made.output(merge=joined)
    def chosen(x: Any) -> Any:
        return x

    @made.output(merge=lambda left, right: np.concatenate([left, right]))
    def nameless(x: Any) -> Any:
        return x

    result = small.run(made)
    data = small.arrays()
    masks = {n: (columns["y"] > 0.2) & (columns["x"] > 0.5) for n, columns in data.items()}
    expected = np.concatenate([data[name]["x"][masks[name]] for name in ("tt", "st")])
    top = result.group({"top": ["tt", "st"]})
    for name in ("chosen", "nameless"):
        np.testing.assert_array_equal(top[name, "SR", "top"], expected)
    keep(result, tmp_path / "run")
    again = load(tmp_path / "run")
    # A function without a name is not kept: that must not turn joining into adding.
    with pytest.raises(MergeError, match=r"'nameless'.*was not kept on disk"):
        again.group({"top": ["tt", "st"]})
    assert again.merges["chosen"] is joined


def test_tables_without_one_cut_are_grouped_and_scaled() -> None:
    result = small.run(nminus1=True)
    top = result.scale({"tt": 2.0, "st": 3.0}).group({"top": ["tt", "st"]}).nminus1["SR", "top"]
    data = small.arrays()
    weights = {}
    for name, by in (("tt", 2.0), ("st", 3.0)):
        many = data[name]["x"] > 0.5
        weights[name] = by * data[name]["w"][many]
    assert top.nev[1] == sum(map(len, weights.values()))
    assert top.wgtev[1] == pytest.approx(sum(w.sum() for w in weights.values()), rel=1e-12)
    assert top.dataset == "top"
