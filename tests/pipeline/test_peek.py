"""``analysis.peek``: the rows of the written order, nothing else computed or read, and errors that lead to the row."""

from __future__ import annotations

import pdb
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import awkward as ak
import hypothesis
import numpy as np
import pytest
import uproot
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import bits, numbers
from description import File, MemorySource, UpDown, build
from reference import Execution, Plan, StepRaisedError
from searching import examples
from strategies import analyses, filesets
from windrow.errors import MissingColumnError, StepError, UnknownNameError, UsageError
from windrow.pipeline.inspect.rows import short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from description import Analysis, Dataset

SETTINGS = settings(
    max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


class Counting:
    """A source that remembers its readers, to ask them what was read."""

    def __init__(self, spec: Any) -> None:
        self._source = wr.data.open(spec)
        self.inputs, self.datasets = self._source.inputs, self._source.datasets
        self.readers: list[Any] = []

    def open(self, index: int) -> Any:
        reader = self._source.open(index)
        self.readers.append(reader)
        return reader

    @property
    def columns(self) -> set[str]:
        return {column for reader in self.readers for column, _, _ in reader.reads}

    @property
    def last_row(self) -> Any:
        return max((stop for reader in self.readers for _, _, stop in reader.reads), default=0)


def events(rows: int = 20_000, seed: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, rows)

    def lists(values: Any) -> Any:
        return ak.unflatten(values, counts)

    return {
        "run": np.full(rows, 3, np.uint32),
        "event": np.arange(1000, 1000 + rows, dtype=np.uint64),
        "met": rng.exponential(40, rows),
        "spare": rng.random(rows),
        "nMuon": counts.astype(np.int32),
        "Muon_pt": lists(rng.exponential(30, counts.sum())),
        "Muon_q": lists(rng.choice([-1, 1], counts.sum())),
        "Muon_spare": lists(rng.random(counts.sum())),
    }


def dimuon(*, outputs: bool = True) -> wr.Pipeline:
    analysis = wr.Pipeline("dimuon", identity=("run", "event"))

    @analysis.weight
    def scale(met: Any) -> Any:
        return wr.updown(1 + met * 0.001, 1 + met * 0.002, np.ones(len(met)))

    @analysis.cut
    def high_met(met: Any) -> Any:
        return met > 40

    @analysis.column
    def muons(Muon: Any) -> Any:
        return Muon[Muon.pt > 10]

    @analysis.cut
    def two_muons(muons: Any) -> Any:
        return ak.num(muons) >= 2

    @analysis.column
    def pair_pt(muons: Any) -> Any:
        return muons[:, 0].pt + muons[:, 1].pt

    @analysis.cut
    def hard(pair_pt: Any) -> Any:
        return pair_pt > 100

    @analysis.column
    def charge(muons: Any) -> Any:
        return muons[:, 0].q * muons[:, 1].q

    analysis.region("SR", "high_met", "two_muons", "hard")
    analysis.region("CR", "two_muons", "!high_met")
    if outputs:

        @analysis.output
        def count(pair_pt: Any) -> Any:
            return len(pair_pt)

    return analysis


def leading(data: Mapping[str, Any]) -> tuple[Any, Any]:
    """Muons above 10 and the sum of the first two, zero where there are not two: plain awkward."""
    pt = data["Muon_pt"][data["Muon_pt"] > 10]
    two = ak.fill_none(ak.pad_none(pt, 2, clip=True), 0.0)
    return pt, ak.to_numpy(two[:, 0] + two[:, 1])


class TestRows:
    def test_rows_reach_a_step_through_a_region_that_needs_it(self) -> None:
        data = events()
        pt, total = leading(data)
        reached = np.flatnonzero(ak.num(pt) >= 2)[:10]
        found = dimuon().peek("pair_pt", data)
        assert len(found) == 10
        assert found.entry.tolist() == reached.tolist()
        assert np.asarray(found["pair_pt"]).tolist() == total[reached].tolist()
        assert found["event"].tolist() == (1000 + reached).tolist()
        assert found.looked_at == reached[-1] + 1

    def test_one_region(self) -> None:
        data = events()
        pt, _ = leading(data)
        reached = np.flatnonzero((ak.num(pt) >= 2) & (data["met"] > 40))[:7]
        found = dimuon().peek("pair_pt", data, rows=7, region="SR")
        assert found.entry.tolist() == reached.tolist()

    def test_a_step_nobody_needs_is_seen_by_the_rows_above_it(self) -> None:
        data = events()
        pt, total = leading(data)
        reached = np.flatnonzero((ak.num(pt) >= 2) & ((data["met"] <= 40) | (total > 100)))[:5]
        found = dimuon().peek("charge", data, rows=5)
        assert found.entry.tolist() == reached.tolist()

    def test_before_there_is_an_output(self) -> None:
        assert len(dimuon(outputs=False).peek("muons", events(), rows=4)) == 4

    def test_a_cut_of_no_region(self) -> None:
        analysis = dimuon()

        @analysis.cut
        def forgotten(met: Any) -> Any:
            return met > 60

        data = events()
        found = analysis.peek(["forgotten", "met"], data, rows=20)
        assert found["forgotten"].tolist() == (found["met"] > 60).tolist()
        assert set(found["forgotten"].tolist()) == {True, False}

    def test_several_steps_show_rows_that_reach_all(self) -> None:
        data = events()
        pt, total = leading(data)
        reached = np.flatnonzero((ak.num(pt) >= 2) & (data["met"] > 40))[:6]
        found = dimuon().peek(["high_met", "hard", "spare"], data, rows=6)
        assert found.entry.tolist() == reached.tolist()
        assert found["high_met"].all()
        assert found["hard"].tolist() == (total[reached] > 100).tolist()
        assert found["spare"].tolist() == data["spare"][reached].tolist()
        assert found.keys() == ("high_met", "hard", "spare", "run", "event")

    def test_a_file_column_in_a_region(self) -> None:
        data = events()
        pt, total = leading(data)
        reached = np.flatnonzero((ak.num(pt) >= 2) & (data["met"] > 40) & (total > 100))[:5]
        found = dimuon().peek("spare", data, rows=5, region="SR")
        assert found.entry.tolist() == reached.tolist()
        assert found["spare"].tolist() == data["spare"][reached].tolist()

    def test_a_file_column_of_any_row(self) -> None:
        data = events()
        assert dimuon().peek("spare", data, rows=3)["spare"].tolist() == data["spare"][:3].tolist()

    def test_collections_and_patterns(self) -> None:
        data = events()
        found = dimuon().peek(["Muon", "Muon_p*"], data, rows=50)
        assert found["Muon"].pt.tolist() == data["Muon_pt"][:50].tolist()
        assert found["Muon"].fields == ["pt", "q", "spare"]
        assert found["Muon_pt"].tolist() == data["Muon_pt"][:50].tolist()

    def test_a_weight_with_its_variations(self) -> None:
        data = events()
        found = dimuon().peek("scale", data, rows=4)
        assert found["scale"].tolist() == (1 + data["met"][:4] * 0.001).tolist()
        assert found["scale_up"].tolist() == (1 + data["met"][:4] * 0.002).tolist()
        assert found["scale_down"].tolist() == [1.0] * 4

    def test_none_of_a_cut(self) -> None:
        analysis = wr.Pipeline("none")

        @analysis.cut
        def first_hard(Muon_pt: Any) -> Any:
            return ak.firsts(Muon_pt) > 20

        data = events()
        expected = (ak.firsts(data["Muon_pt"]) > 20)[:30].tolist()
        assert None in expected
        assert analysis.peek("first_hard", data, rows=30)["first_hard"].tolist() == expected

    def test_where_a_step_does_not_exist(self) -> None:
        analysis = wr.Pipeline("when")

        @analysis.weight(when="is_mc")
        def doubled(spare: Any) -> Any:
            return 2 * spare

        data, simulation = events(50), events(50, seed=6)
        fileset = {
            "data": {"files": data, "metadata": {"is_mc": False}},
            "mc": {"files": simulation, "metadata": {"is_mc": True}},
        }
        found = analysis.peek("doubled", fileset, rows=2)
        assert found["doubled"].tolist() == (2 * simulation["spare"][:2]).tolist()
        assert found.dataset == ("mc", "mc")
        assert "false for dataset 'data'" in repr(found)
        with pytest.raises(UsageError, match="exists only when 'is_mc'"):
            analysis.peek("doubled", {"data": fileset["data"]})
        with pytest.raises(UsageError, match="exists only when 'is_mc'"):
            analysis.peek("doubled", fileset, at=("data", 3))

    def test_a_column_only_some_datasets_have(self) -> None:
        plain = events(50)
        fileset = {"data": {"files": plain}, "mc": {"files": {**plain, "gen": np.arange(50)}}}
        found = dimuon().peek("gen", fileset, rows=3)
        assert found["gen"].tolist() == [0, 1, 2]
        assert "has no 'gen'" in repr(found)

    def test_too_few_rows_are_told(self) -> None:
        found = dimuon().peek("pair_pt", events(60), rows=1000)
        assert 0 < len(found) < 60
        assert f"only {len(found)} of the 1,000 rows asked for; 60 rows were looked at" in repr(found)

    def test_several_files(self) -> None:
        fileset = {"one": {"files": events(30, seed=1)}, "two": {"files": events(30, seed=2)}}
        found = dimuon().peek("spare", fileset, rows=35)
        assert found.file == ("one",) * 30 + ("two",) * 5
        assert found.entry.tolist() == [*range(30), *range(5)]
        assert "dataset" in repr(found).splitlines()[1]

    def test_ranges_of_a_fileset(self, tmp_path: Path) -> None:
        path = tmp_path / "events.root"
        with uproot.recreate(path) as root:
            root["Events"] = {"x": np.arange(100.0)}
        steps = {"object_path": "Events", "steps": [[10, 12], [50, 90]]}
        fileset = {"d": {"files": {str(path): steps}}}
        found = wr.Pipeline("steps").peek("x", fileset, rows=4)
        assert found["x"].tolist() == [10, 11, 50, 51]

    def test_ctrl_c_shows_what_was_found(self) -> None:
        analysis = dimuon()
        calls = []

        @analysis.cut
        def late(spare: Any) -> Any:
            calls.append(len(spare))
            if len(calls) > 1:
                raise KeyboardInterrupt
            return spare < 0.001

        analysis.region("late", "late")
        found = analysis.peek("met", events(), rows=5000, region="late")
        assert "interrupted" in repr(found)
        assert 0 < len(found) < 50


class TestOnlyWhatIsNeeded:
    def test_columns(self) -> None:
        source = Counting(events())
        dimuon().peek("pair_pt", source)
        fields = {"nMuon", "Muon_pt", "Muon_q"}  # q may hold the lengths of the lists
        assert source.columns - fields == {"met", "run", "event"}

    def test_a_cut_below_is_not_read(self) -> None:
        source = Counting(events())
        dimuon().peek("high_met", source)
        assert source.columns == {"met", "run", "event"}

    def test_few_rows_are_read(self) -> None:
        source = Counting(events())
        dimuon().peek("pair_pt", source)
        assert source.last_row <= 4096

    def test_one_row_reads_one_row(self) -> None:
        source = Counting(events())
        dimuon().peek("spare", source, at=(source.inputs[0].label, 700))
        assert {(start, stop) for r in source.readers for _, start, stop in r.reads} == {(700, 701)}
        assert source.columns == {"spare", "run", "event"}

    def test_steps(self) -> None:
        analysis = dimuon()

        @analysis.cut
        def never(met: Any) -> Any:
            raise AssertionError("below what is looked at")

        @analysis.weight
        def neither(met: Any) -> Any:
            raise AssertionError("weighs, and decides nothing")

        analysis.region("SR2", "high_met", "never")
        assert len(analysis.peek("hard", events())) == 10

    def test_nothing_is_learned(self) -> None:
        analysis = dimuon()
        analysis.peek(["muons", "Muon"], events())
        source = Counting(events())
        analysis.run(source, progress=False)
        assert "Muon_spare" not in source.columns

    @pytest.mark.samples
    def test_a_real_file(self, samples: Path) -> None:
        path = f"{samples / 'nanoaodv5_sample.root'}:Events"
        analysis = wr.Pipeline("nano", identity=("run", "luminosityBlock", "event"))

        @analysis.cut
        def muon(nMuon: Any) -> Any:
            return nMuon >= 1

        @analysis.column
        def pt(Muon: Any) -> Any:
            return Muon.pt[:, 0]

        source = Counting(path)
        found = analysis.peek("pt", source, rows=3)
        with uproot.open(path) as tree:
            arrays = tree.arrays(["nMuon", "Muon_pt", "event"])
        rows = np.flatnonzero(np.asarray(arrays.nMuon) >= 1)[:3]
        assert found.entry.tolist() == rows.tolist()
        assert np.asarray(found["pt"]).tolist() == ak.firsts(arrays.Muon_pt)[rows].tolist()
        assert found["event"].tolist() == arrays.event[rows].tolist()
        assert source.columns == {"nMuon", "Muon_pt", "run", "luminosityBlock", "event"}


class TestAt:
    def test_one_row_whatever_the_cuts_say(self) -> None:
        data = events()
        row = int(np.flatnonzero(data["met"] < 10)[0])
        found = dimuon().peek(["high_met", "muons"], data, at=("data", row))
        assert found["high_met"].tolist() == [False]
        assert found["muons"].pt.tolist() == [[pt for pt in data["Muon_pt"][row] if pt > 10]]
        assert found.entry.tolist() == [row]
        assert found["event"].tolist() == [1000 + row]

    @pytest.fixture
    def files(self, tmp_path: Path) -> dict[str, Any]:
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            with uproot.recreate(tmp_path / folder / "same.root") as root:
                root["Events"] = {"x": np.arange(10.0) + (100 if folder == "b" else 0)}
        with uproot.recreate(tmp_path / "a" / "other.root") as root:
            root["Events"] = {"x": np.arange(5.0)}
        return {"d": {"files": {str(path): "Events" for path in sorted(tmp_path.rglob("*.root"))}}}

    def test_files_by_name(self, files: dict[str, Any], tmp_path: Path) -> None:
        analysis = wr.Pipeline("files")
        whole = str(tmp_path / "b" / "same.root")
        names: tuple[Any, ...] = ("b/same.root", whole, Path(whole))
        for name in names:
            assert analysis.peek("x", files, at=(name, 7))["x"].tolist() == [107.0]
        assert analysis.peek("x", files, at=("other.root", 4))["x"].tolist() == [4.0]

    def test_names_that_fit_no_file_or_several(self, files: dict[str, Any]) -> None:
        analysis = wr.Pipeline("files")
        with pytest.raises(UsageError, match=r"any of 2 files: .*a/same.root.*b/same.root"):
            analysis.peek("x", files, at=("same.root", 1))
        with pytest.raises(UnknownNameError, match=r"did you mean 'other\.root'"):
            analysis.peek("x", files, at=("othr.root", 1))

    @pytest.mark.parametrize("row", [5, -1, 10**9])
    def test_rows_outside(self, files: dict[str, Any], row: int) -> None:
        with pytest.raises(UsageError, match=rf"has no row {row}: it has 5 rows, .* 0 to 4"):
            wr.Pipeline("files").peek("x", files, at=("other.root", row))

    @pytest.mark.parametrize("at", ["other.root", ("other.root",), ("other.root", "1"), 3])
    def test_not_a_place(self, files: dict[str, Any], at: Any) -> None:
        with pytest.raises(UsageError):
            wr.Pipeline("files").peek("x", files, at=at)

    def test_an_unknown_name(self, files: dict[str, Any]) -> None:
        with pytest.raises(UnknownNameError, match="'y' is no cut"):
            wr.Pipeline("files").peek("y", files, at=("other.root", 1))


class TestErrors:
    @pytest.mark.parametrize(("name", "hint"), [("pair_ptt", "pair_pt"), ("Muon_ptt", "Muon_pt"), ("Muons", "muons")])
    def test_unknown_names(self, name: str, hint: str) -> None:
        with pytest.raises(UnknownNameError, match=f"did you mean .*'{hint}'"):
            dimuon().peek(name, events(10))

    def test_an_output(self) -> None:
        with pytest.raises(UsageError, match=r"'count' is an output.*pair_pt"):
            dimuon().peek("count", events(10))

    @pytest.mark.parametrize("what", [[], 3, ["met", 3], None])
    def test_no_names(self, what: Any) -> None:
        with pytest.raises(UsageError, match="a name or a list of names"):
            dimuon().peek(what, events(10))

    @pytest.mark.parametrize("rows", [0, -3, 2.5, True, "3"])
    def test_no_number_of_rows(self, rows: Any) -> None:
        with pytest.raises(UsageError, match="rows="):
            dimuon().peek("met", events(10), rows=rows)

    def test_an_unknown_region(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'SR'"):
            dimuon().peek("met", events(10), region="SRR")

    def test_a_missing_column_of_a_step(self) -> None:
        data = events(10)
        del data["met"]
        with pytest.raises(MissingColumnError, match="'met'"):
            dimuon().peek("pair_pt", data)

    def test_a_step_that_raises_names_file_and_row(self) -> None:
        data = events()
        row = int(np.flatnonzero(ak.num(data["Muon_pt"]) == 0)[0])
        with pytest.raises(StepError, match=rf"column 'first'.*data, row {row}") as caught:
            failing().peek("first", data)
        assert (caught.value.facts["start"], caught.value.facts["step"]) == (row, "first")
        assert isinstance(caught.value.__cause__, IndexError | ValueError)

    def test_only_the_rows_shown_count(self) -> None:
        data = events()
        empty = int(np.flatnonzero(ak.num(data["Muon_pt"]) == 0)[0])
        assert empty > 0
        assert len(failing().peek("first", data, rows=empty)) == empty


def failing(**options: Any) -> wr.Pipeline:
    analysis = wr.Pipeline("failing")

    @analysis.column(**options)
    def first(Muon_pt: Any) -> Any:
        return head(Muon_pt) if not options else Muon_pt[0]

    return analysis


def head(lists: Any) -> Any:
    return lists[:, 0]


class TestDebug:
    def test_the_debugger_opens_at_the_row(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        data = events()
        row = int(np.flatnonzero(ak.num(data["Muon_pt"]) == 0)[0])
        seen = opened_at(monkeypatch)
        with pytest.raises(StepError, match=f"row {row}"):
            failing().peek("first", data, rows=10_000, debug=True)
        (frames,) = seen
        assert [frame.f_code.co_name for frame in frames] == ["first", "head"]
        assert frames[0].f_locals["Muon_pt"].tolist() == [[]]
        shown = capsys.readouterr().out
        assert f"file data, row {row}" in shown
        assert "Muon_pt = [[]]" in shown

    def test_compiled_steps_open_in_their_python_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = opened_at(monkeypatch)
        with pytest.raises(StepError):
            failing(each=True).peek("first", events(), rows=10_000, debug=True)
        (frames,) = seen
        assert frames[0].f_code.co_name == "first"
        assert len(frames[0].f_locals["Muon_pt"]) == 0

    def test_a_cut_above_it_that_raises(self, monkeypatch: pytest.MonkeyPatch) -> None:
        analysis = failing()

        @analysis.cut
        def odd(spare: Any) -> Any:
            if (spare > 0.999).any():
                raise ValueError("odd")
            return spare > 0

        @analysis.column
        def twice(spare: Any) -> Any:
            return spare * 2

        seen = opened_at(monkeypatch)
        data = events()
        row = int(np.flatnonzero(data["spare"] > 0.999)[0])
        with pytest.raises(StepError, match=rf"'odd' raised ValueError: odd .*row {row}"):
            analysis.peek("twice", data, debug=True)
        assert seen[0][0].f_locals["spare"].tolist() == [data["spare"][row]]

    def test_an_answer_of_the_wrong_shape(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        analysis = wr.Pipeline("shape")

        @analysis.column
        def wrong(met: Any) -> Any:
            return 3

        seen = opened_at(monkeypatch)
        with pytest.raises(StepError, match="one entry per row"):
            analysis.peek("wrong", events(10), debug=True)
        assert not seen
        assert "nothing to step into" in capsys.readouterr().out

    def test_nothing_opens_without_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = opened_at(monkeypatch)
        with pytest.raises(StepError):
            failing().peek("first", events(), rows=10_000)
        assert not seen


def opened_at(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Record the frames that the debugger would be opened with."""
    seen: list[list[Any]] = []

    def record(traceback: Any) -> None:
        frames = []
        while traceback is not None:
            frames.append(traceback.tb_frame)
            traceback = traceback.tb_next
        seen.append(frames)

    monkeypatch.setattr(pdb, "post_mortem", record)
    return seen


class TestText:
    def test_columns_are_aligned(self) -> None:
        text = repr(dimuon().peek(["met", "Muon_pt"], events(), rows=12))
        _, head, *body, summary = text.splitlines()
        assert head.split() == ["file", "row", "run", "event", "met", "Muon_pt"]
        assert len(body) == 12
        starts = {line.index("[") for line in body}
        assert starts == {head.index("Muon_pt")}
        assert summary == "12 rows; 12 rows were looked at"

    def test_html_is_escaped(self) -> None:
        data = {"x<y>": np.arange(3), "name": ak.Array(["<b>", "&", "c"])}
        analysis = wr.Pipeline("<p>")
        html = analysis.peek(["x<y>", "name"], data)._repr_html_()
        table = ET.fromstring(html)
        assert [cell.text for cell in table.iter("th")] == ["file", "row", "x<y>", "name"]
        assert [cell.text for cell in table.iter("td")][3] == "'<b>'"
        assert len(list(table.iter("tr"))) == 4

    def test_an_unknown_key(self) -> None:
        found = dimuon().peek("met", events(10))
        assert "met" in found
        assert "mett" not in found
        with pytest.raises(UnknownNameError, match="did you mean 'met'"):
            found["mett"]

    def test_no_rows(self) -> None:
        found = dimuon().peek("hard", {name: values[:0] for name, values in events(5).items()})
        assert len(found) == 0
        assert "only 0 of the 10 rows asked for" in repr(found)
        ET.fromstring(found._repr_html_())

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (np.float32(0.1), "0.1"),
            (None, "None"),
            (True, "True"),
            (np.arange(3), "[0, 1, 2]"),
            (ak.Array([[1, 2], []]), "[[1, 2], []]"),
            (ak.Record({"pt": 1.5, "q": -1}), "{pt: 1.5, q: -1}"),
            ("text", "'text'"),
            (np.arange(100), "[0, 1, 2, 3, 4, ..., 95, 96, 97, 98, 99]"),
        ],
    )
    def test_short_values(self, value: Any, text: str) -> None:
        assert short(value) == text

    @given(st.lists(st.lists(st.floats(allow_nan=False))), st.integers(12, 80))
    def test_short_values_fit(self, value: list[list[float]], room: int) -> None:
        text = short(ak.Array(value), room)
        # One element is always shown, however long.
        assert len(text) <= room + 34
        assert text.startswith("[")


# --- against the oracle ----------------------------------------------------------------------------


def plain(value: Any) -> Any:
    if isinstance(value, ak.Array):
        return bits(value.tolist())
    return bits(np.asarray(value).tolist())


def shown(analysis: Analysis, datasets: tuple[Dataset, ...], name: str) -> list[tuple[File, Any, Any]]:
    """For each file: the rows that the written order shows a step, and its values."""
    order = tuple(step.name for step in analysis.steps)
    found = []
    for dataset in datasets:
        plan = Plan(analysis, dataset, order)
        for file in dataset.files:
            made = Execution(plan, file, numbers()).made
            if name in made:
                found.append((file, *made[name]))
    return found


class TestOracle:
    @SETTINGS
    @given(data=st.data())
    def test_rows_and_values_are_those_of_the_written_order(self, data: st.DataObject) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        note(analysis.source())
        name = data.draw(st.sampled_from([step.name for step in analysis.steps]))
        try:
            expected = shown(analysis, datasets, name)
        except StepRaisedError:
            hypothesis.reject()
        total = sum(len(rows) for _, rows, _ in expected)
        hypothesis.assume(total)
        count = data.draw(st.integers(1, total + 2))
        found = build(analysis).peek(name, MemorySource(datasets), rows=count)
        places = [(file.label, int(row)) for file, rows, _ in expected for row in rows][:count]
        assert list(zip(found.file, found.entry.tolist(), strict=True)) == places
        left = count
        values: list[Any] = []
        for _, rows, value in expected:
            nominal = value.nominal if isinstance(value, UpDown) else value
            if not isinstance(nominal, ak.Array):
                nominal = np.broadcast_to(nominal, len(rows))
            values += plain(nominal[:left])[1]
            left -= min(left, len(rows))
        assert plain(found[name])[1] == tuple(values)
