"""Random numbers per second, keyed by rows, against numpy.random's generators.

    python benchmarks/random.py [--quick] [--json FILE]

(random.py only starts what is here: other benchmarks find it where they look for the standard
library's.) Numbers are drawn bare, by one thread and by two, and in an output of a pipeline, whose
rows are drawn for unit by unit; numpy's generators are used in the same way, one per thread, without
any relation of numbers to rows. Claims are about as many threads on both sides: a core that is left
over helps only where the table says so. Every competitor is measured once per round, in turn; rates
are medians, ratios have paired intervals.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import harness
import numpy as np

import windrow as wr
from windrow.random import Rng, identity_hash, spare_cores
from windrow.random.arrays import compile_later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

GENERATORS = {"PCG64": np.random.PCG64, "MT19937": np.random.MT19937, "Philox": np.random.Philox}
#: Rows at a time when numbers are drawn bare: what a block or a unit of a step has.
ROWS = 131_072


def warm() -> None:
    """Draw until the loops are compiled, as they are in any run that is long enough to be measured."""
    import numba  # noqa: F401 - where it is there already, less has to be drawn

    for _ in range(3):
        rng = Rng(1, identity_hash([np.arange(1_000_000)]), 1_000_000)
        for method in ("uniform", "normal"):
            getattr(rng("warm"), method)()
    for thread in threading.enumerate():
        if thread.name.startswith("windrow-random-"):
            thread.join()


class Spare(spare_cores._Spare):
    """Cores that are left over, and how often one of them was given something to do."""

    def __init__(self, cores: int) -> None:
        super().__init__()
        self.given = 0
        self.grant(cores)

    def submit(self, work: Callable[[], Any]) -> Future[Any] | None:
        future = super().submit(work)
        self.given += future is not None
        return future


@contextmanager
def left_over(cores: int) -> Iterator[None]:
    """Have so many cores left over, whatever runs meanwhile say: each of them says it for itself."""
    spare = Spare(cores)
    with mock.patch.object(spare_cores, "_SPARE", spare), mock.patch.object(spare_cores, "grant", return_value=None):
        yield
    spare.grant(0)
    assert (spare.given > 0) == (cores > 0), f"{cores} cores left over, used {spare.given} times"


def ours(method: str, width: int | None, total: int) -> Callable[[], None]:
    rows = ROWS // (width or 1)
    identity = identity_hash([np.arange(rows)])
    blocks = max(total // (rows * (width or 1)), 1)

    def draw() -> None:
        for block in range(blocks):
            getattr(Rng(1, identity, rows)("bench"), method)(size=width, draw=block)

    return draw


def theirs(method: str, width: int | None, total: int, kind: Any) -> Callable[[], None]:
    rows = ROWS // (width or 1)
    size = rows if width is None else (rows, width)
    blocks = max(total // (rows * (width or 1)), 1)
    generators = threading.local()

    def draw() -> None:
        if not hasattr(generators, "mine"):
            generators.mine = np.random.Generator(kind(1))
        for _ in range(blocks):
            getattr(generators.mine, "random" if method == "uniform" else "standard_normal")(size)

    return draw


def on_two(draw: Callable[[], None], pool: ThreadPoolExecutor) -> Callable[[], None]:
    def both() -> None:
        for future in [pool.submit(draw), pool.submit(draw)]:
            future.result()

    return both


def bare(report: harness.Report, total: int, rounds: int, threads: int) -> None:
    """Measure drawing alone."""
    rows = []
    with ThreadPoolExecutor(2) as pool:
        for method in ("uniform", "normal"):
            for width in (None, 30):
                draws = {"windrow": ours(method, width, total)}
                draws |= {k: theirs(method, width, total, v) for k, v in GENERATORS.items()}
                if threads == 2:
                    draws = {name: on_two(draw, pool) for name, draw in draws.items()}
                where = f"{method}, {'one' if width is None else width} per row"
                found = harness.interleave({name: harness.calling(draw) for name, draw in draws.items()}, rounds)
                rate = {name: threads * total / found.median(name) / 1e6 for name in draws}
                rows.append((where, *(f"{rate[name]:.0f}" for name in draws)))
                ratio, interval = found.ratio("Philox", "windrow")
                report.claim(
                    f"{where}, {threads} thread{'s' * (threads > 1)}: over numpy's Philox",
                    ratio, 1.0, interval=interval,
                )  # fmt: skip
    report.table((f"million numbers/s, {threads} thread(s)", "windrow", *GENERATORS), rows)


# -- in a step -------------------------------------------------------------------------------------


def analysis(method: str, width: int | None, kind: Any) -> wr.Pipeline:
    """Sum up noise in an output: outputs may use numpy's generators, which no column or cut may."""
    pipeline = wr.Pipeline("noise")
    generators = threading.local()
    if kind is None:

        @pipeline.output
        def total(x: Any, *, rng: Any) -> Any:
            noise = getattr(rng("noise"), method)(size=width)
            return float(noise.sum()) + x[0]

    else:
        name = "random" if method == "uniform" else "standard_normal"

        @pipeline.output
        def total(x: Any) -> Any:
            if not hasattr(generators, "mine"):
                generators.mine = np.random.Generator(kind(1))
            size = len(x) if width is None else (len(x), width)
            return float(getattr(generators.mine, name)(size).sum()) + x[0]

    return pipeline


