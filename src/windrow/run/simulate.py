"""Runs in virtual time: one simulated run, and what a recorded run or session would take with other workers.

For runs the scheduler, its policies and the loop are those of real runs. Only the engine and its clock are not.
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from windrow.core.policies import Options, Policies
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.simulated.engine import SimulatedEngine
from windrow.errors import DataError
from windrow.run.garbage import collecting_less
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.store.rundir import RunDirectory
from windrow.units import format_seconds
from windrow.watch.graph_run import Findings, graph_run, least_time, maker_of
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from windrow.core.policies import LaunchPolicy
    from windrow.engines.simulated.devices import Device
    from windrow.engines.simulated.engine import Kind
    from windrow.engines.simulated.model import Model
    from windrow.engines.simulated.world import Tally
    from windrow.run.loop import Observer, RunOutcome
    from windrow.run.recorded import Recorded
    from windrow.watch.log import CallRecord

#: Losses below this share of the workers' time are not worth a sentence.
WORTH_SAYING = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A run in virtual time."""

    outcome: RunOutcome
    tally: Tally
    workers: int
    device_busy_s: dict[str, float]  #: by device

    @property
    def seconds(self) -> float:
        return self.outcome.wall_s

    @property
    def utilisation(self) -> float:
        return self.tally.compute_s / max(self.tally.present_s, 1e-12)


