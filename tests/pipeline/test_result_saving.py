"""Outputs in ROOT, coffea, JSON and NumPy files are the outputs; what a format cannot hold is said."""

from __future__ import annotations

import importlib.util
import json
import pickle
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import boost_histogram as bh
import cramjam
import hist
import numpy as np
import pytest
import uhi.io.json
import uproot

import small_analysis as small
from windrow.errors import LeftOutWarning, MissingFileError, UsageError
from windrow.pipeline.results.export import save

if TYPE_CHECKING:
    import windrow as wr


@pytest.fixture(scope="module")
def result() -> wr.Result:
    return small.run()


class Odd:
    """Something no format but a pickle knows."""


def with_values(result: wr.Result, values: dict[str, Any]) -> wr.Result:
    outputs: Any = {"tt": {(name, "SR", "nominal"): value for name, value in values.items()}}
    return replace(result, outputs=outputs, output_names=tuple(values))


def histograms() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    xs, ys, zs, ws = rng.normal(0.5, 0.5, (4, 200))
    x, y = bh.axis.Regular(4, 0, 1), bh.axis.Variable([0, 0.1, 0.5, 1])
    words = hist.axis.StrCategory(["a", "b"], name="word", growth=True)
    whole = hist.axis.Integer(0, 3, underflow=False, name="n")
    return {
        "one": bh.Histogram(x).fill(xs),
        "weighted": bh.Histogram(y, storage=bh.storage.Weight()).fill(xs, weight=ws),
        "two": bh.Histogram(x, y, storage=bh.storage.Weight()).fill(xs, ys, weight=ws),
        "three": bh.Histogram(x, y, x, storage=bh.storage.Weight()).fill(xs, ys, zs, weight=ws),
        "counts": bh.Histogram(x, storage=bh.storage.Int64()).fill(xs),
        "words": hist.Hist(words, x, storage=hist.storage.Weight()).fill(["a", "b", "c", "a"], xs[:4], weight=ws[:4]),
        "whole": hist.Hist(whole, storage=hist.storage.Weight()).fill([0, 1, 1, 7, -2]),
        "log": hist.Hist(hist.axis.Regular(3, 1, 1000, transform=hist.axis.transform.log)).fill([5]),
    }


# --- ROOT -----------------------------------------------------------------------------------------


def test_root_histograms_have_the_names_of_datacards(result: wr.Result, tmp_path: Path) -> None:
    assert save(result, tmp_path / "out.root") == []
    with uproot.open(tmp_path / "out.root") as file:
        names = {name for name in file.keys(cycle=False) if name.startswith("SR/spectrum/")}
        expected = {f"{d}{v}" for d in ("tt", "st") for v in ("", "_pileupUp", "_pileupDown")}
        assert names == {f"SR/spectrum/{name}" for name in expected | {"data"}}
        for variation, suffix in (("nominal", ""), ("pileup_up", "_pileupUp")):
            written = file[f"SR/spectrum/tt{suffix}"]
            mine = result["spectrum", "SR", variation, "tt"]
            assert written.classname == "TH1D"
            np.testing.assert_array_equal(written.values(flow=True), mine.values(flow=True))
            np.testing.assert_array_equal(written.variances(flow=True), mine.variances(flow=True))
            np.testing.assert_allclose(written.axis().edges(), mine.axes[0].edges, rtol=1e-15)
        assert written.member("fXaxis").member("fTitle") == "x & <y>"
        others = json.loads(file["windrow/outputs"])
        assert others["SR/count/tt"] == result["count", "SR", "tt"]
        assert others["inclusive/sums/st"] == result["sums", "st"]
        assert json.loads(file["windrow/summary"])["pipeline"] == "small"


