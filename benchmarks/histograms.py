"""Histograms as data against functions that fill them: processor time of outputs, in the same run over the same rows.

    python benchmarks/histograms.py [--quick] [--json FILE]

Three regions and a weight with two variations, so each output is filled nine times for each unit of 150,000 rows. The
function is what a user writes: flattened lists, the weight broadcast to them.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import awkward as ak
import harness
import hist
import numpy as np

import windrow as wr
from windrow.blocks import chunk

UNIT_ROWS = 150_000
FORMS = ("function", "wr.hist")

PT = hist.axis.Regular(60, 0, 240, name="pt")
EDGES = hist.axis.Variable([*range(0, 200, 5), 240], name="pt")
ETA = hist.axis.Regular(30, -3, 3, name="eta")
MET = hist.axis.Regular(60, 0, 240, name="met")

#: kind of output -> axes
CASES: dict[str, list[Any]] = {
    "flat": [MET],
    "jagged": [PT],
    "jagged, unequal bins": [EDGES],
    "jagged, two axes": [PT, ETA],
}


def events(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    counts = rng.poisson(4, rows)
    total = int(counts.sum())
    return {
        "met": rng.exponential(50, rows),
        "trigger": rng.random(rows),
        "genWeight": rng.normal(1, 0.1, rows),
        "Jet_pt": ak.unflatten(rng.exponential(40, total), counts),
        "Jet_eta": ak.unflatten(rng.normal(0, 2, total), counts),
    }


def analysis(form: str, axes: list[Any]) -> wr.Pipeline:
    made = wr.Pipeline("histograms")
    made.weight(lambda genWeight: genWeight, name="gen")
    made.weight(lambda met: wr.updown(1 + 0.001 * met, 1 + 0.002 * met, 1 - 0.001 * met), name="scale")
    made.cut(lambda trigger: trigger < 0.8, name="triggered")
    made.cut(lambda met: met > 30, name="high")
    made.column(lambda Jet: Jet[Jet.pt > 20], name="jets")
    made.region("all", "triggered")
    made.region("SR", "triggered", "high")
    made.region("CR", "triggered", "!high")

    def flat(met: Any, weight: Any) -> Any:
        return hist.Hist(*axes, storage=hist.storage.Weight()).fill(met, weight=weight)

    def jagged(jets: Any, weight: Any) -> Any:
        each, _ = ak.broadcast_arrays(weight, jets.pt)
        values = [ak.flatten(jets[axis.name]) for axis in axes]
        return hist.Hist(*axes, storage=hist.storage.Weight()).fill(*values, weight=ak.flatten(each))

    is_flat = axes == [MET]
    if form == "function":
        made.output(flat if is_flat else jagged, name="spectrum")
    else:
        names = [axis.name if is_flat else f"jets.{axis.name}" for axis in axes]
        made.output(wr.hist(*[x for pair in zip(names, axes, strict=True) for x in pair]), name="spectrum")
    return made


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rounds = 7 if options.quick else 31
    data = {"mc": events(UNIT_ROWS)}
    evaluate, took = chunk.evaluate_outputs, 0.0

    def timed(run: Any) -> Any:
        nonlocal took
        began = process_time()
        found = evaluate(run)
        took += process_time() - began
        return found

    chunk.evaluate_outputs = timed
    pipelines = {(name, form): analysis(form, axes) for name, axes in CASES.items() for form in FORMS}
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in pipelines}
    results: dict[tuple[str, str], Any] = {}
    for number in range(rounds + 1):
        for key, pipeline in pipelines.items():
            took = 0.0
            results[key] = pipeline.run(data, engine="inline", progress=False)
            if number:  # the first one imports, compiles and checks
                seconds[key].append(took)
    for name in CASES:
        for region in ("all", "SR", "CR"):
            for variation in ("nominal", "scale_up", "scale_down"):
                mine, theirs = (results[name, form]["spectrum", region, variation] for form in FORMS)
                assert mine.view(flow=True).tobytes() == theirs.view(flow=True).tobytes()

    report = harness.Report("Histograms as data", harness.machine("boost-histogram"))
    report.note(
        f"Processor time of evaluating the outputs of {UNIT_ROWS:,} rows, in three regions and three variations; medians of "
        f"{rounds} interleaved rounds. The histograms are the same bit for bit."
    )
    median = {key: float(np.median(values)) for key, values in seconds.items()}
    ratios = {name: median[name, "function"] / median[name, "wr.hist"] for name in CASES}
    report.table(
        ("output", *FORMS, "ratio"),
        [(name, *(f"{1e3 * median[name, form]:.1f} ms" for form in FORMS), f"{ratios[name]:.2f}") for name in CASES],
    )
    report.claim("a jagged histogram as data: times as fast as a function", ratios["jagged"], 3.0)
    report.claim("a flat histogram as data: times as fast as a function", ratios["flat"], 0.95)
    report.finish(options.json)


if __name__ == "__main__":
    main()
