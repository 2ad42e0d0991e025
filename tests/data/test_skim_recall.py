"""Skims that are opened together add up, or are refused; which file comes first changes nothing."""

from __future__ import annotations

import tempfile
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow.data
from searching import examples
from windrow.data.skim import record as skim_recall
from windrow.data.skim.fragments import write_fragment
from windrow.data.skim.record import original_sums, read_record, users_own
from windrow.data.skim.write import write_skim
from windrow.errors import SpecError


def save(path: Path, dataset: str = "tt", **record: Any) -> str:
    """Write a skim of three rows, as the suffix says, of ten rows of weight 4."""
    fragment = write_fragment(path.with_name(f"{path.name}.fragment"), {"x": np.arange(3.0)}, 3)
    form: Any = "parquet" if path.suffix == ".parquet" else "rntuple"
    facts = {"region": "SR", "cut": None, "rows": 10, "selected": 3, "sumw": 4.0, "sumw2": 5.0}
    said = {"dataset": dataset, "metadata": {"xs": 2.5}, **facts, **record}
    write_skim(path, [fragment], format=form, record=said)
    return str(path)


def plain(path: Path) -> str:
    pq.write_table(pa.table({"x": [1.0]}), path)
    return str(path)


def about(spec: Any, **options: Any) -> dict[str, dict[str, Any]]:
    source = windrow.data.open(spec, **options)
    return {name: dict(metadata) for name, metadata in source.datasets.items()}


# -- skims of skims -------------------------------------------------------------------------------


def test_a_skim_of_skims_has_the_sums_of_the_source(tmp_path: Path) -> None:
    """Files of one dataset, skimmed and skimmed again one by one, and then opened together."""
    weights = [np.random.default_rng(n).normal(1, 0.1, 10) for n in range(3)]
    again = []
    for number, w in enumerate(weights):
        file = save(tmp_path / f"first{number}.parquet", sumw=float(w.sum()), sumw2=float((w**2).sum()))
        metadata = about(file)["tt"]
        sums = original_sums(metadata)
        assert sums == {"rows": 10, "sumw": w.sum(), "sumw2": (w**2).sum()}
        path = tmp_path / f"second{number}.parquet"
        again.append(save(path, metadata=users_own(metadata), selected=1, **sums))
    found = about(again)["tt"]
    assert found["skim"]["rows"] == 30
    assert found["skim"]["selected"] == 3
    assert found["sumw"] == found["skim"]["sumw"] == pytest.approx(np.sum(weights), rel=1e-14)
    assert found["skim"]["sumw2"] == pytest.approx(np.sum(np.square(weights)), rel=1e-14)
    assert found["xs"] == 2.5


def test_equal_sums_are_added_too(tmp_path: Path) -> None:
    """What two skims of skims agree on is not what they have together."""
    metadata = about(save(tmp_path / "first.parquet"))["tt"]
    files = [save(tmp_path / f"{n}.parquet", metadata=users_own(metadata), sumw=4.0) for n in "ab"]
    assert about(files)["tt"]["sumw"] == 8.0


@pytest.mark.parametrize("where", ["record", "spec", "keyword"])
def test_the_users_sumw_stays_the_users(tmp_path: Path, where: str) -> None:
    mine = {"xs": 1, "sumw": 7.0}
    path = save(tmp_path / "a.parquet", metadata=mine if where == "record" else {"xs": 2.5})
    spec = {"tt": {"files": path, "metadata": mine if where == "spec" else {}}}
    found = about(spec, metadata={"tt": mine} if where == "keyword" else None)["tt"]
    assert found["sumw"] == 7.0
    assert found["skim"]["sumw"] == 4.0
    assert users_own(found) == {"dataset": "tt", **mine}
    assert original_sums(found) == {"rows": 10, "sumw": 4.0, "sumw2": 5.0}


def test_the_users_own_words_are_left_alone() -> None:
    for metadata in ({}, {"sumw": 1.0}, {"skim": "v2", "sumw": 1.0}, {"skim": {"rows": 3}}):
        assert users_own(metadata) == metadata
        assert original_sums(metadata) is None


