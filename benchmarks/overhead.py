"""What Windrow itself costs: the scheduler per task, the driver per task, the way to the first row.

    python benchmarks/overhead.py [--quick] [--json FILE]

Times are processor time of the driver's thread, so that other programs disturb them little; each
number is the best of several rounds for the pure part and the median for the rest.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from windrow.core.commands import Fetch, Launch, Merge
from windrow.core.events import Event, Fetched, Finished, Merged, Started, WorkerJoined
from windrow.core.policies import Policies
from windrow.core.records import (
    Evidence,
    Failure,
    FailureKind,
    Handle,
    InputSpec,
    Measurement,
    Rows,
    StepCost,
    Worker,
)
from windrow.core.scheduler import Scheduler
from windrow.engines.base import Outcome
from windrow.engines.threads import ThreadsEngine
from windrow.run.loop import RunOutcome, run
from windrow.shape.fixed import Fixed
from windrow.watch.log import EventLog

UNIT = 10
CHUNK_S = 0.005

#: What a pipeline of ten steps reports with every task.
EVIDENCE = Evidence(
    tuple((f"step{number}", StepCost.of_call(UNIT, UNIT, 1e-4)) for number in range(10))
)

FIRST_ROW = """
import time
import numpy as np
import windrow as wr

analysis = wr.Pipeline("first")
seen = []

@analysis.cut
def positive(x):
    seen.append(time.time())
    return x > 0

@analysis.output
def count(x):
    return len(x)

analysis.run({"x": np.arange(1000.0)}, progress=False)
print(seen[0])
"""


def make_scheduler(tasks: int) -> Scheduler:
    rows = tasks * UNIT
    borders = tuple(range(0, rows + 1, UNIT))
    source = InputSpec(id=0, category="data", rows=rows, borders=borders)
    return Scheduler([source], Policies(Fixed(UNIT)))


def pure_us_per_task(tasks: int, workers: int = 8, batch: int = 8) -> float:
    """Time ``Scheduler.on`` alone: launch, start, finish, merges and fetches of every task."""
    scheduler = make_scheduler(tasks)
    measured = Measurement(wall=0.001, cpu=0.001)
    waiting: list[Event] = [WorkerJoined(Worker(number, 0)) for number in range(workers)]
    spent = 0.0
    while not scheduler.finished:
        events, waiting = waiting[: 2 * batch], waiting[2 * batch :]
        begin = time.thread_time()
        commands = scheduler.on(events, 0.0)
        spent += time.thread_time() - begin
        for command in commands:
            if isinstance(command, Launch):
                number, worker = command.attempt, command.worker
                handle = Handle(number, number, worker, 0, command.task.inputs)
                waiting.append(Started(number, worker, 0))
                waiting.append(Finished(number, worker, 0, handle, measured, EVIDENCE))
            elif isinstance(command, Merge):
                ids = tuple(one.id for one in command.handles)
                waiting.append(Merged(command.into, ids, command.worker, 0))
            elif isinstance(command, Fetch):
                waiting.append(Fetched(command.handle))
    assert scheduler.ledger.done_rows == tasks * UNIT
    return spent / tasks * 1e6


class Sorting:
    """A workload that burns a set time per task without the interpreter lock, or none."""

    def __init__(self, values: int) -> None:
        self.data = np.random.default_rng(1).random(values)

    def open_worker(self, worker: int) -> Sorting:  # noqa: ARG002 - all are alike
        return self

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.INTERNAL, type(error).__name__, str(error), "", error)

    def inspect(self, number: int) -> tuple[int, tuple[int, ...]]:
        raise NotImplementedError

    def run(self, rows: tuple[Rows, ...], plan: Any) -> Outcome:  # noqa: ARG002 - nor is there one
        if self.data.size:
            np.sort(self.data)
        return Outcome(rows[0].stop - rows[0].start, Measurement(), EVIDENCE)

    def merge(self, partials: Any) -> int:
        return sum(partials)

    def close(self) -> None:
        pass


def calibrated() -> Sorting:
    """Find how many values are sorted in about 5 ms."""
    values = 1 << 12
    while True:
        work = Sorting(values)
        begin = time.thread_time()
        for _ in range(5):
            np.sort(work.data)
        spent = (time.thread_time() - begin) / 5
        if spent > CHUNK_S / 2:
            return Sorting(int(values * CHUNK_S / spent))
        values *= 2


def end_to_end(work: Sorting, tasks: int, logged: bool) -> RunOutcome:
    scheduler = make_scheduler(tasks)
    observers = (EventLog(io.StringIO()),) if logged else ()
    outcome = run(scheduler, ThreadsEngine(2), work, observers=observers)
    assert outcome.status == "complete"
    assert sum(outcome.partials[0]) == tasks * UNIT
    return outcome


def driver_us_per_task(work: Sorting, tasks: int, rounds: int) -> tuple[float, float, float]:
    """Measure driver time per task, log off and on (interleaved), and tasks per second."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    rate = 0.0
    for _ in range(rounds):
        for logged in (False, True):
            outcome = end_to_end(work, tasks, logged)
            spent[logged].append(outcome.driver_cpu_s / tasks * 1e6)
            if not logged:
                rate = max(rate, tasks / outcome.wall_s)
    return statistics.median(spent[False]), statistics.median(spent[True]), rate


