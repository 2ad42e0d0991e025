"""HZZ.root: collections with other names and counters, against a plain program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hist import Hist

import windrow as wr

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.samples


def hzz() -> Any:
    analysis = wr.Pipeline("hzz")

    @analysis.cut
    def trigger(triggerIsoMu24):  # type: ignore[no-untyped-def]
        return triggerIsoMu24

    @analysis.cut
    def two(NMuon):  # type: ignore[no-untyped-def]
        return NMuon >= 2

    @analysis.column
    def mass(Muon):  # type: ignore[no-untyped-def]
        total = {f: Muon[f][:, 0] + Muon[f][:, 1] for f in ("Px", "Py", "Pz", "E")}
        squared = total["E"] ** 2 - total["Px"] ** 2 - total["Py"] ** 2 - total["Pz"] ** 2
        return np.sqrt(np.maximum(squared, 0))

    @analysis.cut
    def jets(Jet):  # type: ignore[no-untyped-def]
        return ak.num(Jet) >= 1

    @analysis.cut(each=True)
    def isolated(Muon_Iso, NMuon):  # type: ignore[no-untyped-def]
        worst = 0.0
        for value in Muon_Iso:
            worst = max(worst, value)
        return worst < 4.0 and NMuon < 5

    @analysis.weight
    def event_weight(EventWeight):  # type: ignore[no-untyped-def]
        return EventWeight.astype(np.float64)

    analysis.region("pair", "trigger", "two", "isolated")
    analysis.region("jets", "two", "jets", "!isolated")

    @analysis.output(regions="*")
    def spectrum(mass, weight):  # type: ignore[no-untyped-def]
        return Hist.new.Reg(30, 0, 150).Weight().fill(mass, weight=weight)

    return analysis


@pytest.mark.parametrize("name", ["HZZ.root", "HZZ-lzma.root"])
@pytest.mark.parametrize("grid", [None, 250])
def test_hzz_equals_the_plain_program(samples: Path, name: str, grid: int | None) -> None:
    path = samples / name
    events = uproot.open(path)["events"].arrays()
    two = ak.to_numpy(events.NMuon >= 2)
    worst = ak.to_numpy(ak.fill_none(ak.max(events.Muon_Iso, axis=1), 0.0))
    isolated = (worst < 4.0) & ak.to_numpy(events.NMuon < 5)
    chosen = {
        "pair": ak.to_numpy(events.triggerIsoMu24) & two & isolated,
        "jets": two & ak.to_numpy(events.NJet >= 1) & ~isolated,
    }
    source = wr.data.open(f"{path}:events", grid=grid)
    result = hzz().run(source, progress=False, engine="threads", workers=2)
    assert result.ledger.done == 2421
    for region, mask in chosen.items():
        assert mask.sum() > 0
        rows = events[mask]
        parts = {f: rows[f"Muon_{f}"][:, 0] + rows[f"Muon_{f}"][:, 1] for f in ("Px", "Py", "Pz")}
        energy = rows.Muon_E[:, 0] + rows.Muon_E[:, 1]
        squared = energy**2 - parts["Px"] ** 2 - parts["Py"] ** 2 - parts["Pz"] ** 2
        mass = np.sqrt(np.maximum(squared, 0))
        weight = ak.to_numpy(rows.EventWeight).astype(np.float64)
        expected = Hist.new.Reg(30, 0, 150).Weight().fill(ak.to_numpy(mass), weight=weight)
        got = result["spectrum", region].view(flow=True)
        for part in ("value", "variance"):
            wanted = expected.view(flow=True)[part]
            # One unit is one call: exactly the plain histogram. Several add up in another order.
            np.testing.assert_allclose(got[part], wanted, rtol=1e-12 if grid else 0, atol=0)
        assert result.cutflow[region].written[-1].passed == int(mask.sum())
