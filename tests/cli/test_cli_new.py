"""``windrow new``: every skeleton runs, its test passes, linters like it, and its numbers are right."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from typing import Any

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

from windrow.cli.loading import loaded, pipeline_in
from windrow.cli.main import main
from windrow.cli.skeleton_plain import KINDS
from windrow.cli.skeleton_sample import axis_of

CHECKOUT = Path(__file__).resolve().parents[2]


def new(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["new", *map(str, arguments)])


def made(place: Path, *arguments: str | Path) -> Path:
    """Write a skeleton called ``first``; return its analysis file."""
    result = new(place / "first", *arguments)
    assert result.exit_code == 0, result.output + result.stderr
    return place / "first" / "first.py"


def complaints(directory: Path) -> str:
    """What ruff says by default, with this project's rules for examples, and about the format."""
    rules = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    ignored = [*rules["ignore"], *rules["per-file-ignores"]["examples/**"]]
    ours = ["--select", ",".join(rules["select"]), "--ignore", ",".join(ignored)]
    width = ["--line-length", "100", "--target-version", "py311"]
    ruff = [sys.executable, "-m", "ruff"]
    said = ""
    for command in (
        [*ruff, "check", "--isolated", "--no-cache", "-q", directory.name],
        [*ruff, "check", "--isolated", "--no-cache", "-q", *width, *ours, directory.name],
        [*ruff, "format", "--isolated", "--no-cache", "-q", "--diff", *width[:2], directory.name],
    ):
        done = subprocess.run(
            command, cwd=directory.parent, capture_output=True, text=True, check=False
        )
        said += done.stdout + done.stderr
    return said


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


@pytest.mark.samples
@pytest.mark.parametrize("which", SAMPLES)
def test_real_samples(samples: Path, tmp_path: Path, which: str) -> None:
    options = [word for name in SAMPLES[which] for word in ("--from", samples / name)]
    analysis = made(tmp_path, *options)
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) >= 6
    with loaded(analysis) as module:
        assert module.main() == 0
    assert (analysis.parent / "report.html").read_text(encoding="utf-8").rstrip().endswith(">")
    assert (analysis.parent / "spectrum.png").read_bytes().startswith(b"\x89PNG")
    done = CliRunner().invoke(main, ["run", str(analysis), "--no-progress"])
    assert done.exit_code == 0, done.output


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
def test_the_dimuons_of_hzz_are_those_of_a_plain_program(samples: Path, tmp_path: Path) -> None:
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
    analysis = made(tmp_path, "--from", samples / "HZZ.root")
    result = run(analysis)
    assert passed(result) == len(masses)
    edges = result["mass_spectrum"].axes[0].edges
    inside = np.mean((np.asarray(masses) > edges[0]) & (np.asarray(masses) < edges[-1]))
    assert inside > 0.95


@pytest.mark.samples
def test_what_the_files_hold_is_listed_and_missing_columns_too(
    samples: Path, tmp_path: Path
) -> None:
    first, second = samples / "nano_dy.root", samples / "nano_dimuon.root"
    result = new(tmp_path / "first", "--from", first, "--from", second)
    assert "collections (lists of objects)" in result.stdout
    assert f"missing in {second}" in result.stdout
    assert f"pytest {tmp_path / 'first'}" in result.stdout
    with loaded(tmp_path / "first" / "first.py") as module:
        assert {name: one["metadata"] for name, one in module.fileset.items()} == {
            "nano_dy": {"is_mc": True},
            "nano_dimuon": {"is_mc": False},
        }


# -- made files -------------------------------------------------------------------------------------


def leptons(rows: int, seed: int = 1, scale: float = 1.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, rows)

    def lists(values: Any) -> Any:
        return ak.unflatten(values, counts)

    total = int(counts.sum())
    return {
        "lep_pt": lists(scale * rng.exponential(40, total)),
        "lep_eta": lists(rng.normal(0, 1, total)),
        "lep_phi": lists(rng.uniform(-3, 3, total)),
        "lep_charge": lists(rng.choice([-1, 1], total)),
    }