@pytest.mark.parametrize("name", histograms())
def test_root_holds_every_bin(result: wr.Result, tmp_path: Path, name: str) -> None:
    mine = histograms()[name]
    save(with_values(result, {name: mine}), tmp_path / "out.root")
    with uproot.open(tmp_path / "out.root") as file:
        written = file[f"SR/{name}/tt"]
        assert written.classname == f"TH{mine.ndim}D"
        got, squares = written.values(flow=True), written.variances(flow=True)
        # Bins the histogram does not have are there and empty.
        place = tuple(
            slice(0 if axis.traits.underflow else 1, None if axis.traits.overflow else -1) for axis in mine.axes
        )
        np.testing.assert_array_equal(got[place], mine.values(flow=True))
        np.testing.assert_array_equal(squares[place], mine.variances(flow=True))
        assert np.isclose(got.sum(), mine.values(flow=True).sum())
        for number, axis in enumerate(mine.axes):
            edges = written.axis(number).edges()
            np.testing.assert_allclose(edges, axis.edges)
        if name == "words":
            assert written.axis(0).labels() == ["a", "b", "c"]


def test_roots_mean_and_deviation_are_right(result: wr.Result, tmp_path: Path) -> None:
    mine = histograms()["two"]
    save(with_values(result, {"two": mine}), tmp_path / "out.root")
    values, centres = mine.values(), [axis.centers for axis in mine.axes]
    with uproot.open(tmp_path / "out.root") as file:
        written = file["SR/two/tt"]
        assert np.isclose(written.member("fTsumw"), values.sum())
        assert np.isclose(written.member("fTsumw2"), mine.variances().sum())
        assert np.isclose(written.member("fTsumwx"), values.sum(axis=1) @ centres[0])
        assert np.isclose(written.member("fTsumwy2"), values.sum(axis=0) @ centres[1] ** 2)
        assert np.isclose(written.member("fTsumwxy"), centres[0] @ values @ centres[1])


def test_root_says_what_it_cannot_hold(result: wr.Result, tmp_path: Path) -> None:
    axis = bh.axis.Regular(2, 0, 1)
    values = {
        "four": bh.Histogram(axis, axis, axis, axis),
        "odd": Odd(),
        "empty": hist.Hist(hist.axis.StrCategory([], growth=True)),
        "profile2": bh.Histogram(axis, axis, storage=bh.storage.Mean()),
        "profile": bh.Histogram(axis, storage=bh.storage.Mean()).fill([0.1, 0.2], sample=[1, 3]),
        "many": {"a": bh.Histogram(axis).fill([0.1]), "b": {"c": bh.Histogram(axis)}, "n": 3},
        "n": 7,
    }
    with pytest.warns(LeftOutWarning, match="SR/four/tt"):
        left = save(with_values(result, values), tmp_path / "out.root")
    assert left == ["SR/four/tt", "SR/odd/tt", "SR/empty/tt", "SR/profile2/tt"]
    with uproot.open(tmp_path / "out.root") as file:
        assert json.loads(file["windrow/left_out"]) == left
        assert file["SR/many/a/tt"].values().tolist() == [1, 0]
        assert file["SR/many/b/c/tt"].values().tolist() == [0, 0]
        assert json.loads(file["windrow/outputs"]) == {"SR/many/n/tt": 3, "SR/n/tt": 7}
        assert file["SR/profile/tt"].classname == "TProfile"
        assert file["SR/profile/tt"].values().tolist() == [2.0, 0.0]


def test_names_are_made_safe_and_never_meet(result: wr.Result, tmp_path: Path) -> None:
    odd = replace(result, outputs={"/TT/Run 2;1": {("h", "S R", "nominal"): bh.Histogram(bh.axis.Regular(1, 0, 1))}})
    save(odd, tmp_path / "out.root")
    with uproot.open(tmp_path / "out.root") as file:
        assert "S_R/h/_TT_Run_2_1;1" in file
    key = ("h", "SR", "nominal")
    for suffix in (".root", ".npz"):
        with pytest.raises(UsageError, match="two outputs would be called"):
            save(replace(result, outputs={"a b": {key: 1}, "a_b": {key: 2}}), tmp_path / f"x{suffix}")
        assert not (tmp_path / f"x{suffix}").exists()
        axis = bh.axis.Regular(1, 0, 1)
        twice: Any = {"tt": {key: {"a b": bh.Histogram(axis), "a_b": bh.Histogram(axis)}}}
        with pytest.raises(UsageError, match="two outputs would be called"):
            save(replace(result, outputs=twice), tmp_path / f"x{suffix}")


