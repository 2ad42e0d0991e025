"""What things take that are many: the memory of a tree of tasks and of two thousand regions, and a look at two thousand branches.

    python benchmarks/footprint.py [--quick] [--json FILE]

A tree adds up 100 arrays of 8 MB, two at a time, on two worker processes; what all processes have in memory (a page that several
share counts once) is looked at every 20 ms. 2,000 regions are run over 300,000 rows. ``windrow show`` looks at a file with 2,000
branches of lists in lists.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import harness
import numpy as np
import psutil

#: Gigabytes and seconds at most.
TREE_GB, REGIONS_GB, SHOW_S = 0.4, 1.0, 3.0

TREE = """
import numpy as np, windrow as wr
@wr.task
def make(number): return np.full(1_000_000, float(number))
@wr.task
def add(one, other): return one + other
if __name__ == "__main__":
    with wr.Session(workers=2, progress=False, store=False):
        layer = [make(number) for number in range({count})]
        while len(layer) > 1:
            layer = [add(*layer[k : k + 2]) if k + 1 < len(layer) else layer[k] for k in range(0, len(layer), 2)]
        assert layer[0].result()[0] == {count} * ({count} - 1) / 2
"""
REGIONS = """
import hist, numpy as np, windrow as wr
rng = np.random.default_rng(0)
rows = {rows}
events = {{f"x{{k}}": rng.random(rows) for k in range(40)}} | {{"m": rng.exponential(60, rows)}}
many = wr.Pipeline("many")
for number in range({count}):
    many.cut(lambda x, *, t=number / {count}: x > t, name=f"c{{number}}", reads=[f"x{{number % 40}}"])
    many.region(f"r{{number}}", f"c{{number}}")
many.output(wr.hist("m", hist.axis.Regular(60, 0, 240)), name="spectrum")
if __name__ == "__main__":
    assert many.run({{"data": events}}, progress=False).complete
"""


def peak(program: str) -> tuple[float, float]:
    """Run a program; give gigabytes at most, of it and all that it starts, and seconds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "program.py"
        path.write_text(program)
        begin = time.perf_counter()
        process = subprocess.Popen([sys.executable, str(path)], cwd=directory)
        most = 0.0
        done = threading.Event()

        def look() -> None:
            nonlocal most
            while not done.wait(0.02):
                total = 0
                with suppress(psutil.Error):
                    first = psutil.Process(process.pid)
                    for one in (first, *first.children(recursive=True)):
                        with suppress(psutil.Error):
                            total += one.memory_full_info().pss
                most = max(most, total / 1e9)

        looking = threading.Thread(target=look)
        looking.start()
        code = process.wait(timeout=600)
        done.set()
        looking.join()
        if code:
            raise SystemExit(f"the program ended with {code}")
        return most, time.perf_counter() - begin


def show_seconds(branches: int) -> tuple[float, float]:
    """Look at a file of lists in lists; give the seconds, and its megabytes."""
    import awkward as ak
    import uproot

    rng = np.random.default_rng(1)
    inner = ak.unflatten(rng.random(60).astype(np.float32), rng.multinomial(60, [1 / 20] * 20))
    nested = ak.unflatten(inner, rng.multinomial(20, [1 / 8] * 8))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "nested.root"
        with uproot.recreate(path) as file:
            file.mkrntuple("Events", {f"branch_{number}": nested for number in range(branches)})
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "windrow", "show", str(path)], capture_output=True, text=True, check=False
        )
        if done.returncode or "branch_1000" not in done.stdout:
            raise SystemExit(f"windrow show: {done.stderr or done.stdout[-300:]}")
        return time.perf_counter() - begin, path.stat().st_size / 1e6


def main() -> None:
    options = harness.options("What things take that are many.")
    report = harness.Report("Footprint", harness.machine())
    count, regions, rows = (16, 200, 30_000) if options.quick else (100, 2_000, 300_000)
    lines: list[tuple[Any, ...]] = []
    tree, seconds = peak(TREE.format(count=count))
    lines.append((f"tree over {count} arrays of 8 MB", f"{tree:.2f} GB", f"{seconds:.1f} s"))
    many, seconds = peak(REGIONS.format(count=regions, rows=rows))
    lines.append((f"{regions:,} regions, {rows:,} rows", f"{many:.2f} GB", f"{seconds:.1f} s"))
    show, size = show_seconds(2_000)
    lines.append((f"windrow show, 2,000 branches of lists in lists, {size:.1f} MB", "", f"{show:.1f} s"))
    report.table(("what", "memory at most", "time"), lines)
    report.claim("tree: gigabytes at most", tree, TREE_GB, better="lower")
    report.claim("regions: gigabytes at most", many, REGIONS_GB, better="lower")
    report.claim("windrow show, seconds", show, SHOW_S, better="lower")
    report.finish(options.json)


if __name__ == "__main__":
    main()
