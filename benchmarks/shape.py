"""Memory that grows with rows, under limits: whether a run finishes, what it loses, and how far it is from the best fixed size.

    python benchmarks/shape.py [--quick] [--json FILE]

Each row needs some 20 KB, half to one and a half times that, and one in a hundred ten times as much. Two worker processes may each use
300, 600 and 1200 MB beyond what an idle one has. *Guesses*: first chunks of 1 K, 64 K and 1 M rows, with what was lost of all workers'
time. *Fixed*: sizes that somebody chose (``chunk=``, nothing learned), against the run of which nothing is said; the best of them is
chosen in every second round and scored in the others. Every answer is compared with that of NumPy alone. *Order*: two cuts that are
best swapped, but the second then meets rows for which it takes more than there is: that is held against the order, not the rows.
"""

from __future__ import annotations

import statistics
from typing import Any

import harness
import numpy as np

MB = 10**6
LIMITS = (300, 600, 1200)
GUESSES = (1_000, 64_000, 1_000_000)
FIXED = (500, 2_000, 8_000, 32_000)
WITHIN, LOST = 1.15, 0.05


def ask(worker: harness.Worker, rows: int, memory: float, **options: Any) -> Any:
    """A competitor; one that runs out of memory takes for ever."""

    def work() -> dict[str, Any]:
        answer = worker.ask(what="run", rows=rows, memory=memory, options=options)["result"]
        return {"wall": answer.get("seconds", float("inf")), "result": answer}

    return lambda: harness.measure(work, worker.cpu_seconds)


def claim_guesses(
    report: harness.Report, worker: harness.Worker, rows: int, idle: float, answer: Any, *, quick: bool
) -> None:
    lines, lost, wrong = [], [], 0
    for limit in LIMITS[:1] if quick else LIMITS:
        for guess in (None, *GUESSES):
            options = {} if guess is None else {"first_rows": guess}
            found = ask(worker, rows, idle + limit * MB, **options)().result
            wrong += found.get("answer") != answer
            lost.append(found.get("lost", 1.0))
            lines.append((
                f"{limit} MB", "-" if guess is None else f"{guess:,}", f"{found.get('seconds', 0.0):.2f}",
                f"{found.get('lost', 1.0):.1%}", found.get("error", "")[:60],
            ))  # fmt: skip
    report.table(("beyond idle", "first guess", "s", "lost", ""), lines)
    report.claim("runs without the right answer", wrong, 0, better="lower")
    report.claim("share of all workers' time lost, worst run", max(lost), LOST, better="lower")


def claim_fixed(report: harness.Report, worker: harness.Worker, rows: int, idle: float, *, quick: bool) -> None:
    for limit in LIMITS[:1] if quick else LIMITS:
        memory = idle + limit * MB
        asks = {"auto": ask(worker, rows, memory)}
        for size in FIXED:
            one = ask(worker, rows, memory, chunk=size, allocation="fixed", ladder="workqueue")
            if np.isfinite(one().wall):
                asks[f"{size:,} rows"] = one
        found = harness.interleave(asks, 2 if quick else 4, extra=0 if quick else None)
        lines = [
            (name, f"{found.median(name):.2f}", f"{found.median('auto') / found.median(name):.2f}") for name in asks
        ]
        report.table((f"{limit} MB beyond idle", "s", "auto over it"), lines)
        best, ratio, interval = found.best_of([name for name in asks if name != "auto"], "auto")
        report.claim(
            f"{limit} MB: auto over the best fixed size ({best})", ratio, WITHIN, better="lower", interval=interval
        )


def claim_order(report: harness.Report, worker: harness.Worker, idle: float) -> None:
    found = worker.ask(what="order", rows=300_000, memory=idle + 300 * MB)["result"]
    for said in (*found["why"], *found["said"]):
        report.note(f"Order: {said}.")
    blamed = found["right"] and all(why.startswith("a moved order used too much memory") for why in found["why"])
    report.claim("a moved order is blamed, the answer is right", int(blamed), 1, better="higher")


def main() -> None:
    options = harness.options("Memory that grows with rows, under limits.")
    report = harness.Report("Shape", harness.machine())
    rows = 100_000 if options.quick else 500_000
    with harness.Worker(harness.PEERS / "shape_memory.py") as worker:
        idle = statistics.median(worker.ask(what="idle")["result"] for _ in range(3))
        answer = worker.ask(what="plain", rows=rows)["result"]
        report.note(f"{rows:,} rows; an idle worker has {idle / MB:.0f} MB.")
        claim_order(report, worker, idle)
        claim_guesses(report, worker, rows, idle, answer, quick=options.quick)
        claim_fixed(report, worker, rows, idle, quick=options.quick)
    report.finish(options.json)


if __name__ == "__main__":
    main()
