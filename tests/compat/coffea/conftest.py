"""Files of NanoAOD with few branches, which open in milliseconds, and a comparison of what processors give."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import awkward as ak
import numpy as np
import pytest
import uproot

pytest.importorskip("coffea", reason="coffea is not installed: pip install 'windrow[coffea]'")

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = Path(__file__).parents[3] / "examples" / "coffea" / "processor.py"


def make_events(rows: int, seed: int) -> dict[str, ak.Array]:
    rng = np.random.default_rng(seed)

    def collection(most: int, **fields: tuple[float, float]) -> ak.Array:
        counts = rng.integers(0, most, rows)
        total = int(counts.sum())
        flat = {name: rng.uniform(*limits, total).astype(np.float32) for name, limits in fields.items()}
        return ak.unflatten(ak.zip(flat), counts)

    charges = {"charge": (-3.0, 3.0)}
    momenta = {"pt": (5.0, 120.0), "eta": (-3.0, 3.0), "phi": (-3.1, 3.1), "mass": (0.1, 0.2)}
    return {
        "run": np.full(rows, 300_000 + seed, dtype=np.uint32),
        "luminosityBlock": np.ones(rows, dtype=np.uint32),
        "event": np.arange(rows, dtype=np.uint64),
        "genWeight": rng.normal(1.0, 0.3, rows).astype(np.float32),
        "MET_pt": rng.uniform(0, 200, rows).astype(np.float32),
        "MET_phi": np.zeros(rows, dtype=np.float32),
        "Muon": collection(4, **momenta, **charges),
        "Jet": collection(5, **momenta),
    }


def write_events(path: Path, rows: int, seed: int, tree: str = "Events") -> str:
    events = make_events(rows, seed)
    with uproot.recreate(path) as file:
        made = file.mktree(tree, {name: ak.type(array).content for name, array in events.items()})
        if rows:
            made.extend(events)
    return str(path)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    place = tmp_path_factory.mktemp("coffea")
    rows = {"a1": 3000, "a2": 1, "empty": 0, "b": 1500}
    found = {name: write_events(place / f"{name}.root", n, seed) for seed, (name, n) in enumerate(rows.items())}
    return found | {"other": write_events(place / "other.root", 700, 9, tree="Other")}


@pytest.fixture
def fileset(files: dict[str, str]) -> dict[str, object]:
    return {
        "a": [files["a1"], files["empty"], files["a2"]],
        "b": {"files": {files["b"]: "Events"}, "metadata": {"era": "x"}},
    }


@pytest.fixture(scope="session")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("coffea_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["coffea_example"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["coffea_example"]
