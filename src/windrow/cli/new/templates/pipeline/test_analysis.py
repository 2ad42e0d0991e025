"""Tests of FILL_name: each step on small arrays, the whole on a few rows."""

from __future__ import annotations

import awkward as ak
import numpy as np
import pytest
import windrow as wr

import FILL_name


def two_FILL_objects(pts, etas, charges=(1, -1)):
    """One row with two FILL_objects that have no mass and fly in opposite directions."""
    parts = {"pt": pts, "eta": etas, "phi": [0.0, np.pi], "mass": [0.0, 0.0]}
    parts |= {"FILL_charge_field": list(charges), "FILL_isolation_field": [0.0, 0.0]}
    return wr.hep.momenta(**{name: ak.Array([values]) for name, values in parts.items()})


def test_what_is_soft_or_forward_is_left_out():
    hard, soft, central, forward = 2 * FILL_pt, FILL_pt / 2, 0.1, FILL_eta + 1
    one_good = two_FILL_objects([hard, soft], [central, central])
    none_good = two_FILL_objects([hard, soft], [forward, central])
    assert ak.num(FILL_name.FILL_objects(one_good)).tolist() == [1]
    assert ak.num(FILL_name.FILL_objects(none_good)).tolist() == [0]


def test_charges_are_opposite():
    """FILL_charge decides."""
    for charges, passes in (((1, -1), True), ((1, 1), False)):
        pair = FILL_name.FILL_objects(two_FILL_objects([3 * FILL_pt, 2 * FILL_pt], [0.1, -0.1], charges))
        assert FILL_name.opposite_charge(pair).tolist() == [passes]


def test_FILL_number_cut():
    assert FILL_name.FILL_number_cut(np.array([0.0, 2.0, 1.0]), low=1.0).tolist() == [False, True, False]


def test_the_first_rows():
    result = FILL_name.analysis.run(FILL_name.fileset, max_rows=200, progress=False)
    assert result.complete
    for dataset in FILL_name.fileset:
        cutflow = result.cutflow[FILL_name.REGION, dataset]
        assert result["selected_rows", FILL_name.REGION, dataset] == cutflow.passed
        for name in FILL_name.SPECTRA:
            inside = result[name, FILL_name.REGION, dataset].sum(flow=True).value
            assert inside == pytest.approx(cutflow.executed[-1].sumw, rel=1e-5, abs=1e-9)
