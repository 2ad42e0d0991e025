"""What is never needed is never read: every read is listed, and counted in bytes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import windrow as wr

if TYPE_CHECKING:
    from pathlib import Path

UNIT = 2000
UNITS = 7
ROWS = UNIT * UNITS

ENGINES = [
    pytest.param({"engine": "inline", "chunk": UNIT}, id="inline-unit"),
    pytest.param({"engine": "inline", "chunk": ROWS}, id="inline-all"),
    pytest.param({"engine": "inline"}, id="inline-auto"),
    pytest.param({"engine": "threads", "workers": 2, "chunk": UNIT}, id="threads-unit"),
    pytest.param({"engine": "threads", "workers": 2}, id="threads-auto"),
]


def columns() -> dict[str, Any]:
    """Rows that know their unit; every number is incompressible, so that bytes mean something."""
    random = np.random.default_rng(3)
    counts = random.integers(0, 4, ROWS)

    def jagged() -> Any:
        return ak.unflatten(random.random(counts.sum()).astype(np.float32), counts)

    return {
        "unit": (np.arange(ROWS) // UNIT).astype(np.int32),
        "y": random.random(ROWS),
        "z": random.random(ROWS),
        "w": random.random(ROWS),
        "never": random.random(ROWS),
        "Muon": ak.zip({f: jagged() for f in ("pt", "eta", "phi", "mass", "iso", "dxy")}),
    }


@pytest.fixture(scope="module")
def root_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("bytes") / "units.root"
    data = columns()
    with uproot.recreate(path) as file:
        fields = ", ".join(f"{name}: float32" for name in data["Muon"].fields)
        types: dict[str, Any] = {name: np.dtype(values.dtype) for name, values in data.items() if name != "Muon"}
        tree = file.mktree("Events", {**types, "Muon": f"var * {{{fields}}}"})
        for start in range(0, ROWS, UNIT):
            tree.extend({name: values[start : start + UNIT] for name, values in data.items()})
    return path


@pytest.fixture(scope="module")
def parquet_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("bytes") / "units.parquet"
    data = {name: values for name, values in columns().items() if name != "Muon"}
    pq.write_table(pa.table(data), path, row_group_size=UNIT, compression="zstd")
    return path


@dataclass
class Reads:
    """Which units each column was read in."""

    result: Any

    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        found = defaultdict(list)
        for _file, column, start, stop in self.result.reads:
            if stop > start:
                found[column].append((start, stop))
        return found

    def units(self, column: str) -> set[int]:
        rows = [row for start, stop in self.ranges()[column] for row in (start, stop - 1)]
        spans = self.ranges()[column]
        assert all(0 <= row < ROWS for row in rows)
        return {u for start, stop in spans for u in range(start // UNIT, (stop - 1) // UNIT + 1)}

    def twice(self) -> set[str]:
        """Columns of which some row was read more than once outside the probe unit."""
        found = set()
        for column, spans in self.ranges().items():
            count = np.zeros(ROWS, int)
            for start, stop in spans:
                count[start:stop] += 1
            if np.any(count[UNIT:] > 1):
                found.add(column)
        return found


def two_regions() -> Any:
    """A lives in units 2 and 5, B in 3 and 5; the first unit is the probe's."""
    analysis = wr.Pipeline("late")

    @analysis.cut
    def in_a(unit):  # type: ignore[no-untyped-def]
        return (unit == 2) | (unit == 5)

    @analysis.cut
    def in_b(unit):  # type: ignore[no-untyped-def]
        return (unit == 3) | (unit == 5)

    @analysis.weight
    def late_weight(w):  # type: ignore[no-untyped-def]
        return w

    @analysis.cut
    def y_cut(y):  # type: ignore[no-untyped-def]
        return y > 0.5

    analysis.region("A", "in_a", "y_cut")
    analysis.region("B", "in_b")

    @analysis.output(regions="*")
    def total(weight):  # type: ignore[no-untyped-def]
        return float(np.sum(weight))

    @analysis.output(regions=["B"])
    def zs(z):  # type: ignore[no-untyped-def]
        return float(np.sum(z))

    return analysis


def source_of(path: Path) -> Any:
    spec = f"{path}:Events" if path.suffix == ".root" else str(path)
    return wr.data.open(spec, grid=UNIT)


PROBE = {0, 1}  # the first rows of two workers are shown to all steps


