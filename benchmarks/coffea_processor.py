"""A coffea processor, unchanged: Windrow without a chunk size against coffea's futures executor with the best of five.

    python benchmarks/coffea_processor.py [--quick] [--json FILE]

The selection of ``realistic.py`` as a processor of coffea, over a NanoAOD-like file of two million events, on two workers. Coffea's
executor has a pool that is kept, and all its chunk sizes run in each round; its best one is chosen on every second round and
scored on the others. Then a processor that holds 20 KB for each row and may have 300 MB: coffea's executor ends with what it raised.
"""

from __future__ import annotations

import contextlib

import harness
import numpy as np
import realistic

WORKERS = 2
CHUNKS = (25_000, 50_000, 100_000, 250_000)
OURS, EXECUTOR = "wr.run_processor", "Runner with our executor"


def check(samples: dict[str, harness.Sample]) -> None:
    """Every way fills the same histograms; sums of weights differ in their last bits."""
    expected = samples[OURS].result
    for name, sample in samples.items():
        for key, pair in expected.items():
            for one, other in zip(pair, sample.result[key], strict=True):
                if not np.allclose(one, other, rtol=1e-12, atol=1e-12 * max(map(abs, one))):
                    raise SystemExit(f"{name} filled {key} otherwise than {OURS}")


def measure(report: harness.Report, rows: int, rounds: int) -> None:
    path = str(realistic.data(rows))
    with contextlib.ExitStack() as stack:
        futures, ours, executor = (stack.enter_context(harness.Worker("coffea_windrow.py")) for _ in range(3))
        asked = {"path": path, "workers": WORKERS}
        competitors = {
            f"coffea futures, kept pool, {chunk:,} rows": harness.asking(
                futures, how="futures", chunksize=chunk, **asked
            )
            for chunk in (*CHUNKS, rows // WORKERS)
        }
        theirs = list(competitors)
        competitors[OURS] = harness.asking(ours, how="run_processor", **asked)
        competitors[EXECUTOR] = harness.asking(executor, how="executor", chunksize=rows, **asked)
        check({name: ask() for name, ask in competitors.items()})  # all pools are warm now
        done = harness.interleave(competitors, rounds)
    report.table(
        (f"{rows:,} events, {WORKERS} workers", "median", "processor time", "events/s"),
        [
            (
                name,
                harness.seconds(done.median(name)),
                harness.seconds(done.cpu(name)),
                f"{rows / done.median(name):,.0f}",
            )
            for name in competitors
        ],
    )
    report.note(f"{rounds} rounds, interleaved; {done.quality}.")
    best, ratio, interval = done.best_of(theirs, OURS)
    report.note(f"The best of coffea's five: {best}.")
    report.claim("run_processor against coffea's best chunk size: time", ratio, 1.0, better="lower", interval=interval)
    _, ratio, interval = done.best_of(theirs, EXECUTOR)
    report.claim("our executor in coffea's Runner: time", ratio, 1.0, better="lower", interval=interval)


def starve(report: harness.Report, rows: int) -> None:
    """Let a processor need more memory than there is, in each way once."""
    path = str(realistic.data(rows))
    right = {"rows": rows, "ones": rows * 2500}
    found = {}
    for how in ("futures", "executor", "run_processor"):
        with harness.Worker("coffea_windrow.py") as worker:
            answer = worker.ask(path=path, workers=WORKERS, how=how, what="hungry")
            found[how] = answer["result"] == right
            said = "right" if found[how] else str(answer["result"])
            report.note(
                f"20 KB for each row, 300 MB for each worker, {how}: {said} ({harness.seconds(answer['wall'])})."
            )
    report.claim("coffea's futures executor ends for want of memory", float(not found["futures"]), 1.0)
    report.claim(
        "ours finishes with the right answer, share of two ways", (found["executor"] + found["run_processor"]) / 2, 1.0
    )


def main() -> None:
    options = harness.options("A coffea processor, unchanged, against coffea's futures executor.")
    report = harness.Report("Coffea's processors", harness.machine("coffea"))
    rows, rounds = (200_000, 3) if options.quick else (2_000_000, 8)
    measure(report, rows, rounds)
    starve(report, rows)
    report.finish(options.json)


if __name__ == "__main__":
    main()
