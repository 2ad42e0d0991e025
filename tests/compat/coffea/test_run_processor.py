"""``run_processor`` gives what coffea gives: outputs, metadata, metrics, errors."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import awkward as ak
import hist
import numpy as np
import pytest
from coffea import processor
from coffea.nanoevents import BaseSchema, NanoAODSchema

import windrow as wr
from coffea_outputs import assert_same
from windrow import errors
from windrow.compat.coffea import Executor

pytestmark = pytest.mark.filterwarnings(
    "ignore::RuntimeWarning:coffea", "ignore:Missing cross-reference:RuntimeWarning"
)

HERE: list[dict[str, Any]] = []  #: what processors of this process have seen


def runner(executor: Any, **options: Any) -> processor.Runner:
    options = {"schema": NanoAODSchema, "chunksize": 700, "metadata_cache": {}, **options}
    return processor.Runner(executor, **options)


def count(events: ak.Array) -> dict[str, Any]:
    HERE.append(dict(events.metadata))
    return {events.metadata["dataset"]: len(events), "muons": int(ak.sum(ak.num(events.Muon)))}


@pytest.fixture(scope="module")
def wanted(files: dict[str, str], example: ModuleType) -> Any:
    fileset = {"a": [files["a1"], files["empty"], files["a2"]], "b": [files["b"]]}
    return runner(processor.IterativeExecutor(status=False))(fileset, example.Dimuon(), treename="Events")


# -- the same answer


@pytest.mark.parametrize(
    "options", [{"engine": "inline"}, {"engine": "threads", "workers": 3}, {}, {"grid": 400}], ids=repr
)
def test_a_processor_gives_what_coffea_gives(
    options: dict[str, Any], fileset: Any, example: ModuleType, wanted: Any
) -> None:
    assert_same(wr.run_processor(example.Dimuon(), fileset, **options), wanted)


def test_a_processor_gives_the_same_in_processes_and_travels_by_value(
    fileset: Any, example: ModuleType, wanted: Any
) -> None:
    """Its module can be imported nowhere else, as that of a notebook."""
    assert_same(wr.run_processor(example.Dimuon(), fileset, engine="processes", workers=2), wanted)


@pytest.mark.parametrize(
    "options", [{"engine": "inline"}, {"engine": "threads", "workers": 2}, {"grid": 500}, {}], ids=repr
)
def test_the_runner_of_coffea_takes_our_executor(
    options: dict[str, Any], fileset: Any, example: ModuleType, wanted: Any
) -> None:
    assert_same(runner(Executor(status=False, **options))(fileset, example.Dimuon(), treename="Events"), wanted)


def test_what_is_set_on_the_schema_holds_in_processes(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NanoAODSchema, "warn_missing_crossrefs", False)

    def heard(events: ak.Array) -> Any:
        return {"warns": {NanoAODSchema.warn_missing_crossrefs}}

    assert wr.run_processor(heard, {"a": [files["a2"]]}, engine="processes", workers=1) == {"warns": {False}}


def test_the_runner_gives_the_same_in_processes(fileset: Any, example: ModuleType, wanted: Any) -> None:
    futures = processor.FuturesExecutor(pool=ThreadPoolExecutor, workers=2, status=False)
    outputs = [
        # Coffea would pickle the processor by the name of its module, which can be imported nowhere.
        runner(one, processor_compression=None)(fileset, example.Dimuon(), treename="Events")
        for one in (Executor(engine="processes", workers=2, status=False), futures)
    ]
    assert_same(outputs[0], wanted)
    del outputs[1]["leading_pt"]  # in the order of completion
    for output in outputs:  # as are its categories
        assert sorted(output["mass"].axes["dataset"]) == ["a", "b"]
        output |= {name: output[name][{"dataset": sum}] for name in ("muon", "muons", "mass", "jet_pt")}
        output |= {name: output[name][{"region": sum}] for name in ("mass", "jet_pt")}
        output["muons"] = {n: output["muons"][hist.loc(n)] for n in range(3)}
    for name, one in outputs[1].items():
        assert_same(one, outputs[0][name])


@pytest.mark.parametrize("grid", [700, 10_000])
def test_floats_on_a_grid_have_the_same_bits(grid: int, fileset: Any, example: ModuleType) -> None:
    outputs = [
        wr.run_processor(example.Dimuon(), fileset, grid=grid, engine=engine, workers=workers)
        for engine, workers in (("inline", 1), ("threads", 2), ("threads", 5))
    ]
    run = runner(Executor(engine="threads", workers=3, grid=grid, status=False), chunksize=500)
    outputs.append(run(fileset, example.Dimuon(), treename="Events"))
    for output in outputs[1:]:
        assert_same(output, outputs[0], bits=True)


@pytest.mark.samples
def test_real_files(samples: Path, example: ModuleType) -> None:
    fileset = {
        "dy": [str(samples / "nano_dy.root")],
        "data": {"files": {str(samples / "nano_dimuon.root"): "Events"}, "metadata": {"is_mc": False}},
    }
    run = runner(processor.IterativeExecutor(status=False), savemetrics=True)
    wanted, wanted_metrics = run(fileset, example.Dimuon(), treename="Events")
    assert wanted["cutflow"]["dy"]["all"] == 40
    assert wanted["mass"].sum(flow=True).value > 0
    output, metrics = wr.run_processor(example.Dimuon(), fileset, savemetrics=True)
    assert_same(output, wanted)
    assert metrics["columns"] == sorted(wanted_metrics["columns"])
    assert metrics["entries"] == wanted_metrics["entries"] == 80
    assert 0 < metrics["bytesread"] < wanted_metrics["bytesread"]  # a file is opened once


@pytest.mark.samples
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_a_real_file_of_a_thousand_events(engine: str, samples: Path, example: ModuleType) -> None:
    names = {"tt": ["nanoaodv5_sample.root"], "dy": ["nano_dy.root", "nano_dy_empty.root"]}
    fileset = {dataset: [str(samples / name) for name in some] for dataset, some in names.items()}
    wanted = runner(processor.IterativeExecutor(status=False))(fileset, example.Dimuon(), treename="Events")
    assert_same(wr.run_processor(example.Dimuon(), fileset, engine=engine, workers=2), wanted)
    ours = Executor(engine=engine, workers=2, status=False)
    assert_same(runner(ours, processor_compression=None)(fileset, example.Dimuon(), treename="Events"), wanted)


@pytest.mark.samples
@pytest.mark.slow
def test_an_rntuple(samples: Path) -> None:
    def pt(events: ak.Array) -> dict[str, Any]:
        return {"n": len(events), "pt": float(ak.sum(events["Muon_pt"]))}

    paths = [str(samples / name) for name in ("nano_dy_rntuple.root", "nano_dy.root")]
    first, second = (wr.run_processor(pt, {"dy": [path]}, schema=BaseSchema) for path in paths)
    assert first["n"] == second["n"] == 40
    assert first["pt"] == pytest.approx(second["pt"], rel=1e-6)


# -- what a processor sees and gives


def test_events_have_the_metadata_of_coffea(fileset: Any) -> None:
    seen = []
    for run in (
        lambda: wr.run_processor(count, fileset, grid=700),
        lambda: runner(Executor(status=False, grid=700))(fileset, count, treename="Events"),
        lambda: runner(processor.IterativeExecutor(status=False))(fileset, count, treename="Events"),
    ):
        HERE.clear()
        run()
        seen.append({(one["filename"], one["entrystart"]): one for one in HERE})
    names = {"dataset", "filename", "treename", "entrystart", "entrystop", "fileuuid"}
    assert seen[0].keys() == seen[1].keys()
    assert {key for key in seen[0] if key[1] == 0} == {key for key in seen[2] if key[1] == 0}
    for key, one in seen[0].items():
        assert names <= set(one)
        assert one == seen[1][key]
        if key in seen[2]:
            assert one | {"entrystop": 0} == seen[2][key] | {"entrystop": 0}
    assert all(one["era"] == "x" for one in seen[0].values() if one["dataset"] == "b")


def test_a_plain_function_trees_by_file_and_a_json_fileset(files: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "fileset.json"
    path.write_text(json.dumps({"a": {"files": {files["a1"]: "Events", files["other"]: "Other"}}}))
    assert wr.run_processor(count, str(path))["a"] == 3700
    assert wr.run_processor(lambda events: {"n": len(events)}, {"o": [files["other"]]}, treename="Other") == {"n": 700}


def test_only_the_first_rows(fileset: Any) -> None:
    output, metrics = wr.run_processor(count, fileset, max_rows=1000, savemetrics=True)
    assert (output["a"], output["b"], metrics["entries"]) == (1000, 1000, 2000)


def test_an_empty_file_is_seen_by_the_processor(files: dict[str, str]) -> None:
    assert wr.run_processor(count, {"none": [files["empty"]]}) == {"none": 0, "muons": 0}


def test_the_output_of_postprocess_counts_if_there_is_one(fileset: Any) -> None:
    class Halves(processor.ProcessorABC):  # type: ignore[misc]
        def __init__(self, give: bool) -> None:
            self.give = give

        def process(self, events: ak.Array) -> Any:
            return {"n": len(events)}

        def postprocess(self, output: Any) -> Any:
            output["half"] = output["n"] / 2
            return {"given": output["n"]} if self.give else None

    assert wr.run_processor(Halves(give=False), fileset) == {"n": 4501, "half": 2250.5}
    assert wr.run_processor(Halves(give=True), fileset) == {"given": 4501}


def test_metrics_are_those_of_coffea(fileset: Any) -> None:
    _, metrics = wr.run_processor(count, fileset, savemetrics=True)
    _, wanted = runner(processor.IterativeExecutor(status=False), savemetrics=True)(fileset, count, treename="Events")
    assert set(wanted) < set(metrics)
    assert set(metrics) - set(wanted) == {"left_out", "notes"}
    assert (metrics["columns"], metrics["entries"]) == (sorted(wanted["columns"]), wanted["entries"])
    assert metrics["processtime"] > 0
    assert metrics["left_out"] == []


def test_a_log_is_kept_in_the_run_directory(fileset: Any, tmp_path: Path) -> None:
    wr.run_processor(count, fileset, rundir=tmp_path / "run")
    assert (
        "a1.root" in (tmp_path / "run" / "events.jsonl").read_text()
        or (tmp_path / "run" / "events.jsonl").stat().st_size
    )


# -- when something is wrong


def test_a_processor_that_raises_is_named_with_its_rows(fileset: Any, files: dict[str, str]) -> None:
    class Fragile(processor.ProcessorABC):  # type: ignore[misc]
        def process(self, events: ak.Array) -> Any:
            if events.metadata["dataset"] == "b":
                raise KeyError("no such branch")
            return {"n": len(events)}

        def postprocess(self, output: Any) -> Any:
            return output

    with pytest.raises(errors.StepError, match="processor 'Fragile' raised KeyError: 'no such branch'") as caught:
        wr.run_processor(Fragile(), fileset)
    assert f"[dataset 'b', {files['b']}, rows 0 to " in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(Exception, match="Failed processing file") as of_coffea:
        runner(Executor(status=False, retries=0))(fileset, Fragile(), treename="Events")
    assert isinstance(of_coffea.value.__cause__, KeyError)


def test_rows_for_which_it_raises_are_left_out_and_told(fileset: Any, files: dict[str, str]) -> None:
    def fragile(events: ak.Array) -> Any:
        if events.metadata["dataset"] == "a" and ak.any(events.event == 1234):
            raise ZeroDivisionError("bad event")
        return {"n": len(events)}

    with pytest.warns(UserWarning, match="rows 1234 to 1235: processor 'fragile' raised ZeroDivisionError"):
        output, metrics = wr.run_processor(fragile, fileset, on_error="skip", savemetrics=True)
    assert output == {"n": 4500}
    ((dataset, file, start, stop, why),) = metrics["left_out"]
    assert (dataset, file, start, stop) == ("a", files["a1"], 1234, 1235)
    assert "bad event" in why


def test_a_file_that_is_gone_or_has_no_such_tree_is_named(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFileError, match=r"nowhere\.root"):
        wr.run_processor(count, {"a": [str(tmp_path / "nowhere.root")]})
    with pytest.raises(
        errors.MissingTreeError, match=r"other\.root: tree 'Events' is not there; trees there are: Other"
    ):
        wr.run_processor(count, {"a": [files["other"]]})
    (tmp_path / "text.root").write_text("not a ROOT file")
    with pytest.warns(UserWarning, match=r"text\.root: .* cannot be read as ROOT"):
        output = wr.run_processor(count, {"a": [files["a1"], str(tmp_path / "text.root")]}, on_error="skip")
    assert output["a"] == 3000
    with pytest.raises(errors.IncompleteError, match="no output") as caught:
        wr.run_processor(count, {"a": [str(tmp_path / "text.root")]}, on_error="skip")
    assert "text.root" in str(caught.value)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (None, "output is <class 'NoneType'>,"),
        ({"a": {"b": None}}, r"output\['a'\]\['b'\] is <class 'NoneType'>,"),
        ({"a": object()}, r"output\['a'\] is <class 'object'>,"),
        ({"a": {"pt": ak.Array([1.0, 2.0])}}, r"output\['a'\]\['pt'\] is <class 'awkward.highlevel.Array'>,"),
        ({"a": frozenset({1})}, r"output\['a'\] is <class 'frozenset'>,"),
    ],
)
def test_an_output_that_cannot_be_added_up_is_refused_at_once(output: Any, words: str, files: dict[str, str]) -> None:
    seen = []

    def bad(events: ak.Array) -> Any:
        seen.append(len(events))
        return output

    for on_error in ("stop", "skip"):
        with pytest.raises(errors.MergeError, match=f"^bad: {words} which cannot be added up .*a1.root, rows 0 to "):
            wr.run_processor(bad, {"a": [files["a1"]]}, on_error=on_error)
    assert len(seen) == 2
    if output is not None:  # of which coffea says it itself
        run = runner(Executor(status=False), processor_compression=None)
        with pytest.raises(
            errors.MergeError, match=f"{words} which cannot be added up .*a1.root, rows .*column_accumulator"
        ):
            run({"a": [files["a1"]]}, bad, treename="Events")
        assert len(seen) == 3


def test_outputs_of_different_kinds_are_refused_and_their_place_is_named(files: dict[str, str]) -> None:
    def odd(events: ak.Array) -> Any:
        return {"n": 1, "x": {"y": {"z"} if events.metadata["entrystart"] else hist.Hist(hist.axis.Regular(3, 0, 1))}}

    said = r"cannot be added up: output\['x'\]\['y'\] is (<class 'hist.hist.Hist'> of one and <class 'set'>|<class 'set'> of one and <class 'hist.hist.Hist'>) of the other"
    fileset = {"a": [files["a1"]]}
    for engine in ("inline", "threads"):
        for on_error in ("stop", "skip"):
            with pytest.raises(errors.MergeError, match=f"odd: outputs of two ranges of rows {said}"):
                wr.run_processor(odd, fileset, grid=100, engine=engine, on_error=on_error)
        with pytest.raises(errors.MergeError, match=said):
            runner(Executor(status=False, engine=engine, grid=100))(fileset, odd, treename="Events")


@pytest.mark.parametrize(
    ("fileset", "words"),
    [
        ({"a": 3}, "cannot read data from 3"),
        ({"a": []}, "has no files"),
        ({}, "names no data"),
        ({1: ["x.root"]}, "named by a string"),
        ({"a": {"files": ["x.root"], "colour": "red"}}, "unknown keys colour"),
    ],
)
def test_filesets_of_no_known_form_are_refused(fileset: Any, words: str) -> None:
    with pytest.raises(errors.SpecError, match=words):
        wr.run_processor(count, fileset)


def test_a_file_may_be_in_two_datasets_but_not_twice_in_one(files: dict[str, str]) -> None:
    path = files["b"]
    assert wr.run_processor(count, {"x": [path], "y": [path]}).keys() >= {"x", "y"}
    with pytest.raises(errors.SpecError, match=r"dataset 'x' names .*b\.root twice; its rows would be counted twice"):
        wr.run_processor(count, {"x": [path, path]})
    run = runner(Executor(status=False))  # where coffea has read the fileset
    assert run({"x": [path, path]}, count, treename="Events")["x"] == 2 * 1500


def test_what_cannot_be_meant_is_refused(fileset: Any, files: dict[str, str], example: ModuleType) -> None:
    for wrong in (3, example.Dimuon):
        with pytest.raises(errors.UsageError, match="an instance of ProcessorABC or a function"):
            wr.run_processor(wrong, fileset)
    with pytest.raises(errors.UsageError, match=r"schema= is a class of coffea\.nanoevents .* got 'NanoAOD'"):
        wr.run_processor(count, fileset, schema="NanoAOD")
    with pytest.raises(errors.UsageError, match="grid= must be"):
        wr.run_processor(count, fileset, grid=0)
    with pytest.raises(errors.SpecError, match="'entrystart', which the run sets itself"):
        wr.run_processor(count, {"a": {"files": [files["a1"]], "metadata": {"entrystart": 3}}})
    with pytest.raises(errors.SpecError, match="reads ROOT files, not arrays"):
        wr.run_processor(count, {"a": {"x": np.arange(3)}})


# -- threads, memory


def test_threads_run_side_by_side(fileset: Any) -> None:
    met = threading.Barrier(2, timeout=10)

    def wait(events: ak.Array) -> Any:
        if events.metadata["entrystart"] == 0 and events.metadata["entrystop"] > 1:
            met.wait()
        return {"n": len(events)}

    assert wr.run_processor(wait, fileset, engine="threads", workers=2) == {"n": 4501}


def test_calls_that_take_long_whatever_their_rows_are_not_cut_small_while_processes_may_still_come(
    files: dict[str, str],
) -> None:
    def slow(events: ak.Array) -> Any:
        time.sleep(0.25)
        return {"calls": 1, "n": len(events)}

    output = wr.run_processor(slow, {"a": [files["a1"]], "b": [files["b"]]})
    assert output["n"] == 4500
    assert output["calls"] <= 12


def test_a_range_that_needs_too_much_memory_is_cut_smaller(files: dict[str, str]) -> None:
    def hungry(events: ak.Array) -> Any:
        return {"n": len(events), "sum": int(np.ones((len(events), 125_000)).sum())}

    output, metrics = wr.run_processor(hungry, {"a": [files["a1"]]}, workers=1, memory="800 MB", savemetrics=True)
    assert output == {"n": 3000, "sum": 3000 * 125_000}
    assert metrics["chunks"] > 4


@pytest.mark.parametrize(("error", "times"), [(MemoryError, 1), (OSError, 4), (ValueError, 4)])
def test_the_runner_calls_again_what_raised_but_not_for_want_of_memory(
    error: type[Exception], times: int, files: dict[str, str]
) -> None:
    seen: list[tuple[int, int]] = []

    def picky(events: ak.Array) -> Any:
        seen.append((events.metadata["entrystart"], events.metadata["entrystop"]))
        if len(events) > 1 and (error is MemoryError or seen.count(seen[-1]) < 4):
            raise error("not now")
        return {"n": len(events)}

    fileset = {"x": {"files": [files["b"]]}}
    for engine in ("inline", "threads"):
        seen.clear()
        run = runner(
            Executor(engine=engine, workers=1, status=False), processor_compression=None, maxchunks=1, chunksize=9
        )
        assert run(fileset, picky, treename="Events") == {"n": 9}
        assert {seen.count(one) for one in seen if one[1] - one[0] > 1} == {times}


def test_rows_that_the_runner_is_to_skip_for_want_of_memory_are_left_to_it(files: dict[str, str]) -> None:
    def never(events: ak.Array) -> Any:
        raise MemoryError("too many")

    run = runner(Executor(engine="inline", retries=0, status=False), skipbadfiles=(MemoryError,))
    with pytest.warns(UserWarning, match="Skipping bad file"), pytest.raises(ValueError, match="No chunks returned"):
        run({"x": [files["b"]]}, never, treename="Events")


def test_memory_errors_are_cut_smaller_too(files: dict[str, str]) -> None:
    def picky(events: ak.Array) -> Any:
        if len(events) > 200:
            raise MemoryError("too many")
        return {"n": len(events)}

    fileset = {"a": [files["a1"]]}
    output, metrics = wr.run_processor(picky, fileset, savemetrics=True)
    assert output == {"n": 3000}
    assert metrics["chunks"] >= 15
    assert runner(Executor(status=False))(fileset, picky, treename="Events") == {"n": 3000}

    def never(events: ak.Array) -> Any:
        raise MemoryError("one is too many")

    with pytest.raises(Exception, match=r"one is too many.*rows 0 to 1\]"):
        wr.run_processor(never, fileset)


@pytest.mark.parametrize("more", [{"memory": "800 MB"}, {"engine": "inline"}], ids=repr)
def test_cells_of_a_grid_are_not_cut_for_want_of_memory(more: dict[str, Any], files: dict[str, str]) -> None:
    def picky(events: ak.Array) -> Any:
        if len(events) > 100:
            raise MemoryError("too many")
        return {"n": len(events)}

    with pytest.raises(MemoryError, match=r"a1\.root, rows 0 to 2000\]") as caught:
        wr.run_processor(picky, {"a": [files["a1"]]}, grid=2000, workers=1, **more)
    assert "grid= must be smaller than 2,000" in caught.value.__notes__[-1]


@pytest.mark.parametrize("grid", [None, 10])
def test_an_empty_file_is_seen_but_has_no_row_of_the_row_limit(grid: int | None, files: dict[str, str]) -> None:
    def sizes(events: ak.Array) -> Any:
        return {"n": len(events), "seen": [Path(events.metadata["filename"]).stem]}

    def run(*names: str, rows: int | None) -> Any:
        fileset = {"a": [files[name] for name in names]}
        return wr.run_processor(sizes, fileset, max_rows=rows, grid=grid, engine="inline", workers=1)

    assert run("empty", "a2", "b", rows=1) == {"n": 1, "seen": ["empty", "a2"]}
    assert run("empty", "b", rows=7) == {"n": 7, "seen": ["empty", "b"]}
    assert run("empty", rows=7) == run("empty", rows=None) == {"n": 0, "seen": ["empty"]}


def test_what_is_left_out_is_told_by_ranges_and_not_without_end(files: dict[str, str]) -> None:
    def fails(events: ak.Array) -> Any:
        if ak.any((events.event < 40) | (events.event % 60 == 0)):
            raise KeyError("wrong name")
        return {"n": len(events)}

    with pytest.warns(UserWarning, match="left rows out") as caught:
        output, metrics = wr.run_processor(fails, {"a": [files["a1"]]}, on_error="skip", savemetrics=True)
    assert output == {"n": 3000 - 40 - 49}
    assert [one[2:4] for one in metrics["left_out"]] == [(0, 40), *[(n, n + 1) for n in range(60, 3000, 60)]]
    (said,) = [str(one.message) for one in caught if "left rows out" in str(one.message)]
    lines = said.splitlines()
    assert lines[1].endswith("a1.root, rows 0 to 40: processor 'fails' raised KeyError: 'wrong name'")
    assert (len(lines), lines[-1]) == (22, '  and 30 more: all are in "left_out" of the metrics')


def test_a_processor_that_always_raises_ends_the_run_though_rows_may_be_left_out(files: dict[str, str]) -> None:
    def always(events: ak.Array) -> Any:
        raise KeyError("wrong name")

    with pytest.raises(errors.StepError, match="raised KeyError: 'wrong name'") as caught:
        wr.run_processor(always, {"a": [files["a1"], files["b"]]}, on_error="skip")
    assert caught.value.__notes__ == ["this is no matter of single rows: it was so for 64 of them, and 0 were done"]
