"""``windrow new``: every skeleton runs, its test passes, linters like it, and its numbers are right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import uproot
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from searching import few_by_day
from windrow.cli.loading import loaded, pipeline_in
from windrow.cli.main import main
from windrow.cli.new.design import TEMPLATES, choose_axis, design
from windrow.cli.show import look, together

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKOUT = Path(__file__).resolve().parents[2]


def new(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["new", *map(str, arguments)])


def made(place: Path, *arguments: str | Path) -> Path:
    """Write a skeleton called ``first``; return its analysis file."""
    result = new(place / "first", *arguments)
    assert result.exit_code == 0, result.output + result.stderr
    return place / "first" / "first.py"


def complaints(directory: Path) -> str:
    """What ruff says with this project's rules for examples, which have its own default ones among them."""
    rules = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert {"E", "F"} <= set(rules["select"])
    ignored = [*rules["ignore"], *rules["per-file-ignores"]["examples/**"]]
    ours = ["--select", ",".join(rules["select"]), "--ignore", ",".join(ignored), "--target-version", "py311"]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "-q", *ours, directory.name]
    done = subprocess.run(command, cwd=directory.parent, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def run_tests(analysis: Path) -> int:
    """Call the tests beside an analysis; return how many there are."""
    with loaded(analysis), loaded(analysis.parent / f"test_{analysis.name}") as tests:
        found = [value for name, value in vars(tests).items() if name.startswith("test_")]
        for number, test in enumerate(found):
            place = analysis.parent / f"scratch-{number}"
            place.mkdir()
            test(*([place] if signature(test).parameters else []))
    return len(found)


def run(analysis: Path) -> Any:
    """Run the pipeline of a file on its own data, as ``windrow run`` would."""
    with loaded(analysis) as module:
        return pipeline_in(module, analysis).run(module.fileset, progress=False)


def check_program(analysis: Path) -> None:
    """Do what ``python first.py`` does; it must report."""
    with loaded(analysis) as module:
        assert module.main() == 0
    assert (analysis.parent / "report.html").read_text(encoding="utf-8").rstrip().endswith(">")


def run_on(analysis: Path, rundir: Path, *files: Path) -> Any:
    """Run ``windrow run`` on other files; return the summary it leaves."""
    words = ["run", str(analysis), *map(str, files), "--rundir", str(rundir), "--no-progress"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return json.loads((rundir / "summary.json").read_text(encoding="utf-8"))


def passed(result: Any) -> int:
    (region,) = result.cutflow
    return int(result.cutflow[region].passed)


# -- every real sample ------------------------------------------------------------------------------

SAMPLES = {
    "nanoaod": ["nanoaodv5_sample.root"],
    "two_datasets": ["nano_dy.root", "nano_dimuon.root"],
    "rntuple": ["nano_dy_rntuple.root"],
    "empty": ["nano_dy_empty.root"],
    "other_names": ["HZZ.root"],
}
#: Run as programs too; made files do that for two datasets, and the tutorial's test for "nanoaod".
PROGRAMS = ("empty", "other_names")


@pytest.fixture(scope="module")
def skeleton(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the analysis for some real samples; files of 1,500 branches are opened once for all tests."""
    known: dict[str, Path] = {}

    def write(which: str) -> Path:
        if which not in known:
            place = tmp_path_factory.mktemp(which)
            options = [word for name in SAMPLES[which] for word in ("--from", samples / name)]
            known[which] = made(place, *options)
        return known[which]

    return write


@pytest.mark.samples
@pytest.mark.parametrize("which", few_by_day(["other_names", "empty", "nanoaod", "two_datasets", "rntuple"], 2))
def test_real_samples(skeleton: Callable[[str], Path], which: str) -> None:
    analysis = skeleton(which)
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) >= 2
    if which in PROGRAMS:
        check_program(analysis)


@pytest.mark.samples
def test_a_table_of_plain_numbers(samples: Path, tmp_path: Path) -> None:
    table = pa.csv.read_csv(samples / "Zmumu_Run2011A.csv")
    pq.write_table(table, tmp_path / "zmumu.parquet")
    analysis = made(tmp_path, "--from", tmp_path / "zmumu.parquet")
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 2
    text = analysis.read_text()
    assert 'identity=("Run", "Event")' in text
    assert "def pt1_above(pt1, *, low=30):" in text
    result = run(analysis)
    assert passed(result) == int(np.sum(np.asarray(table["pt1"]) > 30))
    kept = np.asarray(table["eta1"])[np.asarray(table["pt1"]) > 30]
    spectrum = result["eta1_spectrum"]
    counts, _ = np.histogram(kept, bins=spectrum.axes[0].edges)
    assert spectrum.values().tolist() == counts.tolist()


@pytest.mark.samples
def test_the_dimuons_of_hzz_are_those_of_a_plain_program(
    samples: Path, skeleton: Callable[[str], Path], tmp_path: Path
) -> None:
    with uproot.open(samples / "HZZ.root")["events"] as tree:
        names = ["Muon_Px", "Muon_Py", "Muon_Pz", "Muon_E", "Muon_Charge", "triggerIsoMu24"]
        events = tree.arrays(names, library="np")
    masses = []
    for px, py, pz, energy, charge, fired in zip(*(events[n] for n in names), strict=True):
        pt = np.hypot(px, py)
        good = np.flatnonzero((pt > 10) & (np.abs(np.arcsinh(pz / pt)) < 2.4))
        if fired and len(good) >= 2 and charge[good[0]] != charge[good[1]]:
            total = [float(part[good[:2]].astype(float).sum()) for part in (energy, px, py, pz)]
            masses.append(np.sqrt(total[0] ** 2 - total[1] ** 2 - total[2] ** 2 - total[3] ** 2))
    analysis = skeleton("other_names")
    result = run(analysis)
    assert passed(result) == len(masses)
    edges = result["mass_spectrum"].axes[0].edges
    inside = np.mean((np.asarray(masses) > edges[0]) & (np.asarray(masses) < edges[-1]))
    assert inside > 0.95
    # The same file named on the command line, where nothing says whether it is simulation.
    summary = run_on(analysis, tmp_path / "run", samples / "HZZ.root")
    assert summary["cutflow"]["dimuon"]["all"]["passed"] == len(masses)


@pytest.mark.samples
def test_what_is_simulation_is_written_down(skeleton: Callable[[str], Path]) -> None:
    with loaded(skeleton("two_datasets")) as module:
        assert {name: one["metadata"] for name, one in module.fileset.items()} == {
            "nano_dy": {"is_mc": True},
            "nano_dimuon": {"is_mc": False},
        }


@pytest.mark.samples
def test_files_with_nothing_in_common_are_refused(samples: Path, tmp_path: Path) -> None:
    nano = {**muons(10), "genWeight": np.ones(10), "nMuon": np.zeros(10)}
    paths = [samples / "HZZ.root", written(tmp_path / "nano.parquet", nano)]
    with uproot.open(paths[0])["events"] as tree:
        keys = [set(tree.keys()), set(nano)]
    result = new(tmp_path / "first", "--from", paths[0], "--from", paths[1])
    assert result.exit_code == 1
    assert "too little in common" in result.stderr
    for path, missing in zip(paths, (keys[1] - keys[0], keys[0] - keys[1]), strict=True):
        assert f"missing in {path} ({len(missing):,}):" in result.stdout
    assert not (tmp_path / "first").exists()


# -- made files -------------------------------------------------------------------------------------


def leptons(rows: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, rows)

    def lists(values: Any) -> Any:
        return ak.unflatten(values, counts)

    total = int(counts.sum())
    return {
        "lep_pt": lists(rng.exponential(40, total)),
        "lep_eta": lists(rng.normal(0, 1, total)),
        "lep_phi": lists(rng.uniform(-3, 3, total)),
        "lep_charge": lists(rng.choice([-1, 1], total)),
    }


def written(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table({name: ak.to_arrow(v, extensionarray=False) for name, v in columns.items()}), path)
    return path


def test_leptons_without_mass_and_in_any_order(tmp_path: Path) -> None:
    columns = leptons(500)
    analysis = made(tmp_path, "--from", written(tmp_path / "atlas.parquet", columns))
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 3
    expected = 0
    for pt, eta, charge in zip(columns["lep_pt"], columns["lep_eta"], columns["lep_charge"], strict=True):
        good = (np.asarray(pt) > 10) & (np.abs(eta) < 2.5)
        order = np.argsort(-np.asarray(pt)[good])
        first = np.asarray(charge)[good][order][:2]
        expected += len(first) == 2 and first[0] != first[1]
    assert passed(run(analysis)) == expected


def muons(rows: int, seed: int = 1) -> dict[str, Any]:
    return {name.replace("lep", "Muon"): v for name, v in leptons(rows, seed).items()}


def pairs(columns: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Which rows begin with two good muons of opposite charge, counted row by row."""
    found = []
    names = ("Muon_pt", "Muon_eta", "Muon_charge")
    for pt, eta, charge in zip(*(ak.to_list(columns[name]) for name in names), strict=True):
        good = [i for i in range(len(pt)) if pt[i] > 10 and abs(eta[i]) < 2.4]
        good.sort(key=lambda i: -pt[i])
        found.append(len(good) >= 2 and charge[good[0]] != charge[good[1]])
    return np.array(found)


def test_data_and_simulation_together_and_either_on_the_command_line(tmp_path: Path) -> None:
    simulated, measured = muons(300, 1), muons(200, 2)
    weights = np.random.default_rng(3).normal(1, 0.5, 300).astype(np.float32)
    paths = [
        written(tmp_path / "tt.parquet", {**simulated, "genWeight": weights}),
        written(tmp_path / "data.parquet", measured),
    ]
    analysis = made(tmp_path, "--from", paths[0], "--from", paths[1])
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 3
    check_program(analysis)
    expected = [float(np.sum(weights[pairs(simulated)])), float(np.sum(pairs(measured)))]
    result = run(analysis)
    sums = [result["mass_spectrum", "dimuon", name].sum(flow=True).value for name in ("tt", "data")]
    assert sums == pytest.approx(expected, rel=1e-5)
    assert [note for note in result.notes if "'genWeight': default used for 200 rows" in note]
    for number, path in enumerate(paths):
        summary = run_on(analysis, tmp_path / f"run{number}", path)
        last = summary["cutflow"]["dimuon"]["all"]["executed"][-1]
        assert last["sumw"] == pytest.approx(expected[number], rel=1e-5)


def test_an_analysis_of_simulation_alone_takes_data_too(tmp_path: Path) -> None:
    weighted = {"x": np.arange(100.0), "mcWeight": np.full(100, 0.5)}
    analysis = made(tmp_path, "--from", written(tmp_path / "tt.parquet", weighted))
    data = written(tmp_path / "data.parquet", {"x": np.arange(100.0)})
    summary = run_on(analysis, tmp_path / "run", data)
    assert summary["cutflow"]["selected"]["all"]["passed"] == np.sum(np.arange(100) > 25)


def test_objects_are_those_that_all_files_have(tmp_path: Path) -> None:
    jets = {name.replace("lep", "Jet"): v for name, v in leptons(300, 4).items()}
    cartesian = {"Muon_Px": jets["Jet_pt"], "Muon_Py": jets["Jet_pt"], "Muon_Pz": jets["Jet_eta"]}
    first = written(tmp_path / "a.parquet", {**muons(300), **jets})
    second = written(tmp_path / "b.parquet", {**cartesian, "Muon_E": jets["Jet_pt"], **jets})
    analysis = made(tmp_path, "--from", first, "--from", second)
    assert "def good_jets(Jet):" in analysis.read_text()
    assert run_tests(analysis) == 2
    assert run(analysis).complete


def test_a_trigger_that_a_file_has_none_of_is_left_out(tmp_path: Path) -> None:
    fired = {"HLT_IsoMu24": np.ones(300, dtype=bool)}
    first = written(tmp_path / "a.parquet", {**muons(300), **fired})
    second = written(tmp_path / "b.parquet", muons(300, 5))
    analysis = made(tmp_path, "--from", first, "--from", second)
    assert "HLT_IsoMu24" not in analysis.read_text()
    assert run(analysis).cutflow["dimuon", "b"].passed == np.sum(pairs(muons(300, 5)))


def test_a_weight_that_is_no_number_of_each_row_is_no_weight(tmp_path: Path) -> None:
    columns = {"x": np.arange(100.0)}
    first = written(tmp_path / "a.parquet", {**columns, "genWeight": np.ones(100)})
    lists = ak.Array([[1.0, 2.0]] * 100)
    second = written(tmp_path / "b.parquet", {**columns, "genWeight": lists})
    analysis = made(tmp_path, "--from", first, "--from", second)
    assert "analysis.weight" not in analysis.read_text()
    assert run(analysis).complete


#: Some cannot be written as a name, the others mean something else in a step or to a linter.
AWKWARD_NAMES = ["my column", "class", "weight", "l", "id", "region", "9lives", "A.b", "x²", "µ", "axis", "rng"]


def test_columns_that_python_or_windrow_cannot_write_are_left_out(tmp_path: Path) -> None:
    values = np.random.default_rng(3).normal(5, 1, 200)
    columns = {**dict.fromkeys(AWKWARD_NAMES, values), "other": values}
    analysis = made(tmp_path, "--from", written(tmp_path / "data.parquet", columns))
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 2
    result = run(analysis)
    assert passed(result) == pytest.approx(150, abs=30)
    assert list(result) == ["selected_rows", "other_spectrum"]


def test_every_placeholder_of_the_templates_has_a_value(tmp_path: Path) -> None:
    """A paragraph whose value is missing is left out, so a name that is misspelt would go unnoticed."""
    known = {"name", "fileset", "sources", "spectrum", "reads", "expression", "axis", "quantity", "label"}
    for columns in (muons(10), {"x": np.arange(10.0)}):
        source = wr.data.open(written(tmp_path / "data.parquet", columns))
        known |= design("first", together(look(source)), source).keys()
    used: set[str] = set()
    for path in [*TEMPLATES.rglob("*.py"), *TEMPLATES.rglob("*.md")]:
        used.update(re.findall(r"FILL_([a-z_]+)", path.read_text(encoding="utf-8")))
    assert used == known


def test_columns_that_differ_in_capitals_and_a_collection_that_cannot_be_an_argument(tmp_path: Path) -> None:
    lists = {name.replace("lep", "id"): values for name, values in leptons(100).items()}
    columns = {**lists, "Pt": np.arange(100.0), "pt": np.arange(100.0)}
    analysis = made(tmp_path, "--from", written(tmp_path / "data.parquet", columns))
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 2
    assert list(run(analysis)) == ["selected_rows", "pt_spectrum"]


def test_nothing_but_text_is_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["a", "b", "c"]}), tmp_path / "names.parquet")
    analysis = made(tmp_path, "--from", tmp_path / "names.parquet")
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 1
    assert run(analysis)["selected_rows"] == 3