@pytest.mark.parametrize("options", ENGINES)
@pytest.mark.parametrize("kind", ["root_file", "parquet_file"])
def test_a_dead_unit_reads_no_later_column(kind: str, options: dict[str, Any], request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(kind)
    result = two_regions().run(source_of(path), progress=False, **options)
    data = columns()
    alive = np.isin(data["unit"], [3, 5])
    by_unit = [float(np.sum(data["z"][alive & (data["unit"] == u)])) for u in (3, 5)]
    assert result["zs", "B"] == by_unit[0] + by_unit[1]
    reads = Reads(result)
    assert reads.units("unit") == set(range(UNITS))
    # Both regions are dead in units 1, 4 and 6; y is for A alone, z for B alone.
    assert reads.units("w") - PROBE == {2, 3, 5}
    assert reads.units("y") - PROBE == {2, 5}
    assert reads.units("z") - PROBE == {3, 5}
    assert reads.units("never") == set()
    assert reads.twice() == set()


@pytest.mark.parametrize("options", ENGINES)
def test_no_survivor_at_all(root_file: Path, options: dict[str, Any]) -> None:
    analysis = wr.Pipeline("nothing")

    @analysis.cut
    def nobody(unit):  # type: ignore[no-untyped-def]
        return unit < 0

    @analysis.column
    def twice(y):  # type: ignore[no-untyped-def]
        return y * 2

    @analysis.output
    def total(twice, weight):  # type: ignore[no-untyped-def]
        return float(np.sum(twice * weight))

    result = analysis.run(source_of(root_file), progress=False, **options)
    assert result["total"] == 0.0
    assert set(Reads(result).units("y")) <= PROBE


@pytest.mark.parametrize("options", ENGINES)
def test_two_fields_of_a_collection(root_file: Path, options: dict[str, Any]) -> None:
    analysis = wr.Pipeline("fields")

    @analysis.column
    def good(Muon):  # type: ignore[no-untyped-def]
        return Muon[(Muon.pt > 0.3) & (Muon.eta < 0.9)]

    @analysis.cut
    def any_good(good):  # type: ignore[no-untyped-def]
        return ak.num(good) >= 1

    @analysis.output
    def total(good):  # type: ignore[no-untyped-def]
        return float(ak.sum(good.pt))

    result = analysis.run(source_of(root_file), progress=False, **options)
    muons = columns()["Muon"]
    kept = muons[(muons.pt > 0.3) & (muons.eta < 0.9)]
    assert result["total"] == pytest.approx(float(ak.sum(ak.values_astype(kept.pt, np.float64))))
    reads = Reads(result)
    later = {column for column in reads.ranges() if reads.units(column) - PROBE}
    assert {"Muon_pt", "Muon_eta"} <= later <= {"Muon_pt", "Muon_eta", "nMuon"}
    assert reads.units("Muon_pt") == set(range(UNITS))
    assert reads.twice() == set()


def test_a_field_touched_late_is_read_where_rows_survive(root_file: Path) -> None:
    analysis = wr.Pipeline("late fields")

    @analysis.column
    def muons(Muon):  # type: ignore[no-untyped-def]
        return Muon[Muon.pt > 0.3]

    @analysis.cut
    def chosen(unit):  # type: ignore[no-untyped-def]
        return unit == 4

    @analysis.output
    def total(muons):  # type: ignore[no-untyped-def]
        return float(ak.sum(muons.iso))

    result = analysis.run(source_of(root_file), progress=False, engine="inline", chunk=UNIT)
    data = columns()
    rows = data["Muon"][data["unit"] == 4]
    assert result["total"] == float(ak.sum(rows[rows.pt > 0.3].iso))
    reads = Reads(result)
    assert reads.units("Muon_iso") - PROBE == {4}
    assert not any(reads.units(f"Muon_{f}") - PROBE for f in ("eta", "phi", "mass", "dxy"))


def test_all_rows_outputs_read_their_own_columns_only(root_file: Path) -> None:
    analysis = two_regions()

    @analysis.output(region=None)
    def everything(z):  # type: ignore[no-untyped-def]
        return float(np.sum(z))

    result = analysis.run(source_of(root_file), progress=False, engine="inline", chunk=UNIT)
    assert result["everything"] == pytest.approx(float(np.sum(columns()["z"])), rel=1e-12)
    reads = Reads(result)
    assert reads.units("z") == set(range(UNITS))
    assert reads.units("y") - PROBE == {2, 5}
    assert reads.units("w") - PROBE == {2, 3, 5}


def stored(path: Path, wanted: dict[str, set[int]]) -> int:
    """The compressed bytes of some units of some branches."""
    tree = uproot.open(path)["Events"]
    return sum(tree[name].basket_compressed_bytes(unit) for name, units in wanted.items() for unit in units)


@pytest.mark.parametrize("options", ENGINES)
def test_bytes_are_those_of_the_baskets(root_file: Path, options: dict[str, Any]) -> None:
    result = two_regions().run(source_of(root_file), progress=False, **options)
    reads = Reads(result)
    expected = stored(root_file, {name: reads.units(name) for name in reads.ranges()})
    # Keys of baskets, and nothing as large as one more column of one unit.
    assert expected <= result.bytes_read < expected + stored(root_file, {"never": {1}})


def test_own_clusters_are_units_too(tmp_path: Path) -> None:
    """Without an injected grid the file's own clusters decide."""
    path, rows = tmp_path / "clusters.root", 40_000
    unit = np.repeat(np.arange(4, dtype=np.int32), rows)
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"unit": np.int32, "y": np.float32, "w": np.float32})
        for start in range(0, len(unit), rows):
            part = np.arange(start, start + rows, dtype=np.float32)
            tree.extend({"unit": unit[start : start + rows], "y": part, "w": part})
    analysis = wr.Pipeline("clusters")

    @analysis.cut
    def second(unit):  # type: ignore[no-untyped-def]
        return unit == 2

    @analysis.output
    def total(y):  # type: ignore[no-untyped-def]
        return float(np.sum(y, dtype=np.float64))

    result = analysis.run(f"{path}:Events", progress=False, engine="threads", workers=2)
    assert result["total"] == float(np.sum(np.arange(2 * rows, 3 * rows, dtype=np.float64)))
    outside = [r for r in result.reads if r[1] == "y" and not 2 * rows <= r[2] <= r[3] <= 3 * rows]
    assert all(stop <= rows for _, _, _, stop in outside), "only the probe unit may be read besides"
