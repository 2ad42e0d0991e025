"""Skims: the rows of a region in a file of its own, with everything that is needed to use it instead of the source."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.errors import DefinitionError, SaveError, StepError, UnknownNameError, UsageError

FORMATS = {"parquet": ".parquet", "rntuple": ".root", "ttree": ".root"}


def columns(rows: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, rows)
    pt = ak.unflatten(rng.random(int(counts.sum())).astype(np.float32) * 100, counts)
    return {
        "nMuon": counts.astype(np.uint32),
        "Muon_pt": pt,
        "Muon_charge": ak.values_astype(pt * 0 + 1, np.int32),
        "x": rng.random(rows),
        "flag": rng.random(rows) < 0.5,
        "event": np.arange(rows, dtype=np.int64),
        "HLT_A": rng.random(rows) < 0.5,
        "HLT_IsoMu": rng.random(rows) < 0.5,
        "genWeight": rng.integers(1, 4, rows).astype(np.float64),
    }


def skimming(**options: Any) -> wr.Pipeline:
    analysis = wr.Pipeline("skim", **options)

    @analysis.weight
    def generator(genWeight: Any) -> Any:
        return genWeight

    @analysis.cut
    def low(x: Any) -> Any:
        return x < 0.4

    @analysis.column
    def double(x: Any) -> Any:
        return 2 * x

    @analysis.column
    def smeared(x: Any, *, rng: Any) -> Any:
        return x + rng("smear").normal(0, 0.1)

    @analysis.cut
    def two(nMuon: Any) -> Any:
        return nMuon >= 2

    analysis.region("presel", "low")
    analysis.region("SR", "low", "two")
    analysis.region("high", "!low", "two")

    @analysis.output
    def summary(x: Any, smeared: Any, weight: Any) -> dict[str, Any]:
        return {
            "rows": len(x),
            # Adds up exactly, whatever the units, and shows a change in any bit of any row.
            "bits": sum(np.asarray(smeared, dtype=np.float64).view(np.uint64).tolist()),
            "sum": float((x * weight).sum()),
        }

    return analysis


def same(got: Any, want: Any) -> None:
    if isinstance(want, np.ndarray):
        assert np.asarray(got).dtype == want.dtype
    assert ak.to_list(got) == ak.to_list(want)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_file_has_the_rows_and_columns_asked_for(tmp_path: Path, kind: str) -> None:
    data = columns(500)
    analysis = skimming()
    path = tmp_path / "skim" / f"{{dataset}}{FORMATS[kind]}"
    analysis.save(path, columns=["*", "-HLT_*", "HLT_Iso*", "double"], region="SR", format=kind)
    result = analysis.run({"tt": data}, progress=False)
    target = Path(str(path).format(dataset="tt"))
    mask = (data["x"] < 0.4) & (data["nMuon"] >= 2)
    reader = wr.data.open(str(target)).open(0)
    names = [name for name in data if name != "HLT_A"]
    assert sorted(reader.info.columns) == sorted([*names, "double"])
    read = reader.read([*names, "double"], 0, int(mask.sum()))
    if kind == "ttree":
        data["nMuon"] = data["nMuon"].astype(np.int32)  # what counters of a TTree are
    for name in names:
        same(read[name], data[name][mask])
    same(read["double"], 2 * data["x"][mask])
    reader.close()
    (saved,) = result.saved
    assert saved["rows"] == mask.sum()
    assert saved["of"] == 500
    assert saved["bytes"] == target.stat().st_size
    assert [item.name for item in target.parent.iterdir()] == [target.name]


@pytest.mark.parametrize("identity", [(), ("event",)])
@pytest.mark.parametrize("kind", FORMATS)
def test_an_analysis_of_the_skim_gives_the_same(tmp_path: Path, kind: str, identity: tuple[str, ...]) -> None:
    datasets = {"a": columns(700, 3), "b": columns(300, 4)}
    original = skimming(identity=identity)
    path = str(tmp_path / f"{{dataset}}{FORMATS[kind]}")
    original.save(path, columns=["x", "Muon", "genWeight"], region="SR | high", format=kind)
    source = wr.data.open(dict(datasets), metadata={"a": {"xsec": 2.0}, "b": {"xsec": 3.0}}, grid=97)
    before = original.run(source, progress=False)
    skim = wr.data.open(str(tmp_path / f"*{FORMATS[kind]}"))
    assert list(skim.datasets) == ["a", "b"]
    after = skimming(identity=identity).run(skim, progress=False)
    for dataset in datasets:
        metadata = skim.datasets[dataset]
        assert metadata["xsec"] == source.datasets[dataset]["xsec"]
        weights = datasets[dataset]["genWeight"]
        assert metadata["skim"]["rows"] == len(weights)
        assert metadata["skim"]["sumw"] == metadata["sumw"] == weights.sum()
        assert metadata["skim"]["sumw2"] == (weights**2).sum()
        for region in ("SR", "high"):
            old, new = before["summary", region, dataset], after["summary", region, dataset]
            assert (new["rows"], new["bits"]) == (old["rows"], old["bits"])
            assert new["sum"] == pytest.approx(old["sum"], rel=1e-12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(20))
@given(
    rows=st.integers(0, 120),
    grid=st.integers(1, 40),
    workers=st.integers(1, 3),
    region=st.sampled_from([None, "*", "presel", "SR", "SR | high", "high|presel"]),
    engine=st.sampled_from(["inline", "threads"]),
)
def test_rows_are_in_order_whatever_the_chunks(
    tmp_path: Path, rows: int, grid: int, workers: int, region: Any, engine: str
) -> None:
    data = columns(rows, rows)
    analysis = skimming()
    analysis.save(tmp_path / "skim.parquet", columns=["event", "Muon_pt"], region=region)
    analysis.run(wr.data.open(data, grid=grid), workers=workers, engine=engine, chunk=grid, progress=False)
    low, two = data["x"] < 0.4, data["nMuon"] >= 2
    masks = {"presel": low, "SR": low & two, "high": ~low & two}
    chosen = list(masks) if region in (None, "*") else [name.strip() for name in region.split("|")]
    mask = np.logical_or.reduce([masks[name] for name in chosen])
    if region is None:
        mask = np.ones(rows, bool)
    table = pq.read_table(tmp_path / "skim.parquet")
    assert table["event"].to_pylist() == np.flatnonzero(mask).tolist()
    assert table["Muon_pt"].to_pylist() == ak.to_list(data["Muon_pt"][mask])


def test_a_file_for_each_cut_has_what_is_known_by_then(tmp_path: Path) -> None:
    data = columns(200)
    analysis = skimming()
    analysis.save(tmp_path / "{dataset}-{cut}.parquet", columns=["event", "double"], region="SR")
    analysis.run({"tt": data}, progress=False)
    low, two = data["x"] < 0.4, data["nMuon"] >= 2
    first = pq.read_table(tmp_path / "tt-low.parquet")
    assert first["event"].to_pylist() == np.flatnonzero(low).tolist()
    assert first["double"].to_pylist() == (2 * data["x"][low]).tolist()  # written above "two"
    second = pq.read_table(tmp_path / "tt-two.parquet")
    assert second["event"].to_pylist() == np.flatnonzero(low & two).tolist()


def test_a_column_that_needs_a_later_cut_is_left_out_of_earlier_files(tmp_path: Path) -> None:
    analysis = wr.Pipeline("late")

    @analysis.cut
    def low(x: Any) -> Any:
        return x < 0.5

    @analysis.cut
    def two(nMuon: Any) -> Any:
        return nMuon >= 2

    @analysis.column
    def second(Muon_pt: Any) -> Any:
        return Muon_pt[:, 1]  # raises where there is none

    analysis.save(tmp_path / "{cut}.parquet", columns=["event", "second"])
    analysis.run(columns(100), progress=False)
    assert "second" not in pq.read_table(tmp_path / "low.parquet").column_names
    assert "second" in pq.read_table(tmp_path / "two.parquet").column_names


def test_no_selected_row_gives_a_valid_file_with_typed_columns(tmp_path: Path) -> None:
    analysis = wr.Pipeline("none")

    @analysis.cut
    def never(x: Any) -> Any:
        return x > 5

    @analysis.column
    def double(x: Any) -> Any:
        return 2 * x

    analysis.save(tmp_path / "skim.parquet", columns=["*", "double"])
    result = analysis.run(columns(100), progress=False)
    table = pq.read_table(tmp_path / "skim.parquet")
    assert table.num_rows == 0
    assert str(table.schema.field("nMuon").type) == "uint32"
    assert "double" in table.column_names
    assert result.saved[0]["rows"] == 0


def test_failing_rows_are_left_out_and_recorded(tmp_path: Path) -> None:
    data = columns(100)
    analysis = wr.Pipeline("bad")

    @analysis.column
    def worse(x: Any, event: Any) -> Any:
        if np.any(event == 55):
            raise ValueError("bad row")
        return x

    analysis.save(tmp_path / "skim.parquet", columns=["event", "worse"], region=None)
    with pytest.raises(StepError):
        analysis.run(wr.data.open(data, grid=10), progress=False)
    assert list(tmp_path.iterdir()) == []
    result = analysis.run(wr.data.open(data, grid=10), on_error="skip", progress=False)
    assert result.exit_code == 2
    got = pq.read_table(tmp_path / "skim.parquet")["event"].to_pylist()
    assert got == [*range(55), *range(56, 100)]
    skim = wr.data.open(str(tmp_path / "skim.parquet"))
    assert skim.datasets["data"]["skim"]["rows"] == 99


def test_checking_and_looking_save_nothing(tmp_path: Path) -> None:
    analysis = skimming()
    analysis.save(tmp_path / "skim.parquet")
    analysis.check(columns(50))
    assert list(tmp_path.iterdir()) == []


def test_a_skim_of_a_skim_keeps_the_identity(tmp_path: Path) -> None:
    data = columns(300)
    first = skimming()
    first.save(tmp_path / "one" / "{dataset}.parquet", region="presel")
    first.run({"tt": data}, progress=False)
    second = skimming()
    second.save(tmp_path / "two" / "{dataset}.root", region="SR")
    middle = second.run(str(tmp_path / "one" / "tt.parquet"), progress=False)
    last = skimming().run(str(tmp_path / "two" / "tt.root"), progress=False)
    whole = skimming().run({"tt": data}, progress=False)
    for result in (middle, last):
        assert result["summary", "SR"]["bits"] == whole["summary", "SR"]["bits"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "skim.txt"}, "are .parquet or .root"),
        ({"path": "{file}.root"}, "has a place {file}"),
        ({"path": "a.parquet", "format": "ttree"}, "cannot hold"),
        ({"path": "a.root", "format": "tree"}, "did you mean"),
        ({"path": "a.root", "columns": []}, "columns="),
        ({"path": "{cut}.root", "region": None}, "region= must name one"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message.replace("{", "\\{").replace("}", "\\}")):
        skimming().save(**arguments)


def test_what_the_steps_or_data_do_not_have_is_refused(tmp_path: Path) -> None:
    data = columns(20)

    def running(path: str, datasets: Any = None, **options: Any) -> None:
        analysis = skimming()
        analysis.save(tmp_path / path, **options)
        analysis.run(datasets or {"tt": data}, progress=False)

    with pytest.raises(UnknownNameError, match=r"'SRR', which is not defined.*'SR'"):
        running("a.root", region="SRR")
    with pytest.raises(DefinitionError, match="'low', which is a cut"):
        running("a.root", columns=["low"])
    with pytest.raises(Exception, match="Muon_ptt"):
        running("a.root", columns=["Muon_ptt"])
    with pytest.raises(UsageError, match=r"put \{dataset\} into the path"):
        running("a.root", {"a": data, "b": data})
    with pytest.raises(DefinitionError, match="must name one region"):
        running("{cut}.root", region="SR | high")


def test_a_file_that_is_read_is_not_written_over(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "in.root") as file:
        tree = file.mktree("Events", {"x": "float64", "nMuon": "uint32", "genWeight": "float64"})
        tree.extend({"x": np.arange(3.0), "nMuon": np.arange(3, dtype="u4"), "genWeight": np.ones(3)})
    before = (tmp_path / "in.root").read_bytes()
    analysis = skimming()
    analysis.save(tmp_path / "in.root")
    with pytest.raises(UsageError, match="is being read"):
        analysis.run(str(tmp_path / "in.root"), progress=False)
    assert (tmp_path / "in.root").read_bytes() == before


SLOW = """
import sys, time
import numpy as np
import windrow as wr
analysis = wr.Pipeline("slow")
@analysis.column
def y(x):
    time.sleep(0.05)
    return x