# --- coffea ---------------------------------------------------------------------------------------


def coffea_content(result: wr.Result) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for dataset, values in result.outputs.items():
        for (name, region, variation), value in values.items():
            place = content.setdefault(dataset, {}).setdefault(name, {})
            place.setdefault(region or "inclusive", {})[variation] = value
    return content


def test_coffea_files_are_pickles_in_lz4(result: wr.Result, tmp_path: Path) -> None:
    assert save(result, tmp_path / "out.coffea") == []
    content = (tmp_path / "out.coffea").read_bytes()
    assert content[:4] == b"\x04\x22\x4d\x18"  # the magic number of an LZ4 frame
    assert pickle.loads(bytes(cramjam.lz4.decompress(content))) == coffea_content(result)


def test_coffea_says_what_it_cannot_hold(result: wr.Result, tmp_path: Path) -> None:
    values = {"f": lambda: 1, "n": 3}
    with pytest.warns(LeftOutWarning, match="tt/f/SR/nominal"):
        left = save(with_values(result, values), tmp_path / "out.coffea")
    assert left == ["tt/f/SR/nominal"]
    content = pickle.loads(bytes(cramjam.lz4.decompress((tmp_path / "out.coffea").read_bytes())))
    assert content == {"tt": {"n": {"SR": {"nominal": 3}}}}


def coffea_python() -> str | None:
    """A Python that has coffea: this one, or the environment of the benchmarks."""
    import sys

    if importlib.util.find_spec("coffea") is not None:
        return sys.executable
    other = Path(__file__).resolve().parents[2] / ".bench" / "envs" / "coffea" / "bin" / "python"
    return str(other) if other.exists() else None