def written(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(
        pa.table({name: ak.to_arrow(v, extensionarray=False) for name, v in columns.items()}), path
    )
    return path


def test_leptons_without_mass_in_mev_and_in_any_order(tmp_path: Path) -> None:
    columns = leptons(500, scale=1000)
    path = written(tmp_path / "atlas.parquet", columns)
    analysis = made(tmp_path, "--from", path)
    text = analysis.read_text()
    assert "> 10000)" in text
    assert "[MeV]" in text
    assert "argsort" in text
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 5
    expected = 0
    for pt, eta, charge in zip(
        columns["lep_pt"], columns["lep_eta"], columns["lep_charge"], strict=True
    ):
        good = (np.asarray(pt) > 10_000) & (np.abs(eta) < 2.5)
        order = np.argsort(-np.asarray(pt)[good])
        first = np.asarray(charge)[good][order][:2]
        expected += len(first) == 2 and first[0] != first[1]
    assert passed(run(analysis)) == expected


def test_a_trigger_that_one_file_lacks_is_optional(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    base = {name.replace("lep", "Muon"): v for name, v in leptons(300).items()}
    fired = {"HLT_IsoMu24": rng.random(300) < 0.5}
    both = {**fired, "HLT_IsoTkMu24": rng.random(300) < 0.5}
    first = written(tmp_path / "a.parquet", {**base, **both, "genWeight": np.ones(300)})
    second = written(tmp_path / "b.parquet", {**base, **fired})
    analysis = made(tmp_path, "--from", first, "--from", second)
    assert "def trigger(HLT_IsoMu24, HLT_IsoTkMu24=False):" in analysis.read_text()
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 7
    assert run(analysis).complete


AWKWARD_NAMES = ["my column", "class", "weight", "l", "id", "mass", "region", "9lives", "A.b", "é"]


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_names_that_python_or_windrow_cannot_write(tmp_path: Path, name: str) -> None:
    values = np.random.default_rng(3).normal(5, 1, 200)
    path = written(tmp_path / "data.parquet", {name: values, "other": values})
    analysis = made(tmp_path, "--from", path)
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 2
    result = run(analysis)
    assert passed(result) == pytest.approx(150, abs=30)
    assert sum(len(result[output].axes) for output in result) == 2


def test_columns_called_like_the_steps(tmp_path: Path) -> None:
    columns = {name.replace("lep", "Muon"): v for name, v in leptons(300).items()}
    taken = dict.fromkeys(["mass", "muons", "trigger", "leading_pt"], np.zeros(300))
    analysis = made(tmp_path, "--from", written(tmp_path / "skim.parquet", {**columns, **taken}))
    assert "def my_mass(my_muons):" in analysis.read_text()
    assert complaints(analysis.parent) == ""
    assert run_tests(analysis) == 5
    assert run(analysis).complete


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


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_and_studies_are_plain_programs_and_say_so(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = made(tmp_path, "--kind", kind)
    assert complaints(program.parent) == ""
    assert run_tests(program) == 4
    monkeypatch.setattr(sys, "argv", [str(program)])
    with loaded(program) as module:
        assert module.main() == 0
        assert "planned, not there" in (module.__doc__ or "")
    assert capsys.readouterr().out
    assert "NAME" not in "".join(path.read_text() for path in program.parent.glob("*.*"))
    assert "--from is for pipelines" in new(tmp_path / "b", "--kind", kind, "--from", "x").stderr


# -- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two words", "1st", "class", "json", "numpy", "a-b", ""])
def test_names_that_cannot_be_imported_are_refused(tmp_path: Path, name: str) -> None:
    result = new(f"{tmp_path}/{name}", "--kind", "task")
    assert result.exit_code == 1
    assert result.stderr.startswith("windrow: error: ")
    assert list(tmp_path.iterdir()) == []


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
    axis = axis_of(values, otherwise=(0.0, 2.0))
    assert axis.low < axis.high
    assert 1 <= axis.bins <= 60
    code = axis.code.split(", ")
    assert float(code[1]) < float(code[2])
    finite = values[np.isfinite(values)].astype(float)
    if axis.guessed:
        assert len(finite) < 5
    else:
        low, high = np.quantile(finite, [0.01, 0.99])
        margin = 1e-9 * max(abs(low), abs(high), 1e-300)
        assert axis.low <= low + margin
        assert axis.high >= high - margin
