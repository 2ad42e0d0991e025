"""A result that was kept is the same result again, whatever of it could not be kept."""

from __future__ import annotations

import json
import pickle
import sys
import threading
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

import small_analysis as small
import windrow as wr
from comparing import bits
from windrow.errors import CorruptFileError, DataError, MergeError, MissingFileError, UsageError
from windrow.pipeline.results.load import keep, load
from windrow.store.rundir import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path


class Strange:
    """Cannot be pickled."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __add__(self, _: Any) -> Strange:
        return self


class Vanishing:
    """Is gone when it is read back."""

    def __add__(self, _: Any) -> Vanishing:
        return self


def check_same(one: wr.Result, two: wr.Result) -> None:
    assert one.outputs.keys() == two.outputs.keys()
    for dataset, values in one.outputs.items():
        assert list(values) == list(two.outputs[dataset])
        for key, value in values.items():
            assert bits(value) == bits(two.outputs[dataset][key]), key
    assert one.cutflow.as_dict() == two.cutflow.as_dict()
    for name in (
        "name", "output_names", "ledger", "steps", "order", "decisions", "guards", "reads", "seed",
        "bytes_read", "seconds", "engine", "workers", "datasets", "identity", "regions",
    ):  # fmt: skip
        assert getattr(one, name) == getattr(two, name), name


def test_a_loaded_result_is_the_result(tmp_path: Path) -> None:
    result = small.run()
    assert keep(result, tmp_path / "run") == ()
    again = wr.load(tmp_path / "run")
    check_same(result, again)
    assert again.notes == result.notes
    assert again.rundir == str(tmp_path / "run")
    assert again.kept is not None
    for position in range(len(result.kept.files)):
        expected = result.kept.rows("SR", position)
        assert again.kept.rows("SR", position).tolist() == expected.tolist()
    check_same(result, load(tmp_path / "run" / "result.pickle"))


def test_a_run_directory_tells_of_the_run(tmp_path: Path) -> None:
    result = small.run()
    keep(result, tmp_path / "run")
    directory = RunDirectory.open(tmp_path / "run")
    manifest = directory.read_manifest()
    assert manifest["state"] == "complete"
    assert manifest["pipeline"] == "small"
    assert manifest["datasets"]["tt"]["xsec"] == 10.0
    assert manifest["ended"].endswith("+00:00")
    assert directory.read_summary()["rows"]["done"] == 1200


def test_what_the_run_wrote_before_stays(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest({"state": "running", "started": "then"})
    directory.write_log("the log\n")
    keep(small.run(), tmp_path / "run")
    assert directory.log.read_text() == "the log\n"
    assert directory.read_manifest()["started"] == "then"


def test_another_runs_log_does_not_stay_beside_a_new_result(tmp_path: Path) -> None:
    result = small.run()
    result.log = "first\n"
    keep(result, tmp_path / "run")
    assert (tmp_path / "run" / "events.jsonl").read_text() == "first\n"
    other = small.run()
    other.log = "second\n"
    keep(other, tmp_path / "run")
    assert (tmp_path / "run" / "events.jsonl").read_text() == "second\n"
    again = load(tmp_path / "run")
    keep(again, tmp_path / "run")  # the same result once more: its log is its own
    assert (tmp_path / "run" / "events.jsonl").read_text() == "second\n"


def test_arrays_are_not_kept_but_files_are(tmp_path: Path) -> None:
    rows = 50_000
    data = {"x": np.random.default_rng(1).random(rows), "y": np.ones(rows), "w": np.ones(rows)}
    made = small.analysis(identity=None)
    result = small.run(made, wr.data.open(data, metadata={"is_mc": False}))
    keep(result, tmp_path / "run")
    size = (tmp_path / "run" / "result.pickle").stat().st_size
    assert size < data["x"].nbytes / 4
    again = load(tmp_path / "run")
    with pytest.raises(DataError, match="arrays in memory"):
        again.source.open(0)
    check_same(result, again)
    keep(again, tmp_path / "twice")
    check_same(result, load(tmp_path / "twice"))

    file = small.write_root(tmp_path / "a.root", small.columns(3, 100))
    from_file = small.run(data=wr.data.open(file, metadata={"is_mc": False}))
    keep(from_file, tmp_path / "files")
    reader = load(tmp_path / "files").source.open(0)
    assert reader.info.rows == 100
    reader.close()


def test_one_output_that_cannot_be_kept_costs_only_itself(tmp_path: Path) -> None:
    result = small.run()
    key = ("count", "SR", "nominal")
    result.outputs["tt"][key] = Strange()
    notes = keep(result, tmp_path / "run")
    assert len(notes) == 1
    assert "output 'count' (region 'SR', nominal, dataset 'tt') was not kept" in notes[0]
    again = load(tmp_path / "run")
    assert notes[0] in again.notes
    assert notes[0] in json.loads((tmp_path / "run" / "summary.json").read_text())["notes"]
    del result.outputs["tt"][key]
    check_same(result, again)


def test_metadata_that_cannot_be_kept_costs_only_itself(tmp_path: Path) -> None:
    result = small.run()
    result.environment = {"lock": threading.Lock()}
    (note,) = keep(result, tmp_path / "run")
    assert "'environment' of the result was not kept" in note
    check_same(result, load(tmp_path / "run"))


def test_an_output_whose_class_is_gone_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = small.run()
    result.outputs["st"]["count", "CR", "nominal"] = Vanishing()
    keep(result, tmp_path / "run")
    monkeypatch.delitem(globals(), "Vanishing")
    again = load(tmp_path / "run")
    assert "'count' (region 'CR', nominal, dataset 'st') cannot be read back" in again.notes[-1]
    del result.outputs["st"]["count", "CR", "nominal"]
    check_same(result, again)


def test_all_kinds_of_outputs_come_back(tmp_path: Path) -> None:
    result = small.run()
    values: dict[str, Any] = {
        "array": np.arange(5.0),
        "set": {(1, 2), (3, 4)},
        "list": [1, "a", None],
        "mapping": {"a": {"b": np.float32(1.5)}},
        "nothing": np.empty((0, 3)),
    }
    for name, value in values.items():
        result.outputs["tt"][name, None, "nominal"] = value
    jagged = ak.Array([[1.0, 2.0], [], [3.0]])
    result.outputs["tt"]["jagged", None, "nominal"] = jagged
    keep(result, tmp_path / "run")
    found = load(tmp_path / "run").outputs["tt"]
    for name, value in values.items():
        assert bits(found[name, None, "nominal"]) == bits(value), name
    assert found["jagged", None, "nominal"].to_list() == jagged.to_list()


def test_wrong_places_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no run directory or result file"):
        load(tmp_path / "none")
    with pytest.raises(DataError, match="not the directory of a run"):
        load(tmp_path)
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest({"state": "running", "started": "then"})
    with pytest.raises(MissingFileError, match="was killed"):
        load(tmp_path / "run")


@pytest.mark.parametrize("content", [b"", b"junk", pickle.dumps(3), pickle.dumps({"fields": {}})])
def test_a_file_that_holds_something_else_says_so(tmp_path: Path, content: bytes) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest({"state": "complete"})
    directory.write_result(content)
    with pytest.raises(CorruptFileError, match="holds no result"):
        load(tmp_path / "run")


def test_a_result_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    keep(small.run(), tmp_path / "run")
    directory = RunDirectory.open(tmp_path / "run")
    state = pickle.loads(directory.read_result())
    del state["format"]
    directory.write_result(pickle.dumps(state))
    with pytest.raises(DataError, match="made by an earlier version of Windrow"):
        load(tmp_path / "run")


def test_an_incomplete_result_says_so(tmp_path: Path) -> None:
    result = small.run()
    result.interrupted = True
    keep(result, tmp_path / "run")
    assert RunDirectory.open(tmp_path / "run").read_manifest()["state"] == "incomplete"
    assert not load(tmp_path / "run").complete


def test_a_run_keeps_its_result(tmp_path: Path) -> None:
    result = small.run(rundir=tmp_path / "run")
    again = wr.load(tmp_path / "run")
    check_same(result, again)
    assert result.rundir == again.rundir == str(tmp_path / "run")
    assert (tmp_path / "run" / "events.jsonl").read_text().count('"how":"done"') >= 3
    for file in (tmp_path / "run").rglob("*"):
        assert file.stat().st_mode & 0o777 == (0o700 if file.is_dir() else 0o600)


def test_a_run_that_failed_has_no_result(tmp_path: Path) -> None:
    small.run(rundir=tmp_path / "run")
    broken = small.analysis()

    @broken.output
    def bad(x: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        small.run(broken, rundir=tmp_path / "run")
    with pytest.raises(MissingFileError, match=r"the run failed.*run before it is in .*/previous"):
        wr.load(tmp_path / "run")


def test_a_run_that_failed_costs_no_earlier_result(tmp_path: Path) -> None:
    place = tmp_path / "run"
    first = small.run(rundir=place)
    broken = small.analysis()

    @broken.output
    def bad(x: Any) -> Any:
        raise RuntimeError("no")

    for _ in range(2):  # what failed does not take its place either
        with pytest.raises(RuntimeError, match="no"):
            small.run(broken, rundir=place)
        check_same(first, wr.load(place / "previous"))
    second = small.run(rundir=place)
    check_same(second, wr.load(place))
    assert not (place / "previous").exists()


def test_two_live_runs_in_one_directory_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    refused = []
    made = small.analysis()

    @made.output
    def nested(x: Any) -> int:
        try:
            small.run(rundir=place)
        except UsageError as error:
            refused.append(str(error))
        return len(x)

    result = small.run(made, rundir=place)
    assert refused
    assert all("another run is going on" in words for words in refused)
    check_same(result, wr.load(place))


# --- what was not kept ----------------------------------------------------------------------------


def half_lost(tmp_path: Path, *keys: tuple[str, str | None, str]) -> wr.Result:
    result = small.run()
    for key in keys:
        result.outputs["tt"][key] = Strange()
    keep(result, tmp_path / "run")
    return load(tmp_path / "run")


def test_a_lost_output_says_why_it_is_not_there(tmp_path: Path) -> None:
    result = small.run()
    again = half_lost(tmp_path, ("count", "SR", "nominal"))
    with pytest.raises(KeyError, match="it was not kept: it cannot be pickled"):
        again["count", "SR", "tt"]
    # Others are there, but not as if they were all.
    assert again["count", "SR", "st"] == result["count", "SR", "st"]
    assert again["count", "CR"] == result["count", "CR"]
    for key in ("count", ("count", "SR")):
        with pytest.raises(KeyError, match="ask for the others by region and dataset"):
            again[key]
    keep(again, tmp_path / "twice")
    with pytest.raises(KeyError, match="cannot be pickled"):
        load(tmp_path / "twice")["count", "SR", "tt"]


def test_a_lost_variation_is_not_the_nominal(tmp_path: Path) -> None:
    again = half_lost(tmp_path, ("spectrum", "SR", "pileup_up"))
    assert again["spectrum", "SR", "tt"] == small.run()["spectrum", "SR", "tt"]
    with pytest.raises(KeyError, match="was not kept"):
        again["spectrum", "SR", "pileup_up", "tt"]


def test_a_lost_output_is_in_no_sum(tmp_path: Path) -> None:
    again = half_lost(tmp_path, ("count", "SR", "nominal"))
    grouped = again.group({"top": ["tt", "st"]})
    with pytest.raises(KeyError, match="was not kept"):
        grouped["count", "SR", "top"]
    assert grouped["count", "SR", "data"] == small.run()["count", "SR", "data"]
    other = small.arrays(30)
    for dataset in other:
        other[dataset] = {**other[dataset], "event": other[dataset]["event"] + 10**6}
    files = {name: small.write_root(tmp_path / f"{name}.root", values) for name, values in other.items()}
    more = small.run(data=wr.data.open(files, metadata=small.METADATA))
    for merged in (wr.merge(again, more), wr.merge(more, again)):
        with pytest.raises(KeyError, match="was not kept"):
            merged["count", "SR", "tt"]
        expected = small.run()["count", "CR", "tt"] + more["count", "CR", "tt"]
        assert merged["count", "CR", "tt"] == expected
        assert any("'count' (region 'SR', nominal, dataset 'tt')" in note for note in merged.notes)


def test_a_variation_does_not_meet_a_nominal_that_was_lost(tmp_path: Path) -> None:
    again = half_lost(tmp_path, ("spectrum", "SR", "nominal"), ("spectrum", "SR", "pileup_up"))
    grouped = again.group({"all": ["tt", "data"]})  # data has no pileup
    assert ("spectrum", "SR", "pileup_down") in grouped.outputs["all"]
    swapped = again.group({"all": ["st", "tt"]})
    assert ("spectrum", "SR", "pileup_up") not in swapped.outputs["all"]
    del again.outputs["tt"]["spectrum", "SR", "pileup_down"]
    swapped = again.group({"all": ["st", "tt"]})
    assert ("spectrum", "SR", "pileup_down") not in swapped.outputs["all"]


MODULE = """
import numpy as np
import windrow as wr
analysis = wr.Pipeline("biggest")
def biggest(one, two):
    return max(one, two)
