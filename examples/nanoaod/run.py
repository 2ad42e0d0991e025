"""Runs the NanoAOD analysis on the real sample files and on a generated sample, and prints the cutflow of every region.

    python examples/nanoaod/run.py [--events N] [--order written|adaptive] [--regions 1|4] [--check]

The real files are those of the directory that WINDROW_SAMPLES names; without them only the generated ones are run. ``--check``
runs the plain program of ``plain.py`` too and compares: counts exactly, weighted sums to 1e-12.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from analysis import REGIONS, build
from generate import write
from plain import plain

#: dataset -> file of the sample directory
REAL = {"DY": "nano_dy.root", "DoubleMuon": "nano_dimuon.root", "v5": "nanoaodv5_sample.root"}


def real(directory: Path) -> dict[str, Any]:
    """Return the real files as a fileset; empty where they are not."""
    return {
        name: {"files": {str(directory / file): "Events"}, "metadata": {"is_mc": name != "DoubleMuon"}}
        for name, file in REAL.items()
        if (directory / file).is_file()
    }


def generated(directory: Path, events: int) -> dict[str, Any]:
    """Return generated simulation, and a tenth as much data, as a fileset; files that are there are used again."""
    datasets = {}
    for name, rows, is_mc in (("simulation", events, True), ("data", events // 10, False)):
        path = directory / f"{name}_{rows}.root"
        if not path.exists():
            print(f"generating {rows:,} events in {path} ...", flush=True)
            write(path, rows, seed=1 if is_mc else 2, is_mc=is_mc)
        datasets[name] = {"files": {str(path): "Events"}, "metadata": {"is_mc": is_mc}}
    return datasets


def differences(result: Any, expected: dict[str, dict[str, Any]], regions: list[str]) -> list[str]:
    """Where the result is not what the plain program says; empty if it is the same."""
    wrong = []
    for dataset, one in expected.items():
        for key, value in one.items():
            if key == "total" or key[1] not in regions:
                continue
            if key[0] == "cutflow":
                last = result.cutflow[key[1], dataset].executed[-1].passed
                same = last == list(value.values())[-1]
            elif key[0] == "selected":
                mine = result[(*key, dataset)]
                same = all(np.isclose(mine[n], value[n], rtol=1e-12, atol=1e-9) for n in value)
            else:
                mine = result[(*key, dataset)].view(flow=True)
                theirs = value.view(flow=True)
                same = all(
                    np.allclose(mine[part], theirs[part], rtol=1e-12, atol=1e-9) for part in ("value", "variance")
                )
            if not same:
                wrong.append(f"{key} of {dataset}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="The NanoAOD example.")
    parser.add_argument("--events", default=2_000_000, type=int)
    parser.add_argument("--directory", default="build/nanoaod", type=Path)
    parser.add_argument("--order", default="adaptive")
    parser.add_argument("--regions", default=4, type=int)
    parser.add_argument("--workers", default=None, type=int)
    parser.add_argument("--check", action="store_true", help="compare with the plain program")
    options = parser.parse_args()

    files = generated(options.directory, options.events)
    files |= real(Path(os.environ.get("WINDROW_SAMPLES", "../shared/data")))
    analysis = build(options.regions)
    start = time.perf_counter()
    result = analysis.run(files, order=options.order, workers=options.workers)
    seconds = time.perf_counter() - start
    regions = list(REGIONS)[: options.regions]
    for region in regions:
        print(result.cutflow[region], end="\n\n")
    print(result.explain())
    rows = sum(one["events"] for one in result["total"].values())
    print(f"{rows:,} rows in {seconds:.2f} s: {rows / seconds:,.0f} rows/s")
    if options.check:
        start = time.perf_counter()
        wrong = differences(result, plain(files), regions)
        seconds = time.perf_counter() - start
        if wrong:
            print("differs from the plain program:", *wrong, sep="\n  ")
            return 1
        print(f"equal to the plain program, which took {seconds:.2f} s")
    return int(result.exit_code)


if __name__ == "__main__":
    raise SystemExit(main())
