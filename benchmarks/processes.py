"""What a task costs in worker processes: round trips, throughput, a megabyte; against other pools.

    python benchmarks/processes.py [--quick] [--json FILE]

Windrow's workers measure every task (time, CPU, waiting, peak memory of the process tree) and report its beginning and
its end; the other pools measure nothing. All pools have two workers and are warm. Everything is measured once per
round, in turn; rounds in which other programs were busy are repeated, and medians are reported.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import harness

WINDROW, UNMETERED = "windrow", "windrow, metering off"
SUBMIT, MAP, LOKY = "ProcessPoolExecutor.submit", "ProcessPoolExecutor.map, chunked", "loky.submit"


def asking(worker: harness.Worker, **request: Any) -> Any:
    """A competitor whose time is what it says: that of the work, without its answer."""
    ask = harness.asking(worker, **request)

    def sample() -> harness.Sample:
        found = ask()
        return replace(found, wall=found.result["seconds"])

    return sample


def competitors(peers: dict[str, harness.Worker], what: str, count: int) -> dict[str, Any]:
    found = {
        WINDROW: asking(peers[WINDROW], what=what, count=count),
        SUBMIT: asking(peers[SUBMIT], what=what, count=count),
    }
    if what != "1 MB in and out":
        found[UNMETERED] = asking(peers[WINDROW], what=what, count=count, metering=False)
    if LOKY in peers:
        found[LOKY] = asking(peers[LOKY], what=what, count=count)
    if what == "throughput":
        found["windrow, results kept by the workers"] = asking(peers[WINDROW], what="kept", count=count)
        found[MAP] = asking(peers[SUBMIT], what="chunked", count=count)
        found["windrow, scheduler and loop"] = asking(peers[WINDROW], what="run", count=count)
    return found


def beginnings(report: harness.Report, peers: dict[bool, harness.Worker], rounds: int) -> None:
    """Two peers: what is imported once is what the driver has loaded."""
    found = harness.interleave(
        {
            f"{work}, {how}": asking(peers[importing], what="begin", preload=preload, importing=importing)
            for work, importing in (("tiny", False), ("awkward, uproot and hist", True))
            for how, preload in (("imported by each worker", []), ("imported once", None))
        },
        rounds,
    )
    report.table(
        ("first task of each of two workers, from nothing", "ms"),
        [(name, f"{1e3 * found.median(name):.0f}") for name in found.samples],
    )


def main() -> None:
    options = harness.options("What a task costs in worker processes.")
    report = harness.Report("Worker processes", harness.machine("cloudpickle"))
    rounds = 5 if options.quick else 11
    many = 2_000 if options.quick else 4_000
    jobs = {"round trips": 300, "throughput": many, "1 MB out": 50, "1 MB in and out": 50}
    with contextlib.ExitStack() as stack:
        peers = {
            WINDROW: stack.enter_context(harness.Worker("processes_windrow.py")),
            SUBMIT: stack.enter_context(harness.Worker("processes_futures.py")),
        }
        try:
            python = harness.environment("loky", "loky", "numpy")
            peers[LOKY] = stack.enter_context(harness.Worker("processes_loky.py", python))
        except harness.SetupError as error:
            report.note(f"Without loky: {error}.")
        for what, count in jobs.items():
            entrants = competitors(peers, what, count)
            for entrant in entrants.values():
                entrant()  # pools are made, files imported
            found = harness.interleave(entrants, rounds)
            report.table(
                (what, "us per task", "against submit"),
                [
                    (name, f"{1e6 * found.median(name) / count:.0f}", f"{found.ratio(name, SUBMIT)[0]:.2f}")
                    for name in entrants
                ],
            )  # fmt: skip
            report.note(f"{count:,} tasks a round; rounds: {found.quality}.")
            ratio, interval = found.ratio(SUBMIT, WINDROW)
            if what in ("round trips", "throughput"):
                report.claim(
                    f"{what}, metered, times as fast as ProcessPoolExecutor.submit", ratio, 1.0,
                    interval=interval,
                )  # fmt: skip
        other = stack.enter_context(harness.Worker("processes_windrow.py"))
        beginnings(report, {False: peers[WINDROW], True: other}, 3 if options.quick else 7)
    report.finish(options.json)


if __name__ == "__main__":
    main()
