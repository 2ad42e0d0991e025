"""Run directories of simulated runs: what is known of them is known exactly."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from windrow.engines.simulated.model import AffineCosts, Model, SimulatedInput
from windrow.run.simulate import simulate
from windrow.store.rundir import RunDirectory
from windrow.watch.log import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.engines.simulated.engine import Kind
    from windrow.run.simulate import Simulated


def uneven(**costs: Any) -> Model:
    """Two datasets in five files of different size; the second costs three times as much a row."""
    costs = {"fixed_s": 0.05, "per_row_s": 1e-4, "inspect_s": 0.02, **costs}
    dear = {**costs, "per_row_s": 3 * costs["per_row_s"]}
    sizes = [("cheap", 20_000), ("cheap", 12_300), ("dear", 7_000), ("dear", 16_000), ("cheap", 900)]
    return Model(
        inputs=tuple(SimulatedInput.even(name, rows, 500) for name, rows in sizes),
        costs={"cheap": AffineCosts(**costs), "dear": AffineCosts(**dear)},
    )


def record(
    place: Path,
    model: Model,
    workers: int,
    *,
    kind: Kind = "threads",
    chunk: int | None = 2_000,
    outside_s: float = 0.0,
    ended: bool = True,
) -> Simulated:
    """Simulate a run and leave a run directory as a real one does."""
    with RunDirectory.create(place) as directory:
        directory.write_manifest(
            {
                "state": "complete" if ended else "running",
                "options": {"engine": kind, "workers": workers, "chunk": chunk or "auto"},
                "inputs": [{"dataset": one.category, "file": "f"} for one in model.inputs],
            }
        )
        stream = directory.log.open("w", encoding="utf-8")
        with EventLog(stream) as log:
            done = simulate(model, workers, kind=kind, chunk=chunk, observers=[log])
        if ended:
            summary = {"engine": kind, "workers": workers, "seconds": done.seconds + outside_s}
            directory.write_summary(json.dumps(summary))
    return done
