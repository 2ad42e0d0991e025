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
from windrow.hep import lumi_ranges
from windrow.pipeline.results.ledger import Ledger

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
    pairs = np.array(sorted(found), dtype=np.int64).reshape(-1, 2)
    ranges = lumi_ranges(pairs[:, 0], pairs[:, 1])
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
    with pytest.raises(DataError, match=r"luminosity sections of .*cannot be read.*a\.root"):
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


# --- skims ------------------------------------------------------------------------------------------


def skimming(path: str, least: float = 0.9) -> wr.Pipeline:
    made = wr.Pipeline("skimming", identity=small.IDENTITY)

    @made.cut
    def few(x: Any) -> Any:
        return x > least

    made.save(path)
    return made


def counting() -> wr.Pipeline:
    made = wr.Pipeline("counting")

    @made.output
    def count(x: Any) -> int:
        return len(x)

    return made


def of_skim(tmp_path: Path, **changes: Any) -> wr.Result:
    """The result of a run on a skim whose record says what is given."""
    result = small.run(counting(), {"d": small.columns(4, 40)})
    result.datasets = {"d": {"skim": {"selected": 40, "lumis": {"7": [[1, 3]]}, **changes}}}
    return result


def test_a_skim_stands_for_all_sections_it_was_made_from(tmp_path: Path) -> None:
    data = small.columns(4, 300)
    first = small.run(skimming(str(tmp_path / "{dataset}.parquet")), {"d": data})
    again = small.run(counting(), str(tmp_path / "d.parquet"))
    selected = sections({name: values[data["x"] > 0.9] for name, values in data.items()})
    assert selected < sections(data)  # sections without a row of the skim
    assert spread(again.lumis) == sections(data)
    assert again.lumis == first.lumis
    assert again.group({"all": "d"}).lumis == first.lumis


def test_what_a_skim_says_is_used_with_other_datasets(tmp_path: Path) -> None:
    result = of_skim(tmp_path)
    assert result.lumis == {"7": [[1, 3]]}
    other = small.columns(5, 30)
    merged = wr.merge(result, small.run(counting(), {"e": other}))
    assert spread(merged.lumis) == {(7, 1), (7, 2), (7, 3)} | sections(other)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lumis": None}, "does not say which sections it was made from"),
        ({"selected": 41}, "only 40 of 41 rows were processed"),
        ({"selected": None}, "only 40 of None rows"),
    ],
)
def test_sections_that_cannot_be_known_are_not_guessed(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        _ = of_skim(tmp_path, **changes).lumis


def test_part_of_a_skim_has_no_sections(tmp_path: Path) -> None:
    small.run(skimming(str(tmp_path / "{dataset}.parquet")), {"d": small.columns(4, 300)})
    part = small.run(counting(), str(tmp_path / "d.parquet"), max_rows=5)
    with pytest.raises(DataError, match=r"only 5 of .* rows were processed"):
        _ = part.lumis


def test_simulated_skims_and_metadata_called_skim_do_not_matter(tmp_path: Path) -> None:
    result = of_skim(tmp_path, lumis=None)
    result.datasets["d"]["is_mc"] = True
    assert result.lumis == {}
    data = small.columns(4, 40)
    plain = small.run(counting(), wr.data.open({"d": data}, metadata={"skim": "v2"}))
    assert spread(plain.lumis) == sections(data)


@pytest.mark.slow
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
