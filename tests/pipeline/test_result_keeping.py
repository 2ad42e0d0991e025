"""A result that was kept is the same result again, whatever of it could not be kept."""

from __future__ import annotations

import json
import pickle
import threading
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

import small_analysis as small
import windrow as wr
from comparing import bits
from windrow.errors import CorruptFileError, DataError, MissingFileError
from windrow.pipeline.keeping import keep, load
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


def test_an_output_whose_class_is_gone_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (tmp_path / "run" / "events.jsonl").read_text().count('"finished"') >= 3
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "run").iterdir()} == {0o600}


def test_a_run_that_failed_has_no_result(tmp_path: Path) -> None:
    small.run(rundir=tmp_path / "run")
    broken = small.analysis()

    @broken.output
    def bad(x: Any) -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        small.run(broken, rundir=tmp_path / "run")
    with pytest.raises(MissingFileError, match="the run failed"):
        wr.load(tmp_path / "run")
