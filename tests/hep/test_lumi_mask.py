"""Luminosity masks against a loop over all ranges, and against coffea where it is installed."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import MissingFileError, SpecError, UsageError

GOLDEN = {"273158": [[1, 1279]], "273302": [[1, 459]], "273402": [[100, 292], [1, 50]]}


def plain(ranges: dict[Any, Any], run: int, lumi: int) -> bool:
    items = [item for key, items in ranges.items() if int(key) == run for item in items]
    return any(first <= lumi <= last for first, last in items)


# --- the oracle -----------------------------------------------------------------------------------

EDGES = st.sampled_from([0, 1, 2**31, 2**32 - 2, 2**32 - 1])
NUMBERS = st.integers(0, 12) | EDGES
RANGE = st.tuples(NUMBERS, NUMBERS).map(lambda pair: sorted(pair))
RANGES = st.dictionaries(NUMBERS.map(str), st.lists(RANGE, max_size=4), max_size=5)
DTYPES = st.sampled_from([np.int64, np.uint64, np.uint32])


@given(ranges=RANGES, rows=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40), run=DTYPES, lumi=DTYPES)
def test_it_equals_the_loop(ranges: Any, rows: Any, run: Any, lumi: Any) -> None:
    runs = np.array([row[0] for row in rows], dtype=run)
    lumis = np.array([row[1] for row in rows], dtype=lumi)
    got = wr.hep.lumi_mask(ranges)(runs, lumis)
    assert got.dtype == bool
    assert got.tolist() == [plain(ranges, *row) for row in rows]


@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS), max_size=60))
def test_ranges_are_the_inverse(rows: Any) -> None:
    ranges = wr.hep.lumi_ranges([row[0] for row in rows], [row[1] for row in rows])
    seen = set(rows)
    around = {(r, n + d) for r, n in seen for d in (-1, 0, 1) if 0 <= n + d < 2**32}
    assert {pair for pair in around if plain(ranges, *pair)} == seen
    # As few ranges as can be: no two of a run touch.
    for items in ranges.values():
        assert all(one[1] + 1 < other[0] for one, other in pairwise(items))
    runs, lumis = (np.array(sorted(seen), dtype=np.int64).reshape(-1, 2)).T
    assert wr.hep.lumi_mask(ranges)(runs, lumis).all()
    assert json.loads(json.dumps(ranges)) == ranges


def test_rows_that_are_no_section_are_not_in_it() -> None:
    mask = wr.hep.lumi_mask({"1": [[0, 2**32 - 1]], "2": [[5, 5]]})
    runs = np.array([1, 1, 1, -1, 1 + 2**32, 2, 2])
    lumis = np.array([0, -1, 2**32, 5, 5, 5, 5 - 2**32])
    assert mask(runs, lumis).tolist() == [True, False, False, False, False, True, False]


def test_the_last_section_of_a_run_does_not_touch_the_next_run() -> None:
    ranges = wr.hep.lumi_ranges([1, 2], [2**32 - 1, 0])
    assert ranges == {"1": [[2**32 - 1, 2**32 - 1]], "2": [[0, 0]]}
    mask = wr.hep.lumi_mask(ranges)
    assert mask(np.array([1, 2, 2]), np.array([2**32 - 1, 0, 1])).tolist() == [True, True, False]


def test_awkward_columns() -> None:
    run, lumi = ak.Array([273158, 273158, 1]), ak.Array([1279, 1280, 1])
    assert wr.hep.lumi_mask(GOLDEN)(run, lumi).tolist() == [True, False, False]


COFFEA = Path(__file__).resolve().parents[2] / ".bench" / "envs" / "coffea" / "bin" / "python"


@pytest.mark.skipif(not COFFEA.is_file(), reason="coffea is not installed beside the benchmarks")
def test_it_equals_coffea(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    ranges = {str(run): [sorted(rng.integers(1, 300, 2).tolist()) for _ in range(4)] for run in rng.integers(1, 60, 30)}
    path = tmp_path / "golden.json"
    # coffea takes neither overlapping nor unsorted ranges.
    runs, lumis = np.divmod(np.arange(60 * 300), 300)
    mask = wr.hep.lumi_mask(ranges)(runs, lumis)
    path.write_text(json.dumps(wr.hep.lumi_ranges(runs[mask], lumis[mask])))
    np.savez(tmp_path / "rows.npz", runs=runs.astype(np.uint32), lumis=lumis.astype(np.uint32))
    code = (
        "import sys, numpy as np; from coffea.lumi_tools import LumiMask; "
        "rows = np.load(sys.argv[2]); mask = LumiMask(sys.argv[1])(rows['runs'], rows['lumis']); "
        "np.save(sys.argv[3], mask)"
    )
    files = [str(path), str(tmp_path / "rows.npz"), str(tmp_path / "mask.npy")]
    subprocess.run([COFFEA, "-c", code, *files], check=True, timeout=120, capture_output=True)
    theirs = np.load(tmp_path / "mask.npy")
    np.testing.assert_array_equal(wr.hep.lumi_mask(path)(runs, lumis), theirs)
    np.testing.assert_array_equal(mask, theirs)
    assert 0 < theirs.sum() < len(theirs)


# --- files and content ----------------------------------------------------------------------------


def test_files_of_one_content_are_equal(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(GOLDEN))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(json.dumps(GOLDEN, indent=3).encode()))
    reordered = {key: GOLDEN[key][::-1] for key in reversed(GOLDEN)}
    masks = [
        wr.hep.lumi_mask(str(tmp_path / "a.json")),
        wr.hep.lumi_mask(tmp_path / "b.json.gz"),
        wr.hep.lumi_mask(reordered),
        wr.hep.lumi_mask({int(key): items for key, items in GOLDEN.items()}),
        wr.hep.lumi_mask({np.int32(k): [tuple(map(np.int64, i)) for i in v] for k, v in GOLDEN.items()}),
        pickle.loads(pickle.dumps(wr.hep.lumi_mask(GOLDEN))),
    ]
    assert len({mask.fingerprint for mask in masks}) == 1
    assert len(set(masks)) == 1
    other = wr.hep.lumi_mask({**GOLDEN, "273302": [[1, 460]]})
    assert other.fingerprint != masks[0].fingerprint
    assert other != masks[0]
    assert "3 runs, 4 ranges" in repr(masks[0])


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no such file: .*golden.json"):
        wr.hep.lumi_mask(tmp_path / "golden.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not JSON"),
        ("[1, 2]", "holds a JSON list; expected"),
        ('{"run": [[1, 2]]}', "'run' is not a run number; expected"),
        ('{"-5": [[1, 2]]}', "'-5' is not a run number"),
        ('{"4294967296": [[1, 2]]}', "is not a run number"),
        ('{"5": 7}', "run 5: got 7; expected"),
        ('{"5": "12"}', "run 5: got '12'; expected"),
        ('{"5": [1, 2]}', r"run 5: 1 is not a range \[first, last\]"),
        ('{"5": ["12"]}', "run 5: '12' is not a range"),
        ('{"5": [[1, 2, 3]]}', r"\[1, 2, 3\] is not a range"),
        ('{"5": [[3, 2]]}', r"\[3, 2\] is not a range"),
        ('{"5": [[1.0, 2]]}', "is not a range"),
        ('{"5": [[-1, 2]]}', "is not a range"),
        ('{"5": [[true, 2]]}', "is not a range"),
    ],
)
def test_files_that_say_something_else(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "golden.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=message) as caught:
        wr.hep.lumi_mask(path)
    assert "golden.json" in str(caught.value)


@pytest.mark.parametrize(
    ("run", "lumi", "message"),
    [
        (np.array([1.5]), np.array([1]), "column for 'run' holds float64"),
        (np.array([1]), np.array(["1"]), "column for 'luminosityBlock' holds"),
        (np.array([1, 2]), np.array([1]), r"got shapes \(2,\) and \(1,\)"),
        (np.array([[1]]), np.array([[1]]), "one run and one luminosity section for each row"),
    ],
)
def test_columns_that_say_something_else(run: Any, lumi: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wr.hep.lumi_mask(GOLDEN)(run, lumi)
    with pytest.raises(UsageError, match="whole numbers from 0"):
        wr.hep.lumi_ranges([-1], [1])


# --- as a step ------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["luminosityBlock", "lumi"])
def test_as_a_cut(column: str) -> None:
    rng = np.random.default_rng(5)
    runs = rng.choice([273158, 273302, 273402, 7], 30_000).astype(np.uint32)
    lumis = rng.integers(1, 1500, 30_000).astype(np.uint32)
    rows = {"run": runs, column: lumis}
    analysis = wr.Pipeline("certified")
    reads = {"luminosityBlock": column}
    analysis.cut(wr.hep.lumi_mask(GOLDEN), name="golden", when="not is_mc", reads=reads)

    def sections(run: Any, lumi: Any) -> set[tuple[int, int]]:
        return set(zip(run.tolist(), lumi.tolist(), strict=True))

    analysis.output(sections, reads={"lumi": column})
    fileset = {
        "data": {"files": rows, "metadata": {"is_mc": False}},
        "mc": {"files": rows, "metadata": {"is_mc": True}},
    }
    options: dict[str, Any] = {"chunk": 7000, "engine": "threads", "workers": 2}
    result = analysis.run(fileset, progress=False, **options)
    every = set(zip(runs.tolist(), lumis.tolist(), strict=True))
    assert result["sections"]["mc"] == every
    assert result["sections"]["data"] == {pair for pair in every if plain(GOLDEN, *pair)}


def test_its_name_is_its_own() -> None:
    analysis = wr.Pipeline("certified")
    analysis.cut(wr.hep.lumi_mask(GOLDEN))

    @analysis.output
    def rows(run: Any) -> int:
        return len(run)

    data = {"run": np.array([273158, 1]), "luminosityBlock": np.array([1, 1])}
    result = analysis.run(data, progress=False)
    assert result["rows"] == 1
    assert [line.name for line in result.cutflow["all"].executed][-1] == "lumi_mask"
