"""The engine of virtual time: workers that compute nothing, on a clock that needs no waiting.

The same scheduler and the same loop run on it: ``run(scheduler, engine, ..., clock=engine.clock)``. Everything comes from a model and
a seed, so two runs are the same to the last bit. The driver is charged for every event and command, as 256 workers would be free
otherwise.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, Literal

from windrow.core.events import Event, Started
from windrow.engines.base import Capabilities
from windrow.engines.job_runner import at_least_one
from windrow.engines.simulated.world import World
from windrow.errors import EngineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.core.records import Handle
    from windrow.engines.base import Workload
    from windrow.engines.simulated.model import Model

Kind = Literal["threads", "processes"]


class SimulatedEngine:
    """Workers of a model.

    "threads" share the interpreter lock and cannot be stopped; "processes" have a lock each, can be stopped and are held to their
    limits. Where the model has nodes, ``workers`` is the number of nodes, each with workers of its own.
    """

    work_cpu_s = 0.0

    def __init__(self, model: Model, workers: int, *, seed: int = 0, kind: Kind = "processes") -> None:
        if kind not in ("threads", "processes"):
            raise UsageError(f'simulated workers are "threads" or "processes", got {kind!r}')
        apart = kind == "processes"
        self.capabilities = Capabilities(can_kill=apart, can_restart=True, isolates=apart)
        self.world = World(model, at_least_one(workers), seed, self._report, apart=apart)
        self.tally = self.world.tally
        self._driver = model.driver
        self._now = 0.0  #: the driver's clock; the world is worked out up to it when it waits
        self._sent: deque[tuple[float, EngineCommand]] = deque()  #: on their way to workers
        self._reports: deque[tuple[float, Event]] = deque()  #: on their way to the driver
        self._heard = inf  #: when the first report arrives that the driver is woken for
        self._woken = False

    def clock(self) -> float:
        """Give the virtual time, in seconds since the start; the loop's clock."""
        return self._now

    def start(self, workload: Workload) -> None:  # noqa: ARG002 - nothing is computed
        self.world.begin()

    def do(self, commands: Sequence[EngineCommand]) -> None:
        driver = self._driver
        for command in commands:
            self._now += driver.command_s
            self._sent.append((self._now + driver.latency_s, command))
        self.tally.driver_s += len(commands) * driver.command_s

    def wait(self, timeout: float | None) -> list[Event]:
        """Let time pass until a report arrives or ``timeout`` is over; give what was reported."""
        limit = inf if timeout is None else self._now + timeout
        if self._woken:
            limit, self._woken = self._now, False
        until = self._pass(limit)
        if until == inf:
            raise EngineError(
                "the simulated engine was asked to wait, but nothing more will happen: either all "
                "workers are gone for good, or its caller waits for an event that cannot come"
            )
        self._now = until
        reports = self._reports
        events: list[Event] = []
        while reports and reports[0][0] <= until:
            events.append(reports.popleft()[1])
        self._heard = inf
        for time, event in reports:
            if type(event) is not Started:
                self._heard = time
                break
        service = len(events) * self._driver.event_s
        self._now += service
        self.tally.driver_s += service
        return events

    def _pass(self, limit: float) -> float:
        """Let things happen in order until the driver is woken, at ``limit`` at the latest."""
        world, sent = self.world, self._sent
        now = self._now
        while True:
            heard = self._heard
            until = now if heard < now else heard
            if limit < until:
                until = limit
            time = world.next_time()
            if sent and sent[0][0] <= time:
                time = sent[0][0]
                if time > until:
                    return until
                world.arrive(sent.popleft()[1], time)
            elif time > until or time == inf:
                return until
            else:
                world.step()

    def _report(self, event: Event, now: float) -> None:
        time = now + self._driver.latency_s
        self._reports.append((time, event))
        # Nobody is woken for a beginning: it is told with whatever comes next.
        if time < self._heard and type(event) is not Started:
            self._heard = time

    def wake(self) -> None:
        self._woken = True

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        """Hand over an output: the rows that a partial covers, nothing of a call."""
        return self.world.take(handle, mine=mine)

    def stop(self) -> None:
        self.world.end(self._now)
        self._sent.clear()
        self._reports.clear()
        self._heard = inf
