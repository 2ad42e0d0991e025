"""The luminosity sections of a result are those of the rows it processed, and of recorded data only."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

import small_analysis as small
import windrow as wr
from windrow.errors import DataError
from windrow.pipeline.ledger import Ledger
from windrow.pipeline.lumis import compact

if TYPE_CHECKING:
    from pathlib import Path

pairs = st.sets(st.tuples(st.integers(1, 4), st.integers(1, 12)))


def spread(ranges: dict[str, list[list[int]]]) -> set[tuple[int, int]]:
    return {
        (int(run), section)
        for run, found in ranges.items()
        for first, last in found
        for section in range(first, last + 1)
    }


def sections(data: dict[str, Any], rows: slice = slice(None)) -> set[tuple[int, int]]:
    runs, lumis = data["run"][rows].tolist(), data["luminosityBlock"][rows].tolist()
    return set(zip(runs, lumis, strict=True))


@given(pairs)
def test_ranges_are_compact_and_complete(found: set[tuple[int, int]]) -> None:
    ranges = compact(found)
    assert spread(ranges) == found
    assert list(ranges) == [str(run) for run in sorted({run for run, _ in found})]
    for spans in ranges.values():
        flat = [edge for span in spans for edge in span]
        assert flat == sorted(flat)
        # Neighbours are one range.
        assert all(b[0] > a[1] + 1 for a, b in itertools.pairwise(spans))
    json.dumps(ranges)


def test_only_recorded_data_counts() -> None:
    result = small.run()
    assert spread(result.lumis) == sections(small.arrays()["data"])
    assert result.group({"top": ["tt", "st"], "recorded": "data"}).lumis == result.lumis


def test_where_nothing_is_said_everything_counts() -> None:
    data = {name: small.columns(n, 50) for n, name in enumerate(["a", "b"])}
    made = wr.Pipeline("plain")

    @made.output
    def count(x: Any) -> int:
        return len(x)

    result = small.run(made, wr.data.open(data))
    assert spread(result.lumis) == sections(data["a"]) | sections(data["b"])


def test_only_rows_that_were_processed_count(tmp_path: Path) -> None:
    data = small.columns(4, 300)
    file = small.write_root(tmp_path / "a.root", data)
    result = small.run(data=wr.data.open(file, metadata={"is_mc": False}), max_rows=70)
    assert spread(result.lumis) == sections(data, slice(70))


def test_rows_that_failed_do_not_count(tmp_path: Path) -> None:
    data = small.columns(4, 300)
    file = small.write_root(tmp_path / "a.root", data)
    result = small.run(data=wr.data.open(file, metadata={"is_mc": False}))
    (entry,) = result.ledger.entries
    result.ledger = Ledger(
        (
            replace(entry, stop=50),
            replace(entry, start=50, stop=120, state="failed"),
            replace(entry, start=120, stop=160),
            replace(entry, start=160, state="missing"),
        )
    )
    expected = sections(data, slice(50)) | sections(data, slice(120, 160))
    assert spread(result.lumis) == expected


def test_files_that_are_gone_say_so(tmp_path: Path) -> None:
    file = small.write_root(tmp_path / "a.root", small.columns(4, 30))
    result = small.run(data=wr.data.open(file, metadata={"is_mc": False}))
    (tmp_path / "a.root").unlink()
    with pytest.raises(DataError, match=r"luminosity sections of .*a\.root.*cannot be read"):
        _ = result.lumis
    result.source = None
    with pytest.raises(DataError, match="not kept"):
        _ = result.lumis


def test_files_without_the_columns_say_so() -> None:
    made = wr.Pipeline("plain")

    @made.output
    def count(x: Any) -> int:
        return len(x)

    result = small.run(made, {"x": np.arange(3.0), "runs": np.arange(3)})
    with pytest.raises(DataError, match="no column 'run'; did you mean 'runs'"):
        _ = result.lumis


@pytest.mark.samples
def test_a_real_file(samples: Path) -> None:
    made = wr.Pipeline("plain")

    @made.output
    def count(nMuon: Any) -> int:
        return len(nMuon)

    path = samples / "nano_dimuon.root"
    result = small.run(made, f"{path}:Events")
    with uproot.open(f"{path}:Events") as tree:
        found = tree.arrays(["run", "luminosityBlock"], library="np")
    assert spread(result.lumis) == sections(found)
    assert spread(result.lumis)
