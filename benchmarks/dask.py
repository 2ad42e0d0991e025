"""Work on a Dask cluster of two workers: Windrow against coffea's DaskExecutor, ``client.map`` and Dask's graphs on the same cluster.

    python benchmarks/dask.py [--quick] [--json FILE]

The selection of ``realistic.py``: coffea's executor and ``client.map`` with each of several chunk sizes, the best chosen on every second
round and scored on the others; Windrow is told none. Then a file of 20,000 small row groups, 10,000 tasks that do nothing, a tree of 1,000, arguments
of 100 MB that go from worker to worker, and the time to the first result. What the process with Dask's scheduler, its client and
Windrow's driver computes is told too. All give the same, which is checked.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import harness
import numpy as np
import realistic

CHUNKS = (50_000, 100_000, 250_000)
OURS, PROCESSOR = "windrow pipeline", "windrow processor"
#: Rows of a small unit.
UNIT = 500
#: Jobs with how many there are, quick and full, and who does them.
JOBS = {
    "units": (2_000, 20_000, ("dask futures", "dask, by hand", "windrow")),
    "no-op": (1_000, 10_000, ("dask futures", "dask graph", "windrow")),
    "tree": (256, 1_000, ("dask futures", "dask graph", "windrow")),
    "large": (4, 10, ("dask futures", "windrow")),
}


def asking(worker: harness.Worker, **request: object) -> object:
    def work() -> dict[str, object]:
        answer = worker.ask(**request)["result"]
        return {"wall": answer["seconds"], "result": answer}

    return lambda: harness.measure(work, worker.cpu_seconds)


def tell(report: harness.Report, title: str, done: harness.Rounds, names: list[str]) -> None:
    cpu = {name: statistics.median(one.result["driver_cpu"] for one in done.samples[name]) for name in names}
    report.table(
        (title, "median", "scheduler, client and driver"),
        [(name, harness.seconds(done.median(name)), harness.seconds(cpu[name])) for name in names],
    )


def small_units(count: int) -> Path:
    """Write a file with so many row groups, once."""
    path = harness.DATA / f"units-{count}.parquet"
    if not path.exists():
        import pyarrow as pa
        import pyarrow.parquet as pq

        x = np.random.default_rng(4).uniform(0, 100, count * UNIT)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": x}), path, row_group_size=UNIT)
    return path


def claim_selection(report: harness.Report, worker: harness.Worker, rows: int, rounds: int) -> None:
    path = str(realistic.data(rows))
    asked = {"worker": worker, "what": "selection", "path": path, "rows": rows}
    ways = {
        f"{how}, {chunk:,} rows": asking(how=how, chunk=chunk, **asked)
        for how in ("coffea DaskExecutor", "client.map")
        for chunk in (*CHUNKS, rows // 2)
    }
    theirs = list(ways)
    for name in (OURS, PROCESSOR):
        ways[name] = asking(how=name, **asked)
    first = {name: ask().result["result"] for name, ask in ways.items()}
    for name, found in first.items():
        for key, pair in first[OURS].items():
            for one, other in zip(pair, found[key], strict=True):
                if not np.allclose(one, other, rtol=1e-12, atol=1e-12 * max(map(abs, one))):
                    raise SystemExit(f"{name} filled {key} otherwise than {OURS}")
    done = harness.interleave(ways, rounds)
    tell(report, f"{rows:,} events", done, list(ways))
    report.note(f"{rounds} rounds, interleaved; {done.quality}.")
    for name in (OURS, PROCESSOR):
        best, ratio, interval = done.best_of(theirs, name)
        report.claim(
            f"selection: {name} over the best of theirs ({best})", ratio, 1.0, better="lower", interval=interval
        )


def claim_tasks(report: harness.Report, worker: harness.Worker, *, quick: bool, rounds: int) -> None:
    for what, (few, many, names) in JOBS.items():
        count = few if quick else many
        path = str(small_units(count)) if what == "units" else ""
        ways = {name: asking(worker, what=what, how=name, count=count, path=path) for name in names}
        answers = {name: ask().result["result"] for name, ask in ways.items()}
        if not np.allclose(list(answers.values()), answers["windrow"], rtol=1e-9):
            raise SystemExit(f"{what}: the answers differ: {answers}")
        done = harness.interleave(ways, rounds, extra=2)
        tell(report, f"{what}: {count:,}", done, list(names))
        best, ratio, interval = done.best_of([one for one in names if one != "windrow"], "windrow")
        report.claim(f"{what}: windrow over the best of Dask's ({best})", ratio, 1.0, better="lower", interval=interval)


def claim_first(report: harness.Report) -> None:
    """The first result, of all systems, on a cluster that has just begun."""
    found: dict[str, list[float]] = {"dask futures": [], "windrow": []}
    for _ in range(3):
        for name, times in found.items():
            with harness.Worker("dask_cluster.py") as worker:
                times.append(worker.ask(what="first", how=name)["result"]["seconds"])
    middle = {name: statistics.median(times) for name, times in found.items()}
    report.table(
        ("first result on a new cluster", "median"), [(name, harness.seconds(one)) for name, one in middle.items()]
    )
    report.claim("first result: seconds behind Dask", middle["windrow"] - middle["dask futures"], 1.0, better="lower")


def main() -> None:
    options = harness.options("Work on a Dask cluster.")
    report = harness.Report("Dask", harness.machine("distributed", "coffea"))
    rows, rounds = (200_000, 2) if options.quick else (2_000_000, 6)
    with harness.Worker("dask_cluster.py") as worker:
        claim_tasks(report, worker, quick=options.quick, rounds=rounds if options.quick else 4)
        claim_selection(report, worker, rows, rounds)
    claim_first(report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
