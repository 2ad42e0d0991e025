"""Tests of FILL_name: the workflow alone, and the whole study."""

from __future__ import annotations

from math import prod

import numpy as np

from FILL_name import SPACE, run, workflow


def test_the_workflow_finds_what_is_above_the_level():
    assert workflow(np.array([0.2, 0.8]), width=1, level=0.5).tolist() == [False, True]


def test_every_set_of_parameters_is_tried_and_smoothing_helps():
    tried = run()
    assert len(tried) == prod(len(values) for values in SPACE.values())
    assert tried[0][0] > 0.9
    assert tried[0][1]["width"] > 1
