"""One loop: where it runs - in the calling thread, in threads or in processes - and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.loops.kernel import Kernel, failure_of
from windrow.loops.options import make_queues
from windrow.loops.team import Failed, Team
from windrow.place.loop_trace import LoopChunk
from windrow.shape.partition.schemes import AUTO, known_as
from windrow.units import format_seconds

if TYPE_CHECKING:
    from windrow.loops.loop_report import LoopReport
    from windrow.loops.options import LoopOptions
    from windrow.place.queues import Queues, Taken

#: Seconds in which the calling thread sees what rows take, before helper threads join in.
PILOT_S = 1e-4
#: Seconds of rest that are not worth waking threads for.
SMALL_S = 2e-4
#: Seconds of rest that are worth starting processes for, where threads gain nothing.
PROCESSES_S = 1.0
#: Blocks of rows whose values are reduced, in their order: the same bits for any number of workers and any partitioner.
BLOCKS = 256


class Apart(NamedTuple):
    """How a loop's chunks run in other processes."""

    #: makes a function and its arguments of ranges of rows; called when there are workers
    send: Callable[[Any, Sequence[tuple[int, int]]], tuple[Any, ...]]
    #: takes in what it gave, one for each range
    keep: Callable[[Sequence[tuple[int, int]], Sequence[Any]], None]
    share: Callable[[Any], Any]  #: prepares what all of them need, given the session


