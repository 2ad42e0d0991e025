"""What bad input gets: an error that names the thing, what was expected and what came."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot

import windrow as wr
from windrow import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = 60
UNIT = 10


def data() -> Any:
    random = np.random.default_rng(5)
    counts = np.arange(ROWS) % 4
    columns = {
        "x": np.arange(ROWS, dtype=np.float64),
        "k": np.arange(ROWS) % 3,
        "Muon_pt": ak.unflatten(random.random(counts.sum()), counts),
        "Muon_eta": ak.unflatten(random.random(counts.sum()), counts),
    }
    metadata = {"is_mc": True, "year": 2018}
    fileset = {"zmumu": columns}
    return wr.data.open(fileset, grid=UNIT, metadata={"zmumu": metadata})


def pipeline(**steps: Callable[..., Any]) -> Any:
    """A pipeline of steps named kind_name=function, with an output that counts."""
    analysis = wr.Pipeline("bad")
    for key, function in steps.items():
        kind, _, name = key.partition("_")
        function.__name__ = name
        getattr(analysis, kind)(function)
    if not any(key.startswith("output") for key in steps):

        @analysis.output
        def count(x):  # type: ignore[no-untyped-def]
            return len(x)

    return analysis


@contextlib.contextmanager
def refused(kind: type[errors.WindrowError], *words: str) -> Iterator[None]:
    """The error is of this kind, and its message has all the words."""
    with pytest.raises(kind) as info:
        yield
    for word in words:
        assert word in str(info.value), f"{word!r} is not in: {info.value}"


def run(analysis: Any, source: Any = None, **options: Any) -> Any:
    return analysis.run(data() if source is None else source, progress=False, **options)


# --- names ----------------------------------------------------------------------------------------


class TestNames:
    def test_unknown_column(self) -> None:
        analysis = pipeline(cut_tight=lambda Muonn_pt: ak.num(Muonn_pt) > 1)
        with refused(errors.MissingColumnError, "Muonn_pt", "tight", "Muon_pt", "zmumu"):
            run(analysis)

    def test_unknown_column_of_an_output(self) -> None:
        with refused(errors.MissingColumnError, "mas", "spectrum", "mass"):
            run(pipeline(column_mass=lambda x: x, output_spectrum=lambda mas: float(mas.sum())))

    def test_unknown_field_of_a_collection(self) -> None:
        analysis = pipeline(cut_tight=lambda Muon: ak.num(Muon[Muon.ptt > 1]) > 1)
        with refused(errors.WindrowError, "ptt", "tight"):
            run(analysis)

    def test_column_missing_in_the_second_file(self, tmp_path: Path) -> None:
        for name in ("x", "y"):
            with uproot.recreate(tmp_path / f"{name}.root") as file:
                file.mktree("Events", {name: np.float64}).extend({name: np.arange(5.0)})
        files = [f"{tmp_path}/{name}.root:Events" for name in ("x", "y")]
        with refused(errors.MissingColumnError, "'x'", "y.root", "tight"):
            run(pipeline(cut_tight=lambda x: x > 1), files)

    @pytest.mark.parametrize("when", ["is_mcc", "not is_mcc", "yearr == 2018 and is_mc"])
    def test_unknown_metadata_key(self, when: str) -> None:
        analysis = pipeline()

        @analysis.weight(when=when)
        def lumi(x):  # type: ignore[no-untyped-def]
            return x

        key, right = ("is_mcc", "is_mc") if "is_mcc" in when else ("yearr", "year")
        with refused(errors.UnknownNameError, f"'{key}'", "lumi", f"'{right}'"):
            run(analysis)

    @pytest.mark.parametrize("when", ["is_mc +", "open('x')", "year.real == 2018", "[y for y in (1,)]", "", "year == "])
    def test_when_that_means_nothing(self, when: str) -> None:
        analysis = wr.Pipeline("bad")
        with refused(errors.DefinitionError, "lumi", "when"):

            @analysis.cut(when=when)
            def lumi(x):  # type: ignore[no-untyped-def]
                return x > 1

            run(analysis)

    def test_region_with_an_unknown_cut(self) -> None:
        analysis = pipeline(cut_two_muons=lambda x: x > 1)
        with refused(errors.UnknownNameError, "two_muon'", "signal", "'two_muons'"):
            analysis.region("signal", "two_muon")
            run(analysis)

    def test_region_with_a_column(self) -> None:
        analysis = pipeline(column_mass=lambda x: x)
        with refused(errors.UsageError, "mass", "signal", "column"):
            analysis.region("signal", "!mass")
            run(analysis)

    def test_output_of_an_unknown_region(self) -> None:
        analysis = pipeline(cut_tight=lambda x: x > 1)
        analysis.region("signal", "tight")
        with refused(errors.UnknownNameError, "signall", "total", "'signal'"):

            @analysis.output(regions=["signall"])
            def total(x):  # type: ignore[no-untyped-def]
                return float(x.sum())

            run(analysis)

    def test_output_with_an_unknown_weight(self) -> None:
        analysis = pipeline(weight_pileup=lambda x: x)
        with refused(errors.UnknownNameError, "pileupp", "total", "'pileup'"):

            @analysis.output(weights=["pileupp"])
            def total(weight):  # type: ignore[no-untyped-def]
                return float(weight.sum())

            run(analysis)

    def test_after_an_unknown_cut(self) -> None:
        analysis = pipeline(cut_two_muons=lambda x: x > 1)
        with refused(errors.UnknownNameError, "two_muon'", "late", "'two_muons'"):

            @analysis.cut(after="two_muon")
            def late(x):  # type: ignore[no-untyped-def]
                return x > 1

            run(analysis)

    def test_result_asked_for_what_there_is_not(self) -> None:
        result = run(pipeline(cut_tight=lambda x: x > 1))
        with pytest.raises((errors.UnknownNameError, KeyError), match="count"):
            result["coumt"]


# --- definitions ----------------------------------------------------------------------------------


class TestDefinitions:
    def test_cycle_of_columns(self) -> None:
        analysis = pipeline(
            column_first=lambda third: third,
            column_second=lambda first: first,
            column_third=lambda second: second,
            cut_tight=lambda third: third > 1,
        )
        with refused(errors.DefinitionError, "first", "second", "third"):
            run(analysis)

    def test_column_that_reads_itself(self) -> None:
        with refused(errors.DefinitionError, "mine"):
            run(pipeline(column_mine=lambda mine: mine, cut_tight=lambda mine: mine > 1))

    def test_cycle_of_after(self) -> None:
        analysis = wr.Pipeline("bad")
        with refused(errors.UsageError, "one", "two"):
            analysis.cut(after="two")(named("one", lambda x: x > 1))
            analysis.cut(after="one")(named("two", lambda x: x < 9))
            analysis.output(named("count", len))
            run(analysis)

    @pytest.mark.parametrize("kind", ["column", "cut", "weight"])
    def test_two_makers_in_two_modules(self, kind: str) -> None:
        analysis = pipeline(column_mass=lambda x: x)
        other = named("mass", lambda x: x > 2)
        other.__module__ = "elsewhere"
        with refused(errors.DefinitionError, "mass", "elsewhere"):
            getattr(analysis, kind)(other)
            run(analysis)

    def test_defining_again_replaces(self) -> None:
        analysis = pipeline(cut_tight=lambda x: x > 1e9)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the note
            analysis.cut(named("tight", lambda x: x >= 50))
        assert run(analysis)["count"] == 10

    @pytest.mark.parametrize("function", [lambda *args: args[0] > 1, lambda x, **kw: x > 1])
    def test_star_arguments(self, function: Any) -> None:
        with refused(errors.DefinitionError, "tight", "reads="):
            run(pipeline(cut_tight=function))

    @pytest.mark.parametrize("name", ["rng", "dataset", "region", "variation", "weight"])
    def test_reserved_name_as_a_column(self, name: str) -> None:
        function = eval(f"lambda {name}: {name}")
        with refused(errors.DefinitionError, "tight", name):
            run(pipeline(cut_tight=function))

    @pytest.mark.parametrize("name", ["rng", "dataset", "region", "variation", "weight"])
    def test_reserved_name_as_a_step(self, name: str) -> None:
        analysis = pipeline(cut_tight=lambda x: x > 1)
        with refused(errors.DefinitionError, name):
            analysis.column(named(name, lambda x: x))
            run(analysis)

    def test_no_output(self) -> None:
        analysis = wr.Pipeline("bad")
        analysis.cut(named("tight", lambda x: x > 1))
        with refused(errors.DefinitionError, "bad", "output"):
            run(analysis)

    def test_region_twice(self) -> None:
        analysis = pipeline(cut_tight=lambda x: x > 1, cut_loose=lambda x: x > 0)
        with refused(errors.DefinitionError, "signal"):
            analysis.region("signal", "tight", "!tight")
            run(analysis)

    def test_required_column_that_a_dataset_lacks(self) -> None:
        analysis = pipeline()
        analysis.column(when="not is_mc")(named("golden", lambda x: x))
        analysis.cut(named("tight", lambda golden: golden > 1))
        with refused(errors.WindrowError, "golden", "tight", "not is_mc"):
            run(analysis)

    def test_unknown_options(self) -> None:
        analysis = pipeline(cut_tight=lambda x: x > 1)
        with refused(errors.UsageError, "on_error"):
            run(analysis, on_error="ignore")
        with refused(errors.UsageError, "engine"):
            run(analysis, engine="thread")
        with refused(errors.UsageError, "chunk"):
            run(analysis, chunk=0)


def named(name: str, function: Any) -> Any:
    if not hasattr(function, "__code__"):  # a builtin has no name of its own to change
        return named(name, lambda x: function(x))
    function.__name__ = name
    return function


# --- files ----------------------------------------------------------------------------------------


@pytest.fixture
def root_file(tmp_path: Path) -> Path:
    path = tmp_path / "events.root"
    with uproot.recreate(path) as file:
        for name in ("Events", "Runs"):
            tree = file.mktree(name, {"x": np.float64, "k": np.int64})
            tree.extend({"x": np.random.default_rng(1).random(5000), "k": np.arange(5000)})
    return path


class TestFiles:
    def test_missing_file(self, tmp_path: Path) -> None:
        with refused(errors.MissingFileError, "nowhere.root"):
            run(pipeline(), f"{tmp_path}/nowhere.root:Events")

    def test_glob_without_a_match(self, tmp_path: Path) -> None:
        with refused(errors.WindrowError, "nowhere*.root"):
            run(pipeline(), f"{tmp_path}/nowhere*.root:Events")

    def test_missing_tree(self, root_file: Path) -> None:
        with refused(errors.MissingTreeError, "Event'", "events.root", "Events", "Runs"):
            run(pipeline(), {str(root_file): "Event"})

    @pytest.mark.parametrize("part", [0.0, 0.0001, 0.01, 0.5, 0.9])
    def test_truncated_file(self, root_file: Path, part: float) -> None:
        content = root_file.read_bytes()
        root_file.write_bytes(content[: int(part * len(content))])
        with refused(errors.CorruptFileError, "events.root"):
            run(pipeline(), f"{root_file}:Events")

    def test_a_file_that_is_not_root(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.root"
        path.write_text("these are notes\n" * 100)
        with refused(errors.CorruptFileError, "notes.root"):
            run(pipeline(), f"{path}:Events")

    def test_a_file_that_is_not_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.parquet"
        path.write_text("these are notes\n" * 100)
        with refused(errors.CorruptFileError, "notes.parquet"):
            run(pipeline(), str(path))

    def test_a_bad_block_in_the_middle(self, root_file: Path) -> None:
        content = bytearray(root_file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 4000] = bytes(4000)
        root_file.write_bytes(content)
        with refused(errors.WindrowError, "events.root"):
            run(pipeline(cut_tight=lambda x, k: x > k), f"{root_file}:Events")

    def test_zero_rows(self) -> None:
        empty = {"x": np.zeros(0), "Muon_pt": ak.Array([[1.0]])[:0]}
        analysis = pipeline(cut_tight=lambda x: x > 1, column_second=lambda Muon_pt: Muon_pt[:, 1])
        analysis.output(named("total", lambda second, weight: float(ak.sum(second * weight))))
        result = run(analysis, {"nothing": empty})
        assert (result["count"], result["total"]) == (0, 0.0)
        assert result.complete
        assert (result.exit_code, result.ledger.total) == (0, 0)

    def test_no_data_at_all(self) -> None:
        empty: list[Any] = [[], {}, {"dy": []}]
        for nothing in empty:
            with pytest.raises(errors.SpecError):
                run(pipeline(), nothing)
