"""610 rows of three small NanoAOD-like files: the first run of a program that has imported everything, and the next.

    python benchmarks/small_runs.py [--quick] [--json FILE]

The analysis is that of ``examples/nanoaod``: a dozen awkward steps, four regions, weights with variations, histograms. The peer is
the plain uproot and awkward program of the same example. Every sample is a new process that has imported its libraries; the files
have 1,900 branches, as real ones do, and are in memory. Both must find the same events.
"""

from __future__ import annotations

import sys

import harness

sys.path.insert(0, str(harness.PEERS))

from small_common import fileset

FIRST_S, AGAIN_S = 0.7, 0.3


def sample(what: str) -> harness.Sample:
    with harness.Worker("small_runs.py") as worker:
        return harness.asking(worker, what=what, directory=str(harness.DATA / "small"))()


def main() -> None:
    options = harness.options("Small runs.")
    report = harness.Report("Small runs", harness.machine())
    fileset(harness.DATA / "small")
    names = ("plain", "windrow")
    found = harness.interleave({name: lambda name=name: sample(name) for name in names}, 1 if options.quick else 7)
    answers = [one.result["events"] for name in names for one in found.samples[name]]
    if any(answer != answers[0] for answer in answers):
        raise SystemExit("Windrow and the plain program differ")
    lines, medians = [], {}
    for name in names:
        for place, run in enumerate(("first", "again")):
            seconds = sorted(one.result["seconds"][place] for one in found.samples[name])
            medians[name, run] = seconds[len(seconds) // 2]
            lines.append((name, run, *(harness.seconds(seconds[at]) for at in (len(seconds) // 2, 0, -1))))
    report.table(("program", "run", "median", "fastest", "slowest"), lines)
    report.note(f"Rounds: {found.quality}.")
    report.claim("first run after imports, s", medians["windrow", "first"], FIRST_S, better="lower")
    report.claim("the same again, s", medians["windrow", "again"], AGAIN_S, better="lower")
    report.finish(options.json)


if __name__ == "__main__":
    main()
