"""An analysis over a link: the same answers as from the disk, in few requests, and honest numbers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import windrow as wr
from range_server import RangeServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT, UNITS = 4_000, 8
ROWS = UNIT * UNITS
ALIVE = {0, 3, 5}  #: units in which rows pass the first cut
FIELDS = ("pt", "eta", "phi", "mass", "iso", "dxy")
LATE = tuple(f"late{n}" for n in range(10))

OPTIONS = [
    pytest.param({"engine": "inline", "chunk": UNIT}, id="inline"),
    pytest.param({"engine": "threads", "workers": 2, "chunk": UNIT}, id="threads"),
    pytest.param({"engine": "inline", "chunk": 4 * UNIT}, id="large"),
]


def columns() -> dict[str, Any]:
    random = np.random.default_rng(11)
    counts = random.integers(0, 4, ROWS)
    unit = np.arange(ROWS) // UNIT
    muons = ak.zip({f: ak.unflatten(random.random(counts.sum()).astype("f4"), counts) for f in FIELDS})
    flat = {name: random.random(ROWS) for name in ("x", "y", *LATE, "never")}
    return {"good": np.isin(unit, list(ALIVE)).astype(np.int8), **flat, "Muon": muons}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("waves")
    data = columns()
    muons = data.pop("Muon")
    with uproot.recreate(path / "t.root") as file:
        fields = ", ".join(f"{name}: float32" for name in FIELDS)
        types: dict[str, Any] = {name: values.dtype for name, values in data.items()}
        tree = file.mktree("Events", {**types, "Muon": f"var * {{{fields}}}"})
        for start in range(0, ROWS, UNIT):
            part = slice(start, start + UNIT)
            tree.extend({**{n: v[part] for n, v in data.items()}, "Muon": muons[part]})
        lists = {f"Muon_{name}": muons[name] for name in FIELDS}
        ntuple = file.mkrntuple("N", {n: v[:UNIT] for n, v in (data | lists).items()})
        for start in range(UNIT, ROWS, UNIT):
            part = slice(start, start + UNIT)
            ntuple.extend({name: values[part] for name, values in (data | lists).items()})
    arrow = {n: ak.to_arrow(v, extensionarray=False) for n, v in lists.items()}
    pq.write_table(pa.table({**data, **arrow}), path / "p.parquet", row_group_size=UNIT)
    return path


@pytest.fixture
def web(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    # The files are small: without this their ends would be much of them.
    monkeypatch.setattr("windrow.data.remote.file.TAIL_BYTES", 1_000)
    monkeypatch.setattr("windrow.data.remote.file.HEAD_BYTES", 1_000)
    running = RangeServer(folder, latency_s=0.005)
    yield running
    running.close()


def analysis() -> Any:
    """Ten steps; most columns are needed in three of eight units only."""
    made = wr.Pipeline("waves")

    @made.cut
    def in_good(good):  # type: ignore[no-untyped-def]
        return good > 0

    @made.cut
    def x_cut(x):  # type: ignore[no-untyped-def]
        return x > 0.2

    @made.column
    def muons(Muon):  # type: ignore[no-untyped-def]
        return Muon[(Muon.pt > 0.3) & (Muon.eta < 0.9)]

    @made.cut
    def has_muon(muons):  # type: ignore[no-untyped-def]
        return ak.num(muons) >= 1

    @made.cut
    def y_cut(y):  # type: ignore[no-untyped-def]
        return y > 0.9

    for name in LATE[:5]:
        made.weight(lambda late: late, name=f"w_{name}", reads=[name])
    made.region("A", "in_good", "x_cut", "has_muon")
    made.region("B", "in_good", "x_cut", "y_cut")

    @made.output(regions="*")
    def total(weight):  # type: ignore[no-untyped-def]
        return float(np.sum(weight))

    @made.output(regions="*", reads={"values": "late[56789]"})
    def lates(values):  # type: ignore[no-untyped-def]
        return float(sum(np.sum(values[name]) for name in sorted(values)))

    @made.output(regions=["A"])
    def isolation(muons):  # type: ignore[no-untyped-def]
        return float(ak.sum(muons.iso * muons.phi))

    return made


def spec(place: str, kind: str) -> str:
    return {"ttree": f"{place}/t.root:Events", "rntuple": f"{place}/t.root:N"}.get(kind, f"{place}/p.parquet")


def outputs(result: Any) -> dict[Any, float]:
    found = {(name, region): result[name, region] for name in ("total", "lates") for region in "AB"}
    return {**found, ("isolation", "A"): result["isolation", "A"]}


def oracle() -> dict[Any, float]:
    data = columns()
    muons = data["Muon"]
    kept = muons[(muons.pt > 0.3) & (muons.eta < 0.9)]
    base = (data["good"] > 0) & (data["x"] > 0.2)
    weight = np.prod([data[name] for name in LATE[:5]], axis=0)
    found: dict[Any, float] = {}
    for region, rows in (("A", base & (ak.num(kept) >= 1)), ("B", base & (data["y"] > 0.9))):
        rows = np.asarray(rows)
        found["total", region] = float(np.sum(weight[rows]))
        found["lates", region] = float(sum(np.sum(data[name][rows]) for name in LATE[5:]))
    chosen = kept[np.asarray(base & (ak.num(kept) >= 1))]
    found["isolation", "A"] = float(ak.sum(ak.values_astype(chosen.iso * chosen.phi, "f8")))
    return found


@pytest.mark.parametrize("kind", ["ttree", "rntuple", "parquet"])
@pytest.mark.parametrize("options", OPTIONS)
def test_the_answers_are_those_of_the_local_file(
    web: RangeServer, folder: Path, kind: str, options: dict[str, Any]
) -> None:
    here = analysis().run(wr.data.open(spec(str(folder), kind), grid=UNIT), progress=False, **options)
    there = analysis().run(wr.data.open(spec(web.url, kind), grid=UNIT), progress=False, **options)
    assert outputs(there) == outputs(here)
    assert str(there.cutflow) == str(here.cutflow)
    expected = oracle()
    assert outputs(there) == {key: pytest.approx(value, rel=1e-5) for key, value in expected.items()}


@pytest.mark.parametrize("kind", ["ttree", "rntuple", "parquet"])
def test_few_requests_per_chunk(web: RangeServer, kind: str) -> None:
    counted: list[int] = []

    class Counted:
        """A source that counts the requests of its readers after they were opened."""

        def __init__(self, source: Any) -> None:
            self.inputs, self.datasets, self._source = source.inputs, source.datasets, source

        def open(self, index: int) -> Any:
            reader = self._source.open(index)
            reader.read(["x"], 0, 1)  # what is opened late
            opened, close = reader.requests, reader.close

            def closed() -> None:
                counted.append(reader.requests - opened)
                close()

            reader.close = closed
            return reader

    source = wr.data.open(spec(web.url, kind), grid=UNIT)
    result = analysis().run(Counted(source), progress=False, engine="inline", chunk=UNIT)
    assert outputs(result) == {k: pytest.approx(v, rel=1e-5) for k, v in oracle().items()}
    assert UNITS <= sum(counted) <= 2.5 * UNITS


def test_a_chunk_without_survivors_fetches_little_once_that_is_known(
    web: RangeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A link so narrow that every byte counts: late columns are worth a request of their own.
    monkeypatch.setattr("windrow.data.remote.file.Link.saw", lambda *arguments: None)
    monkeypatch.setattr("windrow.data.remote.file.ASSUMED_BYTES_PER_S", 1e5)
    monkeypatch.setattr("windrow.data.remote.file.ASSUMED_ROUND_TRIP_S", 0.05)
    source = wr.data.open(spec(web.url, "ttree"), grid=UNIT)
    result = analysis().run(source, progress=False, engine="inline", chunk=UNIT)
    assert outputs(result) == {k: pytest.approx(v, rel=1e-5) for k, v in oracle().items()}
    units = Counter(
        (column, start // UNIT) for _, column, first, last in result.reads for start in range(first, last, UNIT)
    )
    assert all(count == 1 for count in units.values())
    seen = {u for c, u in units if c == "good"}
    assert seen == set(range(UNITS))
    late = {u for c, u in units if c in LATE}
    assert late >= ALIVE
    # After the first units have taught it, dead units are left alone.
    assert not late & {6, 7}
    assert ("never", 0) not in units
    stored = uproot.open(folder / "t.root")["Events"]
    size = sum(stored[c].basket_compressed_bytes(u) for c, u in units if c != "nMuon")
    assert size <= result.bytes_read < 1.3 * size


def test_fields_nobody_knows_come_with_their_companions(web: RangeServer) -> None:
    made = wr.Pipeline("fields")

    @made.output(region=None)
    def total(Muon):  # type: ignore[no-untyped-def]
        fields = [ak.sum(ak.values_astype(Muon[name], "f8")) for name in FIELDS]
        return float(sum(fields))

    source = wr.data.open(spec(web.url, "ttree"), grid=UNIT)
    source.open(0).close()
    web.requests.clear()
    result = made.run(source, progress=False, engine="inline", chunk=UNIT)
    muons = columns()["Muon"]
    assert result["total"] == pytest.approx(sum(float(ak.sum(ak.values_astype(muons[name], "f8"))) for name in FIELDS))
    # The counter, a field with all others, and from then on everything at once.
    assert len(web.requests) <= 1 + UNITS + 1


def test_a_busy_server_is_asked_again_by_the_scheduler(web: RangeServer) -> None:
    source = wr.data.open(spec(web.url, "ttree"), grid=UNIT)
    source.open(0).close()
    web.answers = [206, 206, 503, 206, 0, 206, 206, 500]
    result = analysis().run(source, progress=False, engine="inline", chunk=UNIT)
    assert result.ledger.done == ROWS
    assert outputs(result) == {k: pytest.approx(v, rel=1e-5) for k, v in oracle().items()}


def test_a_file_that_is_cut_while_it_is_read(web: RangeServer, folder: Path, tmp_path: Path) -> None:
    other = RangeServer(tmp_path)
    whole = (folder / "t.root").read_bytes()
    (tmp_path / "t.root").write_bytes(whole)
    source = wr.data.open(f"{other.url}/t.root:Events", grid=UNIT)
    source.open(0).close()
    (tmp_path / "t.root").write_bytes(whole[:5_000])
    with pytest.raises(wr.errors.CorruptFileError, match="it was cut, or replaced"):
        analysis().run(source, progress=False, engine="inline", chunk=UNIT)
    other.close()


def test_what_was_learned_stays_with_the_analysis_and_is_told(web: RangeServer) -> None:
    made = analysis()
    source = spec(web.url, "ttree")
    first = made.run(source, engine="inline", chunk=UNIT, progress=False)
    second = made.run(source, engine="inline", chunk=UNIT, progress=False)
    assert outputs(first) == outputs(second)
    (said,) = [text for text in first.decisions if text.startswith("reading: 1 of 1 files")]
    (again,) = [text for text in second.decisions if text.startswith("reading: 1 of 1 files")]

    def requests(text: str) -> int:
        return int(text.rpartition(": ")[2].split()[0])

    assert 0 < requests(again) <= requests(said)