@analysis.output(merge=biggest)
def top(x):
    return float(np.max(x))
"""


def test_a_merge_that_cannot_be_imported_is_not_taken_for_adding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone_tomorrow.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    import gone_tomorrow  # type: ignore[import-not-found]

    for name, rows in (("a", 101), ("b", 100)):
        data = {name: {"x": np.arange(float(rows))}}
        gone_tomorrow.analysis.run(data, rundir=tmp_path / name, progress=False)
    known = wr.merge(*(load(tmp_path / name) for name in ("a", "b")))
    assert known.group({"all": ["a", "b"]})["top"] == 100.0
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "gone_tomorrow")
    lost = [load(tmp_path / name) for name in ("a", "b")]
    assert [result["top"] for result in lost] == [100.0, 99.0]
    with pytest.raises(MergeError, match="cannot be imported here"):
        wr.merge(*lost).group({"all": ["a", "b"]})


def test_files_are_found_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    small.write_root(tmp_path / "there" / "a.root", small.columns(3, 100))
    data = wr.data.open("a.root:Events", metadata={"is_mc": False})
    first = small.run(data=data, rundir="run")
    second = small.run(small.analysis(high=0.6), data, rundir="other")
    expected = first.lumis
    rows = first.compare(second).rows
    assert rows
    monkeypatch.chdir(tmp_path / "elsewhere")
    again, other = wr.load("../there/run"), wr.load("../there/other")
    assert again.lumis == expected
    assert again.ledger == first.ledger
    assert again.compare(other).rows == rows
    joined = wr.data.join(data, data, prefix="other_")
    monkeypatch.chdir(tmp_path / "there")
    small.run(data=joined, rundir="joined")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert wr.load("../there/joined").lumis == expected
