"""Makes the data, runs the analysis on all cores, and prints the cutflow of every region.

    python examples/dimuon/run.py [DIRECTORY] [--check] [--rows-per-file N] [--workers N]

``--check`` runs the plain program of ``plain.py`` too and compares: counts exactly, weighted sums
to 1e-12. Where matplotlib is installed, the spectra are drawn to ``spectrum.png``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from analysis import BINS, analysis
from generate import generate
from plain import plain


def fileset(directory: Path, rows_per_file: int) -> dict[str, Any]:
    """The demo's files, generated unless a complete set of that size is already there."""
    marker = directory / "generated.json"
    wanted = json.dumps({"rows_per_file": rows_per_file})
    if marker.exists() and marker.read_text() == wanted:
        found: dict[str, Any] = json.loads((directory / "fileset.json").read_text())
        if all(Path(path).exists() for dataset in found.values() for path in dataset["files"]):
            return found
    print(f"generating events in {directory} ...", flush=True)
    marker.unlink(missing_ok=True)
    made = generate(directory, rows_per_file=rows_per_file)
    marker.write_text(wanted)
    return made


def differences(result: Any, expected: dict[str, dict[str, Any]], files: dict[str, Any]) -> list[str]:
    """Where the result is not what the plain program says; empty if it is the same."""
    wrong = []
    for dataset, plain_result in expected.items():
        weighted = files[dataset]["metadata"]["is_mc"]
        for region, counts in plain_result["cutflow"].items():
            lines = result.cutflow[region, dataset].executed
            found = {line.label: line.passed for line in lines}
            found["all"] = found.pop("initial")
            if found != dict(counts):
                wrong.append(f"cutflow of {region} in {dataset}: {found}, not {dict(counts)}")
        for (region, variation), histogram in plain_result["spectrum"].items():
            mine = result["spectrum", region, variation, dataset]
            for what in ("values", "variances"):
                a, b = (getattr(one, what)(flow=True) for one in (mine, histogram))
                # Sums of weights depend on the order of adding in their last bits; counts do not.
                tolerance = 1e-12 * np.abs(b).max() if weighted else 0.0
                if not (np.abs(a - b) <= tolerance).all():
                    wrong.append(f"{what} of the spectrum of {region}, {variation}, in {dataset}")
        if result["sumw"][dataset] != plain_result["sumw"]:
            wrong.append(f"sumw of {dataset}: {result['sumw'][dataset]}, not {plain_result['sumw']}")
    return wrong


def draw(result: Any, path: Path) -> bool:
    """Draw data over simulation, region by region; False where matplotlib is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        return False
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(BINS), figsize=(4 * len(BINS), 3.5))
    for region, axis in zip(BINS, axes, strict=True):
        spectra = result["spectrum", region]
        data = sum(h for name, h in spectra.items() if not name.startswith("Dimuon"))
        simulation = sum(h for name, h in spectra.items() if name.startswith("Dimuon"))
        edges = data.axes[0].edges
        scale = data.sum().value / simulation.sum().value
        axis.stairs(simulation.values() * scale, edges, fill=True, alpha=0.5, label="simulation")
        centers = (edges[1:] + edges[:-1]) / 2
        errors = np.sqrt(data.variances())
        axis.errorbar(centers, data.values(), yerr=errors, fmt="k.", ms=3, label="data")
        axis.set(title=region, xlabel="dimuon mass (GeV)")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="The dimuon example.")
    parser.add_argument("directory", nargs="?", default="build/demo", type=Path)
    parser.add_argument("--rows-per-file", default=200_000, type=int)
    parser.add_argument("--workers", default=None, type=int)
    parser.add_argument("--check", action="store_true", help="compare with the plain program")
    options = parser.parse_args()

    files = fileset(options.directory, options.rows_per_file)
    start = time.perf_counter()
    result = analysis.run(files, workers=options.workers)
    seconds = time.perf_counter() - start
    for region in BINS:
        print(result.cutflow[region], end="\n\n")
    print(result.ledger.summary())
    rows = sum(one["events"] for one in result["sumw"].values())
    print(f"{rows:,} rows in {seconds:.2f} s: {rows / seconds:,.0f} rows/s")
    picture = options.directory / "spectrum.png"
    if draw(result, picture):
        print(f"spectra drawn to {picture}")
    if options.check:
        start = time.perf_counter()
        wrong = differences(result, plain(files), files)
        seconds = time.perf_counter() - start
        if wrong:
            print("differs from the plain program:", *wrong, sep="\n  ")
            return 1
        print(f"equal to the plain program, which took {seconds:.2f} s")
    return int(result.exit_code)


if __name__ == "__main__":
    raise SystemExit(main())
