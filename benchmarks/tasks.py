"""What a task of a graph costs: no-ops, a millisecond, chains, trees, ten megabytes; against other systems.

    python benchmarks/tasks.py [--quick] [--json FILE]

Every system has two workers and is warm: what is measured is from the first call to the last value. All give the same
sums, which are checked. Each job is done once per round by all of a group, in turn: ours with the pools of Python and loky,
with dask, with ray, with parsl. Targets are for no-ops and for a millisecond: threads against threads, processes against
processes.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import harness

sys.path.insert(0, str(harness.PEERS))

from tasks_common import expected

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS, PROCESSES = "windrow threads", "windrow processes"
POOL_T, POOL_P = "ThreadPoolExecutor", "ProcessPoolExecutor.submit"
DASK = ("dask processes", "dask threads")
#: Who is measured together: what is installed in an environment of its own, the script, and the systems by name. Servers
#: of one system take time from others even while nobody asks them, so only one such system is there at a time.
GROUPS: dict[str, list[tuple[tuple[str, ...], str, dict[str, dict[str, str]]]]] = {
    "pools": [
        ((), "tasks_futures.py", {POOL_T: {"system": "threads"}, POOL_P: {"system": "processes"}}),
        (("joblib", "loky", "numpy"), "tasks_joblib.py", {"loky": {"system": "loky"}, "joblib": {"system": "joblib"}}),
    ],
    "dask": [
        (
            ("distributed", "numpy"),
            "tasks_dask.py",
            {"dask processes": {"system": "processes"}, "dask threads": {"system": "threads"}},
        )
    ],
    "ray": [(("ray", "numpy"), "tasks_ray.py", {"ray": {}})],
    "parsl": [
        (
            ("parsl", "numpy"),
            "tasks_parsl.py",
            {"parsl HTEX": {"system": "htex"}, "parsl threads": {"system": "threads"}},
        )
    ],
}
#: Jobs with the tasks of a round: quick, and full.
JOBS = {
    "no-op": (400, 2000),
    "1 ms busy": (50, 400),
    "1 ms blocked": (100, 400),
    "chain": (25, 200),
    "tree": (100, 500),
    "10 MB": (3, 10),
}
#: Rounds of the groups that are quick; others have five.
ROUNDS = {"pools": 11}
#: (claim, job, ours, theirs, target, better): ratios of times.
CLAIMS = (
    ("no-ops on threads, time over ThreadPoolExecutor's", "no-op", THREADS, (POOL_T,), 4.0, "lower"),
    ("tasks of 1 ms of waiting on threads, time over ThreadPoolExecutor's", "1 ms blocked", THREADS, (POOL_T,), 1.1, "lower"),
    ("tasks of 1 ms of computing on threads, time over ThreadPoolExecutor's", "1 ms busy", THREADS, (POOL_T,), 1.1, "lower"),
    ("no-ops on processes, times as fast as ProcessPoolExecutor.submit", "no-op", PROCESSES, (POOL_P,), 1.0, "higher"),
    ("tasks of 1 ms of waiting on processes, times as fast as ProcessPoolExecutor.submit", "1 ms blocked", PROCESSES, (POOL_P,), 1.0, "higher"),
    ("tasks of 1 ms of computing on processes, times as fast as ProcessPoolExecutor.submit", "1 ms busy", PROCESSES, (POOL_P,), 1.0, "higher"),
    ("no-ops on processes, times as fast as ray", "no-op", PROCESSES, ("ray",), 3.0, "higher"),
    ("no-ops on processes, times as fast as parsl HTEX", "no-op", PROCESSES, ("parsl HTEX",), 5.0, "higher"),
    ("no-ops on processes, times as fast as the better of dask's", "no-op", PROCESSES, DASK, 10.0, "higher"),
)  # fmt: skip


def asking(worker: harness.Worker, what: str, count: int, more: dict[str, str]) -> Any:
    """A competitor whose time is that of the work, without its answer, and whose answer is right."""
    ask = harness.asking(worker, what=what, count=count, **more)

    def sample() -> harness.Sample:
        found = ask()
        if found.result["found"] != expected(what, count):
            raise SystemExit(f"{what}: {found.result['found']}, not {expected(what, count)}")
        return replace(found, wall=found.result["seconds"])

    return sample


class Measured:
    """What was found: by job, the rounds of every group."""

    def __init__(self) -> None:
        self.rounds: dict[str, list[harness.Rounds]] = {what: [] for what in JOBS}
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}  #: systems, and why

    def with_(self, what: str, name: str) -> harness.Rounds:
        """The rounds of a job in which a system took part."""
        return next(found for found in self.rounds[what] if name in found.samples)

    def group(self, name: str, *, quick: bool) -> None:
        """Measure the systems of a group, and ours beside them."""
        with contextlib.ExitStack() as stack:
            ours = stack.enter_context(harness.Worker("tasks_windrow.py"))
            systems: dict[str, tuple[harness.Worker, dict[str, str]]] = {
                THREADS: (ours, {"system": "threads"}),
                PROCESSES: (ours, {"system": "processes"}),
            }
            for requirements, script, names in GROUPS[name]:
                try:
                    python: Any = sys.executable
                    if requirements:
                        python = harness.environment(script.removeprefix("tasks_").removesuffix(".py"), *requirements)
                    worker = stack.enter_context(harness.Worker(script, python))
                except (harness.SetupError, harness.WorkerError) as error:
                    self.missing.update(dict.fromkeys(names, str(error).strip().splitlines()[-1]))
                    continue
                self.versions.update(worker.versions)
                systems.update({one: (worker, more) for one, more in names.items()})
            for what, (few, many) in JOBS.items():
                count = few if quick else many
                entrants: dict[str, Callable[[], harness.Sample]] = {
                    one: asking(worker, what, count, more) for one, (worker, more) in systems.items()
                }
                for entrant in entrants.values():
                    entrant()  # pools are made, functions sent
                rounds = 2 if quick else ROUNDS.get(name, 5)
                self.rounds[what].append(harness.interleave(entrants, rounds, extra=0))


def present(report: harness.Report, what: str, count: int, measured: Measured) -> None:
    """The table of one job: ratios are those of rounds that were measured together."""
    rows = []
    for number, found in enumerate(measured.rounds[what]):
        for name in found.samples:
            if number and name in (THREADS, PROCESSES):
                continue
            cells = []
            for base in (THREADS, PROCESSES):
                ratio, (low, high) = found.ratio(name, base)
                cells.append("1" if name == base else f"{ratio:.2f} [{low:.2f}, {high:.2f}]")
            rows.append((name, f"{1e6 * found.median(name) / count:.0f}", *cells))
    report.table((what, "us per task", "/ our threads", "/ our processes"), rows)
    quiet = [f"{len(one.walls(THREADS))} rounds: {one.quality}" for one in measured.rounds[what]]
    report.note(f"{count:,} tasks a round; {'; '.join(quiet)}.")


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    measured = Measured()
    for name in GROUPS:
        measured.group(name, quick=options.quick)
    report = harness.Report("Tasks", {**harness.machine(), "peers": measured.versions})
    for name, reason in measured.missing.items():
        report.note(f"Without {name}: {reason}.")
    for what, (few, many) in JOBS.items():
        present(report, what, few if options.quick else many, measured)
    for name, what, ours, theirs, target, better in CLAIMS:
        gone = [measured.missing[one] for one in theirs if one in measured.missing]
        if gone:
            report.claim(f"tasks: {name}", None, target, better=better, reason=gone[0])
            continue
        found = measured.with_(what, theirs[0])
        best = min(theirs, key=found.median)
        pair = (ours, best) if better == "lower" else (best, ours)
        value, interval = found.ratio(*pair)
        report.claim(f"tasks: {name}", value, target, better=better, interval=interval)
    report.finish(options.json)


if __name__ == "__main__":
    main()
