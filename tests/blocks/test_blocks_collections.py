"""Collections are the plain records, read field by field when touched and only where rows are alive."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import vector
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.blocks.collections import collection, field_name
from windrow.blocks.columns import ColumnStore
from windrow.blocks.program import length_columns
from windrow.blocks.selection import Selection, everything
from windrow.data.base import ColumnInfo
from windrow.errors import CorruptFileError

if TYPE_CHECKING:
    from windrow.blocks.columns import Ranges
    from windrow.data.base import Reader

FIELDS = ("pt", "eta", "phi", "mass", "charge")
MEMBERS = tuple(f"Muon_{field}" for field in FIELDS)


class Records:
    """A chunk with a collection of muons, and the plain arrays to compare with."""

    def __init__(self, counts: list[int], sizes: list[int], *, counter: bool) -> None:
        rng = np.random.default_rng(7)
        total = sum(counts)
        self.plain: dict[str, Any] = {name: ak.unflatten(rng.uniform(1, 9, total), counts) for name in MEMBERS[:-1]}
        self.plain["Muon_charge"] = ak.unflatten(np.arange(total) % 2 * 2 - 1, counts)
        self.plain["nMuon"] = np.array(counts, dtype=np.uint32)
        self.reader: Reader = wr.data.open(self.plain).open(0)
        self.infos = {
            name: replace(info, counter="nMuon" if counter and name in MEMBERS else None)
            for name, info in self.reader.info.columns.items()
        }
        borders = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        self.store = ColumnStore(self.reader, 0, len(counts), borders)
        self.alive = everything(len(counts))
        self.touched: list[str] = []

    def touch(self, column: str) -> Ranges:
        self.touched.append(column)
        return self.store.ranges(self.alive)

    def records(self, selection: Selection) -> Any:
        self.alive = selection
        return collection(self.store, "Muon", MEMBERS, self.infos, selection, self.touch)

    def rows_read(self, column: str) -> list[int]:
        return [r for name, a, b in self.reader.reads if name == column for r in range(a, b)]


@st.composite
def muons(draw: st.DrawFn) -> Records:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    rows = sum(sizes)
    counts = draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    return Records(counts, sizes, counter=draw(st.booleans()))


def some(draw: Any, within: Selection) -> Selection:
    rows = within.positions().tolist()
    bits = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    if all(bits) and within.index is None:
        return within
    index = [row for row, bit in zip(rows, bits, strict=True) if bit]
    return Selection(within.length, np.array(index or rows[:1], dtype=np.int64))


@given(muons(), st.data())
def test_records_equal_the_plain_arrays_for_any_selection(made: Records, data: st.DataObject) -> None:
    selection = some(data.draw, everything(made.store.length))
    records = made.records(selection)
    assert len(records) == selection.count
    for field, member in zip(FIELDS, MEMBERS, strict=True):
        plain = made.plain[member][selection.positions()]
        assert ak.to_list(records[field]) == ak.to_list(plain)
        assert ak.type(records[field]).content == ak.type(plain).content


@given(muons(), st.data())
def test_only_touched_fields_of_live_units_are_read(made: Records, data: st.DataObject) -> None:
    selection = some(data.draw, everything(made.store.length))
    records = made.records(selection)
    (lengths,) = length_columns(MEMBERS, made.infos)
    assert {name for name, _, _ in made.reader.reads} == {lengths}
    assert ak.num(records).tolist() == made.plain["nMuon"][selection.positions()].tolist()
    assert made.touched == []
    ak.to_list(records.phi)
    assert made.touched == ["Muon_phi"]
    assert {name for name, _, _ in made.reader.reads} == {lengths, "Muon_phi"}
    ranges = made.store.ranges(selection)
    assert made.rows_read("Muon_phi") == [r for a, b in ranges for r in range(a, b)]


@given(muons(), st.data())
def test_units_that_died_since_are_not_read_and_live_rows_are_right(made: Records, data: st.DataObject) -> None:
    selection = some(data.draw, everything(made.store.length))
    records = made.records(selection)
    made.alive = some(data.draw, selection)
    lived = made.alive
    charge = records.charge[np.isin(selection.positions(), lived.positions())]
    assert ak.to_list(charge) == ak.to_list(made.plain["Muon_charge"][lived.positions()])
    ranges = made.store.ranges(lived)
    assert set(made.rows_read("Muon_charge")) == {r for a, b in ranges for r in range(a, b)}


def test_a_field_read_before_gives_the_lengths_without_reading_the_counter() -> None:
    made = Records([2, 0, 1], [3], counter=True)
    made.store.load(["Muon_pt"], everything(3))
    assert ak.num(made.records(everything(3))).tolist() == [2, 0, 1]
    assert made.rows_read("nMuon") == []


def test_without_a_counter_the_smallest_field_tells_the_lengths() -> None:
    def info(name: str, kind: Any, size: int, counter: str | None = None) -> ColumnInfo:
        return ColumnInfo(name=name, kind=kind, dtype=np.dtype("f4"), counter=counter, stored_bytes=size)

    columns = {c.name: c for c in (info("a_x", "jagged", 9), info("a_y", "jagged", 4))}
    assert length_columns(("a_x", "a_y"), columns) == ("a_y",)
    columns["a_x"] = info("a_x", "jagged", 9, "na")
    assert length_columns(("a_x", "a_y"), columns) == ("a_y",)  # the file lacks its counter
    columns["na"] = info("na", "flat", 1)
    assert length_columns(("a_x", "a_y"), columns) == ("na",)
    assert length_columns(("na",), columns) == ()


def test_a_flat_collection_has_one_record_per_row() -> None:
    plain = {"MET_pt": np.arange(6.0), "MET_phi": np.arange(6.0) / 7}
    reader = wr.data.open(plain).open(0)
    store = ColumnStore(reader, 0, 6, np.array([0, 2, 4, 6]))
    selection = Selection(6, np.array([1, 4, 5]))
    met = collection(
        store, "MET", ("MET_pt", "MET_phi"), reader.info.columns, selection,
        lambda _: store.ranges(selection),
    )  # fmt: skip
    assert reader.reads == []
    assert met.phi.tolist() == plain["MET_phi"][[1, 4, 5]].tolist()
    assert met.px.tolist() == pytest.approx(plain["MET_pt"][[1, 4, 5]] * np.cos(met.phi))
    assert {name for name, _, _ in reader.reads} == {"MET_phi", "MET_pt"}


def test_records_add_up_as_vectors() -> None:
    made = Records([2, 0, 3, 2], [2, 2], counter=True)
    pairs = made.records(Selection(4, np.array([0, 2, 3])))
    mass = (pairs[:, 0] + pairs[:, 1]).mass
    for row, value in zip((0, 2, 3), mass, strict=True):
        one, two = (vector.obj(**{f: float(made.plain[f"Muon_{f}"][row, k]) for f in FIELDS[:4]}) for k in (0, 1))
        assert value == pytest.approx((one + two).mass)


def test_a_field_that_is_there_is_the_files_own() -> None:
    made = Records([2, 1], [2], counter=True)
    records = made.records(everything(2))
    assert ak.to_list(records.mass) == ak.to_list(made.plain["Muon_mass"])
    assert made.touched == ["Muon_mass"]


def test_vector_behaviour_is_not_registered_for_the_whole_program() -> None:
    # In a process of its own: other tests do register vector for theirs.
    code = (
        "import awkward as ak, numpy as np\n"
        "import windrow as wr\n"
        "analysis = wr.Pipeline('vectors')\n"
        "@analysis.output\n"
        "def masses(Muon):\n"
        "    return float(np.sum((Muon[:, 0] + Muon[:, 1]).mass))\n"
        "one = ak.Array([[1.0, 2.0]])\n"
        "data = {f'Muon_{field}': one for field in ('pt', 'eta', 'phi', 'mass')}\n"
        "assert analysis.run(data, progress=False)['masses'] > 0\n"
        "assert 'Momentum4D' not in ak.behavior, 'registered for the whole program'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_field_that_disagrees_with_its_counter_is_the_files_fault() -> None:
    made = Records([2, 1], [2], counter=True)
    made.reader = wr.data.open({**made.plain, "nMuon": np.array([1, 1], dtype=np.uint32)}).open(0)
    made.store = ColumnStore(made.reader, 0, 2, np.array([0, 2]))
    with pytest.raises(CorruptFileError, match=r"'Muon_pt' has 3 objects .* counter .* says 2"):
        ak.to_list(made.records(everything(2)).pt)


def test_field_names_leave_out_prefix_and_separator() -> None:
    assert field_name("Muon_pt", "Muon") == "pt"
    assert field_name("Muon.pt_raw", "Muon") == "pt_raw"


# --- redundant kinematics -------------------------------------------------------------------------

SETS = {"polar": ("pt", "eta", "phi"), "cartesian": ("px", "py", "pz")}


@pytest.mark.parametrize("first", SETS)
@pytest.mark.parametrize("time", [("mass",), ("energy",), ("mass", "energy"), ("e", "m"), ()])
@pytest.mark.parametrize("more", [(), ("x", "y", "z"), ("x", "y", "z", "t", "charge")])
@pytest.mark.parametrize("other", [False, True])
def test_the_first_complete_set_of_kinematics_counts(
    first: str, time: tuple[str, ...], more: tuple[str, ...], other: bool
) -> None:
    names = [*SETS[first], *time, *more]
    if other:
        names += [name for members in SETS.values() for name in members if name not in names]
    columns = {f"V_{name}": ak.Array([[1.0 + n / 8, 2.0 - n / 16], [], [1.5 + n / 4]]) for n, name in enumerate(names)}
    analysis = wr.Pipeline("vertices")
    analysis.output(
        lambda V: {
            "fields": {name: ak.to_list(V[name]) for name in names} == {name: ak.to_list(getattr(V, name)) for name in names},
            "numbers": [*map(ak.to_list, (V.px, V.eta, (V + V).pt, V.deltaR(V[:, ::-1]))), float(V[0, 1].phi)],
        },
        name="told", merge=lambda a, b: a,
    )  # fmt: skip
    told = analysis.run(columns, engine="inline", progress=False)["told"]
    assert told["fields"]
    used = [*(SETS["polar"] if other else SETS[first]), *[n for n in ("mass", "m", "energy", "e") if n in time][:1]]
    reference = ak.zip(
        {name: columns[f"V_{name}"] for name in used},
        with_name="Momentum4D" if time else "Momentum3D",
        behavior=vector.backends.awkward.behavior,
    )
    px = columns["V_px"] if "px" in names else reference.px
    eta = columns["V_eta"] if "eta" in names else reference.eta
    expected = [px, eta, (reference + reference).pt, reference.deltaR(reference[:, ::-1])]
    phi = columns["V_phi"] if "phi" in names else reference.phi
    for found, right in zip(told["numbers"], [*expected, phi[0, 1]], strict=True):
        assert ak.almost_equal(ak.Array(found), ak.Array(right)) if isinstance(found, list) else found == right
