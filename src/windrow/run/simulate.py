"""Runs in virtual time: one simulated run, and what a recorded run would take with other workers.

The scheduler, its policies and the loop are those of real runs. Only the engine and its clock are not.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.rows import RowFeeder, RowOptions
from windrow.core.scheduler import Scheduler
from windrow.engines.simulated.engine import SimulatedEngine
from windrow.errors import InternalError
from windrow.run.garbage import collecting_less
from windrow.run.loop import run
from windrow.shape.fixed import Fixed
from windrow.shape.guided import Guided
from windrow.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.records import Task
    from windrow.engines.simulated.devices import Device
    from windrow.engines.simulated.engine import Kind
    from windrow.engines.simulated.jobs import Tally
    from windrow.engines.simulated.model import Model
    from windrow.run.loop import Observer, RunOutcome
    from windrow.run.recorded import Recorded

#: Losses below this share of the workers' time are not worth a sentence.
WORTH_SAYING = 0.05


class _Nothing:
    """The workload of a run in which nothing is computed: nobody asks it for more than what a task is about."""

    def content(self, task: Task) -> Any:
        return task.payload

    def __getattr__(self, name: str) -> NoReturn:
        raise InternalError(f"a simulated run asked its workload for {name}")


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
        """Give the share of the workers' time that went into computing what counts."""
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
    observers: Sequence[Observer] = (),
) -> Simulated:
    """Run a model in virtual time; by default with the policies of a pipeline."""
    engine = SimulatedEngine(model, workers, seed=seed, kind=kind)
    policies = policies or Policies(shape=Guided() if chunk is None else Fixed(chunk))
    feeder = RowFeeder(model.specs(), policies, rows or RowOptions(chunk=chunk))
    can = engine.capabilities
    options = options or Options(restart=True, speculate=can.can_kill)
    scheduler = Scheduler(feeder, options=options)
    nothing: Any = _Nothing()
    with collecting_less():
        outcome = run(scheduler, engine, nothing, clock=engine.clock, observers=observers)
    devices = {name: shared.busy_s for name, shared in engine.world.things.devices.items()}
    return Simulated(outcome=outcome, tally=engine.tally, workers=workers, device_busy_s=devices)


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
    losses = {
        _about_end(one): ended,
        _about_waiting(one): waited,
        "the interpreter lock: threads wait for each other": tally.lock_wait_s,
        "too few processors for so many workers": tally.cores_wait_s,
        _about_reading(one): tally.read_s,
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


def _about_end(one: Simulated) -> str:
    tally = one.tally
    if tally.tasks < one.workers:
        return f"there are only {tally.tasks} tasks: units of the files are not cut"
    longest = format_seconds(tally.longest_s)
    return f"the end: workers wait for the last tasks (the longest takes {longest})"


def _about_waiting(one: Simulated) -> str:
    busy = one.tally.driver_s / max(one.seconds, 1e-12)
    if busy > 0.5:
        return f"the driver, which is busy {busy:.0%} of the time"
    return "waiting for the next task"


def _about_reading(one: Simulated) -> str:
    if not any(one.device_busy_s.values()):
        return "reading"
    name = max(one.device_busy_s, key=lambda device: one.device_busy_s[device])
    return f"reading from {name}"