def in_a_step(report: harness.Report, total: int, rounds: int, workers: int) -> None:
    """Measure whole runs whose only work is to draw and to add up.

    With one worker there is a column for the help of another core, which numpy does not get.
    """
    rows = []
    for method in ("uniform", "normal"):
        for width in (None, 30):
            count = total // (width or 1)
            source = wr.data.open({"x": np.arange(float(count))})

            def running(kind: Any, cores: int = 0, source: Any = source, m: str = method, w: Any = width) -> Any:
                pipeline = analysis(m, w, kind)

                def work() -> None:
                    with left_over(cores):
                        pipeline.run(source, engine="threads", workers=workers, progress=False)

                return harness.calling(work)

            runs = {"windrow": running(None)} | {k: running(v) for k, v in GENERATORS.items()}
            if workers == 1:
                runs["windrow, another core helps"] = running(None, 1)
            found = harness.interleave(runs, rounds)
            where = f"{method}, {'one' if width is None else width} per row"
            rate = {name: count * (width or 1) / found.median(name) / 1e6 for name in runs}
            rows.append((where, *(f"{rate[name]:.0f}" for name in runs)))
            ratio, interval = found.ratio("Philox", "windrow")
            report.claim(
                f"{where}, in a step, {workers} worker{'s' * (workers > 1)}: over numpy's Philox",
                ratio, 1.0, interval=interval,
            )  # fmt: skip
    report.table((f"million numbers/s in a step, {workers} worker(s)", *runs), rows)


# -- shared, and row by row -------------------------------------------------------------------------


def buffers(report: harness.Report, count: int, rounds: int) -> None:
    """Measure a step in blocks by one worker, with and without the other core's help."""
    x = np.arange(float(count))

    def run(cores: int, sums: int) -> Any:
        pipeline = wr.Pipeline("shared")

        @pipeline.column
        def smeared(x: Any, *, rng: Any) -> Any:
            noise = rng("noise").normal(size=30)
            value = x
            for _ in range(sums):  # the work that the numbers are for
                value = value + np.tanh(noise).sum(axis=1)
            return value

        @pipeline.output
        def total(smeared: Any) -> Any:
            return float(smeared.sum())

        def work() -> Any:
            with left_over(cores):
                result = pipeline.run({"x": x}, engine="threads", workers=1, progress=False, _block_rows=16_384)
            return result["total"]

        return harness.calling(work)

    rows = []
    for sums, what in ((0, "numbers alone"), (1, "and one tanh of each")):
        found = harness.interleave({"off": run(0, sums), "on": run(1, sums)}, rounds)
        answers = {sample.result for samples in found.samples.values() for sample in samples}
        assert len(answers) == 1, "the background changed an answer"
        ratio, (low, high) = found.ratio("off", "on")
        times = (harness.seconds(found.median(name)) for name in ("off", "on"))
        rows.append((what, *times, f"{ratio:.2f} [{low:.2f}, {high:.2f}]"))
    report.table(("30 normal numbers per row, 1 worker", "alone", "shared", "faster by"), rows)


def compiled(report: harness.Report, total: int, rounds: int) -> None:
    """Measure compiled loops against the NumPy that a process begins with."""

    def in_numpy(draw: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            with mock.patch.object(compile_later.loops, "loop", return_value=None):
                draw()

        return work

    rows = []
    for method in ("uniform", "normal"):
        draw = ours(method, None, total)
        runs = {"NumPy": harness.calling(in_numpy(draw)), "compiled": harness.calling(draw)}
        found = harness.interleave(runs, rounds)
        ratio, (low, high) = found.ratio("NumPy", "compiled")
        rates = (f"{total / found.median(name) / 1e6:.0f}" for name in runs)
        rows.append((method, *rates, f"{ratio:.1f} [{low:.1f}, {high:.1f}]"))
    report.table(("million numbers/s, 1 thread", "NumPy", "compiled", "faster by"), rows)


def row_by_row(report: harness.Report, count: int, rounds: int) -> None:
    """Measure a compiled each=True step with 30 numbers per row."""
    pipeline = wr.Pipeline("each")

    @pipeline.column(each=True)
    def walk(x: Any, *, rng: Any) -> Any:
        stream = rng("walk")
        for k in range(30):
            x += stream.normal(object=k)
        return x

    @pipeline.output
    def total(walk: Any) -> Any:
        return float(walk.sum())

    source = wr.data.open({"x": np.zeros(count)})
    run = harness.calling(lambda: pipeline.run(source, workers=1, engine="threads", progress=False))
    run()
    found = harness.interleave({"each": run}, rounds)
    rate = 30 * count / found.median("each") / 1e6
    report.note(f"Inside each=True, one worker: {rate:.0f} million normal numbers/s, with the run.")


def main() -> None:
    options = harness.options("Random numbers per second.")
    report = harness.Report("Random numbers", harness.machine())
    total, rounds = (2_000_000, 5) if options.quick else (8_000_000, 11)
    warm()
    for threads in (1, 2):
        bare(report, total, rounds, threads)
    for workers in (1, 2):
        in_a_step(report, 2 * total, rounds, workers)
    compiled(report, total, rounds)
    buffers(report, 100_000 if options.quick else 300_000, rounds)
    row_by_row(report, 100_000 if options.quick else 500_000, rounds)
    report.finish(options.json)


if __name__ == "__main__":
    main()