def test_files_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    for name in ("one", "two"):
        written(tmp_path / "data" / f"{name}.parquet", {"x": np.arange(10.0)})
    monkeypatch.chdir(tmp_path)
    assert new("first", "--from", "data/*.parquet").exit_code == 0
    monkeypatch.chdir("/")
    result = run(tmp_path / "first" / "first.py")
    assert result.ledger.done == 20
    written(tmp_path / "data" / "three.parquet", {"x": np.arange(10.0)})
    assert run(tmp_path / "first" / "first.py").ledger.done == 30  # the glob stays one


def test_two_files_of_one_name_are_two_datasets(tmp_path: Path) -> None:
    options: list[str | Path] = []
    for name in ("2016", "2017"):
        (tmp_path / name).mkdir()
        path = written(tmp_path / name / "tt.parquet", {"x": np.arange(10.0)})
        options += ["--from", path]
    with loaded(made(tmp_path, *options)) as module:
        assert list(module.fileset) == ["tt", "tt_2"]


# -- the other kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["task", "study"])
def test_tasks_and_studies_run_and_studies_say_that_they_are_planned(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = made(tmp_path, "--kind", kind)
    assert complaints(program.parent) == ""
    assert run_tests(program) == 2
    monkeypatch.setattr(sys, "argv", [str(program)])
    with loaded(program) as module:
        assert module.main() == 0
        assert ("planned, not there" in (module.__doc__ or "")) == (kind == "study")
    assert capsys.readouterr().out
    assert "NAME" not in "".join(path.read_text() for path in program.parent.glob("*.*"))
    assert "--from is for pipelines" in new(tmp_path / "b", "--kind", kind, "--from", "x").stderr


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two words", "1st", "class", "json", "numpy", "a-b", "x²", "µ", "", "..", "/"])
def test_names_that_cannot_be_imported_are_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = new(name, "--kind", "task")
    assert result.exit_code == 1
    assert result.stderr.startswith("windrow: error: ")
    expected = f"such as 'my_{name}'" if name in ("json", "numpy") else "one that Python can import"
    assert expected in result.stderr
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    program = made(tmp_path, "--kind", "task")
    program.write_text("mine")
    result = new(tmp_path / "first", "--kind", "study")
    assert result.exit_code == 1
    assert "exists and is left alone" in result.stderr
    assert program.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "write --from FILE"),
        (["--from", "nowhere.root"], "no such file: nowhere.root"),
        (["--from", "fileset.json"], "takes ROOT and Parquet files"),
        (["--kind", "poem"], "poem"),
    ],
)
def test_wrong_options_write_nothing(tmp_path: Path, options: list[str], words: str) -> None:
    result = new(tmp_path / "first", *options)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "first").exists()


# -- axes -------------------------------------------------------------------------------------------

NUMBERS = st.one_of(
    st.lists(st.floats(-1e9, 1e9, width=32), max_size=200),
    st.lists(st.integers(-1000, 1000), max_size=200),
    st.lists(st.sampled_from([0.0, 1e-12, np.nan, np.inf, 7.5]), max_size=40),
)


@given(NUMBERS)
def test_an_axis_holds_what_lies_between_its_quantiles(numbers: list[float]) -> None:
    values = np.asarray(numbers)
    values = values[np.isfinite(values)]
    bins, low, high = choose_axis(values)
    assert float(f"{low:g}") < float(f"{high:g}")
    assert 1 <= bins <= 60
    if len(values) >= 5:
        first, last = np.quantile(values, [0.01, 0.99])
        margin = 1e-9 * max(abs(first), abs(last), 1e-300)
        assert low <= first + margin
        assert high >= last - margin
