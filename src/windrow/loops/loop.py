"""One loop: where it runs - in the calling thread, in threads or in processes - and what is said of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow.errors import TaskError, UsageError, error_text
from windrow.loops.kernel import Failed, Kernel
from windrow.loops.loop_report import LoopReport
from windrow.loops.team import Team
from windrow.place.loop_trace import LoopChunk
from windrow.place.queues import Taken
from windrow.shape.partition.schemes import AUTO, known_as
from windrow.units import format_seconds

if TYPE_CHECKING:
    from windrow.loops.options import LoopOptions

#: Seconds in which the calling thread sees what rows take, before helper threads join in.
PILOT_S = 1e-4
#: Seconds of rest that are not worth waking threads for.
SMALL_S = 2e-4
#: Seconds of rest that are worth starting processes for, where threads gain nothing.
PROCESSES_S = 1.0
#: Blocks of rows whose values are reduced, in their order: the same bits for any number of workers and any partitioner.
BLOCKS = 256


class Loop:
    """A loop that is about to run; ``keep``: what the kernel returns is wanted.

    ``in_blocks``: chunks are whole blocks of rows, each of which the kernel is called for by itself.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: int,
        options: LoopOptions,
        *,
        keep: bool,
        in_blocks: bool,
        compilation_s: float = 0.0,
    ) -> None:
        began = perf_counter()
        self._report = report = LoopReport() if options.report is None else options.report
        self._kernel = kernel
        self._options = options
        self._values: dict[int, Any] = {}  #: by first row
        self._count, self._grain = rows, options.grain
        self._borders: list[int] | None = None
        if in_blocks:
            self._count = count = min(rows, BLOCKS)
            self._borders = [rows * number // max(count, 1) for number in range(count + 1)]
            self._grain = max(options.grain * count // max(rows, 1), 1)
        self._topology = topology = options.places()
        report.rows, report.workers, report.scheme = rows, len(topology), known_as(options.partition)
        report.engine, report.decisions = "inline", []
        if options.grain > rows > 0:
            report.decisions.append(f"one chunk: grain={options.grain:,} is more than the {rows:,} rows")
        call, cores = self._keep if keep else kernel.call, topology.cores if options.pin else ()
        self._team = Team(call, len(topology), judged=not kernel.releases, cores=cores)
        report.trace = self._team.trace
        report.phases = {"startup_seconds": perf_counter() - began, "compilation_seconds": compilation_s}

    def run(self) -> dict[int, Any]:
        """Run the loop; give what the kernel returned, by first row and in the order of the rows."""
        begun = perf_counter()
        try:
            if self._count:
                self._run()
            else:
                self._report.decisions.append("there were no rows")
        except Failed as failed:
            raise self._named(failed) from failed.__cause__
        finally:
            self._tell(begun)
        return {start: self._values[start] for start in sorted(self._values)}

    def _named(self, failed: Failed) -> TaskError:
        """Say at which rows the kernel raised."""
        ranges, cause = self._ranges(failed.start, failed.stop), failed.__cause__ or failed
        start, stop = ranges[0][0], ranges[-1][1]
        where = f"rows {start} to {stop - 1}" if stop > start + 1 else f"row {start}"
        return TaskError(
            f"{self._kernel.name} raised {type(cause).__name__} at {where}: {error_text(cause)}; other chunks that were under way "
            "were finished, and no rows were run twice",
            start=start,
            stop=stop,
        )

    def _ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Give the rows for which the kernel is called by itself."""
        borders = self._borders
        if borders is None:
            return [(first, last)]
        return [(borders[number], borders[number + 1]) for number in range(first, last)]

    def _keep(self, first: int, last: int) -> None:
        for start, stop in self._ranges(first, last):
            self._values[start] = self._kernel.call(start, stop)

    def _run(self) -> None:
        options, report, team, seen = self._options, self._report, self._team, 0
        engine = options.engine
        if engine == "auto" and report.scheme == AUTO and team.trace.workers > 1:
            seen, rest_s = team.pilot(self._count, PILOT_S, SMALL_S)
            if rest_s < SMALL_S:
                said = f"in the calling thread: what was left, some {format_seconds(rest_s)}, is not worth waking others for"
                report.decisions.append(said)
                if seen < self._count:
                    team.call(0, Taken(seen, self._count))
                return
        team.queues = options.make_queues(self._count - seen, self._topology, self._grain, seen)
        if engine == "processes":
            self._in_processes()
            return
        if engine == "inline" or team.trace.workers == 1:
            if engine != "inline":
                report.decisions.append("in the calling thread, as there is one worker")
            team.alone()
            return
        report.engine = "threads"
        team.run()
        if team.held:
            self._after_threads()

    def _after_threads(self) -> None:
        """Go on where threads gain nothing."""
        report, team, send = self._report, self._team, self._kernel.send
        held = f"{self._kernel.name} holds the interpreter's lock, so that threads gain nothing"
        seen = sum(one.stop - one.start for one in team.trace.chunks)
        seconds = sum(one.end - one.begin for one in team.trace.chunks) / team.trace.workers
        left_s = seconds / max(seen, 1) * (self._count - seen)
        if send is not None and left_s >= PROCESSES_S and self._options.engine == "auto":
            report.decisions.append(f"the rest in processes: {held}")
            self._in_processes()
            return
        why = "; a kernel that returns what its rows give (reduce=) can go to processes, or compile it with Numba"
        report.decisions.append(f"the rest in the calling thread: {held}{why if send is None else ''}")
        report.engine = "threads, then inline"
        team.alone()

    def _in_processes(self) -> None:
        """Run the rest in worker processes, each chunk cut when a worker has room for it."""
        send, trace, queues = self._kernel.send, self._team.trace, self._team.queues
        assert queues is not None
        if send is None:
            raise UsageError(
                f'engine="processes": {self._kernel.name} returns nothing, and what it writes in another process is lost there; return '
                'what its rows give and say reduce=, use wr.map_blocks, or engine="threads"'
            )
        from windrow.tasks.executor import Executor

        self._report.engine = f"{self._report.engine}, then processes" if trace.chunks else "processes"
        began, workers = self._team.began, trace.workers
        with Executor(workers) as pool:
            shared = pool._session.share(self._kernel.shared) if self._kernel.shared is not None else None
            running: dict[Any, tuple[int, Taken, float]] = {}
            starting = set(range(workers))

            def launch(worker: int) -> None:
                asked = perf_counter() - began
                taken = queues.take(worker, asked)
                if taken is not None:
                    arguments = [send(shared, *rows) for rows in self._ranges(taken.start, taken.stop)]
                    running[pool.submit(_call_each, self._kernel.function, arguments)] = worker, taken, asked

            for worker in range(workers):
                launch(worker)
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    worker, taken, asked = running.pop(future)
                    start, stop, queue, stolen, _ = taken
                    try:
                        seconds, values = future.result()
                    except Exception as error:
                        for other in running:
                            other.cancel()
                        raise Failed(start, stop) from error
                    end = perf_counter() - began
                    self._values.update(zip((first for first, _ in self._ranges(start, stop)), values, strict=True))
                    if worker in starting:
                        starting.remove(worker)
                        asked = end - seconds  # starting a process is no cost of a chunk
                    chunk = LoopChunk(worker, start, stop, end - seconds, end, asked, queue, stolen)
                    trace.chunks.append(chunk)
                    queues.done(chunk)
                    launch(worker)

    def _tell(self, begun: float) -> None:
        report, borders = self._report, self._borders
        chunks = report.trace.chunks
        if borders is not None:
            chunks[:] = [one._replace(start=borders[one.start], stop=borders[one.stop]) for one in chunks]
        report.decisions += self._team.queues.said if self._team.queues is not None else ()
        phases = report.phases
        phases["startup_seconds"] += min((one.begin for one in chunks), default=0.0)
        phases["execution_seconds"] = perf_counter() - begun
        phases["total_seconds"] = sum(phases.values())
        if self._options.timing:
            sys.stderr.write(report.timing() + "\n")


def _call_each(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[float, list[Any]]:
    begin = perf_counter()
    values = [function(*one) for one in arguments]
    return perf_counter() - begin, values
