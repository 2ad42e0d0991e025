"""Places where a fast implementation is tempted to give another answer than the plain program."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from description import Dataset, File, MemorySource

if TYPE_CHECKING:
    from pathlib import Path

ROWS, UNIT = 100, 7


def source(count: int = 1, **extra: Any) -> Any:
    columns = {"x": np.arange(ROWS), "f": np.arange(ROWS) / 8, "b": np.arange(ROWS) % 3 == 0}
    datasets = [
        Dataset(
            name=f"d{index}",
            files=(File(label=f"d{index}.mem", columns={**columns, **extra}, borders=(*range(0, ROWS, UNIT), ROWS)),),
            metadata={"is_mc": bool(index)},
        )
        for index in range(count)
    ]
    return MemorySource(datasets)


def selected(analysis: Any, data: Any = None, **options: Any) -> Any:
    """The rows that are left, by a last output."""
    analysis.output(name="selected")(lambda x: x.tolist())
    return analysis.run(data or source(), progress=False, **options)["selected"]


# --- steps that look alike ------------------------------------------------------------------------


def above(limit: int) -> Any:
    return lambda x: x > limit


def below(limit: int) -> Any:
    def cut(x):  # type: ignore[no-untyped-def]
        return x < limit

    return cut


class TestLookAlikes:
    def test_closures_over_different_values(self) -> None:
        analysis = wr.Pipeline("closures")
        analysis.cut(name="c10")(above(10))
        analysis.cut(name="c50")(above(50))
        analysis.cut(name="c90")(below(90))
        analysis.cut(name="c60")(below(60))
        assert selected(analysis) == list(range(51, 60))

    def test_defaults_of_parameters(self) -> None:
        analysis = wr.Pipeline("defaults")
        for low in (10, 50):
            text = f"lambda x, *, low={low}: x > low"
            analysis.cut(name=f"c{low}")(eval(text))
        assert selected(analysis) == list(range(51, ROWS))

    def test_globals_of_the_same_code(self) -> None:
        analysis = wr.Pipeline("globals")
        code = compile("lambda x: x > LIMIT", "shared", "eval")
        for limit in (10, 50):
            analysis.cut(name=f"c{limit}")(eval(code, {"LIMIT": limit}))
        assert selected(analysis) == list(range(51, ROWS))

    @pytest.mark.parametrize("each", [False, True])
    def test_a_global_that_changes_between_runs(self, each: bool) -> None:
        space = {"LIMIT": 10}
        analysis = wr.Pipeline("changes")
        analysis.cut(name="cut", each=each)(eval("lambda x: x > LIMIT", space))
        assert selected(analysis) == list(range(11, ROWS))
        space["LIMIT"] = 50
        again = analysis.run(source(), progress=False)["selected"]
        assert again == list(range(51, ROWS))

    def test_each_with_closures(self) -> None:
        analysis = wr.Pipeline("each")
        for limit in (10, 50):
            analysis.cut(name=f"c{limit}", each=True)(above(limit))
        assert selected(analysis) == list(range(51, ROWS))

    def test_column_of_the_same_text_and_other_inputs(self) -> None:
        analysis = wr.Pipeline("reads")
        analysis.column(name="one", reads={"v": "x"})(lambda v: v * 2)
        analysis.column(name="two", reads={"v": "f"})(lambda v: v * 2)

        @analysis.output
        def both(one, two):  # type: ignore[no-untyped-def]
            return [float(one.sum()), float(two.sum())]

        result = analysis.run(source(), progress=False, engine="inline")["both"]
        totals = np.array(result).reshape(-1, 2).sum(axis=0)
        assert totals.tolist() == [ROWS * (ROWS - 1), ROWS * (ROWS - 1) / 8]


# --- objects that are shared ----------------------------------------------------------------------


class TestAliases:
    def test_merging_leaves_the_users_objects_alone(self) -> None:
        shared: dict[str, Any] = {"n": np.ones(2), "s": {1}, "l": [1], "d": {"k": 1}}
        analysis = wr.Pipeline("shared")
        # New objects with shared contents: the very same object would be refused.
        analysis.output(name="out")(lambda x: dict(shared))
        analysis.output(name="list")(lambda x: [*shared["l"]])
        analysis.output(name="array")(lambda x: shared["n"][:])
        result = analysis.run(source(), progress=False)
        units = -(-ROWS // UNIT)
        assert result["array"].tolist() == [units, units]
        assert result["list"] == [1] * units
        assert result["out"]["n"].tolist() == [units, units]
        assert result["out"]["d"] == {"k": units}
        assert shared["n"].tolist() == [1.0, 1.0]
        assert (shared["s"], shared["l"], shared["d"]) == ({1}, [1], {"k": 1})

    @pytest.mark.parametrize("kind", [dict, Counter, OrderedDict, lambda items: defaultdict(int, items)])
    def test_mappings_of_every_kind_add_up(self, kind: Any) -> None:
        """Counter.update adds where dict.update replaces, and Counter.__add__ drops what is not positive."""
        analysis = wr.Pipeline("mappings")
        analysis.output(name="out")(lambda x: kind({"rows": len(x), "less": -1}))
        analysis.output(name="nested")(lambda x: {"inner": kind({"rows": len(x)})})
        result = analysis.run(source(), progress=False)
        units = len(range(0, ROWS, UNIT))
        assert dict(result["out"]) == {"rows": ROWS, "less": -units}
        assert result["nested"]["inner"]["rows"] == ROWS

    def test_a_cut_that_returns_its_column(self) -> None:
        analysis = wr.Pipeline("alias")
        analysis.cut(name="flag")(lambda b: b)
        analysis.cut(name="late")(lambda x: x > 50)
        analysis.region("A", "flag", "late")
        analysis.region("B", "!flag", "late")
        analysis.output(regions="*", name="out")(lambda x, b: [*x.tolist(), *b.tolist()])
        result = analysis.run(source(), progress=False)
        rows = [v for v in result["out", "A"] if type(v) is int]
        assert rows == [x for x in range(51, ROWS) if x % 3 == 0]
        assert not any(v is True for v in result["out", "B"])

    def test_results_of_two_runs_are_apart(self) -> None:
        analysis = wr.Pipeline("twice")
        analysis.output(name="out")(lambda x: x.tolist())
        first = analysis.run(source(), progress=False)
        first["out"].append("mine")
        assert analysis.run(source(), progress=False)["out"] == list(range(ROWS))

    def test_the_sources_arrays_are_not_written_to(self) -> None:
        data = source()
        before = data.open(0).read(["x", "f", "b"], 0, ROWS)
        analysis = wr.Pipeline("reads only")
        analysis.cut(name="cut")(lambda b: ~b)
        analysis.weight(name="w")(lambda f: f)
        analysis.weight(name="v")(lambda f: f)
        analysis.output(name="out")(lambda weight: float(weight.sum()))
        result = analysis.run(data, progress=False)
        keep = np.arange(ROWS) % 3 != 0
        assert result["out"] == float(np.sum((np.arange(ROWS) / 8)[keep] ** 2))
        after = data.open(0).read(["x", "f", "b"], 0, ROWS)
        assert all(np.array_equal(before[name], after[name]) for name in before)


# --- compiled steps -------------------------------------------------------------------------------


class TestEach:
    def compare(self, function: Any, names: list[str], **columns: Any) -> None:
        """The compiled step equals the plain function, row by row, on 64-bit numbers."""
        analysis = wr.Pipeline("each")
        analysis.column(name="made", each=True)(function)
        analysis.output(name="out")(lambda made: made.tolist())
        got = analysis.run(source(**columns), progress=False)["out"]
        rows = [[columns[name][row] for name in names] for row in range(ROWS)]
        want = [function(*row) for row in rows]
        assert [type(v) for v in got] == [type(np.asarray(v).item()) for v in want]
        assert got == want

    def test_small_integers_do_not_overflow(self) -> None:
        values = np.linspace(-127, 127, ROWS).astype(np.int8)
        wide = values.astype(np.int64)
        analysis = wr.Pipeline("each")
        analysis.column(name="made", each=True)(lambda k: k * k * k)
        analysis.output(name="out")(lambda made: made.tolist())
        got = analysis.run(source(k=values), progress=False)["out"]
        assert got == (wide**3).tolist()

    def test_division_of_negative_integers(self) -> None:
        self.compare(lambda k: k // 3 + k % 3, ["k"], k=np.arange(ROWS) - 50)

    def test_single_precision_is_widened(self) -> None:
        values = (np.arange(ROWS) / 7).astype(np.float32)
        analysis = wr.Pipeline("each")
        analysis.column(name="made", each=True)(lambda v: v * v / 3.0)
        analysis.output(name="out")(lambda made: made.tolist())
        got = analysis.run(source(v=values), progress=False)["out"]
        assert got == [float(v) * float(v) / 3.0 for v in values]

    def test_what_cannot_be_compiled_runs_as_python(self) -> None:
        names = {0: "zero", 1: "one", 2: "two"}

        def spelled(x: Any) -> int:
            return len(f"{names[int(x) % 3]:>{int(x) % 5}}")

        analysis = wr.Pipeline("python")
        analysis.column(name="made", each=True)(spelled)
        analysis.output(name="out")(lambda made: made.tolist())
        got = analysis.run(source(), progress=False)["out"]
        assert got == [spelled(x) for x in range(ROWS)]

    def test_parameters_and_jagged_columns(self) -> None:
        counts = np.arange(ROWS) % 4
        lists = ak.unflatten(np.arange(counts.sum()) / 4, counts)
        analysis = wr.Pipeline("jagged")

        @analysis.cut(each=True)
        def hard(Jet_pt, x, *, least=20.0):  # type: ignore[no-untyped-def]
            total = 0.0
            for pt in Jet_pt:
                total += pt
            return total > least and x > 5

        want = [r for r in range(ROWS) if sum(ak.to_list(lists[r])) > 20.0 and r > 5]
        assert selected(analysis, source(Jet_pt=lists), _block_rows=9) == want


# --- the rest -------------------------------------------------------------------------------------


class TestMeaning:
    def test_reads_with_other_names_and_globs(self) -> None:
        columns = {
            "HLT_A": np.arange(ROWS) % 2 == 0,
            "HLT_B": np.arange(ROWS) % 5 == 0,
            "Aux.pt": np.arange(ROWS) * 2.0,
        }
        analysis = wr.Pipeline("reads")

        @analysis.cut(reads={"hlt": "HLT_*", "pt": "Aux.pt"})
        def trigger(hlt, pt):  # type: ignore[no-untyped-def]
            assert sorted(hlt) == ["HLT_A", "HLT_B"]
            return (hlt["HLT_A"] | hlt["HLT_B"]) & (pt > 100)

        want = [r for r in range(51, ROWS) if r % 2 == 0 or r % 5 == 0]
        assert selected(analysis, source(**columns)) == want

    def test_no_region_is_all_cuts(self) -> None:
        analysis = wr.Pipeline("all")
        analysis.cut(name="low")(lambda x: x > 20)
        analysis.cut(name="high")(lambda x: x < 40)
        assert selected(analysis) == list(range(21, 40))

    def test_tables_add_up_print_and_travel(self) -> None:
        analysis = wr.Pipeline("tables")
        analysis.weight(name="w", when="is_mc")(lambda f: f)
        analysis.cut(name="low")(lambda x: x > 20)
        analysis.cut(name="mc_only", when="is_mc")(lambda x: x < 40)
        analysis.region("A", "low", "!mc_only")
        analysis.output(name="out", regions="*")(len_of_x)
        result: Any = analysis.run(source(2), progress=False)
        one, two = (result.cutflow["A", name] for name in ("d0", "d1"))
        both = one + two
        for got, want in zip(both.written, result.cutflow["A"].written, strict=True):
            assert (got.name, got.passed, got.sumw) == (want.name, want.passed, want.sumw)
        assert [line.passed for line in one.written] == [100, 79, 79]
        assert [line.applies for line in one.written] == [True, True, False]
        assert [line.passed for line in two.written] == [100, 79, 60]
        assert two.written[1].sumw == sum(range(21, ROWS)) / 8
        assert "n/a" in str(one)
        assert "low" in str(one)
        assert "!mc_only" in str(two)
        written = one.to_json()
        text = written if isinstance(written, str) else json.dumps(written)
        assert '"low"' in text
        assert "79" in text

    def test_all_rows_is_the_region_none(self) -> None:
        analysis = wr.Pipeline("none")
        analysis.cut(name="low")(lambda x: x > 20)
        analysis.output(name="out", region=None)(len_of_x)
        result = analysis.run(source(2), progress=False)
        assert result["out"] == {"d0": ROWS, "d1": ROWS}
        for key in (("out", None), ("out", None, "nominal")):
            assert result[key] == {"d0": ROWS, "d1": ROWS}
        assert result["out", None, "nominal", "d1"] == ROWS

    def test_numbers_belong_to_rows(self) -> None:
        """The same event draws the same number in a skim, in another file and in any chunk."""
        event = np.arange(ROWS) + 1000

        def make() -> Any:
            analysis = wr.Pipeline("numbers", identity=("event",))

            @analysis.output
            def draws(event, drawn):  # type: ignore[no-untyped-def]
                return dict(zip(event.tolist(), drawn.tolist(), strict=True))

            @analysis.column
            def drawn(x, *, rng):  # type: ignore[no-untyped-def]
                return rng("a").uniform()

            return analysis

        whole = make().run(source(event=event), progress=False)["draws"]
        assert len(set(whole.values())) == ROWS
        every_third = {"x": np.arange(34), "event": event[::3]}
        skim = make().run({"skim": every_third}, progress=False)["draws"]
        assert skim == {key: whole[key] for key in skim}
        other = make().run(source(event=event), progress=False, seed=1)["draws"]
        assert not set(other.values()) & set(whole.values())

    def test_default_identity_does_not_depend_on_chunks(self) -> None:
        results = []
        for options in ({"chunk": 7}, {"chunk": 50, "_block_rows": 3}, {"engine": "threads"}):
            analysis = wr.Pipeline("numbers")
            analysis.column(name="drawn")(lambda x, *, rng: rng("a").normal())
            analysis.output(name="out")(lambda drawn: drawn.tolist())
            results.append(analysis.run(source(), progress=False, **options)["out"])
        assert results[0] == results[1] == results[2]
        assert len(set(results[0])) == ROWS

    def test_two_files_of_equal_rows_draw_different_numbers(self, tmp_path: Path) -> None:
        for name, shift in (("a", 0), ("b", 1)):
            pq.write_table(pa.table({"x": np.arange(10) + shift}), tmp_path / f"{name}.parquet")
        analysis = wr.Pipeline("numbers")
        analysis.column(name="drawn")(lambda x, *, rng: rng("a").uniform())
        analysis.output(name="out")(lambda drawn: drawn.tolist())
        files = [str(tmp_path / f"{name}.parquet") for name in ("a", "b")]
        assert len(set(analysis.run(files, progress=False)["out"])) == 20

    def test_steps_of_a_preprocessed_fileset(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"x": np.arange(ROWS)}), path, row_group_size=10)
        details = {"steps": [[0, 30], [55, 70]], "num_entries": ROWS, "format": "parquet"}
        fileset = {"d": {"files": {str(path): details}, "metadata": {}}}
        analysis = wr.Pipeline("steps")
        analysis.output(name="out")(lambda x: x.tolist())
        result = analysis.run(fileset, progress=False)
        assert result["out"] == [*range(30), *range(55, 70)]
        assert result.ledger.total == result.ledger.done == 45


def len_of_x(x: Any) -> int:
    return len(x)
