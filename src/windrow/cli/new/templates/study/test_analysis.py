"""Tests of FILL_name: each stage alone, and the whole study."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from FILL_name import SPACE, foreground, overlap, run, smooth


def test_smoothing_leaves_a_constant_alone():
    inner = smooth(np.ones((9, 9)), 3)[1:-1, 1:-1]
    assert inner == pytest.approx(np.ones((7, 7)))


def test_foreground_is_brighter_than_the_level():
    assert foreground(np.array([[0.2, 0.8]]), 0.5).tolist() == [[False, True]]


def test_overlap_of_the_same_and_of_nothing():
    disc = np.array([True, True, False])
    assert overlap(disc, disc) == 1.0
    assert overlap(disc, ~disc) == 0.0


def test_every_set_of_parameters_is_tried_and_smoothing_helps():
    tried = run()
    assert len(tried) == prod(len(values) for values in SPACE.values())
    best, score = tried[0]
    assert score > 0.9
    assert best["width"] > 1
