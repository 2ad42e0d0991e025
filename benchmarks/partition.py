"""Loops cut by every partitioner: how far ours is from the best of them, and from joblib, Numba and the standard library.

    python benchmarks/partition.py [--quick] [--json FILE]

Connected components of two graphs (neighbours in no order, and ten times as many at the beginning as at the end), a triangular
loop, and N-body. *Counted*: what rows do is counted, and a simulated machine runs all partitioners and queues, with what a chunk
costs here. *Wall*: the same loops, on two threads, all in turn. Then six and twenty workers, simulated, as DAPHNE printed them.
"""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import harness
import numpy as np

from windrow.loops.options import LoopOptions
from windrow.place.loop_simulation import simulate_loop
from windrow.place.queues import LAYOUTS, VICTIMS
from windrow.place.topology import parse_topology
from windrow.shape.partition.schemes import names

WORKERS = 2
#: Loops: name, size of the data, rows that are run of it (0: all), and whether they are measured by all schemes.
LOOPS = (
    ("components, power law", 300_000, 0),
    ("components, drifting", 300_000, 0),
    ("triangular", 20_000, 0),
    ("N-body, 100,000 particles", 100_000, 4_000),
)
QUICK = (
    ("components, power law", 50_000, 0),
    ("components, drifting", 50_000, 0),
    ("triangular", 5_000, 0),
    ("N-body, 100,000 particles", 10_000, 2_000),
)
PEERS = (
    ("numba.prange", {}),
    ("joblib", {"chunks": 2}),
    ("joblib", {"chunks": 32}),
    ("ThreadPoolExecutor", {"chunks": 2}),
    ("ThreadPoolExecutor", {"chunks": 32}),
)
WITHIN, OF_PEERS, SMALL_US = 1.05, 1.05, 50.0
#: Costs of stealing on a machine with two processors, in the chunks' overheads: nobody has measured them here.
STEAL, FAR = 1, 10


def _ask(worker: harness.Worker, **request: Any) -> Any:
    """A competitor whose time is that of the loop alone."""

    def work() -> dict[str, Any]:
        answer = worker.ask(**request)["result"]
        return {"wall": answer.get("seconds", 0.0), "result": answer["result"]}

    return lambda: harness.measure(work, worker.cpu_seconds)


def makespan(sums: Any, workers: int, overhead_s: float, topology: str = "", **options: Any) -> float:
    places = parse_topology(topology or [0] * workers)
    queues = LoopOptions(**options).make_queues(len(sums) - 1, places)
    steal = {"steal_s": STEAL * overhead_s, "far_steal_s": FAR * overhead_s}
    return simulate_loop(queues, sums, workers, overhead_s=overhead_s, **steal).makespan


def schemes(rows: int) -> list[str]:
    """All, without chunks of one row where that is a million of them."""
    return [name for name in names() if rows <= 50_000 or name not in ("SS", "STATIC-STEAL")]


def claim_counted(report: harness.Report, loops: dict[str, Any], chunk_s: float) -> None:
    lines = []
    for name, (counts, row_s) in loops.items():
        sums = np.concatenate([[0.0], np.cumsum(counts)]) * row_s
        found = {one: makespan(sums, WORKERS, chunk_s, partition=one) for one in schemes(len(counts))}
        for layout, victims in itertools.product(LAYOUTS[1:], VICTIMS):
            for one in ("STATIC", "GSS", "FAC2", "MFSC"):
                found[f"{one}, {layout}, {victims}"] = makespan(
                    sums, WORKERS, chunk_s, partition=one, queues=layout, victims=victims
                )
        best = min(found, key=lambda one: found[one])
        ours, ideal = found["auto"], sums[-1] / WORKERS
        lines.append(
            (
                name,
                f"{ideal * 1e3:.2f}",
                f"{found[best] * 1e3:.2f} ({best})",
                f"{ours * 1e3:.2f}",
                f"{ours / found[best]:.3f}",
            )
        )
        report.claim(f"{name}: counted makespan of auto over the best", ours / found[best], WITHIN, better="lower")
    report.table(("counted, 2 workers, ms", "work / 2", "best of all", "auto", "auto / best"), lines)


