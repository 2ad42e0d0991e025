"""Results of parts add up to the result of the whole; rows that would be counted twice are refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_analysis as small
import windrow as wr
from comparing import bits
from searching import examples
from windrow.errors import UsageError
from windrow.pipeline.results.ledger import Entry, Ledger
from windrow.pipeline.results.load import keep, load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILES = 6


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    place = tmp_path_factory.mktemp("files")
    sizes = [120, 1, 77, 300, 40, 64]
    return [small.write_root(place / f"f{n}.root", small.columns(n, rows)) for n, rows in enumerate(sizes)]


def fileset(files: list[str], numbers: Any) -> Any:
    """Even files are simulated, odd ones are data."""
    spec: dict[str, Any] = {}
    for number in numbers:
        name = "tt" if number % 2 == 0 else "data"
        spec.setdefault(name, {"files": {}, "metadata": small.METADATA[name]})
        path, _, tree = files[number].rpartition(":")
        spec[name]["files"][path] = tree
    return wr.data.open(spec)


@pytest.fixture(scope="module")
def parts(files: list[str]) -> list[wr.Result]:
    return [small.run(data=fileset(files, [number])) for number in range(FILES)]


@pytest.fixture(scope="module")
def whole(files: list[str]) -> wr.Result:
    return small.run(data=fileset(files, range(FILES)))


def check_close(one: Any, two: Any) -> None:
    """Integers and keys exactly, floats to rounding."""
    if hasattr(one, "axes"):
        assert one.axes == two.axes
        for field in ("values", "variances"):
            mine, theirs = (getattr(h, field)(flow=True) for h in (one, two))
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            check_close(one[key], two[key])
    elif isinstance(one, float):
        assert abs(one - two) <= 1e-12 * max(1.0, abs(one))
    else:
        assert one == two


def check_same(got: wr.Result, whole: wr.Result) -> None:
    assert got.outputs.keys() == whole.outputs.keys()
    for dataset, values in whole.outputs.items():
        assert got.outputs[dataset].keys() == values.keys()
        for key, value in values.items():
            check_close(value, got.outputs[dataset][key])
    for region, dataset in itertools.product(whole.cutflow.regions, whole.cutflow.datasets):
        mine, theirs = got.cutflow[region, dataset], whole.cutflow[region, dataset]
        assert mine.nevcutflow == theirs.nevcutflow
        np.testing.assert_allclose(mine.wgtevcutflow, theirs.wgtevcutflow, rtol=1e-12)
    by_file = sorted(whole.ledger.entries, key=lambda e: (e.dataset, e.file, e.start))
    assert list(got.ledger.entries) == by_file
    for name, step in whole.steps.items():
        assert (got.steps[name].rows_in, got.steps[name].rows_out) == (step.rows_in, step.rows_out)
    assert kept(got) == kept(whole)


def kept(result: wr.Result) -> Mapping[Any, Any]:
    return {
        (region, file.dataset, file.label): result.kept.rows(region, position).tolist()
        for position, file in enumerate(result.kept.files)
        for region in result.kept.regions
    }


@settings(max_examples=examples(25))
@given(st.permutations(range(FILES)), st.lists(st.integers(1, FILES - 1), max_size=3))
def test_parts_add_up_to_the_whole(
    parts: list[wr.Result], whole: wr.Result, order: list[int], borders: list[int]
) -> None:
    cuts = [0, *sorted(set(borders)), FILES]
    groups = [order[start:stop] for start, stop in itertools.pairwise(cuts)]
    merged = [wr.merge(*(parts[n] for n in group)) for group in groups]
    check_same(wr.merge(*merged), whole)


def test_integers_do_not_depend_on_the_order(parts: list[wr.Result]) -> None:
    one, two = wr.merge(*parts), wr.merge(*reversed(parts))
    for dataset in one.outputs:
        for region in ("SR", "CR"):
            key = ("count", region, "nominal")
            assert one.outputs[dataset][key] == two.outputs[dataset][key]
    assert one.ledger == two.ledger
    for region in one.cutflow:
        assert one.cutflow[region].nevcutflow == two.cutflow[region].nevcutflow


def test_parts_that_were_kept_add_up_too(parts: list[wr.Result], whole: wr.Result, tmp_path: Path) -> None:
    for number, part in enumerate(parts):
        keep(part, tmp_path / str(number))
    loaded = [load(tmp_path / str(number)) for number in range(FILES)]
    merged = wr.merge(*loaded)
    check_same(merged, whole)
    keep(merged, tmp_path / "merged")
    check_same(load(tmp_path / "merged"), whole)


def test_parts_are_not_changed_and_costs_add(parts: list[wr.Result]) -> None:
    before = [bits(part.outputs["tt" if n % 2 == 0 else "data"]) for n, part in enumerate(parts)]
    merged = wr.merge(*parts)
    after = [bits(part.outputs["tt" if n % 2 == 0 else "data"]) for n, part in enumerate(parts)]
    assert before == after
    assert merged.seconds == pytest.approx(sum(part.seconds for part in parts))
    assert merged.bytes_read == sum(part.bytes_read for part in parts)
    assert merged.steps["some"].calls == sum(part.steps["some"].calls for part in parts)
    json.loads(merged.to_json())


def test_orders_and_twins_of_all_parts_are_told(parts: list[wr.Result]) -> None:
    told = [
        replace(part, ordering={f"d{n}": n}, steps={name: replace(s, same_as="x") for name, s in part.steps.items()})
        for n, part in enumerate(parts)
    ]
    merged = wr.merge(*told)
    assert merged.ordering == {f"d{n}": n for n in range(len(parts))}
    assert {step.same_as for step in merged.steps.values()} == {"x"}


def test_the_files_of_all_parts_can_be_opened(parts: list[wr.Result]) -> None:
    merged = wr.merge(*parts)
    for position, file in enumerate(merged.kept.files):
        reader = merged.source.open(file.index)
        assert reader.info.identity == file.identity
        assert merged.source.inputs[file.index].label == file.label
        reader.close()
        assert position == file.index
    with pytest.raises(IndexError):
        merged.source.open(FILES)


def test_one_result_is_itself_and_none_is_refused(parts: list[wr.Result]) -> None:
    assert wr.merge(parts[0]).outputs == parts[0].outputs
    with pytest.raises(UsageError, match="got none"):
        wr.merge()
    with pytest.raises(UsageError, match="takes results, got dict"):
        wr.merge(parts[0], {})  # type: ignore[arg-type]


# --- rows twice -----------------------------------------------------------------------------------


def test_the_same_rows_twice_are_refused(parts: list[wr.Result], files: list[str]) -> None:
    with pytest.raises(UsageError, match=r"rows 0-120 of .*f0\.root \(dataset 'tt'\).*1 and 3"):
        wr.merge(parts[0], parts[1], parts[0])


def test_a_copy_of_a_file_is_the_same_file(parts: list[wr.Result], files: list[str], tmp_path: Path) -> None:
    import shutil

    shutil.copy(files[0].rpartition(":")[0], tmp_path / "copy.root")
    spec = {"tt": {"files": {str(tmp_path / "copy.root"): "Events"}, "metadata": small.METADATA["tt"]}}
    with pytest.raises(UsageError, match="counted twice"):
        wr.merge(parts[0], small.run(data=wr.data.open(spec)))


def test_another_way_to_write_the_path_is_the_same_file(
    parts: list[wr.Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pathlib import Path

    label = parts[0].ledger.entries[0].file
    monkeypatch.chdir(Path(label).parent)
    (entry,) = parts[0].ledger.entries
    other = replace(parts[0], ledger=Ledger((replace(entry, file=Path(label).name),)), kept=None)
    with pytest.raises(UsageError, match="counted twice"):
        wr.merge(replace(parts[0], kept=None), other)


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)).map(lambda t: (t[0], t[0] + t[1])), max_size=4)


def disjoint(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for span in sorted(spans):
        if not kept or kept[-1][1] <= span[0]:
            kept.append(span)
    return kept


@given(ranges, ranges)
def test_overlapping_ranges_are_refused_and_others_are_not(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    results = [empty(Ledger(tuple(Entry("f", "d", *span, "done") for span in disjoint(spans)))) for spans in (one, two)]
    rows = [{n for span in disjoint(spans) for n in range(*span)} for spans in (one, two)]
    if rows[0] & rows[1]:
        with pytest.raises(UsageError, match="counted twice"):
            wr.merge(*results)
    else:
        assert wr.merge(*results).ledger.done == len(rows[0] | rows[1])


def empty(ledger: Ledger) -> wr.Result:
    from windrow.pipeline.cutflow.table import Cutflow

    return wr.Result(
        name="e", outputs={}, output_names=(), cutflow=Cutflow({}), ledger=ledger, steps={},
        order=(), decisions=(), notes=(), guards=(), reads=[], bytes_read=0, seconds=0.0,
        engine="inline", workers=1, seed=0,
    )  # fmt: skip


def test_the_same_file_in_two_datasets_is_not_twice() -> None:
    one, two = (empty(Ledger((Entry("f", d, 0, 5, "done"),))) for d in ("a", "b"))
    assert wr.merge(one, two).ledger.done == 10


def test_arrays_of_one_name_are_refused_with_a_hint() -> None:
    one, two = (empty(Ledger((Entry("data", "data", 0, 5, "done"),))) for _ in range(2))
    with pytest.raises(UsageError, match="give other arrays another one"):
        wr.merge(one, two)


# --- rows nobody did ------------------------------------------------------------------------------


@given(st.data())
def test_every_row_is_in_the_ledger_once(data: st.DataObject) -> None:
    """Rows by rows: done where one result did them, else not done, and never listed twice."""
    rows = 12
    results, states = [], [set[int](), set[int]()]
    taken: set[int] = set()
    for _ in range(data.draw(st.integers(1, 3))):
        entries = []
        for row in range(rows):
            state = data.draw(st.sampled_from(["done", "failed", "missing", "absent"]))
            if state == "done" and row in taken:
                state = "failed"
            if state == "done":
                taken.add(row)
                states[0].add(row)
            if state != "absent":
                states[1].add(row)
                entries.append(Entry("f", "d", row, row + 1, state))
        results.append(empty(Ledger(tuple(entries))))
    ledger = wr.merge(*results).ledger
    listed = [n for e in ledger.entries for n in range(e.start, e.stop or 0)]
    assert sorted(listed) == sorted(states[1])
    assert {n for e in ledger.entries if e.state == "done" for n in range(e.start, e.stop or 0)} == states[0]


def test_a_file_another_result_opened_is_not_unopened() -> None:
    never = Entry("f", "d", 0, None, "missing", "never opened")
    done = Entry("f", "d", 0, 5, "done")
    assert wr.merge(empty(Ledger((never,))), empty(Ledger((done,)))).ledger.entries == (done,)
    twice = wr.merge(empty(Ledger((never,))), empty(Ledger((never,))))
    assert twice.ledger.entries == (never,)
    assert not twice.complete


# --- other scales ---------------------------------------------------------------------------------


def test_a_scaled_and_an_unscaled_result_do_not_add_up(parts: list[wr.Result]) -> None:
    words = r"'tt' was scaled by 2 in result number 1 and by 1 in number 2.*then scale the merged one"
    with pytest.raises(UsageError, match=words):
        wr.merge(parts[0].scale(2.0), parts[2])
    with pytest.raises(UsageError, match=r"by 1 in result number 1 and by 0\.5 in number 3"):
        wr.merge(parts[0], parts[2], parts[4].scale({"tt": 0.5}))
    with pytest.raises(UsageError, match="by 2 in result number 1 and by 4 in number 2"):
        wr.merge(parts[0].scale(2.0), parts[2].scale(2.0).scale(2.0))


def test_the_scale_is_kept_on_disk_and_in_groups(parts: list[wr.Result], tmp_path: Path) -> None:
    keep(parts[0].scale(3.0), tmp_path / "run")
    with pytest.raises(UsageError, match="by 3 in result number 1"):
        wr.merge(load(tmp_path / "run"), parts[2])
    one, two = (part.group({"top": "tt"}) for part in (parts[0].scale(3.0), parts[2]))
    with pytest.raises(UsageError, match="'tt' was scaled by 3"):
        wr.merge(one, two)
    # A group that is scaled, and a group of what was scaled, are the same.
    same = wr.merge(one, two.scale(3.0))
    whole = wr.merge(parts[0], parts[2]).scale(3.0)
    np.testing.assert_allclose(same["spectrum", "SR"].values(), whole["spectrum", "SR"].values(), rtol=1e-12)


def test_equal_scales_and_other_datasets_add_up(parts: list[wr.Result]) -> None:
    assert parts[0].scale(2.0).scaled == {"tt": {"tt": 2.0}}
    simulated = wr.merge(parts[0].scale(2.0), parts[2].scale(2.0))
    both = wr.merge(simulated, parts[1])
    assert both.scaled == {"tt": {"tt": 2.0}}
    expected = parts[1]["spectrum", "SR"].values()
    np.testing.assert_array_equal(both["spectrum", "SR", "data"].values(), expected)


def test_what_all_rows_weigh_adds_up_where_it_is_known(files: list[str]) -> None:
    one, two, whole = (small.run(data=fileset(files, numbers), nminus1=True) for numbers in ([0], [2], [0, 2]))
    merged = wr.merge(one, two)
    assert merged.initial["tt"].rows == whole.initial["tt"].rows == 197
    assert merged.initial["tt"].sumw == pytest.approx(whole.initial["tt"].sumw, rel=1e-12)
    assert merged.scale(2.0).initial["tt"].sumw == 2 * merged.initial["tt"].sumw
    assert merged.group({"top": "tt"}).initial["top"] == merged.initial["tt"]
    assert wr.merge(one, replace(two, initial={})).initial == {}


# --- other analyses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 7}, "different seeds, 0 and 7"),
        ({"name": "other"}, "different names, 'small' and 'other'"),
        ({"identity": ("event",)}, "different identity columns"),
        ({"output_names": ("spectrum",)}, "different outputs, spectrum, count, sums and spectrum"),
        ({"datasets": {"tt": {"xsec": 3.0}}}, "different metadata of dataset 'tt'"),
    ],
)
def test_other_analyses_are_refused(parts: list[wr.Result], change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wr.merge(parts[0], replace(parts[2], **change))


def test_other_regions_and_cuts_are_refused(parts: list[wr.Result], files: list[str]) -> None:
    more = small.analysis()
    more.region("VR", "many")
    with pytest.raises(UsageError, match="different regions, SR, CR and SR, CR, VR"):
        wr.merge(parts[0], small.run(more, fileset(files, [2])))
    other = small.analysis()
    with pytest.warns(UserWarning, match="defined again"):
        other.region("CR", "!some", "many")
    with pytest.raises(UsageError, match="different cuts of region 'CR', some, !many and !some, many"):
        wr.merge(parts[0], small.run(other, fileset(files, [2])))
