"""What a task of a graph costs: no-ops, a millisecond, chains, trees, ten megabytes; against other systems.

    python benchmarks/tasks.py [--quick] [--json FILE]

Every system has two workers and is warm: what is measured is from the first call to the last value. All give the same
sums, which are checked. Each job is done once per round by everybody, in turn. Targets are for no-ops and for a
millisecond: threads against threads, processes against processes.
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
#: Peers in environments of their own: what is installed, the script, and the systems by name.
PEERS: dict[str, tuple[tuple[str, ...], str, dict[str, dict[str, str]]]] = {
    "joblib": (
        ("joblib", "loky", "numpy"),
        "tasks_joblib.py",
        {"loky": {"system": "loky"}, "joblib": {"system": "joblib"}},
    ),
    "dask": (
        ("distributed", "numpy"),
        "tasks_dask.py",
        {"dask processes": {"system": "processes"}, "dask threads": {"system": "threads"}},
    ),
    "ray": (("ray", "numpy"), "tasks_ray.py", {"ray": {}}),
    "parsl": (
        ("parsl", "numpy"),
        "tasks_parsl.py",
        {"parsl HTEX": {"system": "htex"}, "parsl threads": {"system": "threads"}},
    ),
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
#: (claim, job, ours, theirs, target, better): ratios of times.
CLAIMS = (
    ("no-ops on threads, time over ThreadPoolExecutor's", "no-op", THREADS, (POOL_T,), 4.0, "lower"),
    ("tasks of 1 ms of waiting on threads, time over ThreadPoolExecutor's", "1 ms blocked", THREADS, (POOL_T,), 1.1, "lower"),
    ("no-ops on processes, times as fast as ProcessPoolExecutor.submit", "no-op", PROCESSES, (POOL_P,), 1.0, "higher"),
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


def start(
    stack: contextlib.ExitStack,
) -> tuple[dict[str, tuple[harness.Worker, dict[str, str]]], dict[str, str], dict[str, str]]:
    """Start one worker per peer: systems, versions, and why one is missing."""
    ours = stack.enter_context(harness.Worker("tasks_windrow.py"))
    pools = stack.enter_context(harness.Worker("tasks_futures.py"))
    systems: dict[str, tuple[harness.Worker, dict[str, str]]] = {
        THREADS: (ours, {"system": "threads"}),
        PROCESSES: (ours, {"system": "processes"}),
        POOL_T: (pools, {"system": "threads"}),
        POOL_P: (pools, {"system": "processes"}),
    }
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for peer, (requirements, script, names) in PEERS.items():
        try:
            python = harness.environment(peer, *requirements)
            worker = stack.enter_context(harness.Worker(script, python))
        except (harness.SetupError, harness.WorkerError) as error:
            missing.update(dict.fromkeys(names, str(error).strip().splitlines()[-1]))
            continue
        versions.update(worker.versions)
        systems.update({name: (worker, more) for name, more in names.items()})
    return systems, versions, missing


def present(report: harness.Report, what: str, count: int, found: harness.Rounds) -> None:
    """The table of one job."""
    rows = []
    for name in found.samples:
        cells = []
        for base in (THREADS, PROCESSES):
            ratio, (low, high) = found.ratio(name, base)
            cells.append("1" if name == base else f"{ratio:.2f} [{low:.2f}, {high:.2f}]")
        rows.append((name, f"{1e6 * found.median(name) / count:.0f}", *cells))
    report.table((what, "us per task", "/ our threads", "/ our processes"), rows)
    report.note(f"{count:,} tasks a round, {len(found.walls(THREADS))} rounds: {found.quality}.")


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rounds, extra = (2, 0) if options.quick else (5, 0)
    measured: dict[str, harness.Rounds] = {}
    with contextlib.ExitStack() as stack:
        systems, versions, missing = start(stack)
        report = harness.Report("Tasks", {**harness.machine(), "peers": versions})
        for name, reason in missing.items():
            report.note(f"Without {name}: {reason}.")
        for what, (few, many) in JOBS.items():
            count = few if options.quick else many
            entrants: dict[str, Callable[[], harness.Sample]] = {
                name: asking(worker, what, count, more) for name, (worker, more) in systems.items()
            }
            for entrant in entrants.values():
                entrant()  # pools are made, functions sent
            measured[what] = harness.interleave(entrants, rounds, extra=extra)
            present(report, what, count, measured[what])
    for name, what, ours, theirs, target, better in CLAIMS:
        gone = [missing[one] for one in theirs if one in missing]
        if gone:
            report.claim(f"tasks: {name}", None, target, better=better, reason=gone[0])
            continue
        found = measured[what]
        best = min(theirs, key=found.median)
        pair = (ours, best) if better == "lower" else (best, ours)
        value, interval = found.ratio(*pair)
        report.claim(f"tasks: {name}", value, target, better=better, interval=interval)
    report.finish(options.json)


if __name__ == "__main__":
    main()