def claim_wall(
    report: harness.Report, worker: harness.Worker, loops: Any, rounds: int, *, quick: bool
) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, size, rows in loops:
        what = {"name": name, "size": size, "rows": rows}
        counts = np.array(_ask(worker, what="counts", **what)().result)
        asks = {"plain": _ask(worker, what="plain", **what)}
        asks["auto"] = _ask(worker, what="windrow", partition="auto", **what)
        for one in () if quick else [one for one in schemes(len(counts)) if one != "auto"]:
            asks[one] = _ask(worker, what="windrow", partition=one, **what)
        for peer, options in PEERS:
            label = f"{peer}{', {chunks} chunks'.format(**options) if options else ''}"
            asks[label] = _ask(worker, what=peer, **what, **options)
        for ask in asks.values():
            ask()  # compiled, and threads started
        found = harness.interleave(asks, rounds, extra=0 if quick else None)
        answers = {one: found.samples[one][0].result[0] for one in asks}
        if len({round(value, 6) for value in answers.values()}) > 1:
            raise SystemExit(f"{name}: answers differ: {answers}")
        known[name] = counts, found.median("plain") / counts.sum()
        theirs = {label: found.median(label) for label in asks if "prange" in label or "chunks" in label}
        best_peer = min(theirs, key=lambda one: theirs[one])
        cells = [
            (
                one,
                f"{found.median(one) * 1e3:.2f}",
                f"{found.median('auto') / found.median(one):.2f}",
                f"{found.samples[one][0].result[1] or ''}",
            )
            for one in asks
        ]
        report.table((f"{name}: wall, 2 threads", "ms", "auto over it", "chunks"), cells)
        if found.median("auto") >= 0.01 or quick:
            report.claim(
                f"{name}: auto over the best peer ({best_peer})",
                found.median("auto") / theirs[best_peer],
                OF_PEERS,
                better="lower",
            )
    return known


def claim_small(report: harness.Report, worker: harness.Worker, rounds: int) -> None:
    what = {"name": "N-body, 100 particles", "size": 100}
    asks = {
        "plain": _ask(worker, what="plain", **what),
        "auto": _ask(worker, what="windrow", partition="auto", **what),
        "STATIC": _ask(worker, what="windrow", partition="STATIC", **what),
    }
    for ask in asks.values():
        ask()
    found = harness.interleave(asks, rounds)
    rows = [(one, f"{found.median(one) * 1e6:.0f}", found.samples[one][0].result[3]) for one in asks]
    report.table(("N-body, 100 particles", "us", "where"), rows)
    more = (found.median("auto") - found.median("plain")) * 1e6
    report.claim("N-body, 100 particles: microseconds over the plain loop", more, SMALL_US, better="lower")


def chunk_seconds(report: harness.Report, worker: harness.Worker, rounds: int) -> float:
    rows = 20_000
    ask = _ask(worker, what="windrow", name="nothing", size=rows, partition="SS")
    ask()
    found = harness.interleave({"SS": ask}, rounds)
    chunk_s = WORKERS * found.median("SS") / rows
    report.note(f"A chunk costs {chunk_s * 1e6:.1f} us of a worker (SS over {rows:,} rows that do nothing).")
    return chunk_s


def simulate_more(report: harness.Report, loops: dict[str, Any], chunk_s: float) -> None:
    """Six and twenty workers; DAPHNE's figure 9 has MFSC 35 % faster than STATIC with six."""
    for workers, topology in ((6, ""), (20, "2x10")):
        lines = []
        for name, (counts, row_s) in loops.items():
            sums = np.concatenate([[0.0], np.cumsum(counts)]) * row_s
            static = makespan(sums, workers, chunk_s, topology, partition="STATIC")
            cells = [name, f"{static * 1e3:.2f}"]
            cells += [
                f"{1 - makespan(sums, workers, chunk_s, topology, partition=one) / static:+.0%}"
                for one in ("MSTATIC", "MFSC", "GSS", "TSS", "FAC2", "AUTO", "auto")
            ]
            places = (("pergroup", "seq"), ("percpu", "seq"), ("percpu", "seqpri")) if topology else ()
            cells += [
                f"{1 - makespan(sums, workers, chunk_s, topology, partition='MFSC', queues=layout, victims=victims) / static:+.0%}"
                for layout, victims in places
            ]
            lines.append(cells)
        headers = [
            f"{workers} workers, simulated",
            "STATIC, ms",
            "MSTATIC",
            "MFSC",
            "GSS",
            "TSS",
            "FAC2",
            "AUTO",
            "auto",
        ]
        headers += ["MFSC, pergroup", "MFSC, percpu", "MFSC, percpu seqpri"] if topology else []
        report.table(headers, lines)


def count_lines(report: harness.Report) -> None:
    """Lines of each form of the examples' loops, against DAPHNE's figure 12."""
    import sys

    sys.path.insert(0, str(harness.ROOT / "examples" / "daphne"))
    import connected_components
    import nbody

    rows = []
    for module in (connected_components, nbody):
        forms = [len(inspect.getsource(form).strip().splitlines()) for form in (module.sequential, module.parallel)]
        rows.append((module.__name__, *forms))
    report.table(("lines of code", "sequential", "all cores"), rows)


def main() -> None:
    options = harness.options("Loops cut by every partitioner.")
    report = harness.Report("Loops", harness.machine())
    python = harness.environment(
        "loops", "joblib", "scipy", "numba", "numpy", "psutil", "click", "xxhash", "cloudpickle"
    )
    rounds = 3 if options.quick else 7
    with harness.Worker(harness.PEERS / "partition_loops.py", python) as worker:
        chunk_s = chunk_seconds(report, worker, rounds)
        loops = claim_wall(report, worker, QUICK if options.quick else LOOPS, rounds, quick=options.quick)
        claim_small(report, worker, 3 * rounds)
    claim_counted(report, loops, chunk_s)
    simulate_more(report, {name: found for name, found in loops.items() if name.startswith("components")}, chunk_s)
    count_lines(report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