@pytest.mark.skipif(coffea_python() is None, reason="coffea is not installed")
def test_coffea_reads_the_file(result: wr.Result, tmp_path: Path) -> None:
    save(result, tmp_path / "out.coffea")
    code = (
        "import sys, warnings; warnings.simplefilter('ignore'); from coffea.util import load;"
        "d = load(sys.argv[1]); h = d['tt']['spectrum']['SR']['pileup_up'];"
        "print(repr(float(h.values().sum())), d['data']['count']['CR']['nominal'])"
    )
    python = coffea_python()
    assert python is not None
    done = subprocess.run(
        [python, "-c", code, str(tmp_path / "out.coffea")], capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    total, count = done.stdout.split()
    assert float(total) == result["spectrum", "SR", "pileup_up", "tt"].values().sum()
    assert int(count) == result["count", "CR", "data"]


# --- JSON -----------------------------------------------------------------------------------------


def test_json_has_the_outputs_and_the_summary(result: wr.Result, tmp_path: Path) -> None:
    assert save(result, tmp_path / "out.json") == []
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["outputs"]["tt"]["count"]["SR"]["nominal"] == result["count", "SR", "tt"]
    assert document["outputs"]["st"]["sums"]["inclusive"]["nominal"] == result["sums", "st"]
    assert document["datasets"]["tt"]["xsec"] == 10.0
    assert document["summary"]["cutflow"] == json.loads(result.to_json())["cutflow"]


@pytest.mark.parametrize("name", histograms())
def test_json_histograms_are_read_by_boost_histogram(result: wr.Result, tmp_path: Path, name: str) -> None:
    mine = histograms()[name]
    save(with_values(result, {name: mine}), tmp_path / "out.json")
    document = json.loads((tmp_path / "out.json").read_text(), object_hook=uhi.io.json.object_hook)
    got = bh.Histogram(document["outputs"]["tt"][name]["SR"]["nominal"])
    np.testing.assert_array_equal(got.values(flow=True), mine.values(flow=True))
    for one, two in zip(got.axes, mine.axes, strict=True):
        np.testing.assert_allclose(one.edges, two.edges)
        if "Category" in type(two).__name__:
            assert list(one) == list(two)
    if mine.storage_type is bh.storage.Weight:
        np.testing.assert_array_equal(got.variances(flow=True), mine.variances(flow=True))


def test_json_holds_plain_values_and_says_what_it_cannot(result: wr.Result, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "array": np.array([[1.5, np.nan], [np.inf, 2.0]]),
        "jagged": ak.Array([[1, 2], [], [3]]),
        "set": {3, 1, 2},
        "keys": {1: "a", 2.5: "b"},
        "pairs": {(1, 2): 3},
        "complex": 1j,
        "odd": [Odd()],
        "number": np.float32(0.5),
    }
    with pytest.warns(LeftOutWarning):
        left = save(with_values(result, values), tmp_path / "out.json")
    assert left == [f"tt/{name}/SR/nominal" for name in ("pairs", "complex", "odd")]
    document = json.loads((tmp_path / "out.json").read_text())
    found = {name: by["SR"]["nominal"] for name, by in document["outputs"]["tt"].items()}
    assert found == {
        "array": [[1.5, None], [None, 2.0]],
        "jagged": [[1, 2], [], [3]],
        "set": [1, 2, 3],
        "keys": {"1": "a", "2.5": "b"},
        "number": 0.5,
    }
    assert document["left_out"] == left


# --- NumPy ----------------------------------------------------------------------------------------


def test_npz_needs_no_pickle(result: wr.Result, tmp_path: Path) -> None:
    assert save(result, tmp_path / "out.npz") == []
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        base = "tt/spectrum/SR/pileup_up"
        mine = result["spectrum", "SR", "pileup_up", "tt"]
        np.testing.assert_array_equal(file[f"{base}/values"], mine.to_numpy()[0])
        np.testing.assert_array_equal(file[f"{base}/edges_0"], mine.axes[0].edges)
        np.testing.assert_array_equal(file[f"{base}/variances"], mine.variances())
        np.testing.assert_array_equal(file[f"{base}/values_with_flow"], mine.values(flow=True))
        assert file["st/count/CR/nominal"] == result["count", "CR", "st"]
        assert file["data/sums/inclusive/nominal/sumw"] == result["sums", "data"]["sumw"]
        assert json.loads(str(file["windrow/summary"]))["pipeline"] == "small"


def test_npz_holds_arrays_and_says_what_it_cannot(result: wr.Result, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "array": np.arange(6).reshape(2, 3),
        "list": [1, 2, 3],
        "set": {"b", "a"},
        "regular": ak.Array([1.5, 2.5]),
        "jagged": ak.Array([[1, 2], []]),
        "ragged": [[1], [2, 3]],
        "odd": Odd(),
        "objects": np.array([None, 1], dtype=object),
        "words": histograms()["words"],
    }
    with pytest.warns(LeftOutWarning):
        left = save(with_values(result, values), tmp_path / "out.npz")
    assert left == [f"tt/{n}/SR/nominal" for n in ("jagged", "ragged", "odd", "objects")]
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        assert file["tt/array/SR/nominal"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert file["tt/set/SR/nominal"].tolist() == ["a", "b"]
        assert file["tt/regular/SR/nominal"].tolist() == [1.5, 2.5]
        assert file["tt/words/SR/nominal/categories_0"].tolist() == ["a", "b", "c"]
        assert file["windrow/left_out"].tolist() == left


# --- files ----------------------------------------------------------------------------------------


def test_unknown_kinds_name_the_known_ones(result: wr.Result, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\.root, \.coffea, \.json, \.npz"):
        save(result, tmp_path / "out.hdf5")
    with pytest.raises(UsageError, match=r"did you mean '\.root'"):
        save(result, tmp_path / "out.roots")
    with pytest.raises(MissingFileError, match="no directory"):
        save(result, tmp_path / "none" / "out.root")


@pytest.mark.parametrize("suffix", [".root", ".coffea", ".json", ".npz"])
def test_a_file_is_whole_or_as_before(
    result: wr.Result, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"out{suffix}"
    path.write_text("before")

    def broken(self: Any, target: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError, match="no space left"):
        save(result, path)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    monkeypatch.undo()
    result.save(path)
    assert path.stat().st_size > 10
