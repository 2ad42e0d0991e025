"""Small NanoAOD-like files with as many branches as real ones: the generated events of the example, and columns nobody reads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "nanoaod"
sys.path.insert(0, str(EXAMPLE))

from analysis import build  # noqa: E402
from generate import COLLECTIONS, events  # noqa: E402
from plain import plain  # noqa: E402

__all__ = ["build", "fileset", "plain"]

#: Branches of a file of NanoAOD, 1,900 in all: a third of them trigger flags, most others fields of objects.
FLAGS, NUMBERS, FIELDS = 650, 250, 60
#: Collections that nobody reads, besides those of the example.
OTHERS = (
    "Tau",
    "Photon",
    "FatJet",
    "SubJet",
    "SV",
    "IsoTrack",
    "GenPart",
    "GenJet",
    "TrigObj",
    "SoftJet",
    "Lowpt",
    "Other",
    "FsrPhoton",
    "Proton",
)
#: Rows of the three files: 610 together.
ROWS = {"signal": 40, "simulation": 170, "data": 400}


def fileset(directory: Path) -> dict[str, Any]:
    """Return the three files, each a dataset; they are written when they are not there."""
    directory.mkdir(parents=True, exist_ok=True)
    found = {}
    for number, (name, rows) in enumerate(ROWS.items()):
        path = directory / f"small_{name}.root"
        if not path.exists():
            write(path, rows, number, is_mc=name != "data")
        found[name] = {"files": {str(path): "Events"}, "metadata": {"is_mc": name != "data"}}
    return found


def write(path: Path, rows: int, seed: int, *, is_mc: bool) -> None:
    rng = np.random.default_rng(seed)
    columns = events(rows, seed, is_mc=is_mc)
    flat: dict[str, Any] = {name: values for name, values in columns.items() if not isinstance(values, ak.Array)}
    flat |= {f"HLT_path{number}": rng.random(rows) < 0.1 for number in range(FLAGS)}
    flat |= {f"Number_x{number}": rng.random(rows).astype(np.float32) for number in range(NUMBERS)}
    for name in (*COLLECTIONS, *OTHERS):
        own = {one.partition("_")[2]: values for one, values in columns.items() if one.startswith(f"{name}_")}
        pt = columns["Jet_pt"] if name in OTHERS else own["pt"]
        own |= {f"x{number}": pt * np.float32(number) for number in range(FIELDS - len(own))}
        flat[name] = ak.zip(own)
    part = path.with_name(path.name + ".part")
    with uproot.recreate(part) as file:
        types = {n: v.type.content if isinstance(v, ak.Array) else v.dtype for n, v in flat.items()}
        file.mktree("Events", types, counter_name=lambda counted: "n" + counted).extend(flat)
    part.replace(path)