def test_metadata_of_other_skims_bring_no_sums(tmp_path: Path) -> None:
    """A user may hand on what an opened skim said; the files know their sums themselves."""
    one, both = [save(tmp_path / f"{n}.parquet") for n in "ab"][:1], str(tmp_path / "*.parquet")
    told = about(one)["tt"]
    for found in (about({"tt": {"files": both, "metadata": told}}), about(both, metadata={"tt": told})):
        assert found["tt"]["sumw"] == found["tt"]["skim"]["sumw"] == 8.0
        assert found["tt"]["xs"] == 2.5


def test_a_dataset_called_otherwise_by_the_user(tmp_path: Path) -> None:
    path = save(tmp_path / "a.parquet")
    spec = {"tt": {"files": path, "metadata": {"dataset": "/TT/Run2/NANOAOD"}}}
    assert about(spec)["tt"]["dataset"] == "/TT/Run2/NANOAOD"
    assert about({"top": path})["top"]["dataset"] == "top"
    assert about(path)["tt"]["dataset"] == "tt"


# -- what else is added up ------------------------------------------------------------------------


def test_missing_rows_and_sections_are_told(tmp_path: Path) -> None:
    save(tmp_path / "a.parquet", failed=2, lumis={"12": [[1, 3], [9, 9]], "2": [[5, 6]]})
    save(tmp_path / "b.parquet", failed=0, lumis={"12": [[4, 5], [2, 2]]})
    skim = about(str(tmp_path / "*.parquet"))["tt"]["skim"]
    assert skim["failed"] == 2
    assert list(skim["lumis"].items()) == [("2", [[5, 6]]), ("12", [[1, 5], [9, 9]])]
    save(tmp_path / "c.parquet")
    skim = about(str(tmp_path / "*.parquet"))["tt"]["skim"]
    assert skim["failed"] is None  # one file does not say
    assert "lumis" not in skim


SECTIONS = st.dictionaries(st.integers(1, 20), st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), min_size=1))


@given(files=st.lists(SECTIONS, min_size=1, max_size=4))
def test_sections_are_joined(files: list[dict[int, list[tuple[int, int]]]]) -> None:
    records = [{"lumis": {str(run): [[a, a + n] for a, n in pairs] for run, pairs in one.items()}} for one in files]
    found = skim_recall.merge_records({}, records)["skim"]["lumis"]
    expected = {
        (run, section)
        for one in files
        for run, pairs in one.items()
        for a, n in pairs
        for section in range(a, a + n + 1)
    }
    listed = [
        (int(run), section)
        for run, pairs in found.items()
        for first, last in pairs
        for section in range(first, last + 1)
    ]
    assert listed == sorted(expected)
    for pairs in found.values():  # neighbours are one range
        assert all(b[0] > a[1] + 1 for a, b in pairwise(pairs))


# -- which file comes first -----------------------------------------------------------------------


def test_a_skim_behind_another_file_is_found(tmp_path: Path) -> None:
    spec = {"data": plain(tmp_path / "data.parquet"), "tt": save(tmp_path / "tt.parquet")}
    assert about(spec)["tt"]["sumw"] == 4.0
    assert about(spec) == about(dict(reversed(spec.items())))
    found = windrow.data.open(str(tmp_path / "*.parquet"))
    assert [(i.dataset, Path(i.label).name) for i in found.inputs] == [
        ("data", "data.parquet"), ("tt", "tt.parquet"),
    ]  # fmt: skip
    assert found.datasets["tt"]["xs"] == 2.5


