"""Single heavy rows of a stream: their steps side by side on idle workers, against one after the other.

    python benchmarks/side_by_side.py [--quick] [--json FILE]

Rows come one at a time, more slowly than they are worked on, so that one worker of two has nothing to do. What counts is the
time from a row's start to its end, as the log of the run has it: the median over its rows. The steps are two that need
nothing from each other: compiled ones, Python ones, which hold the interpreter's lock, and a cut that drops nearly all before
a column. The other entrant is the same run with one step at a time.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any
from unittest import mock

import harness
import numpy as np

import windrow as wr
from windrow.blocks import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AT_ONCE, ONE_BY_ONE = "side by side", "one by one"
#: Rows, and of these the first, in which functions are compiled and costs learned.
ROWS, FIRST = 30, 10


def compiled(analysis: wr.Pipeline | None = None) -> wr.Pipeline:
    analysis = analysis or wr.Pipeline("compiled")

    @analysis.column(each=True)
    def one(x: float) -> float:
        total = 0.0
        for number in range(2_000_000):
            total += math.sin(x + number)
        return total

    @analysis.column(each=True)
    def two(x: float) -> float:
        total = 0.0
        for number in range(2_000_000):
            total += math.cos(x + number)
        return total

    return _summed(analysis)


def interpreted() -> wr.Pipeline:
    analysis = wr.Pipeline("interpreted")

    @analysis.column
    def one(x: Any) -> Any:
        return np.array([sum(math.sin(value + number) for number in range(150_000)) for value in x])

    @analysis.column
    def two(x: Any) -> Any:
        return np.array([sum(math.cos(value + number) for number in range(150_000)) for value in x])

    return _summed(analysis)


def filtered() -> wr.Pipeline:
    analysis = wr.Pipeline("filtered")

    @analysis.cut(each=True)
    def rare(x: float) -> bool:
        total = 0.0
        for number in range(500_000):
            total += math.sin(x + number)
        return total * 0.0 + x > 0.9

    return compiled(analysis)


def _summed(analysis: wr.Pipeline) -> wr.Pipeline:
    @analysis.output
    def total(one: Any, two: Any) -> float:
        return float(np.sum(one) + np.sum(two))

    return analysis


def rows() -> Iterator[dict[str, Any]]:
    numbers = np.random.default_rng(1)
    for _ in range(ROWS):
        yield {"x": numbers.random(1)}
        time.sleep(0.08)  # rows come more slowly than they are worked on: nobody waits for this


def entrant(make: Callable[[], wr.Pipeline], *, at_once: bool) -> Callable[[], harness.Sample]:
    def work() -> dict[str, Any]:
        rule = side_by_side.steps_at_once if at_once else lambda steps, threads: 1  # noqa: ARG005 - in its place
        with mock.patch.object(side_by_side, "steps_at_once", rule):
            result = make().run(wr.data.stream(rows()), workers=2, engine="threads", order="written", progress=False)
        lines = [json.loads(line) for line in (result.log or "").splitlines()]
        took = [line["wall"] / 1e6 for line in lines if line["event"] == "attempt" and line.get("wall")]
        return {"row_s": median(took[FIRST:]), "total": result["total"]}

    ask = harness.calling(work)

    def sample() -> harness.Sample:
        found = ask()
        return replace(found, wall=found.result["row_s"])

    return sample


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    report = harness.Report("Steps side by side", harness.machine("numba"))
    lines = []
    for make, target in ((compiled, 0.75), (interpreted, 1.03), (filtered, 1.03)):
        entrants = {AT_ONCE: entrant(make, at_once=True), ONE_BY_ONE: entrant(make, at_once=False)}
        found = harness.interleave(entrants, 2 if options.quick else 7, extra=0 if options.quick else None)
        if len({sample.result["total"] for samples in found.samples.values() for sample in samples}) != 1:
            raise SystemExit(f"{make.__name__}: the answers differ")
        value, interval = found.ratio(AT_ONCE, ONE_BY_ONE)
        times = [harness.seconds(found.median(name)) for name in (AT_ONCE, ONE_BY_ONE)]
        lines.append((make.__name__, *times, f"{value:.2f}", found.quality))
        report.claim(
            f"{make.__name__} steps: time of a row over one by one", value, target, better="lower", interval=interval
        )
    report.table(("steps", AT_ONCE, ONE_BY_ONE, "ratio", "rounds"), lines)
    report.finish(options.json)


if __name__ == "__main__":
    main()
