"""Tests of FILL_name: a step alone, and all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from FILL_name import BLOCKS, run, smooth


def test_smoothing_leaves_a_constant_alone(tmp_path):
    np.save(tmp_path / "in.npy", np.ones(50))
    assert smooth(tmp_path / "in.npy", width=5)[2:-2] == pytest.approx(np.ones(46))


def test_the_whole(tmp_path):
    # A sine of height 1 has a standard deviation of 0.707; the noise is averaged away.
    assert run(tmp_path / "out") == pytest.approx(np.sqrt(0.5), abs=0.05)
    assert len(list((tmp_path / "out").glob("signal-*.npy"))) == BLOCKS
