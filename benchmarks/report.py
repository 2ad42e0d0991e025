"""What a report costs: building the page of a run of many tasks, and opening it in a browser.

    python benchmarks/report.py [--quick] [--json FILE]

The log is written by the event log itself, from made-up events of 64 workers and 8 inputs, and
stands in for that of a small run with histograms and a cutflow. The page is built in a process of
its own, whose memory is measured, and opened in headless Chromium until the last chart is drawn.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness

from windrow.core.commands import Launch
from windrow.core.events import Finished, WorkerJoined
from windrow.core.records import Life, Measurement, Opened, OpenInput, Plan, Rows, RunRows, Task, Worker
from windrow.watch.log import EventLog

WORKERS = 64
FILES = 8
ROWS = 50_000

#: What a browser is started with: it talks to nobody, and draws without a graphics card.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

BUILD = """
import json, resource, sys, time
import numpy as np
import windrow as wr
from hist import Hist
from windrow.pipeline.results.report_data import write_report

analysis = wr.Pipeline("many tasks")

@analysis.cut
def positive(x):
    return x > 0

analysis.region("signal", "positive")

@analysis.output(regions="*")
def spectrum(x):
    return Hist.new.Reg(100, 0, 5, name="x").Weight().fill(x)

x = np.random.default_rng(1).normal(size=10_000)
result = analysis.run({f"set_{n}": {"x": x + n} for n in range(8)}, progress=False)
result.rundir, result.workers = sys.argv[1], int(sys.argv[2])
begin, cpu = time.perf_counter(), time.process_time()
write_report(result)
spent = {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
print(json.dumps({**spent, "kB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
"""


def write_log(path: Path, tasks: int) -> None:
    """Write the log of a run: workers are given a task as soon as they are done with one."""
    rng = random.Random(1)
    memory = iter(range(500_000_000, 10**12, 10_000))
    with path.open("w", encoding="utf-8") as stream:
        log = EventLog(stream, lambda: next(memory))
        log([WorkerJoined(Worker(Life(number, 0))) for number in range(WORKERS)], [], 1000.0)
        per_file = -(-tasks // FILES)
        plan = Plan(id=0, category="data")
        for number in range(FILES):
            opening = Task(tasks + number, "data", payload=OpenInput(number))
            log([], [Launch(opening, opening.id, Life(0, 0), plan)], 1000.0)
            found = Opened(per_file * ROWS, (0, per_file * ROWS))
            log([Finished(opening.id, Life(0, 0), (), Measurement(), found)], [], 1000.0)
        free = [1000.0] * WORKERS
        for number in range(tasks):
            worker = min(range(WORKERS), key=free.__getitem__)
            begun = free[worker]
            wall = rng.lognormvariate(-1.0, 0.5)
            source, place = divmod(number, per_file)
            rows = RunRows((Rows(source, place * ROWS, (place + 1) * ROWS),))
            log([], [Launch(Task(number, "data", ROWS, rows), number, Life(worker, 0), plan)], begun)
            used = Measurement(wall, 0.8 * wall, 0.1 * wall, bytes_read=rng.randrange(10**6))
            log([Finished(number, Life(worker, 0), (), used, None)], [], begun + wall)
            free[worker] = begun + wall + rng.expovariate(20)
        log.flush()


def build(directory: Path) -> dict[str, float]:
    """Build page and trace in a new process; seconds without the start of Python, and peak memory."""
    command = [sys.executable, "-c", BUILD, str(directory), str(WORKERS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def open_seconds(page: Path, chromium: str) -> float:
    """Time from asking for the page until its load event is over and every chart is drawn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play, tempfile.TemporaryDirectory() as profile:
        context = play.chromium.launch_persistent_context(
            profile, executable_path=chromium, args=list(FLAGS), viewport={"width": 1400, "height": 900}
        )  # fmt: skip
        try:
            tab = context.new_page()
            wrong: list[str] = []
            tab.on("pageerror", lambda error: wrong.append(str(error)))
            begin = time.perf_counter()
            tab.goto(page.as_uri(), wait_until="load")
            tab.wait_for_selector("html[data-drawn=true]", state="attached", timeout=120_000)
            spent = time.perf_counter() - begin
            assert not wrong, wrong
            for chart in ("histogram", "timeline", "rows", "read", "memory"):
                assert tab.locator(f"#chart-{chart} canvas").count() == 1, chart
        finally:
            context.close()
    return spent


def browser() -> tuple[str | None, str]:
    """Find a browser and what drives it; otherwise say what is missing."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        return None, "no chromium on PATH"
    try:
        import playwright.sync_api  # noqa: F401 - whether it is there
    except ImportError:
        return None, "playwright is not installed"
    return found, ""


def main() -> None:
    options = harness.options("What a report costs.")
    report = harness.Report("Report", harness.machine("playwright"))
    tasks = 50_000 if options.quick else 200_000
    rounds = 1 if options.quick else 3
    chromium, reason = browser()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_log(directory / "events.jsonl", tasks)
        page = directory / "report.html"
        built = [build(directory) for _ in range(rounds)]
        opened = [open_seconds(page, chromium) for _ in range(rounds)] if chromium else []
        sizes = {file: (directory / file).stat().st_size for file in ("events.jsonl", "report.html", "trace.json")}  # fmt: skip
    build_s, build_cpu = (statistics.median(one[key] for one in built) for key in ("seconds", "cpu"))
    open_s = statistics.median(opened) if opened else None
    report.table(
        (f"{tasks:,} tasks, {WORKERS} workers", ""),
        [
            ("log", f"{sizes['events.jsonl'] / 1e6:.1f} MB"),
            ("page", f"{sizes['report.html'] / 1e6:.2f} MB"),
            ("trace", f"{sizes['trace.json'] / 1e6:.1f} MB"),
            ("page and trace built in", f"{build_s:.2f} s, {build_cpu:.2f} s of them computing"),
            ("peak memory of the builder", f"{max(one['kB'] for one in built) / 1e3:.0f} MB"),
            ("opened and drawn in", "-" if open_s is None else f"{open_s:.2f} s"),
        ],
    )
    report.note(f"Medians of {rounds}. Chromium {'is there' if chromium else reason}.")
    report.claim(f"s to open the page of {tasks:,} tasks", open_s, 5.0, better="lower", reason=reason or None)
    size = sizes["report.html"] / 1e6
    report.claim(f"MB of the page of {tasks:,} tasks", size, 20.0, better="lower")
    # Processor time, as machines are shared; it is one thread's.
    report.claim(f"processor s to build page and trace of {tasks:,} tasks", build_cpu, 5.0, better="lower")
    report.finish(options.json)


if __name__ == "__main__":
    main()
