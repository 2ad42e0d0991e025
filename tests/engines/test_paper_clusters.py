"""Simulated clusters: one file server for all, a set-up device for each node, and Dask charged by the batch."""

from __future__ import annotations

from typing import Any

import pytest

from loading import load
from windrow.core.policies import Policies
from windrow.engines.simulated.devices import Device
from windrow.engines.simulated.model import AffineCosts, Model, SimulatedInput, SimulatedNode
from windrow.shape.fixed import Fixed

for _needed in ("harness", "paper_split", "paper_hepframe"):
    load(f"benchmarks/{_needed}.py", known=True)  # which it imports
PAPER: Any = load("benchmarks/paper_clusters.py")


def go(nodes: int, charges: Any, *, files: int = 2, cores: int = 1) -> Any:
    """Read files of 100 bytes, each in one task, at 100 bytes a second on each node; the file server gives 50."""
    model = Model(
        inputs=tuple(SimulatedInput.even("data", 10, 10) for _ in range(files)),
        costs={"data": AffineCosts(read_per_row=10.0, device="set-up")},
        devices={"set-up": Device(streams=(1,), rates=(100.0,))},
        nodes=(SimulatedNode(cores=cores),),
    )
    return PAPER.go(model, nodes, 0, file_server=50.0, charges=charges, policies=Policies(shape=Fixed(10)))


def test_nodes_share_the_file_server_and_set_up_by_themselves() -> None:
    done = go(2, PAPER.FREE)
    assert done.seconds == pytest.approx(200 / 50 + 1)
    assert done.file_server == pytest.approx(4 / 5)
    assert go(1, PAPER.FREE, cores=2).seconds == pytest.approx(200 / 50 + 2)  # two of them on one device


def test_dask_takes_one_batch_after_the_other_and_the_driver_its_launches() -> None:
    free, charged = go(1, PAPER.FREE, files=1), go(1, PAPER.Charges(0.5, 0.25, 2.0, 0.0), files=1)
    # The file is opened and read, and what came of it fetched.
    assert charged.seconds - free.seconds == pytest.approx(2 * 0.5 + 3 * (0.25 + 2.0))
    assert charged.driver * charged.seconds == pytest.approx(2 * 0.5 + 3 * 0.25)
    assert charged.dask * charged.seconds == pytest.approx(3 * 2.0)
