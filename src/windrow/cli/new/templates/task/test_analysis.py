"""Tests of FILL_name: each step alone, and all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from FILL_name import BLOCKS, combine, run, smooth, split, write


def test_blocks_are_the_whole_input(tmp_path):
    values = np.arange(10.0)
    np.save(tmp_path / "in.npy", values)
    blocks = split(tmp_path / "in.npy")
    assert len(blocks) == BLOCKS
    assert np.concatenate(blocks).tolist() == values.tolist()


def test_smoothing_leaves_a_constant_alone():
    inner = smooth(np.ones(50), width=5)[2:-2]
    assert inner == pytest.approx(np.ones(46))


def test_parts_are_put_together(tmp_path):
    low, high = tmp_path / "low.npy", tmp_path / "high.npy"
    write(np.full(4, -1.0), low)
    write(np.full(4, 1.0), high)
    assert combine([low, high]) == pytest.approx(1.0)


def test_the_whole(tmp_path):
    # A sine of height 1 has a standard deviation of 0.707; the noise is averaged away.
    assert run(tmp_path / "out") == pytest.approx(np.sqrt(0.5), abs=0.05)
    assert len(list((tmp_path / "out").glob("part-*.npy"))) == BLOCKS
