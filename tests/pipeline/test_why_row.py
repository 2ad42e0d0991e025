"""``analysis.explain(data, row=...)``: the verdict of a run, told for one row."""

from __future__ import annotations

import warnings
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
from comparing import numbers
from description import MemorySource, build
from reference import Execution, Plan, StepRaisedError
from searching import examples
from strategies import analyses, filesets
from windrow.errors import MissingColumnError, UnknownNameError, UsageError
from windrow.pipeline.inspect.explain_row import explain_row as why

if TYPE_CHECKING:
    from pathlib import Path

    from description import Analysis, Dataset

SETTINGS = settings(
    max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def events() -> dict[str, Any]:
    """Rows: in the region; too little met; one muon; no muon and an unknown charge."""
    return {
        "run": np.array([1, 1, 1, 2]),
        "event": np.array([10, 11, 12, 10]),
        "met": np.array([50.0, 5.0, 60.0, 70.0]),
        "Muon_pt": ak.Array([[40.0, 30.0], [20.0, 10.0], [15.0], []]),
        "Muon_q": ak.Array([[1, -1], [1, 1], [1], []]),
    }


def dimuon(**options: Any) -> wr.Pipeline:
    analysis = wr.Pipeline("dimuon", **(options or {"identity": ("run", "event")}))

    @analysis.weight
    def scale(met: Any) -> Any:
        return wr.updown(met / 50, met / 40, met / 100)

    @analysis.cut
    def high_met(met: Any, threshold: Any = None, *, least: float = 20) -> Any:
        return met > least

    @analysis.cut
    def two_muons(Muon: Any) -> Any:
        return ak.num(Muon.pt) >= 2

    @analysis.column
    def second(Muon: Any) -> Any:
        return Muon.pt[:, 1]

    @analysis.cut
    def hard(second: Any) -> Any:
        return second > 25

    @analysis.weight
    def trigger(second: Any) -> Any:
        return second / 30

    analysis.region("SR", "high_met", "two_muons", "hard")
    analysis.region("soft", "two_muons", "!hard")
    return analysis


class TestStory:
    def test_a_row_that_is_in(self) -> None:
        told = why(dimuon(), events(), ("data", 0))
        assert told.regions["SR"].inside
        assert not told.regions["soft"].inside
        assert told.regions["soft"].removed_by == "hard"
        assert told.regions["soft"].verdict() == "removed by !hard"
        text = str(told)
        assert "dimuon: row 0 of data (dataset data, run 1, event 10)" in text
        assert "region SR: in the region" in text
        assert "  high_met   passed  met=50, threshold=None (default)" in text
        assert "> !hard      failed  second=30" in text
        assert told.weight == 1.0
        assert "scale    1 (up 1.25, down 0.5)" in text

    def test_fields_of_a_collection_that_were_read(self) -> None:
        analysis = dimuon()

        @analysis.cut
        def hardest(Muon: Any) -> Any:
            return ak.max(Muon.pt, axis=1) > 35

        analysis.region("hardest", "two_muons", "hardest")
        counted, touched = why(analysis, events(), ("data", 0)).regions["hardest"].lines
        assert counted.reason == "Muon=2 objects"
        assert touched.reason == "Muon_pt=[40, 30]"

    def test_what_comes_after_the_first_cut(self) -> None:
        told = why(dimuon(), events(), ("data", 1))
        assert told.regions["SR"].removed_by == "high_met"
        lines = [line.shown for line in told.regions["SR"].lines]
        assert lines == ["failed", "(passed)", "(failed)"]
        assert told.regions["soft"].inside

    def test_a_step_that_its_guard_keeps_away(self) -> None:
        told = why(dimuon(), events(), ("data", 2))
        assert told.regions["SR"].removed_by == "two_muons"
        line = told.regions["SR"].lines[2]
        assert line.verdict == "cannot be computed"
        assert line.reason.startswith("cannot be computed for this row: it needs second: ")
        assert line.reason.endswith("; it runs behind two_muons")
        assert told.weight is None
        assert "trigger  cannot be computed: it needs second" in str(told)

    def test_a_step_that_nothing_keeps_away(self) -> None:
        analysis = dimuon()

        @analysis.column
        def third(Muon_pt: Any) -> Any:
            return Muon_pt[:, 2]

        @analysis.output(regions="soft")
        def total(third: Any) -> Any:
            return float(np.sum(third))

        story = why(analysis, events(), ("data", 1)).regions["soft"]
        assert (story.inside, story.stops_at) == (False, "third")
        assert story.verdict() == "third raises for this row, so a run stops here"
        # No row of the other region reaches the column.
        assert why(analysis, events(), ("data", 0)).regions["SR"].inside

    def test_none_is_neither(self) -> None:
        analysis = wr.Pipeline("none")

        @analysis.cut
        def first_positive(Muon_q: Any) -> Any:
            return ak.firsts(Muon_q) > 0

        analysis.region("positive", "first_positive")
        analysis.region("negative", "!first_positive")
        told = why(analysis, events(), ("data", 3))
        assert not told.regions["negative"].inside
        story = told.regions["positive"]
        assert (story.inside, story.removed_by) == (False, "first_positive")
        assert story.verdict() == "removed by first_positive, which is None for it"

    def test_where_a_step_does_not_apply(self) -> None:
        analysis = wr.Pipeline("when")

        @analysis.cut(when="is_mc")
        def matched(met: Any) -> Any:
            return met > 1000

        @analysis.weight(when="is_mc")
        def generator(met: Any) -> Any:
            return met

        fileset = {
            "real": {"files": events(), "metadata": {"is_mc": False}},
            "mc": {"files": events(), "metadata": {"is_mc": True}},
        }
        told = why(analysis, fileset, ("real", 0))
        assert told.regions["all"].inside
        assert "  matched  n/a  exists only when is_mc" in str(told)
        assert "generator  does not apply" in str(told)
        assert told.weight == 1.0
        assert not why(analysis, fileset, ("mc", 0)).regions["all"].inside

    def test_html(self) -> None:
        analysis = wr.Pipeline("<b>")

        @analysis.cut(name="<cut>")
        def anything(met: Any) -> Any:
            return met > 1

        html = why(analysis, events(), ("data", 0))._repr_html_()
        table = ET.fromstring(html)
        assert [cell.text for cell in table.iter("td")] == ["<cut>", "passed", "met=50"]

    def test_no_warnings_of_rows_a_step_never_sees(self) -> None:
        analysis = wr.Pipeline("quiet")

        @analysis.cut
        def positive(met: Any) -> Any:
            return met > 100

        @analysis.cut
        def root(met: Any) -> Any:
            return np.sqrt(40 - met) > 1

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert why(analysis, events(), ("data", 0)).regions["all"].removed_by == "positive"

    def test_nothing_is_learned(self) -> None:
        analysis = dimuon()

        @analysis.output
        def rows(met: Any) -> Any:
            return len(met)

        why(analysis, events(), ("data", 0))
        assert analysis.definition(0).touched == {}
        assert "two_muons" in analysis.definition(0).unchecked


class TestFinding:
    def test_by_identity(self) -> None:
        told = why(dimuon(), events(), (2, 10))
        assert told.row == 3
        assert told.identity == {"run": 2, "event": 10}
        assert analysis_text(dimuon(), (2, 10)).startswith("dimuon: row 3 of data")

    def test_one_identity_column(self) -> None:
        assert why(dimuon(identity="event"), events(), 11).row == 1

    def test_only_identity_is_read_to_find_it(self) -> None:
        source = Reading(events())
        why(dimuon(), source, (1, 12))
        first, second = source.readers
        assert {column for column, _, _ in first.reads} == {"run", "event"}
        assert {(start, stop) for _, start, stop in second.reads} == {(2, 3)}

    def test_in_no_file(self) -> None:
        with pytest.raises(UsageError, match=r"no row has run 9, event 9: 4 rows in 1 files"):
            why(dimuon(), events(), (9, 9))

    def test_in_several_files(self, tmp_path: Path) -> None:
        for name in ("a.root", "b.root"):
            with uproot.recreate(tmp_path / name) as root:
                root["Events"] = {n: v for n, v in events().items() if "Muon" not in n}
        with pytest.raises(UsageError, match=r"2 rows have .*row 3 of .*a\.root.*row 3 of .*b"):
            why(plain_cut(), str(tmp_path / "*.root"), (2, 10))
        assert why(plain_cut(), str(tmp_path / "*.root"), ("b.root", 3)).row == 3

    def test_one_file_in_two_datasets(self, tmp_path: Path) -> None:
        path = tmp_path / "a.root"
        with uproot.recreate(path) as root:
            root["Events"] = {n: v for n, v in events().items() if "Muon" not in n}
        fileset = {name: {"files": {str(path): "Events"}} for name in ("one", "two")}
        with pytest.raises(UsageError, match=r"may be any of 2 files.*give the data of one of these datasets alone"):
            why(plain_cut(), fileset, ("a.root", 3))

    def test_without_identity(self) -> None:
        with pytest.raises(UsageError, match=r"does not say which columns identify a row.*identity="):
            why(dimuon(identity=None), events(), (1, 2, 3))

    def test_a_file_without_the_identity_column(self) -> None:
        data = events()
        del data["event"]
        with pytest.raises(MissingColumnError, match="'event', which identity="):
            why(dimuon(), data, (1, 10))

    @pytest.mark.parametrize("row", [(1, 2, 3), (), "data", 4, None, ("data", 99), ("dat", 1)])
    def test_no_row(self, row: Any) -> None:
        with pytest.raises(UsageError) as caught:
            why(dimuon(), events(), row)
        if row == ("dat", 1):
            assert isinstance(caught.value, UnknownNameError)
        if row == ("data", 99):
            assert "it has 4 rows" in str(caught.value)

    def test_without_data(self) -> None:
        with pytest.raises(UsageError, match="pass the data too"):
            dimuon().explain(row=("data", 1))

    def test_a_row_the_fileset_leaves_out(self, tmp_path: Path) -> None:
        path = tmp_path / "x.root"
        with uproot.recreate(path) as root:
            root["Events"] = {n: v for n, v in events().items() if "Muon" not in n}
        steps = {"object_path": "Events", "steps": [[0, 2]]}
        told = why(plain_cut(), {"d": {"files": {str(path): steps}}}, ("x.root", 3))
        assert "a run leaves this row out" in str(told)
        with pytest.raises(UsageError, match="no row has"):
            why(plain_cut(), {"d": {"files": {str(path): steps}}}, (2, 10))


def plain_cut() -> wr.Pipeline:
    analysis = wr.Pipeline("plain", identity=("run", "event"))

    @analysis.cut
    def high_met(met: Any) -> Any:
        return met > 20

    return analysis


def analysis_text(analysis: wr.Pipeline, row: Any) -> str:
    return str(analysis.explain(events(), row=row))


class Reading:
    """A source that remembers its readers."""

    def __init__(self, spec: Any) -> None:
        self._source = wr.data.open(spec)
        self.inputs, self.datasets = self._source.inputs, self._source.datasets
        self.readers: list[Any] = []

    def open(self, index: int) -> Any:
        self.readers.append(self._source.open(index))
        return self.readers[-1]


# --- against the oracle and a run ------------------------------------------------------------------


def executions(analysis: Analysis, datasets: tuple[Dataset, ...], only: str | None = None) -> dict[str, Execution]:
    order = tuple(step.name for step in analysis.steps)
    return {
        file.label: Execution(Plan(analysis, dataset, order), file, numbers())
        for dataset in datasets
        for file in dataset.files
        if only in (None, file.label)
    }


class TestOracle:
    @SETTINGS
    @given(data=st.data())
    def test_a_row_is_in_a_region_exactly_if_a_run_says_so(self, data: st.DataObject) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        note(analysis.source())
        try:
            ran = executions(analysis, datasets)
        except StepRaisedError:
            hypothesis.reject()
        places = [(label, row) for label, run in ran.items() for row in range(run.file.rows)]
        hypothesis.assume(places)
        pipeline, source = build(analysis), MemorySource(datasets)
        result = pipeline.run(source, engine="inline", workers=1, progress=False)
        for _ in range(4):
            label, row = data.draw(st.sampled_from(places))
            told = why(pipeline, source, (label, row))
            for region in analysis.regions:
                inside = bool(ran[label].alive[region][row])
                assert told.regions[region].inside == inside, (label, row, region)
                assert told.regions[region].stops_at is None
                event = int(told.identity["event"])
                rows = dict(result["always", region, "nominal", told.dataset])
                assert (event in rows) == inside
                if inside and told.weights:
                    assert told.weight == pytest.approx(rows[event], rel=1e-12, nan_ok=True)

    @SETTINGS
    @given(data=st.data())
    def test_the_first_cut_is_the_one_that_removes_it(self, data: st.DataObject) -> None:
        analysis, datasets = data.draw(analyses()), data.draw(filesets())
        note(analysis.source())
        try:
            ran = executions(analysis, datasets)
        except StepRaisedError:
            hypothesis.reject()
        places = [(label, row) for label, run in ran.items() for row in range(run.file.rows)]
        hypothesis.assume(places)
        pipeline, source = build(analysis), MemorySource(datasets)
        label, row = data.draw(st.sampled_from(places))
        told = why(pipeline, source, (label, row))
        for region, story in told.regions.items():
            if story.removed_by is None:
                continue
            # With only the cuts up to this one the row is gone; with one fewer it is still there.
            cuts = [line.cut for line in story.lines]
            upto = cuts[: cuts.index(story.removed_by) + 1]
            names = {name.lstrip("!"): name for name in analysis.regions[region]}
            for kept, inside in ((upto, False), (upto[:-1], True)):
                some = tuple(names[cut] for cut in kept)
                fewer = type(analysis)(
                    steps=analysis.steps,
                    regions={"only": some},
                    outputs=analysis.outputs[:1],
                    identity=analysis.identity,
                )
                if not some:
                    continue
                try:
                    alive = executions(fewer, datasets, label)[label].alive["only"][row]
                except StepRaisedError:
                    continue
                assert bool(alive) == inside
