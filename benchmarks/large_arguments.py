"""One large array given to many tasks in processes: as an argument, captured, as a task's value, shared; against joblib.

    python benchmarks/large_arguments.py [--quick] [--json FILE]

Both have two workers that are warm, and 64 calls that each read a part of 400 MB. A round has an array that was never seen
before; then the same again, unchanged; then again after one number of it was changed in place. All answers are checked. joblib
copies an argument into a file once, and does not look at it again: what is changed in place it does not see.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import harness

sys.path.insert(0, str(harness.PEERS))

from large_common import expected

if TYPE_CHECKING:
    from collections.abc import Callable

#: Megabytes, quick and full; megabytes of what an executor's closure captures; calls.
SIZES, CAPTURED, CALLS = (40, 400), (10, 100), 64
OURS = ("argument", "again", "changed", "captured", "future", "shared", "executor.map")
THEIRS = ("argument", "again", "captured")
#: (claim, ours, theirs, most of the time of theirs)
CLAIMS = (
    ("an argument never seen before", "argument", "argument", 1.0),
    ("the same argument again", "again", "again", 1.0),
    ("an array that a closure captures", "captured", "captured", 1.0),
    ("the value of another task", "future", "argument", 1.0),
    ("parts of an array that is shared", "shared", "argument", 1.0),
)


def asking(worker: harness.Worker, what: str, size: int) -> Callable[[], harness.Sample]:
    """A competitor whose time is that of the calls, and whose answer is right."""
    ask = harness.asking(worker, what=what, megabytes=size, calls=CALLS)

    def sample() -> harness.Sample:
        found = ask()
        if found.result["found"] != expected(what, found.result["seed"], size, CALLS):
            raise SystemExit(f"{what}: a wrong answer")
        return replace(found, wall=found.result["seconds"])

    return sample


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    size, captured = (one[not options.quick] for one in (SIZES, CAPTURED))
    sizes: dict[str, int] = {"executor.map": captured}
    entrants: dict[str, Callable[[], harness.Sample]] = {}
    missing = ""
    with harness.Worker("large_windrow.py") as ours:
        theirs: Any = None
        versions = dict(ours.versions)
        try:
            theirs = harness.Worker("large_joblib.py", harness.environment("joblib", "joblib", "loky", "numpy"))
            versions.update(theirs.versions)
        except (harness.SetupError, harness.WorkerError) as error:
            missing = str(error).strip().splitlines()[-1]
        entrants |= {f"windrow, {one}": asking(ours, one, sizes.get(one, size)) for one in OURS}
        if theirs is not None:
            entrants |= {f"joblib, {one}": asking(theirs, one, size) for one in THEIRS}
        for entrant in entrants.values():
            entrant()  # pools are made, functions sent
        found = harness.interleave(entrants, 3 if options.quick else 7, extra=0)
        if theirs is not None:
            theirs.close()
    report = harness.Report("Large arguments", {**harness.machine(), "peers": versions})
    rows = [(name, harness.seconds(found.median(name)), f"{found.cpu(name):.2f}") for name in entrants]
    report.table((f"{size} MB to {CALLS} tasks", "time", "processor s, with making it"), rows)
    report.note(f"executor.map: a closure that captures {captured} MB. {found.quality}.")
    for claim, mine, other, most in CLAIMS:
        name = f"large arguments: {claim}, time over joblib's for an argument"
        if other != "argument":
            name = name.replace("an argument", "the same")
        if missing:
            report.claim(name, None, most, better="lower", reason=missing)
            continue
        ratio, interval = found.ratio(f"windrow, {mine}", f"joblib, {other}")
        report.claim(name, ratio, most, better="lower", interval=interval)
    report.finish(options.json)


if __name__ == "__main__":
    main()
