"""Momenta made of any columns, against the formulas written out."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MUON = 0.1056583755


def cartesian(pt: Any, eta: Any, phi: Any, mass: Any) -> tuple[Any, Any, Any, Any]:
    px, py, pz = pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)
    return px, py, pz, np.sqrt(px**2 + py**2 + pz**2 + mass**2)


def pair_mass(first: tuple[Any, ...], second: tuple[Any, ...]) -> Any:
    px, py, pz, energy = (a + b for a, b in zip(first, second, strict=True))
    return np.sqrt(np.maximum(energy**2 - px**2 - py**2 - pz**2, 0))


def close(got: Any, wanted: Any) -> None:
    np.testing.assert_allclose(ak.to_numpy(got), wanted, rtol=1e-9, atol=1e-6)


NUMBERS = st.tuples(st.floats(1, 500), st.floats(-3, 3), st.floats(-3.1, 3.1), st.floats(0, 100))


@settings(max_examples=examples(25))
@given(rows=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20), jagged=st.booleans())
def test_sums_in_both_kinds_of_coordinates(rows: Any, jagged: bool) -> None:
    numbers = np.array(rows)  # row, object, coordinate
    first, second = numbers[:, 0].T, numbers[:, 1].T
    expected = pair_mass(cartesian(*first), cartesian(*second))
    if jagged:
        pt, eta, phi, mass = (ak.from_regular(numbers[:, :, n]) for n in range(4))
        both = wr.hep.momenta(pt=pt, eta=eta, phi=phi, mass=mass)
        polar = both[:, 0] + both[:, 1]
    else:
        names = ("pt", "eta", "phi", "mass")
        one, other = (wr.hep.momenta(**dict(zip(names, part, strict=True))) for part in (first, second))
        polar = one + other
    one, other = (
        wr.hep.momenta(**dict(zip(("px", "py", "pz", "E"), cartesian(*part), strict=True))) for part in (first, second)
    )
    scale = 1e-6 * (1 + np.max(cartesian(*first)[3] + cartesian(*second)[3]))
    np.testing.assert_allclose(ak.to_numpy(polar.mass), expected, rtol=1e-6, atol=scale)
    np.testing.assert_allclose(ak.to_numpy((one + other).mass), expected, rtol=1e-6, atol=scale)


def test_angles_and_further_fields() -> None:
    eta, phi = ak.Array([[0.5, -0.5], [], [1.0]]), ak.Array([[3.0, -3.0], [], [0.1]])
    pt = ak.Array([[20.0, 30.0], [], [40.0]])
    charge = ak.Array([[1, -1], [], [1]])
    muons = wr.hep.momenta(pt=pt, eta=eta, phi=phi, mass=MUON, charge=charge)
    assert muons.charge.tolist() == charge.tolist()
    assert muons.mass.tolist() == [[MUON, MUON], [], [MUON]]
    pairs = ak.combinations(muons, 2)
    close(ak.flatten(pairs["0"].deltaR(pairs["1"])), [np.hypot(1.0, 2 * np.pi - 6.0)])
    # Field by field, the plain numbers that were given.
    assert muons.pt.tolist() == pt.tolist()
    assert muons[muons.pt > 25].eta.tolist() == [[-0.5], [], [1.0]]


def test_two_and_three_coordinates() -> None:
    met = wr.hep.momenta(pt=np.array([3.0]), phi=np.array([np.pi / 2]))
    close(met.py, [3.0])
    assert not hasattr(met, "pz")
    track = wr.hep.momenta(px=np.array([3.0]), py=np.array([4.0]), pz=np.array([12.0]))
    close(track.p, [13.0])
    assert not hasattr(track, "mass")
    angle = wr.hep.momenta(pt=np.array([1.0]), phi=np.array([0.0]), theta=np.array([np.pi / 4]))
    close(angle.pz, [1.0])


def test_records_of_any_capitals() -> None:
    columns = {"Px": [[1.0, 2.0], []], "PY": [[2.0, 1.0], []], "Pz": [[2.0, 2.0], []]}
    records = ak.zip({**columns, "E": [[5.0, 5.0], []], "Charge": [[1, -1], []]})
    muons = wr.hep.momenta(records)
    assert muons.fields == ["px", "py", "pz", "E", "Charge"]
    close(ak.flatten(muons.mass), [4.0, 4.0])
    close((muons[:1, 0] + muons[:1, 1]).mass, [np.sqrt(100 - 9 - 9 - 16)])
    # A component takes the place of what says the same.
    light = wr.hep.momenta(records, mass=0.0)
    assert "E" not in light.fields
    close(ak.flatten(light.E), [3.0, 3.0])
    doubled = wr.hep.momenta(records, px=records.Px * 2)
    close(ak.flatten(doubled.pt), [np.hypot(2, 2), np.hypot(4, 1)])
    around = wr.hep.momenta(records, pt=[[1.0, 1.0], []], phi=[[0.0, 0.0], []])
    close(ak.flatten(around.px), [1.0, 1.0])
    assert records.fields == ["Px", "PY", "Pz", "E", "Charge"]


def test_nothing_is_registered_for_other_arrays() -> None:
    before = dict(ak.behavior)
    wr.hep.momenta(ak.zip({"Pt": [1.0], "Phi": [0.0]}), mass=1.0, eta=1.0)
    wr.hep.momenta(pt=np.ones(2), phi=np.ones(2))
    assert dict(ak.behavior) == before


def test_naming_the_helpers_loads_nothing_heavy() -> None:
    code = "import sys, windrow as wr; wr.hep; wr.file; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    heavy = {"numpy", "awkward", "vector", "correctionlib"}
    assert heavy.intersection(done.stdout.split()) == set()
    assert "windrow.hep" in done.stdout.split()
    assert set(wr.hep.__all__) == {"LumiMask", "lumi_mask", "lumi_ranges", "momenta"}
    with pytest.raises(AttributeError, match="no attribute 'lumimask'"):
        _ = wr.hep.lumimask


def test_they_pickle() -> None:
    muons = wr.hep.momenta(pt=[[1.0]], eta=[[0.0]], phi=[[0.0]], mass=[[1.0]])
    again = pickle.loads(pickle.dumps(muons))
    close(ak.flatten(again.E), [np.sqrt(2)])


@pytest.mark.parametrize(
    ("arguments", "components", "message"),
    [
        ((), {}, "nothing makes no momentum; expected pt and phi, or px and py"),
        ((), {"pt": [1.0], "eta": [1.0]}, "pt, eta makes no momentum"),
        ((), {"px": [1.0], "phi": [1.0]}, "px, phi makes no momentum"),
        ((), {"pt": [1.0], "phi": [1.0], "mass": [1.0]}, "no direction along the beam"),
        ((), {"pt": [1.0], "phi": [1.0], "px": [1.0], "py": [0.0]}, "say the same thing twice"),
        ((), {"pt": [1.0], "phi": [1.0], "eta": [1.0], "mass": [1.0], "E": [0.0]}, "mass, E say the same"),
        (([1, 2],), {}, "awkward array of records or of named components, got"),
        ((ak.Array([1, 2]),), {}, "awkward array of records"),
        ((ak.Array([{"x": 1, "y": 2}]),), {}, "x, y makes no momentum"),
    ],
)
def test_what_makes_no_momentum(arguments: Any, components: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wr.hep.momenta(*arguments, **components)


@pytest.mark.samples
def test_a_file_with_capitals(samples: Path) -> None:
    analysis = wr.Pipeline("hzz")

    @analysis.cut
    def two(NMuon: Any) -> Any:
        return NMuon >= 2

    @analysis.column
    def mass(Muon: Any) -> Any:
        muons = wr.hep.momenta(Muon)
        return (muons[:, 0] + muons[:, 1]).mass

    @analysis.output
    def masses(mass: Any) -> Any:
        return mass.tolist()

    path = f"{samples}/HZZ.root:events"
    result = analysis.run(path, progress=False)
    # The charge and the isolation are in the collection, but nobody looked at them.
    assert {column for _, column, *_ in result.reads} == {"NMuon", "Muon_Px", "Muon_Py", "Muon_Pz", "Muon_E"}
    events = uproot.open(path).arrays(filter_name=["NMuon", "Muon_*"])
    events = events[events.NMuon >= 2]
    names = ("Muon_Px", "Muon_Py", "Muon_Pz", "Muon_E")
    first, second = (tuple(ak.to_numpy(events[name][:, n]).astype(np.float64) for name in names) for n in (0, 1))
    assert len(result["masses"]) == len(events) > 1000
    np.testing.assert_allclose(result["masses"], pair_mass(first, second), rtol=1e-4, atol=1e-3)