def simulate(
    model: Model,
    workers: int,
    *,
    seed: int = 0,
    kind: Kind = "processes",
    chunk: int | None = None,
    options: Options | None = None,
    rows: RowOptions | None = None,
    policies: Policies | None = None,
    launches: LaunchPolicy | None = None,
    observers: Sequence[Observer] = (),
) -> Simulated:
    """Run a model in virtual time on so many workers, or nodes if it has any; by default with the policies of a pipeline."""
    engine = SimulatedEngine(model, workers, seed=seed, kind=kind)
    policies = policies or Policies(shape=Guided() if chunk is None else Fixed(chunk))
    feeder = RowFeeder(model.specs(), policies, rows or RowOptions(chunk=chunk))
    can = engine.capabilities
    options = options or Options(restart=True, speculate=can.can_kill)
    scheduler = Scheduler(feeder, launches, options)
    # Nothing is computed: nobody asks the workload for more than what a task is about.
    nothing: Any = SimpleNamespace(content=attrgetter("payload"))
    with collecting_less():
        outcome = run(scheduler, engine, nothing, clock=engine.clock, observers=observers)
    devices = {name: shared.busy_s for name, shared in engine.world.devices.items()}
    return Simulated(outcome=outcome, tally=engine.tally, workers=engine.world.size, device_busy_s=devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a recorded run would take with so many workers."""

    workers: int
    seconds: float  #: the median over seeds
    low: float  #: the quickest of the seeds
    high: float  #: the slowest
    speedup: float  #: against the recorded run
    efficiency: float  #: speed-up per worker added: 1 if twice the workers take half the time
    utilisation: float  #: of workers' time, computing; what no worker does counts as time, too
    driver: float  #: share of the time that the driver is busy
    tasks: int
    limit: str  #: what keeps it from being quicker, in words


def forecast(
    recorded: Recorded,
    workers: int,
    *,
    kind: Kind | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    device: tuple[str, Device] | None = None,
) -> Forecast:
    """Foretell what the recorded run would take with so many workers of a kind."""
    model = recorded.model(device)
    runs = [simulate(model, workers, seed=seed, kind=kind or recorded.kind, chunk=recorded.chunk) for seed in seeds]
    walls = [one.seconds + recorded.outside_s for one in runs]
    middle = statistics.median(walls)
    usual = min(runs, key=lambda one: abs(one.seconds + recorded.outside_s - middle))
    inside = usual.seconds / max(usual.seconds + recorded.outside_s, 1e-12)
    speedup = recorded.seconds / middle if middle > 0 else float("nan")
    return Forecast(
        workers=workers,
        seconds=middle,
        low=min(walls),
        high=max(walls),
        speedup=speedup,
        efficiency=speedup * recorded.workers / workers,
        utilisation=usual.utilisation * inside,
        driver=usual.tally.driver_s / max(usual.seconds, 1e-12) * inside,
        tasks=usual.tally.tasks,
        limit=what_limits(usual, recorded.outside_s),
    )


def what_limits(one: Simulated, outside_s: float = 0.0) -> str:
    """Say in words what a simulated run lost most of its workers' time with."""
    tally, workers = one.tally, one.workers
    wall = one.seconds
    total = (wall + outside_s) * workers
    ended = sum(wall - tally.last_task.get(number, 0.0) for number in range(workers))
    waited = tally.present_s - ended - tally.compute_s - tally.read_s - tally.lock_wait_s
    waited -= tally.cores_wait_s + tally.lost_s + tally.other_s
    end = f"the end: workers wait for the last tasks (the longest takes {format_seconds(tally.longest_s)})"
    if tally.tasks < workers:
        end = f"there are only {tally.tasks} tasks: units of the files are not cut"
    driver = tally.driver_s / max(wall, 1e-12)
    device = max(one.device_busy_s, key=one.device_busy_s.__getitem__, default="")
    losses = {
        end: ended,
        f"the driver, which is busy {driver:.0%} of the time" if driver > 0.5 else "waiting for the next task": waited,
        "the interpreter lock: threads wait for each other": tally.lock_wait_s,
        "too few processors for so many workers": tally.cores_wait_s,
        f"reading from {device}" if device else "reading": tally.read_s,
        "the first task of every worker, which compiles and opens files": tally.cold_s,
        "work that was lost with its worker": tally.lost_s,
        "opening inputs and merging results": tally.other_s,
        f"what is not done by workers: {format_seconds(outside_s)} before the first and after the last task": outside_s
        * workers,
    }
    worst = max(losses, key=lambda words: losses[words])
    share = losses[worst] / max(total, 1e-12)
    if share < WORTH_SAYING:
        return "the work itself: more workers would make it quicker"
    return f"{worst} ({share:.0%} of the workers' time)"


# -- sessions --------------------------------------------------------------------------------------
#
# Tasks are put onto so many workers, the oldest that can run first: when what it reads is there and the tasks before it have
# ended. Its program calls it as long after the task that had ended last before the call as it did when it was recorded:
# programs call when they know something.


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionForecast:
    """What the tasks of a session would take on so many workers."""

    workers: int
    seconds: float
    speedup: float  #: against the recorded session
    busy: float  #: share of the workers' time
    limit: str  #: what keeps it from being quicker, in words


class RecordedSession:
    """A session that can be foretold from, read from its run directory; times in seconds."""

    def __init__(self, directory: RunDirectory) -> None:
        with directory.log.open(encoding="utf-8", errors="replace") as lines:
            self.run = graph_run(read_log(lines, now=0), directory.read_manifest())
        found = Findings(self.run)
        if not found.makespan:
            raise DataError(f"{directory.log} tells of no task that ran, so there is nothing to foretell from")
        self.seconds = found.makespan / 1e6  #: from the first call to the last end
        self.path = found.path.length / 1e6  #: critical
        self.work = found.work / 1e6  #: of all tasks


def is_session(path: Path) -> bool:
    return "session" in RunDirectory.open(path).read_manifest()


def forecast_session(recorded: RecordedSession, workers: int) -> SessionForecast:
    tasks = {number: task for number, task in recorded.run.tasks.items() if task.last is not None}
    seconds = _makespan(tasks, workers)
    least = least_time(round(recorded.path * 1e6), recorded.work * 1e6, workers) / 1e6
    if seconds > 1.05 * least:
        limit = "what tasks wait for: each other, and the program that calls them"
    elif recorded.path >= recorded.work / workers:
        limit = "the critical path: more workers would not make it quicker"
    else:
        limit = "the work itself: more workers would make it quicker"
    return SessionForecast(
        workers=workers,
        seconds=seconds,
        speedup=recorded.seconds / seconds,
        busy=min(recorded.work / (workers * seconds), 1.0),
        limit=limit,
    )


def _makespan(tasks: Mapping[int, CallRecord], workers: int) -> float:
    needs = {number: _needed(task, tasks) for number, task in tasks.items()}
    for number, (before, delay) in _calls(tasks).items():
        needs[number].append((before, delay))
    readers: dict[int, list[int]] = {}
    for number, sources in needs.items():
        for source, _ in sources:
            readers.setdefault(source, []).append(number)
    left = {number: len(sources) for number, sources in needs.items()}
    ready: list[tuple[int, int]] = []  #: (when it can begin, task)
    for number, count in left.items():
        if not count:
            heappush(ready, (0, number))
    free = [0] * workers  #: when each worker is free, a heap
    begins: dict[int, int] = {}
    last = 0
    while ready:
        can, number = heappop(ready)
        width = min(max(round(tasks[number].cores), 1), workers)
        held = [heappop(free) for _ in range(width)]
        begin = max(can, held[-1])
        end = begin + sum(one.end - one.begin for one in tasks[number].tries)
        for _ in held:
            heappush(free, end)
        begins[number] = begin
        last = max(last, end)
        for reader in readers.get(number, ()):
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, (max(begins[source] + after for source, after in needs[reader]), reader))
    return max(last, 1) / 1e6


def _needed(task: CallRecord, tasks: Mapping[int, CallRecord]) -> list[tuple[int, int]]:
    """List the tasks that one needs, and how long after the beginning of each it has what it needs."""
    found = []
    for output in task.reads:
        maker = tasks.get(maker_of(output))
        if maker is not None and maker.id < task.id:
            there = maker.released.get(output) or [maker.end]
            found.append((maker.id, max(there[-1] - maker.tries[0].begin, 0)))
    found += [(number, _length(tasks[number])) for number in task.after if number in tasks and number < task.id]
    return found


def _calls(tasks: Mapping[int, CallRecord]) -> dict[int, tuple[int, int]]:
    """Say for each task that was called after another had ended which one that was, and how long after its beginning."""
    by_end = sorted((task.end, number) for number, task in tasks.items())
    found = {}
    for number, task in tasks.items():
        place = bisect_right(by_end, (task.called, number))
        # The one that ended last among those that were called before.
        _, before = max((one for one in by_end[max(place - 8, 0) : place] if one[1] < number), default=(0, None))
        if before is not None:
            found[number] = before, _length(tasks[before]) + task.called - tasks[before].end
    return found


def _length(task: CallRecord) -> int:
    return task.end - task.tries[0].begin