analysis.save(sys.argv[1] + "/skim.parquet", columns=["x", "y"], region=None)
print("go", flush=True)
analysis.run(wr.data.open({"x": np.arange(2000)}, grid=10), chunk=10, progress=False)
"""


def test_a_killed_run_leaves_nothing_under_the_name_and_the_next_clears_up(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".windrow-staging-*/*.part")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    left = list(tmp_path.iterdir())
    assert [place.name.startswith(".windrow-staging-") for place in left] == [True]
    analysis = wr.Pipeline("again")
    analysis.save(tmp_path / "skim.parquet", region=None)
    analysis.run({"x": np.arange(10)}, progress=False)
    assert [place.name for place in tmp_path.iterdir()] == ["skim.parquet"]
    assert pq.read_table(tmp_path / "skim.parquet")["x"].to_pylist() == list(range(10))


STOPPED = (
    SLOW.replace("analysis.run(", "result = analysis.run(")
    + """
print(result.exit_code, len(result.saved), [note for note in result.notes if "saved" in note])
"""
)


def test_a_run_that_is_stopped_saves_nothing_and_says_so(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STOPPED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".windrow-staging-*/*.part")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        process.wait(timeout=60)
    assert said.startswith("2 0 ['nothing was saved")
    assert list(tmp_path.iterdir()) == []


def test_several_files_in_several_directories(tmp_path: Path) -> None:
    analysis = skimming()
    analysis.save(tmp_path / "a" / "{dataset}.parquet", region="SR")
    analysis.save(tmp_path / "b" / "c" / "{dataset}.root", region=None, columns=["x"])
    result = analysis.run({"one": columns(30), "two": columns(40)}, progress=False)
    assert [Path(file["path"]).relative_to(tmp_path).as_posix() for file in result.saved] == [
        "a/one.parquet",
        "a/two.parquet",
        "b/c/one.root",
        "b/c/two.root",
    ]
    assert wr.data.open(str(tmp_path / "b" / "c" / "two.root")).open(0).info.rows == 40
    assert "save" in analysis.explain()


@pytest.mark.parametrize("kind", FORMATS)
def test_the_analysis_runs_on_its_own_skim_with_its_made_columns(tmp_path: Path, kind: str) -> None:
    data = columns(300)

    def analysis(factor: int) -> wr.Pipeline:
        made = skimming()

        @made.column
        def scaled(x: Any) -> Any:
            return factor * x

        @made.output
        def total(scaled: Any) -> float:
            return float(scaled.sum())

        made.save(
            tmp_path / f"{{dataset}}{FORMATS[kind]}", columns=["*", "scaled", "generator"], region="SR", format=kind
        )
        return made

    whole = analysis(2).run({"tt": data}, progress=False)
    skim = str(tmp_path / f"tt{FORMATS[kind]}")
    before = Path(skim).read_bytes()
    with pytest.raises(UsageError, match="save=False"):
        analysis(2).run(skim, progress=False)
    again = analysis(2).run(skim, save=False, progress=False)
    assert again["total", "SR"] == pytest.approx(whole["total", "SR"], rel=1e-12)
    # A step that changed since wins over the column it once made.
    changed = analysis(3).run(skim, save=False, progress=False)
    assert changed["total", "SR"] == pytest.approx(1.5 * whole["total", "SR"], rel=1e-12)
    assert Path(skim).read_bytes() == before


def test_another_analysis_reads_the_made_column(tmp_path: Path) -> None:
    first = skimming()
    first.save(tmp_path / "{dataset}.parquet", columns=["double"], region="SR")
    data = columns(100)
    first.run({"tt": data}, progress=False)
    other = wr.Pipeline("other")

    @other.output
    def total(double: Any) -> float:
        return float(double.sum())

    mask = (data["x"] < 0.4) & (data["nMuon"] >= 2)
    result = other.run(str(tmp_path / "tt.parquet"), progress=False)
    assert result["total"] == pytest.approx((2 * data["x"][mask]).sum(), rel=1e-12)


def test_checking_needs_no_output() -> None:
    analysis = wr.Pipeline("checked")

    @analysis.cut
    def positive(x: Any) -> Any:
        return x > 0

    assert analysis.check({"x": np.arange(10)}) == ("positive",)


# --- what a review found ---------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["written", ["low", "two", "generator"]])
def test_the_sums_do_not_depend_on_the_order(tmp_path: Path, order: Any) -> None:
    data = columns(200)
    analysis = skimming()
    analysis.save(tmp_path / "{dataset}.parquet", region="SR")
    result = analysis.run({"tt": data}, order=order, nminus1=True, progress=False)
    skim = wr.data.open(str(tmp_path / "tt.parquet"))
    assert skim.datasets["tt"]["skim"]["sumw"] == data["genWeight"].sum()
    assert skim.datasets["tt"]["skim"]["sumw2"] == (data["genWeight"] ** 2).sum()
    assert result.nminus1["SR"].wgtev[0] == data["genWeight"].sum()
    assert not any("sumw" in note for note in result.notes)


def test_a_weight_below_the_first_cut_is_not_in_the_sums_and_that_is_said(tmp_path: Path) -> None:
    analysis = skimming()

    @analysis.weight
    def late(x: Any) -> Any:
        return x

    analysis.save(tmp_path / "{dataset}.parquet", region="SR")
    result = analysis.run({"tt": columns(50)}, progress=False)
    assert any("not late" in note for note in result.notes)


def test_a_friend_that_is_joined_is_not_written_over(tmp_path: Path) -> None:
    data = columns(50)
    ak.to_parquet(ak.Array({"score": data["x"]}), tmp_path / "mva.parquet")
    main = {name: data[name] for name in ("x", "nMuon", "genWeight")}
    ak.to_parquet(ak.Array(main), tmp_path / "main.parquet")
    before = (tmp_path / "mva.parquet").read_bytes()
    analysis = skimming()
    analysis.save(tmp_path / "mva.parquet")
    joined = wr.data.join(str(tmp_path / "main.parquet"), str(tmp_path / "mva.parquet"))
    with pytest.raises(UsageError, match="is being read"):
        analysis.run(joined, progress=False)
    assert (tmp_path / "mva.parquet").read_bytes() == before


def test_runs_in_threads_may_save_to_one_file(tmp_path: Path) -> None:
    import threading

    failures: list[BaseException] = []

    def work() -> None:
        analysis = skimming()
        analysis.save(tmp_path / "skim.parquet", region=None, columns=["event"])
        try:
            analysis.run(columns(500), progress=False)
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert pq.read_table(tmp_path / "skim.parquet")["event"].to_pylist() == list(range(500))


def test_one_file_under_two_names_is_written_by_nobody(tmp_path: Path) -> None:
    analysis = skimming()
    (tmp_path / "o").mkdir()
    analysis.save(tmp_path / "o" / "skim.parquet")
    analysis.save(f"{tmp_path}/o/../o/skim.parquet")
    with pytest.raises(UsageError, match="would be written twice"):
        analysis.run(columns(50), progress=False)


def test_a_file_that_cannot_be_written_costs_no_result(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("windrow.data.skim.write.write_skim", full)
    analysis = skimming()
    analysis.save(tmp_path / "skims" / "{dataset}.parquet")
    with pytest.raises(SaveError, match=r"skims/tt.parquet \(dataset 'tt'\).*No space left") as caught:
        analysis.run({"tt": columns(50)}, rundir=tmp_path / "run", progress=False)
    kept = wr.load(tmp_path / "run")
    assert kept["summary"].keys() == caught.value.facts["result"]["summary"].keys()
    assert any("could not be saved" in note for note in kept.notes)


def test_what_will_not_work_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "taken.parquet").mkdir()
    analysis = skimming()
    analysis.save(tmp_path / "taken.parquet")
    with pytest.raises(UsageError, match="is a directory"):
        analysis.run(columns(50), progress=False)
    analysis = skimming()
    analysis.save(tmp_path / "{dataset}.parquet")
    source = wr.data.open({"tt": columns(50)}, metadata={"tt": {"odd": object()}})
    with pytest.raises(UsageError, match="metadata of dataset 'tt'"):
        analysis.run(source, progress=False)


def test_files_with_different_columns_are_refused_when_the_second_is_opened(tmp_path: Path) -> None:
    data = columns(50)
    for number, extra in enumerate(({"HLT_X": data["flag"], "HLT_Y": data["flag"]}, {})):
        part = {n: data[n] for n in ("x", "nMuon", "genWeight")}
        ak.to_parquet(ak.Array({**part, **extra}), tmp_path / f"in{number}.parquet")
    analysis = skimming()
    analysis.save(tmp_path / "out" / "{dataset}.parquet")
    with pytest.raises(DefinitionError, match=r"'HLT_X'.*1 more.*leave it out with '-HLT_X'"):
        analysis.run({"tt": [str(tmp_path / f"in{n}.parquet") for n in (0, 1)]}, progress=False)


def test_a_step_that_does_not_apply_is_left_out_of_the_file(tmp_path: Path) -> None:
    analysis = skimming()

    @analysis.weight(when="is_mc")
    def simulated(x: Any) -> Any:
        return wr.updown(x, 2 * x, x / 2)

    analysis.save(tmp_path / "{dataset}.parquet", columns=["event", "simulated"], region=None)
    data = columns(20)
    analysis.run(
        wr.data.open({"mc": data, "real": data}, metadata={"mc": {"is_mc": True}, "real": {"is_mc": False}}),
        progress=False,
    )
    mc = pq.read_table(tmp_path / "mc.parquet")
    assert mc["simulated"].to_pylist() == data["x"].tolist()
    assert mc["simulated_up"].to_pylist() == (2 * data["x"]).tolist()
    assert mc["simulated_down"].to_pylist() == (data["x"] / 2).tolist()
    assert "simulated" not in pq.read_table(tmp_path / "real.parquet").column_names


def test_a_step_named_like_a_column_of_the_file_is_refused(tmp_path: Path) -> None:
    analysis = wr.Pipeline("clash")

    @analysis.column
    def x(flag: Any) -> Any:
        return 1.0 * flag

    analysis.save(tmp_path / "skim.parquet", columns=["*", "x"], region=None)
    with pytest.raises(DefinitionError, match="'x' has two makers"):
        analysis.run(columns(20), progress=False)


def test_a_dataset_with_no_row_done_leaves_the_earlier_file(tmp_path: Path) -> None:
    data = columns(30)
    good = wr.Pipeline("good")
    good.save(tmp_path / "skim.parquet", region=None)
    good.run(data, progress=False)
    before = (tmp_path / "skim.parquet").read_bytes()
    bad = wr.Pipeline("bad")

    @bad.column
    def broken(x: Any) -> Any:
        raise ValueError("no")

    bad.save(tmp_path / "skim.parquet", columns=["broken"], region=None)
    result = bad.run(data, on_error="skip", progress=False)
    assert result.saved == ()
    assert any("none of its rows is done" in note for note in result.notes)
    assert (tmp_path / "skim.parquet").read_bytes() == before


def test_a_region_without_cuts_has_no_file_for_each_cut(tmp_path: Path) -> None:
    analysis = wr.Pipeline("none")
    analysis.save(tmp_path / "{cut}.parquet")
    with pytest.raises(DefinitionError, match="has no cuts"):
        analysis.run(columns(20), progress=False)


def test_lists_of_texts_can_be_made_and_saved(tmp_path: Path) -> None:
    analysis = wr.Pipeline("texts")

    @analysis.column
    def words(nMuon: Any) -> Any:
        return ak.Array([["mu"] * int(n) for n in nMuon])

    analysis.save(tmp_path / "skim.parquet", columns=["words"], region=None)
    data = columns(40)
    analysis.run(data, progress=False)
    got = pq.read_table(tmp_path / "skim.parquet")["words"].to_pylist()
    assert got == [["mu"] * int(n) for n in data["nMuon"]]


def test_a_skim_of_data_stands_for_all_sections(tmp_path: Path) -> None:
    data = columns(200)
    data["run"] = np.full(200, 7)
    data["luminosityBlock"] = np.arange(200) // 10 + 1
    analysis = wr.Pipeline("sections")

    @analysis.cut
    def rare(event: Any) -> Any:
        return event < 5

    analysis.save(tmp_path / "{dataset}.parquet")
    whole = analysis.run({"muons": data}, progress=False)
    assert whole.lumis == {"7": [[1, 20]]}
    skim = analysis.run(str(tmp_path / "muons.parquet"), save=False, progress=False)
    assert skim.lumis == {"7": [[1, 20]]}


def test_a_result_is_short_when_it_is_shown() -> None:
    analysis = wr.Pipeline("long")

    @analysis.output
    def every(x: Any) -> list[float]:
        return [float(value) for value in x]

    shown = repr(analysis.run(columns(3000), progress=False))
    assert len(shown) < 200
    assert "3,000 of 3,000 rows done" in shown


def test_where_there_are_no_locks_rows_are_saved_and_nobody_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    other = tmp_path / ".windrow-staging-other"
    other.mkdir()
    (other / "1.part").touch()
    analysis = skimming()
    analysis.save(tmp_path / "skim.parquet", region=None, columns=["event"])
    analysis.run(columns(20), progress=False)
    assert pq.read_table(tmp_path / "skim.parquet").num_rows == 20
    assert (other / "1.part").exists()
