"""Random analyses, however they are run, give the oracle's answer: outputs bit for bit."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import hypothesis
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import bits, check_cutflow, check_ledger, check_lines, check_outputs, check_yields, oracle, run
from description import Analysis, Dataset, File, MemorySource, Output, Step, build, first_rows
from reference import Answer, Line, StepRaisedError, fold, reference
from searching import examples
from strategies import Way, analyses, filesets, orders, ways
from windrow.errors import StepError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROFILE = settings(max_examples=examples(10), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FEWER = settings(PROFILE, max_examples=examples(5))

WRITTEN = Way(order=None, chunk="auto", block=None, engine="inline", workers=1)


# --- the oracle itself ----------------------------------------------------------------------------


class TestOracle:
    def test_tree_of_seven_units(self) -> None:
        class Name(str):
            __slots__ = ()

            def __add__(self, other: str) -> Name:
                return Name(f"({self}{other})")

        leaves: list[Name | None] = [Name(digit) for digit in "0123456"]
        assert fold(leaves) == "((((01)(23))(45))6)"
        leaves[1] = leaves[4] = leaves[5] = None
        assert fold(leaves) == "((0(23))6)"
        assert fold([None, None]) is None
        assert fold([]) is None

    def test_a_small_analysis_by_hand(self) -> None:
        analysis = Analysis(
            steps=(
                Step(kind="weight", name="w", args="x", body="wr.updown(x * 1.0, x * 2.0, x * 0.5)"),
                Step(kind="cut", name="even", args="x", body="x % 2 == 0"),
                Step(kind="cut", name="first", args="Jet_pt", body="ak.firsts(Jet_pt) > 1"),
            ),
            regions={"A": ("even", "first"), "B": ("even", "!first")},
            outputs=(
                Output(name="xs", args="x", body="x.tolist()"),
                Output(name="sum", args="weight", body="float(weight.sum())"),
                Output(name="all", args="weight", body="float(weight.sum())", regions=None),
            ),
        )
        jets = ak.Array([[2.0], [], [], [0.5], [0.5, 9.0], [3.0]])
        columns = {"x": np.array([0, 1, 2, 3, 4, 6]), "Jet_pt": jets}
        file = File(label="f", columns=columns, borders=(0, 2, 4, 6))
        answer = reference(analysis, [Dataset(name="d", files=(file,))])
        assert answer.outputs["xs", "A", "nominal", "d"] == [0, 6]
        assert answer.outputs["xs", "B", "nominal", "d"] == [4]
        assert answer.outputs["sum", "A", "w_up", "d"] == 12.0
        assert answer.outputs["all", None, "w_down", "d"] == 8.0
        assert answer.cutflow["B", "d"] == [
            Line("initial", 6, 16.0, 66.0),
            Line("even", 4, 12.0, 56.0),
            Line("!first", 1, 4.0, 16.0, undefined=1),
        ]

    @FEWER
    @given(data=st.data())
    def test_no_legal_order_changes_the_answer(self, data: st.DataObject) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        try:
            written = oracle(analysis, datasets)
            moved = oracle(analysis, datasets, order=data.draw(orders(analysis)))
        except StepRaisedError:
            hypothesis.reject()
        assert bits(written.outputs) == bits(moved.outputs)
        assert written.yields() == moved.yields()


# --- files on disk ----------------------------------------------------------------------------------


def write(file: File, path: Path) -> None:
    """One described file as Parquet or ROOT."""
    columns = dict(file.columns)
    if path.suffix == ".parquet":
        lists = {name: ak.to_arrow(values, extensionarray=False) for name, values in columns.items()}
        pq.write_table(pa.table(lists), path, row_group_size=13)
        return
    del columns["nJet"]  # written by uproot with the lists it counts
    jets = ak.zip({"pt": columns.pop("Jet_pt"), "q": columns.pop("Jet_q")})
    types = {name: np.dtype(values.dtype) for name, values in columns.items()}
    with uproot.recreate(path) as root:
        fields = f"var * {{pt: {jets.pt.type.content.content}, q: int32}}"
        tree = root.mktree("Events", {**types, "Jet": fields})
        for start in range(0, file.rows, 13):
            part = slice(start, start + 13)
            tree.extend({**{name: v[part] for name, v in columns.items()}, "Jet": jets[part]})


def stored(datasets: Sequence[Dataset], folder: Path, suffix: str, grid: int) -> tuple[Any, list[Dataset]]:
    """The datasets as files that Windrow opens, and as the oracle must then see them."""
    fileset, described = {}, []
    for dataset in datasets:
        files = []
        for file in dataset.files:
            path = folder / f"{file.label}{suffix}"
            write(file, path)
            borders = (*range(0, file.rows, grid), file.rows) if file.rows else (0,)
            files.append(replace(file, label=str(path), borders=borders))
        described.append(replace(dataset, files=tuple(files)))
        tree = "Events" if suffix == ".root" else None
        named = {file.label: tree for file in files}
        fileset[dataset.name] = {"files": named, "metadata": dict(dataset.metadata)}
    return wr.data.open(fileset, grid=grid), described


# --- the properties -------------------------------------------------------------------------------


class TestSameAnswer:
    @PROFILE
    @given(data=st.data())
    def test_every_way_of_running_gives_the_plain_answer(self, data: st.DataObject) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        note(analysis.source())
        ran = [WRITTEN, data.draw(ways(analysis)), data.draw(ways(analysis))]
        try:
            answer = oracle(analysis, datasets)
        except StepRaisedError:
            # It raises as written: the user's error. In another order other cuts may remove those rows first.
            for way in ran:
                raises = pytest.raises(StepError) if way.order is None else suppress(StepError)
                with raises:
                    run(build(analysis), MemorySource(datasets), way)
            return
        for way in ran:
            note(repr(way))
            result = run(build(analysis), MemorySource(datasets), way)
            check_outputs(result, answer)
            check_yields(result, answer)
            check_ledger(result, datasets)
            self.check_tables(result, analysis, datasets, answer, way)

    def check_tables(
        self, result: Any, analysis: Analysis, datasets: Sequence[Dataset], answer: Answer, way: Way
    ) -> None:
        if way.order is None:
            check_cutflow(result, answer, "executed")
            check_cutflow(result, answer, "written")
            return
        try:
            moved = oracle(analysis, datasets, order=way.order)
        except StepRaisedError:
            # Some blocks ran as written and some did not: only the yields are one table's.
            pass
        else:
            check_cutflow(result, moved, "executed")
        for key in answer.cutflow:
            table = result.cutflow[key]
            if table.written is None:
                assert table.why, key
            else:
                check_lines(table.written, answer.cutflow[key], ("written", key))

    @FEWER
    @given(data=st.data(), suffix=st.sampled_from([".root", ".parquet"]), grid=st.integers(1, 40))
    def test_files_on_disk(self, data: st.DataObject, suffix: str, grid: int) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        note(analysis.source())
        with tempfile.TemporaryDirectory() as folder:
            source, described = stored(datasets, Path(folder), suffix, grid)
            try:
                answer = oracle(analysis, described)
            except StepRaisedError:
                hypothesis.reject()
            way = data.draw(ways(analysis))
            note(repr(way))
            result = run(build(analysis), source, way)
            check_outputs(result, answer)
            check_yields(result, answer)
            check_ledger(result, described)
            self.check_tables(result, analysis, described, answer, way)

    @FEWER
    @given(data=st.data(), count=st.integers(0, 150))
    def test_the_first_rows_are_everything(self, data: st.DataObject, count: int) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        note(analysis.source())
        wanted = first_rows(datasets, count)
        try:
            answer = oracle(analysis, wanted)
        except StepRaisedError:
            hypothesis.reject()
        way = data.draw(ways(analysis))
        note(repr(way))
        result = run(build(analysis), MemorySource(datasets), way, max_rows=count)
        check_outputs(result, answer)
        check_yields(result, answer)
        check_ledger(result, wanted)

    @FEWER
    @given(data=st.data(), seed=st.integers(1, 5))
    def test_one_pipeline_runs_again_and_again(self, data: st.DataObject, seed: int) -> None:
        """What a run learns (guards, fields) stays with the pipeline, and changes nothing."""
        analysis = data.draw(analyses())
        note(analysis.source())
        pipeline = build(analysis)
        for _ in range(3):
            datasets, way = data.draw(filesets()), data.draw(ways(analysis))
            note(repr(way))
            try:
                answer = oracle(analysis, datasets, seed=seed)
            except StepRaisedError:
                hypothesis.reject()
            result = run(pipeline, MemorySource(datasets), way, seed=seed)
            check_outputs(result, answer)
            check_yields(result, answer)
            check_ledger(result, datasets)
