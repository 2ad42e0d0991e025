"""Whether a checkout of the repository is as fast as another one: old against new, in turn, in one run.

    python benchmarks/versions.py OLD NEW [--quick] [--json FILE]

Each checkout runs its own benchmarks with its own interpreter (``.venv/bin/python``): tasks and the selection as ``tasks.py``
and ``selection.py`` have them, without other systems; the simulator and the costs of the driver as ``simulator.py`` and
``overhead.py`` do. Ratios are old over new, so that more is faster: medians of interleaved rounds, with a paired 95 % interval.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import harness
import selection

import tasks

if TYPE_CHECKING:
    from collections.abc import Callable

OLD, NEW = "old", "new"
JOBS = ("no-op", "1 ms busy", "1 ms blocked", "chain", "tree")
#: What else is measured: sizes of quick and full rounds, and the number of full rounds.
OTHERS = {
    "simulator": (5_000, 50_000, 7),
    "simulator with a disk": (5_000, 50_000, 7),
    "scheduler alone": (1_000, 10_000, 11),
    "empty tasks": (1_000, 10_000, 11),
    "chunks of 5 ms": (100, 1_000, 11),
    "first row": (0, 0, 11),
}
#: Of tasks and the selection no more speed than this may be lost, and the simulator's time may grow by a fifth.
KEPT, SIMULATOR = 0.95, 1 / 1.2
#: The driver's share of chunks of 5 ms, in per cent.
DRIVER, CHUNK_US = 1.5, 5_000


class Checkouts:
    """The two checkouts and their workers, by script."""

    def __init__(self, old: Path, new: Path, stack: contextlib.ExitStack) -> None:
        self.places = {OLD: old.resolve(), NEW: new.resolve()}
        for place in self.places.values():  # or one of them compiles while it is measured
            subprocess.run([place / ".venv" / "bin" / "python", "-m", "compileall", "-q", place / "src"], check=True)
        self._stack = stack
        self._workers: dict[tuple[str, str], harness.Worker] = {}

    def worker(self, name: str, script: str | Path) -> harness.Worker:
        place = self.places[name]
        key = name, str(script)
        if key not in self._workers:
            own = place / "benchmarks" / "peers" / script
            made = harness.Worker(own, place / ".venv" / "bin" / "python", source=place / "src")
            self._workers[key] = self._stack.enter_context(made)
        return self._workers[key]


def timed(ask: Callable[[], harness.Sample], value: Callable[[Any], float]) -> Callable[[], harness.Sample]:
    """The same, with the time that the answer tells."""

    def sample() -> harness.Sample:
        found = ask()
        return replace(found, wall=value(found.result))

    return sample


def measure(asks: dict[str, Any], rounds: int) -> harness.Rounds:
    for ask in asks.values():
        ask()  # pools are made, functions compiled and sent
    return harness.interleave(asks, rounds, extra=0 if rounds <= 2 else None)


def measure_tasks(checkouts: Checkouts, *, quick: bool) -> dict[str, harness.Rounds]:
    found = {}
    for system in ("threads", "processes"):
        for what in JOBS:
            few, many = tasks.JOBS[what]
            asks = {
                name: tasks.asking(
                    checkouts.worker(name, "tasks_windrow.py"), what, few if quick else many, {"system": system}
                )
                for name in (OLD, NEW)
            }
            found[f"tasks: {what}, {system}"] = measure(asks, 2 if quick else 15)
    return found


def measure_selection(checkouts: Checkouts, *, quick: bool) -> dict[str, harness.Rounds]:
    path = str(selection.data(100_000 if quick else 2_000_000))
    found = {}
    for label, more in (("", {}), (", compiled row function", {"compiled": True})):
        asks = {
            name: harness.asking(
                checkouts.worker(name, "selection_windrow.py"), path=path, workers=selection.WORKERS, **more
            )
            for name in (OLD, NEW)
        }
        found[f"selection{label}"] = measure(asks, 2 if quick else 11)
        answers = [found[f"selection{label}"].samples[name][0].result for name in (OLD, NEW)]
        if answers[0] != answers[1]:
            raise SystemExit(f"selection{label}: old and new found other events")
    return found


def measure_others(checkouts: Checkouts, *, quick: bool) -> tuple[dict[str, harness.Rounds], dict[str, str]]:
    """The simulator and the driver; what could not be measured, and why: it uses what is inside the package."""
    found, missing = {}, {}
    script = harness.PEERS / "versions_windrow.py"
    for what, (few, many, rounds) in OTHERS.items():
        asks = {
            name: timed(
                harness.asking(
                    checkouts.worker(name, script), checkout=str(place), what=what, size=few if quick else many
                ),
                float,
            )
            for name, place in checkouts.places.items()
        }
        try:
            found[what] = measure(asks, 2 if quick else rounds)
        except harness.WorkerError as error:
            missing[what] = str(error).strip().splitlines()[-1]
    return found, missing


def claim(report: harness.Report, found: dict[str, harness.Rounds]) -> None:
    for name, rounds in found.items():
        value, interval = rounds.ratio(OLD, NEW)
        if name.startswith(("tasks", "selection")):
            report.claim(f"{name}: speed over the old one's", value, KEPT, interval=interval)
        elif name.startswith("simulator"):
            report.claim(f"{name}: speed over the old one's", value, SIMULATOR, interval=interval)
        elif name == "chunks of 5 ms":
            share = 100 * rounds.median(NEW) / CHUNK_US
            report.claim(f"{name}: the driver, % of them, log on", share, DRIVER, better="lower")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--quick", action="store_true", help="the same on less, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write claims and tables there")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        checkouts = Checkouts(options.old, options.new, stack)
        found = measure_tasks(checkouts, quick=options.quick) | measure_selection(checkouts, quick=options.quick)
        others, missing = measure_others(checkouts, quick=options.quick)
    found |= others
    report = harness.Report("Old and new", harness.machine())
    lines = []
    for name, rounds in found.items():
        ratio, (low, high) = rounds.ratio(OLD, NEW)
        times = [f"{rounds.median(one):.4g}" for one in (OLD, NEW)]
        lines.append((name, *times, f"{ratio:.3f} [{low:.3f}, {high:.3f}]", rounds.quality))
    report.table(("what", "old", "new", "old / new [95 %]", "rounds"), lines)
    for name, reason in missing.items():
        report.note(f"Without {name}: {reason}.")
    report.note("Seconds; of the scheduler, empty tasks and chunks microseconds of the driver for each task.")
    claim(report, found)
    report.finish(options.json)


if __name__ == "__main__":
    main()