class Loop:
    """A loop that is about to run."""

    def __init__(self, kernel: Kernel, rows: int, options: LoopOptions, report: LoopReport) -> None:
        self.kernel = kernel
        self.rows = rows
        self.options = options
        self.report = report
        self.began = perf_counter()
        report.decisions = []
        self._borders: list[int] | None = None
        self._topology = options.places()

    def in_blocks(self) -> None:
        """Let chunks be whole blocks of rows, each of which the kernel is called for by itself."""
        count = min(self.rows, BLOCKS)
        self._borders = [self.rows * number // count for number in range(count + 1)] if count else [0]
        call = self.kernel.call

        def blocks(first: int, last: int) -> None:
            for start, stop in self.ranges(first, last):
                call(start, stop)

        self.kernel = self.kernel._replace(call=blocks)

    def ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Give the rows for which the kernel is called by itself."""
        borders = self._borders
        if borders is None:
            return [(first, last)]
        return [(borders[number], borders[number + 1]) for number in range(first, last)]

    def run(self, apart: Apart | None = None) -> None:
        """Run the loop; ``apart`` is how it runs in processes, if it can."""
        options, report = self.options, self.report
        count = self.rows if self._borders is None else len(self._borders) - 1
        grain = options.grain if self._borders is None else max(options.grain * count // max(self.rows, 1), 1)
        report.rows, report.workers, report.scheme = self.rows, len(self._topology), known_as(options.partition)
        report.engine = "inline"
        if options.grain > self.rows > 0:
            report.decisions.append(f"one chunk: grain={options.grain:,} is more than the {self.rows:,} rows")
        queues = make_queues(
            count, self._topology, scheme=options.partition, layout=options.queues, victims=options.victims, grain=grain,
            flavour=options.flavour, pre_partition=options.pre_partition, seed=options.seed,
        )  # fmt: skip
        team = Team(self.kernel, queues, len(self._topology), self._topology.cores if options.pin else ())
        begun = perf_counter()
        try:
            if count:
                self._run(team, queues, count, apart)
            else:
                report.decisions.append("there were no rows")
        except Failed as failed:
            rows = self.ranges(failed.taken.start, failed.taken.stop)
            error = failure_of(self.kernel.name, rows[0][0], rows[-1][1], failed.__cause__ or failed)
            raise error from error.__cause__
        finally:
            self._tell(team, queues, begun)

    def _run(self, team: Team, queues: Queues, count: int, apart: Apart | None) -> None:
        engine, report = self.options.engine, self.report
        small = known_as(self.options.partition) == AUTO and engine == "auto"
        if engine == "inline" or (team.trace.workers == 1 and engine != "processes"):
            if engine != "inline":
                report.decisions.append("in the calling thread, as there is one worker")
            team.alone()
            return
        if engine == "processes":
            self._in_processes(queues, team, apart)
            return
        rest_s = team.pilot(count, PILOT_S, SMALL_S) if small else SMALL_S
        if rest_s < SMALL_S:
            report.decisions.append(
                f"in the calling thread: what was left, some {format_seconds(rest_s)}, is not worth waking others for"
            )
            team.alone()
            return
        report.engine = "threads"
        team.run()
        if team.held:
            self._after_threads(team, queues, count, apart)

    def _after_threads(self, team: Team, queues: Queues, count: int, apart: Apart | None) -> None:
        """Go on where threads gain nothing."""
        held = f"{self.kernel.name} holds the interpreter's lock, so that threads gain nothing"
        seen = sum(one.stop - one.start for one in team.trace.chunks)
        seconds = sum(one.end - one.begin for one in team.trace.chunks) / team.trace.workers
        left_s = seconds / max(seen, 1) * (count - seen)
        team.resume()
        if apart is None or left_s < PROCESSES_S or self.options.engine == "threads":
            why = (
                ""
                if apart is not None
                else "; a kernel that returns what its rows give (reduce=) can go to processes, or compile it with Numba"
            )
            self.report.decisions.append(f"the rest in the calling thread: {held}{why}")
            self.report.engine = "threads, then inline"
            team.alone()
            return
        self.report.decisions.append(f"the rest in processes: {held}")
        self._in_processes(queues, team, apart)

    def _in_processes(self, queues: Queues, team: Team, apart: Apart | None) -> None:
        """Run the rest in worker processes, each chunk cut when a worker has room for it."""
        if apart is None:
            from windrow.errors import UsageError

            raise UsageError(
                f'engine="processes": {self.kernel.name} returns nothing, and what it writes in another process is lost there; return '
                'what its rows give and say reduce=, use wr.map_blocks, or engine="threads"'
            )
        from windrow.tasks.executor import Executor

        self.report.engine = f"{self.report.engine}, then processes" if team.trace.chunks else "processes"
        workers, began, trace = team.trace.workers, team.began, team.trace
        with Executor(workers) as pool:
            shared = apart.share(pool._session)
            running: dict[Any, tuple[int, Taken, float]] = {}
            begun: set[int] = set()  #: workers whose process has started

            def launch(worker: int) -> None:
                asked = perf_counter() - began
                taken = queues.take(worker, asked)
                if taken is not None:
                    function, *arguments = apart.send(shared, self.ranges(taken.start, taken.stop))
                    running[pool.submit(_timed, function, *arguments)] = worker, taken, asked

            for worker in range(workers):
                launch(worker)
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    worker, taken, asked = running.pop(future)
                    try:
                        seconds, values = future.result()
                    except Exception as error:
                        for other in running:
                            other.cancel()
                        failed = Failed(taken)
                        raise failed from error
                    end = perf_counter() - began
                    apart.keep(self.ranges(taken.start, taken.stop), values)
                    stolen = taken.chunks if taken.stolen else 0
                    trace.chunks.append(
                        LoopChunk(worker, taken.start, taken.stop, end - seconds, end, asked, taken.queue, stolen)
                    )
                    # Starting a process is no cost of a chunk.
                    overhead_s = end - seconds - asked if worker in begun else 0.0
                    begun.add(worker)
                    queues.done(worker, taken.stop - taken.start, seconds, overhead_s)
                    launch(worker)

    def _tell(self, team: Team, queues: Queues, begun: float) -> None:
        report, trace = self.report, team.trace
        borders = self._borders
        if borders is not None:
            trace.chunks[:] = [one._replace(start=borders[one.start], stop=borders[one.stop]) for one in trace.chunks]
        report.trace = trace
        report.decisions += queues.said
        now = perf_counter()
        startup = min((one.begin for one in trace.chunks), default=0.0) + begun - self.began
        report.phases |= {"startup_seconds": startup, "execution_seconds": now - begun}
        report.phases["total_seconds"] = sum(
            seconds for name, seconds in report.phases.items() if name != "total_seconds"
        )


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    begin = perf_counter()
    value = function(*arguments)
    return perf_counter() - begin, value
