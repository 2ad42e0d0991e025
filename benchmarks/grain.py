"""Rows that take long, in one small file: how far a run is from the work divided by the cores.

    python benchmarks/grain.py [--quick] [--json FILE]

The plain program is the same loop over rows in two processes, each half of the file: it knows beforehand what Windrow has to
find out, that rows take long and all alike. Every run of Windrow is a first one: nothing is remembered. Both are asked in turn.
"""

from __future__ import annotations

import harness
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PLAIN, WINDROW = "plain, two processes", "windrow"
#: Rows, and milliseconds of each.
CASES = ((4_000, 1.0), (4_000, 10.0), (20_000, 1.0), (100_000, 0.1))
QUICK = ((4_000, 0.5), (20_000, 0.1))
#: Of runs with so much work the ratio counts, of shorter ones the seconds.
LONG_S, RATIO, OVER_S = 10.0, 1.15, 0.4


def data(rows: int) -> str:
    harness.DATA.mkdir(parents=True, exist_ok=True)
    path = harness.DATA / f"grain_{rows}.parquet"
    if not path.exists():
        pq.write_table(pa.table({"x": np.random.default_rng(2).random(rows)}), path)
    return str(path)


def main() -> None:
    options = harness.options("Rows that take long, in one small file.")
    report = harness.Report("Rows that take long", harness.machine())
    lines = []
    with harness.Worker(harness.PEERS / "grain_windrow.py") as worker:
        for kind in ("Python", "compiled", "NumPy"):
            for rows, cost in QUICK if options.quick else CASES:
                count = harness.asking(worker, what="calibrate", kind=kind, seconds=cost / 1e3)().result
                asks = {
                    name: harness.asking(worker, what=what, kind=kind, path=data(rows), count=count)
                    for name, what in ((PLAIN, "plain"), (WINDROW, "windrow"))
                }
                found = harness.interleave(asks, 1 if options.quick else 3, extra=0 if options.quick else None)
                if found.samples[PLAIN][0].result != found.samples[WINDROW][0].result:
                    raise SystemExit(f"{kind}, {rows} rows: Windrow and the plain program differ")
                plain, ours = found.median(PLAIN), found.median(WINDROW)
                name = f"{kind}, {rows:,} rows of {cost:g} ms"
                lines.append((name, f"{plain:.2f}", f"{ours:.2f}", f"{ours / plain:.2f}", found.quality))
                if 2 * plain >= LONG_S:
                    report.claim(f"{name}: over plain in two processes", ours / plain, RATIO, better="lower")
                else:
                    report.claim(f"{name}: seconds over plain in two processes", ours - plain, OVER_S, better="lower")
    report.table(("one file", "plain, s", "windrow, s", "ratio", "rounds"), lines)
    report.finish(options.json)


if __name__ == "__main__":
    main()
