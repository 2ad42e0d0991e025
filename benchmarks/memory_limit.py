"""How far a task gets beyond its memory limit before it is ended, and what its neighbour notices of that.

    python benchmarks/memory_limit.py [--quick] [--json FILE]

A task takes 1 GB/s of memory, really written to, and may have 500 MB: by itself, or in a process that it starts. It
writes down, in a file that outlives it, how much it has taken. On another worker a neighbour computes meanwhile; it is
also measured alone. Nothing is repeated because of other programs: they are what a limit must live with.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import numpy as np
from peers import memory_hog
from peers.row_work import RowWork

from windrow.core.commands import Launch, StartWorker
from windrow.core.events import Exhausted, Finished, WorkerJoined, WorkerLost
from windrow.core.records import Handle, Life, Needs, Plan, Rows, RunRows, Task
from windrow.engines.processes.engine import ProcessesEngine

MB = 1_000_000
LIMIT = 500 * MB
#: What docs/engines.md promises, in MB.
STATED = 50.0

HOG, HOG_IN_A_CHILD, NEIGHBOUR = range(3)
NAMES = {HOG: "by itself", HOG_IN_A_CHILD: "in a child process"}


def compute(rounds: int) -> float:
    values = np.linspace(0.0, 1.0, 100_000)
    for _ in range(rounds):
        values = np.sin(values) + 0.1
    return float(values.sum())


class Work(RowWork):
    """A workload whose inputs are the jobs above."""

    def __init__(self, notes: Path, rounds: int) -> None:
        self.notes = notes
        self.rounds = rounds

    def run_rows(self, part: Rows) -> tuple[float, float]:
        if part.input == HOG:
            memory_hog.take_more_and_more(self.notes, memory_hog.resident())
        if part.input == HOG_IN_A_CHILD:
            memory_hog.take_in_a_child(self.notes)
        begin = time.perf_counter()
        result = compute(self.rounds)
        return result, time.perf_counter() - begin


class Bench:
    """Two workers: one for what is ended, one for its neighbour."""

    def __init__(self, engine: ProcessesEngine) -> None:
        self._engine = engine
        self._attempt = 0
        self._life = 0
        self._until(lambda event: isinstance(event, WorkerJoined), 2)

    def _until(self, wanted: Any, count: int = 1) -> list[Any]:
        found = []
        until = time.monotonic() + 120
        while len(found) < count:
            if time.monotonic() > until:
                raise RuntimeError("no answer from the workers")
            found += [event for event in self._engine.wait(1.0) if wanted(event)]
        return found

    def _launch(self, job: int, worker: int, life: int) -> None:
        self._attempt += 1
        task = Task(self._attempt, "", 1, RunRows((Rows(job, 0, 1),)), makes=("result",))
        limits = Needs.of({"memory": LIMIT})
        plan = Plan(id=0, category="")
        self._engine.do([Launch(task, self._attempt, Life(worker, life), plan, limits)])

    def neighbour(self) -> tuple[float, float]:
        """Let the neighbour compute alone: its result and its seconds."""
        self._launch(NEIGHBOUR, 1, 0)
        (done,) = self._until(lambda event: isinstance(event, Finished))
        return self._taken(done)

    def _taken(self, done: Finished) -> tuple[float, float]:
        found: tuple[float, float] = self._engine.take(Handle("result", done.attempt), mine=True)
        return found

    def end(self, job: int) -> tuple[Exhausted, tuple[float, float]]:
        """Let a task take too much beside the neighbour; how it ended, and what the neighbour said."""
        self._launch(NEIGHBOUR, 1, 0)
        self._launch(job, 0, self._life)
        kinds = (Exhausted, WorkerLost, Finished)
        found = {type(one): one for one in self._until(lambda e: isinstance(e, kinds), 3)}
        said = self._taken(found[Finished])
        self._life += 1
        self._engine.do([StartWorker(Life(0, self._life))])
        self._until(lambda event: isinstance(event, WorkerJoined))
        return found[Exhausted], said


def measure(report: harness.Report, tries: int) -> None:
    rounds = 400
    expected = compute(rounds)
    alone, beside, right, peaks = [], [], 0, []
    rows = []
    with tempfile.TemporaryDirectory() as place:
        notes = Path(place, "notes")
        engine = ProcessesEngine(2)
        engine.start(Work(notes, rounds))
        with contextlib.ExitStack() as stack:
            stack.callback(engine.stop)
            bench = Bench(engine)
            bench.neighbour()
            for job, name in NAMES.items():
                told, really, rates = [], [], []
                for _ in range(tries):
                    alone.append(bench.neighbour()[1])
                    memory_hog.clear(notes)
                    exhausted, (result, seconds) = bench.end(job)
                    there, taken, took = memory_hog.read(notes)
                    told.append((exhausted.used - exhausted.limit) / MB)
                    really.append((there + taken - LIMIT) / MB)
                    rates.append(taken / took / MB)
                    beside.append(seconds)
                    right += result == expected
                peaks += [*told, *really]
                rows.append(
                    (
                        name,
                        f"{np.median(told):.0f}, {max(told):.0f}",
                        f"{np.median(really):.0f}, {max(really):.0f}",
                        f"{np.median(rates):.0f}",
                    )
                )
    report.table(
        ("1 GB/s against 500 MB", "MB too much as told: median, max", "as taken when it was gone", "MB/s"), rows
    )
    load = os.getloadavg()[0]
    report.note(f"{tries} tries each; {load:.1f} processes wanted a core meanwhile (load average).")
    ratio = float(np.median(beside) / np.median(alone))
    report.note(
        f"The neighbour's result was right {right} of {2 * tries} times; it took {ratio:.2f} times as long as alone "
        f"({harness.seconds(float(np.median(alone)))}; medians)."
    )
    report.claim("MB beyond a limit of 500 MB at most, at 1 GB/s", max(peaks), STATED, better="lower")
    report.claim("neighbours with the right result, share", right / (2 * tries), 1.0)


def main() -> None:
    options = harness.options("How far a task gets beyond its memory limit.")
    report = harness.Report("Memory limits", harness.machine())
    measure(report, 10 if options.quick else 24)
    report.finish(options.json)


if __name__ == "__main__":
    main()