@given(kinds=st.lists(st.sampled_from(["plain", "tt", "dy"]), min_size=1, max_size=4))
@settings(max_examples=examples(15))
def test_the_order_of_files_changes_nothing(kinds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = []
        for number, kind in enumerate(kinds):
            path = Path(directory) / f"{number}.parquet"
            files.append(plain(path) if kind == "plain" else save(path, kind))
        expected = {"data" if kind == "plain" else kind for kind in kinds}
        for order in permutations(files):
            found = about(list(order))
            assert found.keys() == expected
            for name in expected - {"data"}:
                assert found[name]["sumw"] == 4.0 * kinds.count(name)


def test_of_very_many_files_one_of_each_kind_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def watched(path: str, form: str) -> Any:
        looked.append(str(Path(path).relative_to(tmp_path).with_suffix("")))
        return read_record(path, form)

    monkeypatch.setattr(skim_recall, "read_record", watched)
    for directory in ("one", "two"):
        (tmp_path / directory).mkdir()
        for name in "abc":
            plain(tmp_path / directory / f"{name}.parquet")
    save(tmp_path / "two" / "d.parquet")
    save(tmp_path / "two" / "e.parquet")
    spec = {
        "raw": [str(tmp_path / "*" / "[abc].parquet"), "root://far//a.root"],
        "tt": str(tmp_path / "two" / "[de].parquet"),
    }
    assert about(spec)["tt"]["sumw"] == 8.0
    assert looked == ["one/a", "one/b", "one/c", "two/a", "two/b", "two/c", "two/d", "two/e"]
    looked.clear()
    monkeypatch.setattr(skim_recall, "LOOKED_AT", 7)
    assert about(spec)["tt"]["sumw"] == 8.0
    assert looked == ["one/a", "two/a", "two/d", "two/e"]


# -- what does not add up -------------------------------------------------------------------------


def test_skims_and_other_files_are_two_datasets(tmp_path: Path) -> None:
    skim, other = save(tmp_path / "skim.parquet"), plain(tmp_path / "raw.parquet")
    for files in ([skim, other], [other, skim]):
        with pytest.raises(SpecError, match=r"'tt' .*skim\.parquet is a skim, .*raw\.parquet is not.*"
                           "'tt_skim': FILES, 'tt_other': FILES"):  # fmt: skip
            windrow.data.open({"tt": files})
    assert set(about({"tt_skim": skim, "tt_other": other})) == {"tt_skim", "tt_other"}
    with pytest.raises(SpecError, match=r"root://far//a\.root is remote"):
        windrow.data.open({"tt": [skim, "root://far//a.root"]})
    own = save(tmp_path / "own.parquet", "data")  # of files that were given no name
    with pytest.raises(SpecError, match=r"'data' .*own\.parquet is a skim"):
        windrow.data.open([own, other])


@pytest.mark.parametrize(
    ("what", "one", "other"), [("region", "SR", "CR"), ("region", "SR", None), ("cut", "c1", "c2"), ("cut", None, "c2")]
)
def test_other_selections_are_other_datasets(tmp_path: Path, what: str, one: str | None, other: str | None) -> None:
    a, b = (save(tmp_path / f"{name}.parquet", "tt", **{what: value}) for name, value in (("a", one), ("b", other)))
    expected = f"'tt' has skims of the {what}s {one!r} and {other!r}, .*a.parquet and .*b.parquet"
    with pytest.raises(SpecError, match=expected):
        windrow.data.open(str(tmp_path / "*.parquet"))
    found = about({"tt_a": a, "tt_b": b})
    assert [found[name]["skim"][what] for name in ("tt_a", "tt_b")] == [one, other]


def test_the_same_rows_twice(tmp_path: Path) -> None:
    """Two formats or two saves of one run; and what is no such thing."""
    a = save(tmp_path / "a.parquet", run="1f", target="a")
    for name, target in (("b.parquet", "b"), ("b.root", "a")):
        b = save(tmp_path / name, run="1f", target=target, selected=2)
        for spec in ([a, b], {"top": [b, a]}):
            with pytest.raises(SpecError, match=r"'\w+' has the same rows twice: .* open one"):
                windrow.data.open(spec)
        assert set(about({"one": a, "other": b})) == {"one", "other"}
    other_run = save(tmp_path / "c.parquet", run="2e", target="a")
    other_data = save(tmp_path / "d.parquet", "dy", run="1f", target="d")
    unknown = [save(tmp_path / f"{n}.parquet") for n in "ef"]
    assert about([a, other_run, *unknown])["tt"]["skim"]["rows"] == 40
    assert about({"mc": [a, other_data]})["mc"]["sumw"] == 8.0
    assert about([a, other_data]).keys() == {"tt", "dy"}


def test_another_format_of_another_run(tmp_path: Path) -> None:
    """The analysis was run again to have a ROOT file beside the Parquet file."""
    save(tmp_path / "tt.parquet", run="1")
    save(tmp_path / "tt.root", run="2")
    with pytest.raises(SpecError, match=r"the same rows twice: .*tt\.parquet and .*tt\.root"):
        windrow.data.open(str(tmp_path / "tt.[pr]*t"))
    with pytest.raises(SpecError, match=r"the same rows twice"):
        windrow.data.open([f"{tmp_path}/tt.root", f"{tmp_path}/tt.root:Events"])
    save(tmp_path / "tt.root", run="2", rows=11)
    assert about(str(tmp_path / "tt.[pr]*t"))["tt"]["skim"]["rows"] == 21
