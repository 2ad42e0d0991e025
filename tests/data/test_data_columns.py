"""Collections: which prefixes name records, and which columns belong to them."""

from __future__ import annotations

import numpy as np
import pytest

from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.columns import check_request, find_collections
from windrow.errors import MissingColumnError, UsageError

F4 = np.dtype("f4")


def flat(name: str) -> ColumnInfo:
    return ColumnInfo(name=name, kind="flat", dtype=F4)


def jagged(name: str, counter: str | None = None) -> ColumnInfo:
    return ColumnInfo(name=name, kind="jagged", dtype=F4, counter=counter)


def other(name: str) -> ColumnInfo:
    return ColumnInfo(name=name, kind="other", dtype=None)


def collections(*columns: ColumnInfo) -> dict[str, tuple[str, ...]]:
    return dict(find_collections({c.name: c for c in columns}))


def test_flat_members_make_flat_records() -> None:
    assert collections(flat("MET_pt"), flat("MET_phi"), flat("run")) == {"MET": ("MET_pt", "MET_phi")}


def test_lists_win_over_flat_members() -> None:
    found = collections(flat("nJet"), jagged("Jet_pt", "nJet"), flat("Jet_total"))
    assert found == {"Jet": ("Jet_pt",)}


def test_a_column_of_that_name_is_no_prefix() -> None:
    assert collections(flat("MET"), flat("MET_pt")) == {}


def test_members_that_are_not_numbers_are_left_out() -> None:
    assert collections(other("Jet_name"), flat("Jet_x")) == {"Jet": ("Jet_x",)}
    assert collections(other("Jet_name")) == {}


def test_one_length_only() -> None:
    named = collections(jagged("Jet_pt", "nJet"), jagged("Jet_a", "nA"), jagged("Jet_b", "nA"))
    assert named == {"Jet": ("Jet_pt",)}
    capital = collections(jagged("Jet_pt", "NJet"), jagged("Jet_a", "nA"), jagged("Jet_b", "nA"))
    assert capital == {"Jet": ("Jet_pt",)}
    majority = collections(jagged("Jet_p", "nB"), jagged("Jet_a", "nA"), jagged("Jet_b", "nA"))
    assert majority == {"Jet": ("Jet_a", "Jet_b")}


def test_dots_and_longer_prefixes() -> None:
    assert collections(jagged("Aux.pt"), jagged("Aux.eta_x")) == {"Aux": ("Aux.pt", "Aux.eta_x")}
    assert collections(flat("a.b.c")) == {"a.b": ("a.b.c",)}
    found = collections(jagged("boosted_Tau_pt", "nboosted_Tau"))
    assert found == {"boosted": ("boosted_Tau_pt",), "boosted_Tau": ("boosted_Tau_pt",)}
    # A trigger that a file lacks must not turn into records of its longer namesakes.
    assert "HLT_Mu8" not in collections(flat("HLT_Mu8_Iso"), flat("HLT_Mu9"))
    assert collections(flat("_x"), flat("x_"), flat(".y")) == {}


def test_requests_are_checked() -> None:
    info = FileInfo(rows=5, borders=(0, 5), columns={"Muon_pt": flat("Muon_pt")}, identity="x")
    check_request(info, "f.root", ["Muon_pt"], 0, 5)
    with pytest.raises(MissingColumnError, match=r"f\.root has no column 'Muon_pT'.*'Muon_pt'"):
        check_request(info, "f.root", ["Muon_pT"], 0, 5)
    with pytest.raises(MissingColumnError, match="among its 1 columns"):
        check_request(info, "f.root", ["zzz"], 0, 5)
    for start, stop in ((-1, 2), (3, 2), (0, 6)):
        with pytest.raises(UsageError, match="rows"):
            check_request(info, "f.root", [], start, stop)
