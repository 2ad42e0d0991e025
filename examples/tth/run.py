"""Makes ttH events, runs a variant of the analysis on them, and says in which order and with what result.

    python examples/tth/run.py [as|sci|scinp] [--events N] [--samples N] [--order written|adaptive|reversed] [--check]

``--order reversed`` takes every step as late as its dependencies allow, counted from the end: a bad order. ``--check`` runs the
written order too: outputs and yields must be the same bit by bit.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from analysis import PROPOSITIONS, VARIANTS, build
from events import write

from windrow.order.constraints import repair
from windrow.pipeline.definition.definition import dependencies

#: Samples that let 20,000 events be done in seconds; 1024 and 128 are the paper's.
QUICK = {"as": 0, "sci": 8, "scinp": 1}


def reverse(analysis: Any) -> list[str]:
    needs = dependencies(analysis._steps)
    return list(repair(list(reversed(needs)), needs, ()))


def same(one: Any, other: Any) -> bool:
    histograms = [result["spectrum"].view(flow=True) for result in (one, other)]
    return np.array_equal(*histograms) and one["selected"] == other["selected"]


def main() -> int:
    parser = argparse.ArgumentParser(description="The ttH example.")
    parser.add_argument("variant", nargs="?", default="sci", choices=VARIANTS)
    parser.add_argument("--events", default=20_000, type=int)
    parser.add_argument("--samples", default=None, type=int, help="samples per reconstruction")
    parser.add_argument("--full", action="store_true", help="as many samples as in the paper")
    parser.add_argument("--order", default="adaptive", help="written, reversed or a policy")
    parser.add_argument("--directory", default="build/tth", type=Path)
    parser.add_argument("--workers", default=None, type=int)
    parser.add_argument("--check", action="store_true", help="compare with the written order")
    options = parser.parse_args()

    path = options.directory / f"tth_{options.events}.parquet"
    if not path.exists():
        print(f"generating {options.events:,} events in {path} ...", flush=True)
        write(path, options.events)
    samples = options.samples or (None if options.full else QUICK[options.variant])
    analysis = build(options.variant, samples=samples)
    order = reverse(analysis) if options.order == "reversed" else options.order
    start = time.perf_counter()
    result = analysis.run(path, order=order, workers=options.workers)
    seconds = time.perf_counter() - start
    print(result.cutflow["all"], end="\n\n")
    home = {step: number for number, steps in PROPOSITIONS.items() for step in steps}
    ran = [home[line.name] for line in result.cutflow["all"].executed if line.name in home]
    print("propositions in the order that ran:", *ran)
    print("selected:", result["selected"])
    print(result.explain())
    print(f"{options.events:,} events in {seconds:.2f} s")
    if options.check:
        again = build(options.variant, samples=samples)
        if not same(result, again.run(path, order="written", workers=options.workers)):
            print("differs from the written order")
            return 1
        print("equal to the written order, bit by bit")
    return int(result.exit_code)


if __name__ == "__main__":
    raise SystemExit(main())
