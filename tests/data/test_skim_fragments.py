"""Fragments: any column becomes Arrow and comes back; lists of equal lengths share their borders."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest

from windrow.data.skim import fragments
from windrow.data.skim.fragments import read_fragment, read_shape, shape_of, write_fragment
from windrow.errors import UsageError


def read(fragment: fragments.Fragment) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for batch in read_fragment(fragment):
        for name, values in batch.to_pydict().items():
            out.setdefault(name, []).extend(values)
    return out


def test_records_become_columns(tmp_path: Path) -> None:
    columns = {
        "muons": ak.Array([[{"pt": 1.0, "p4": {"x": 2}}], []]),
        "met": ak.Array([{"pt": 1.0, "ids": [1, 2]}, {"pt": 2.0, "ids": []}]),
        "maybe": ak.Array([{"a": 1}, None]),
        "pair": ak.Array([(1, "a"), (2, "b")]),
    }
    fragment = write_fragment(tmp_path / "f", columns, 2)
    assert read(fragment) == {
        "muons_pt": [[1.0], []],
        "muons_p4_x": [[2], []],
        "met_pt": [1.0, 2.0],
        "met_ids": [[1, 2], []],
        "maybe_a": [1, None],
        "pair_0": [1, 2],
        "pair_1": ["a", "b"],
    }
    assert read_shape(fragment).lists == (("muons_pt", "muons_p4_x"), ("met_ids",))
    assert pickle.loads(pickle.dumps(fragment)) == fragment
    assert fragment.rows == 2


def test_any_layout_of_lists(tmp_path: Path) -> None:
    """Selected, masked, sorted and lazily read arrays are the same rows in other clothes."""
    lists = ak.Array([[1.0, 2.0], [], [3.0], [4.0, 5.0, 6.0]])
    chosen = lists[[3, 0, 1]]
    form, length, buffers = ak.to_buffers(lists)
    late = {key: (lambda b=buffer: b) for key, buffer in buffers.items()}
    virtual = ak.from_buffers(form, length, late)
    assert not virtual.layout.is_any_materialized
    columns = {
        "taken": chosen,
        "sliced": lists[1:],
        "filtered": lists[lists > 2][1:],
        "indexed": ak.Array(ak.contents.IndexedArray(ak.index.Index64(np.array([3, 0, 1])), lists.layout)),
        "virtual": virtual[1:],
        "big_endian": np.arange(3, dtype=">i2"),
        "strided": np.arange(6.0)[::2],
    }
    found = read(write_fragment(tmp_path / "f", columns, 3))
    assert found == {name: ak.to_list(column) for name, column in columns.items()}


def test_large_fragments_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "_BATCH_BYTES", 100)
    columns = {
        "x": np.arange(40.0),
        "l": ak.Array([[n] * (n % 4) for n in range(40)]),
        "s": ak.Array([str(n) for n in range(40)]),
    }
    fragment = write_fragment(tmp_path / "f", columns, 40)
    assert len(list(read_fragment(fragment))) > 5
    assert read(fragment) == {name: ak.to_list(column) for name, column in columns.items()}


def test_the_memory_of_rows_does_not_depend_on_cuts(tmp_path: Path) -> None:
    columns = {"x": np.arange(40.0), "l": ak.Array([[n] * (n % 4) for n in range(40)])}
    whole = write_fragment(tmp_path / "w", columns, 40)
    parts = [
        write_fragment(tmp_path / "p", {n: c[a:b] for n, c in columns.items()}, b - a)
        for a, b in ((0, 7), (7, 8), (8, 40))
    ]
    assert whole.memory == sum(part.memory for part in parts) == 40 * 8 + 8 * 60


def test_counters_are_those_that_count() -> None:
    lists = ak.Array([[1], [2, 3]])
    columns = {
        "Muon_pt": lists,
        "nMuon": np.array([1, 2], dtype="u4"),
        "NMuon": np.array([1, 1]),
        "nMuon_pt": np.array([1.0, 2.0]),
        "weight": lists + 1,
        "nweight": np.array([1, 2]),
        "other": lists[::-1],
    }
    shape = shape_of(columns, 2)
    assert shape.lists == (("Muon_pt", "weight"), ("other",))
    assert [set(names) for names in shape.counts] == [{"nMuon", "nweight"}, set()]


@pytest.mark.parametrize(
    "column", [ak.Array([1, "a"]), ak.Array([[1, "a"], []]), ak.Array([[None], []]), np.array([1j, 2j])]
)
def test_what_no_format_has_is_named(tmp_path: Path, column: Any) -> None:
    with pytest.raises(UsageError, match=r"column 'odd' cannot be saved: .*\"-odd\""):
        write_fragment(tmp_path / "f", {"odd": column}, 2)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    columns = {"met_pt": np.zeros(1), "met": ak.Array([{"pt": 1.0}])}
    with pytest.raises(UsageError, match="two columns would be saved as 'met_pt'"):
        write_fragment(tmp_path / "f", columns, 1)


def test_columns_of_other_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'y' has 2 rows where 3 are to be saved"):
        write_fragment(tmp_path / "f", {"x": np.zeros(3), "y": np.zeros(2)}, 3)


def test_a_disk_that_is_full_is_named() -> None:
    with pytest.raises(OSError, match=r"/dev/full: .*No space left on device"):
        write_fragment(Path("/dev/full"), {"x": np.arange(1_000_000)}, 1_000_000)