def seconds_to_first_row(rounds: int) -> float | None:
    """Time from starting Python to the first call of a pipeline's first step."""
    taken = []
    for _ in range(rounds):
        begin = time.time()
        done = subprocess.run(
            [sys.executable, "-c", FIRST_ROW], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(done.stderr.strip().splitlines()[-1:], file=sys.stderr)
            return None
        taken.append(float(done.stdout.split()[-1]) - begin)
    return statistics.median(taken)


def claim(name: str, value: float, target: float, better: str = "lower") -> dict[str, Any]:
    met = value <= target if better == "lower" else value >= target
    return {"name": name, "value": round(value, 4), "target": target, "better": better, "met": met}


def measure(quick: bool) -> list[dict[str, Any]]:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    claims = []
    pure = {}
    for tasks in sizes:
        rounds = 7 if tasks <= 10_000 else 3
        pure[tasks] = min(pure_us_per_task(tasks) for _ in range(rounds))
        claims.append(claim(f"scheduler, pure, us per task of {tasks}", pure[tasks], 15.0))
    growth = pure[sizes[-1]] / pure[sizes[0]]
    claims.append(claim(f"scheduler, cost per task, {sizes[-1]} over {sizes[0]}", growth, 1.5))
    rounds = 3 if quick else 5
    off, on, rate = driver_us_per_task(Sorting(0), 5_000 if quick else 20_000, rounds)
    claims.append(claim("driver, us per empty task, log off", off, 50.0))
    claims.append(claim("driver, us per empty task, log on", on, 50.0))
    claims.append(claim("empty tasks per second, 2 threads", rate, 10_000, "higher"))
    off, on, _ = driver_us_per_task(calibrated(), 400 if quick else 1_000, rounds)
    claims.append(claim("driver, % of 5 ms chunks, log off", off * 1e-4 / CHUNK_S, 1.0))
    claims.append(claim("driver, % of 5 ms chunks, log on", on * 1e-4 / CHUNK_S, 1.5))
    first = seconds_to_first_row(3 if quick else 7)
    if first is not None:
        claims.append(claim("seconds from python to the first row", first, 2.0))
    return claims


def machine() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="What Windrow itself costs.")
    parser.add_argument("--quick", action="store_true", help="less of everything, under a minute")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the claims to FILE")
    options = parser.parse_args()
    claims = measure(options.quick)
    print(f"{'':48} {'value':>10} {'target':>10}")
    for one in claims:
        bound = ("<= " if one["better"] == "lower" else ">= ") + f"{one['target']:g}"
        print(f"{one['name']:48} {one['value']:10.4g} {bound:>10} {'' if one['met'] else 'MISSED'}")
    if options.json is not None:
        options.json.write_text(json.dumps({"claims": claims, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
