"""What Windrow itself costs: the scheduler per task, the driver per task, the way to the first row.

    python benchmarks/overhead.py [--quick] [--json FILE]

Costs are processor time of the driver's thread. Everything is measured once per round, in turn;
rounds in which other programs were busy are repeated, and medians are reported. Empty tasks are
also given to concurrent.futures, as a measure of what a task costs at least in Python.
"""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import harness
import numpy as np

from windrow.core.commands import Fetch, Launch
from windrow.core.events import Event, Finished, Held, Started, WorkerJoined
from windrow.core.policies import Policies
from windrow.core.records import (
    Evidence,
    Failure,
    FailureKind,
    InputSpec,
    Life,
    Made,
    Measurement,
    MergePartials,
    RowsReport,
    RunRows,
    StepCost,
    Task,
    Worker,
)
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.engines.base import NO_READING, Job, Outcome, Reading
from windrow.engines.threads import ThreadsEngine
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.watch.log import EventLog

UNIT = 10
CHUNK_S = 0.005

#: What a pipeline of ten steps reports with every task.
EVIDENCE = Evidence(tuple((f"step{number}", StepCost.of_call(UNIT, UNIT, 1e-4)) for number in range(10)))

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
    return Scheduler(RowFeeder([source], Policies(Fixed(UNIT))))


def pure_us_per_task(tasks: int, workers: int = 8, batch: int = 8) -> float:
    """Time ``Scheduler.on`` alone: launch, start, finish, merges and fetches of every task."""
    scheduler = make_scheduler(tasks)
    measured = Measurement(wall=0.001, cpu=0.001)
    waiting: list[Event] = [WorkerJoined(Worker(Life(number, 0))) for number in range(workers)]
    spent = 0.0
    while not scheduler.finished:
        events, waiting = waiting[: 2 * batch], waiting[2 * batch :]
        begin = time.thread_time()
        commands = scheduler.on(events, 0.0)
        spent += time.thread_time() - begin
        for command in commands:
            if isinstance(command, Launch):
                made = tuple(Made(name) for name in command.task.makes)
                report = RowsReport(EVIDENCE) if isinstance(command.task.payload, RunRows) else None
                waiting.append(Started(command.attempt, command.life))
                waiting.append(Finished(command.attempt, command.life, made, measured, report))
            elif isinstance(command, Fetch):
                waiting.append(Held(command.handle))
    assert isinstance(scheduler.feeder, RowFeeder)
    assert scheduler.feeder.ledger.done_rows == tasks * UNIT
    return spent / tasks * 1e6


class Sorting:
    """A workload that burns a set time per task without the interpreter lock, or none."""

    reading: Reading = NO_READING
    used: tuple[float, int] | None = None

    def __init__(self, values: int) -> None:
        self.data = np.random.default_rng(1).random(values)

    def open_worker(self, worker: int) -> Sorting:  # noqa: ARG002 - all are alike
        return self

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.INTERNAL, type(error).__name__, str(error), "", error)

    def content(self, task: Task) -> Any:
        return task.payload

    def describe(self, task: Task) -> str:
        return f"task {task.id}"

    def hear(self, news: Any) -> None:
        raise NotImplementedError

    def is_own(self, module: Any) -> bool:
        raise NotImplementedError

    def run(self, job: Job) -> Outcome:
        payload = job.task.payload
        (name,) = job.task.makes
        if isinstance(payload, MergePartials):
            return Outcome({name: sum(job.values)})
        if self.data.size:
            np.sort(self.data)
        return Outcome({name: job.task.size}, RowsReport(EVIDENCE))

    def prepare(self, task: Task, plan: Any) -> None:
        """Read nothing ahead."""

    def news(self) -> None:
        """Tell nothing."""

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


def driver_us_per_task(work: Sorting, tasks: int, *, logged: bool) -> float:
    """Run tasks on two threads; give the driver's processor time for each."""
    scheduler = make_scheduler(tasks)
    observers = (EventLog(io.StringIO()),) if logged else ()
    outcome = run(scheduler, ThreadsEngine(2), work, observers=observers)
    assert outcome.status == "complete"
    assert sum(outcome.partials[0]) == tasks * UNIT
    return outcome.driver_cpu_s / tasks * 1e6


def executor_us_per_task(tasks: int) -> float:
    """Submit functions that do nothing, and take their results, in the submitting thread's time."""
    with ThreadPoolExecutor(2) as pool:
        begin = time.thread_time()
        futures = [pool.submit(int) for _ in range(tasks)]
        assert sum(future.result() for future in futures) == 0
        return (time.thread_time() - begin) / tasks * 1e6


def seconds_to_first_row() -> float:
    """Time from starting Python to the first call of a pipeline's first step."""
    begin = time.time()
    done = subprocess.run([sys.executable, "-c", FIRST_ROW], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1]) - begin


def medians(competitors: dict[str, Any], rounds: int) -> tuple[dict[str, float], str]:
    """Measure all in turn; give the median of each one's answers and how quiet it was."""
    found = harness.interleave({name: harness.calling(function) for name, function in competitors.items()}, rounds)
    values = {name: statistics.median(sample.result for sample in samples) for name, samples in found.samples.items()}
    return values, found.quality


def main() -> None:
    options = harness.options("What Windrow itself costs.")
    report = harness.Report("Overhead", harness.machine())
    rounds = 5 if options.quick else 9
    sizes = (1_000, 10_000) if options.quick else (1_000, 10_000, 100_000)
    least, most = sizes[0], sizes[-1]
    pure, quality = medians(
        {f"{tasks:,} tasks": lambda tasks=tasks: pure_us_per_task(tasks) for tasks in sizes}, 3 if options.quick else 5
    )
    report.table(("scheduler alone", "us per task"), [(n, f"{v:.1f}") for n, v in pure.items()])
    report.note(f"Three events a task and evidence of ten steps; rounds: {quality}.")

    nothing, sorting = Sorting(0), calibrated()
    many, few = (5_000, 600) if options.quick else (20_000, 1_000)
    driver, quality = medians(
        {
            "empty tasks, log off": lambda: driver_us_per_task(nothing, many, logged=False),
            "empty tasks, log on": lambda: driver_us_per_task(nothing, many, logged=True),
            "empty tasks, concurrent.futures": lambda: executor_us_per_task(many),
        },
        rounds,
    )
    chunks, quality_of_chunks = medians(
        {
            "chunks of 5 ms, log off": lambda: driver_us_per_task(sorting, few, logged=False),
            "chunks of 5 ms, log on": lambda: driver_us_per_task(sorting, few, logged=True),
        },
        3 if options.quick else 7,
    )
    driver |= chunks
    report.table(("driver, 2 threads", "us per task"), [(n, f"{v:.1f}") for n, v in driver.items()])
    report.note(f"Rounds of empty tasks: {quality}; of chunks: {quality_of_chunks}.")

    first, quality = medians({"first row": seconds_to_first_row}, 3 if options.quick else 7)
    report.note(f"Seconds from `python` to the first row: {first['first row']:.2f} ({quality}).")

    share = {name: driver[f"chunks of 5 ms, log {name}"] * 1e-4 / CHUNK_S for name in ("off", "on")}
    report.claim("driver, % of 5 ms chunks, log off", share["off"], 1.0, better="lower")
    report.claim("driver, % of 5 ms chunks, log on", share["on"], 1.5, better="lower")
    growth = pure[f"{most:,} tasks"] / pure[f"{least:,} tasks"]
    report.claim(f"scheduler, cost per task, {most:,} over {least:,}", growth, 1.5, better="lower")
    report.finish(options.json)


if __name__ == "__main__":
    main()
