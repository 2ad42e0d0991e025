"""Patterns for columns: left to right, additions and removals, names that must exist."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.data.columns import choose
from windrow.errors import UnknownNameError, UsageError

NAMES = (
    "run", "nMuon", "Muon_pt", "Muon_eta", "HLT_IsoMu24", "HLT_Ele32", "Jet.pt", "NJet", "mass",
    "muon_mass",
)  # fmt: skip


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("*", NAMES),
        (["mass", "run"], ("run", "mass")),
        (["*", "-HLT_*", "HLT_IsoMu*"], tuple(n for n in NAMES if n != "HLT_Ele32")),
        (["-*_*"], ("run", "nMuon", "Jet.pt", "NJet", "mass")),
        ("Muon", ("nMuon", "Muon_pt", "Muon_eta")),
        (["Jet"], ("Jet.pt", "NJet")),
        (["*", "-Muon"], ("run", *NAMES[4:])),
        (["Muon_p?", "nothing*", "-absent", "-absent_*"], ("Muon_pt",)),
        (["mass", "-*"], ()),
        (["HLT_[EI]*"], ("HLT_IsoMu24", "HLT_Ele32")),
    ],
)
def test_examples(patterns: str | list[str], expected: tuple[str, ...]) -> None:
    assert choose(patterns, NAMES, what="skim") == expected


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UnknownNameError, match=r"skim 'a': no column 'Muon_pr'; .*'Muon_pt'"):
        choose(["*", "Muon_pr"], NAMES, what="skim 'a'")


@pytest.mark.parametrize("patterns", [[], [""], ["-"], ["*", ""]])
def test_no_pattern_is_an_error(patterns: list[str]) -> None:
    with pytest.raises(UsageError, match="skim"):
        choose(patterns, NAMES, what="skim")


SHORT = st.text(alphabet="ab_", min_size=1, max_size=3)


@given(
    st.lists(st.tuples(st.booleans(), st.text(alphabet="ab_?*", min_size=1, max_size=3))),
    st.lists(SHORT, unique=True, max_size=8),
)
def test_wildcards_against_fnmatch(steps: list[tuple[bool, str]], names: list[str]) -> None:
    steps = [(False, "*"), *((removes, f"*{pattern}") for removes, pattern in steps)]
    expected: set[str] = set()
    for removes, pattern in steps:
        hits = {name for name in names if fnmatchcase(name, pattern)}
        expected = expected - hits if removes else expected | hits
    written = [("-" if removes else "") + pattern for removes, pattern in steps]
    assert choose(written, names, what="x") == tuple(n for n in names if n in expected)
    assert choose(written[1:] or "*", names, what="x") == choose(
        written if len(steps) == 1 or steps[1][0] else written[1:], names, what="x"
    )
