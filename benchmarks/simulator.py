"""The simulator: how fast it is, whether it repeats itself, and whether what it foretells comes true.

    python benchmarks/simulator.py [--quick] [--json FILE]

For the forecasts a real pipeline runs with one worker and with two, in turn, and leaves run
directories. Each foretells the other. Two kinds of steps: a compiled loop that lets go of the
interpreter lock, and a Python loop that holds it. What is foretold has a processor for every
worker, so the time that workers waited for processors which other programs had is taken out of
what came true (it is in the log); times as they were are in the table too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import shutil
import statistics
import time
from typing import Any

import harness
import numba
import numpy as np

import windrow as wr
from windrow.core.policies import Policies
from windrow.engines.simulated.devices import Device
from windrow.engines.simulated.model import AffineCosts, Model, SimulatedInput
from windrow.run.recorded import read_record
from windrow.run.simulate import forecast, simulate
from windrow.shape.fixed import Fixed
from windrow.watch.log import EventLog
from windrow.watch.readlog import read_log

TASKS, WORKERS, UNIT = 100_000, 256, 10
RUNS = harness.BENCH / "simulator"
TARGET = 0.15


# -- speed and repetition --------------------------------------------------------------------------


def many_tasks(tasks: int, device: str | None) -> Model:
    """Equal tasks of a second or so, more or less, in a thousand files, on a shared disk or not."""
    files = 1_000
    rows = tasks * UNIT // files
    costs = AffineCosts(
        fixed_s=0.01,
        per_row_s=0.1,
        sigma=0.3,
        read_per_row=1e5 if device else 0.0,
        device=device,
        inspect_s=0.01,
        merge_s=0.001,
    )
    disk = Device(streams=(1, 2, 4, 8), rates=(1e9, 1.8e9, 2e9, 2e9), latency_s=0.001)
    return Model(
        inputs=tuple(SimulatedInput.even("data", rows, UNIT) for _ in range(files)),
        costs={"data": costs},
        devices={"disk": disk},
    )


def seconds_of(model: Model, tasks: int) -> float:
    begin = time.perf_counter()
    done = simulate(model, WORKERS, policies=Policies(shape=Fixed(UNIT)))
    spent = time.perf_counter() - begin
    assert done.outcome.status == "complete"
    assert done.tally.tasks == tasks
    return spent


def digest(model: Model, seed: int) -> str:
    text = io.StringIO()
    log = EventLog(text)
    simulate(model, 64, seed=seed, observers=[log], policies=Policies(shape=Fixed(UNIT)))
    log.flush()
    return hashlib.sha256(text.getvalue().encode()).hexdigest()


def speed(report: harness.Report, *, quick: bool) -> None:
    plain, disk = many_tasks(TASKS, None), many_tasks(TASKS, "disk")
    found = harness.interleave(
        {
            "tasks that compute": harness.calling(lambda: seconds_of(plain, TASKS)),
            "tasks that read from a shared disk first": harness.calling(lambda: seconds_of(disk, TASKS)),
        },
        1 if quick else 3,
        extra=0 if quick else None,
    )
    report.table(
        (f"{TASKS:,} tasks, {WORKERS} workers", "s", "processor s", "us per task"),
        [
            (name, f"{found.median(name):.2f}", f"{found.cpu(name):.2f}", f"{found.cpu(name) / TASKS * 1e6:.0f}")
            for name in found.samples
        ],
    )
    report.note(f"The scheduler is the real one; rounds: {found.quality}.")
    # One thread computes all the time: without other programs both times are the same.
    slowest = max(found.cpu(name) for name in found.samples)
    report.claim(f"processor s for {TASKS:,} simulated tasks on {WORKERS} workers", slowest, 10, better="lower")
    model = many_tasks(20_000, "disk")
    same = digest(model, 1) == digest(model, 1)
    other = digest(model, 1) != digest(model, 2)
    report.note(
        f"Logs of two runs with one seed are {'equal' if same else 'DIFFERENT'}, with another seed "
        f"{'another' if other else 'THE SAME'}."
    )
    report.claim("one seed, one log; two seeds, two logs", float(same and other), 1)


# -- forecasts -------------------------------------------------------------------------------------


@numba.njit(nogil=True)
def scrambled(values: np.ndarray, rounds: int) -> np.ndarray:
    """A chain of multiplications for every value: no memory traffic, and no lock."""
    out = np.empty_like(values)
    for i in range(len(values)):
        state = np.uint64(values[i] * 1e15)
        for _ in range(rounds):
            state = (state ^ (state >> np.uint64(12))) * np.uint64(2685821657736338717)
        out[i] = values[i] + np.float64(state & np.uint64(1))
    return out


def analysis(kind: str) -> wr.Pipeline:
    made = wr.Pipeline(kind)
    if kind == "compiled":

        @made.column
        def y(x):
            return scrambled(x, 300)

    else:

        @made.column
        def y(x):
            total = 0
            for i in range(4 * len(x)):
                total += i & 3
            return x + (total >= 0)

    @made.cut
    def high(y):
        return y > 0.7

    @made.output
    def passed(y):
        return len(y)

    return made


def run_once(kind: str, engine: str, workers: int, rows: int) -> str:
    place = RUNS / f"{kind}-{engine}-{workers}"
    if place.exists():
        shutil.rmtree(place)
    data = {"x": np.random.default_rng(3).random(rows)}
    result = analysis(kind).run(data, engine=engine, workers=workers, rundir=place, chunk=rows // 24, progress=False)
    assert result.complete
    return str(place)


def undisturbed_s(place: str, seconds: float, workers: int) -> float:
    """The time of a run without what its workers waited for processors that others had."""
    with open(f"{place}/events.jsonl", encoding="utf-8") as lines:  # noqa: PTH123 - a text path
        tasks = read_log(lines).attempts
    queued = np.clip(tasks.wall - tasks.cpu - tasks.lock, 0, None)
    return seconds - float(queued.sum()) / workers


def engines() -> list[str]:
    found = importlib.util.find_spec("windrow.engines.processes.engine")
    return ["threads"] if found is None else ["threads", "processes"]


def forecasts(report: harness.Report, *, quick: bool) -> None:
    rounds = 3 if quick else 9
    sizes = {"compiled": 4_000_000, "python": 6_000_000}
    lines: list[tuple[Any, ...]] = []
    errors: dict[tuple[str, str], list[float]] = {}
    scrambled(np.ones(3), 3)
    for engine in engines():
        for kind, rows in sizes.items():
            found: dict[str, list[tuple[float, ...]]] = {"1 -> 2": [], "2 -> 1": []}
            for _ in range(rounds):
                records, facts = {}, {}
                for workers in (1, 2):
                    place = run_once(kind, engine, workers, rows)
                    records[workers] = read_record(place)
                    wall = records[workers].seconds
                    facts[workers] = wall, undisturbed_s(place, wall, workers)
                for one, other in ((1, 2), (2, 1)):
                    foretold = forecast(records[one], other, seeds=(0, 1, 2)).seconds
                    wall, quiet = facts[other]
                    found[f"{one} -> {other}"].append((foretold, quiet, wall))
            for direction, values in found.items():
                off = [abs(foretold / quiet - 1) for foretold, quiet, _ in values]
                raw = [abs(foretold / wall - 1) for foretold, _, wall in values]
                errors.setdefault((engine, direction), []).append(statistics.median(off))
                middle = [statistics.median(column) for column in zip(*values, strict=True)]
                lines.append(
                    (
                        f"{kind}, {engine}",
                        direction,
                        *(f"{value:.2f}" for value in middle),
                        f"{statistics.median(off):.1%}",
                        f"{statistics.median(raw):.1%}",
                    )
                )
    report.table(
        ("steps, workers", "foretells", "foretold s", "came true s", "as it was s", "off by", "as it was"), lines
    )
    report.note(
        f"Medians of {rounds} rounds, one worker and two in turn; 'came true' is without waiting "
        "for processors that other programs had. 'off by' is the median of the absolute errors."
    )
    for (engine, direction), values in errors.items():
        report.claim(f"{engine}, {direction} workers: forecast off by", max(values), TARGET, better="lower")


def main() -> None:
    options = harness.options("The simulator.")
    report = harness.Report("Simulator", harness.machine())
    RUNS.mkdir(parents=True, exist_ok=True)
    speed(report, quick=options.quick)
    forecasts(report, quick=options.quick)
    report.finish(options.json)


if __name__ == "__main__":
    main()
