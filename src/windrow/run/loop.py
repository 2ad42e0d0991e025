"""The loop: events from the engine to the scheduler, commands from the scheduler to the engine.

It decides nothing. It knows the clock, answers the scheduler's questions with the planner, shows
everything to observers and turns Ctrl-C into an event. However it ends, the engine is stopped.
"""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from windrow.core.commands import Launch, Replan, Resolve, Take, TaskEnded, WakeAt
from windrow.core.events import CancelRequested, Event, Planned, Tick

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from windrow.core.commands import Command, EngineCommand, Status
    from windrow.core.ledger import Ledger
    from windrow.core.records import Evidence, Failure, Handle, Plan, PlanJob
    from windrow.core.scheduler import Scheduler
    from windrow.engines.base import Engine, Workload

__all__ = ["Collector", "Observer", "RunOutcome", "run"]


#: Is shown the events, the commands that followed and the time of every batch; must be quick.
Observer: TypeAlias = "Callable[[Sequence[Event], Sequence[Command], float], None]"


class Collector(Protocol):
    """Where partials go that are safe in the driver."""

    def add(self, handle: Handle, partial: Any) -> None:
        """Take a partial over; its rows are done."""
        ...

    def partials(self) -> dict[int, list[Any]]:
        """Give everything by input, in order of their first row."""
        ...


class Taken:
    """The collector that keeps partials as they come."""

    def __init__(self) -> None:
        self._taken: list[tuple[Handle, Any]] = []

    def add(self, handle: Handle, partial: Any) -> None:
        """Keep a partial."""
        self._taken.append((handle, partial))

    def partials(self) -> dict[int, list[Any]]:
        """Give everything by input, in order of their first row."""
        partials: dict[int, list[Any]] = {}
        # By rows alone: partials need not be comparable.
        for handle, partial in sorted(self._taken, key=lambda pair: pair[0].rows):
            partials.setdefault(handle.rows[0].input, []).append(partial)
        return partials


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended and what it made."""

    status: Status
    failure: Failure | None
    reason: str  #: why it was stopped, if it was
    partials: dict[int, list[Any]]  #: by input, in order of their first row
    ledger: Ledger
    evidence: dict[str, Evidence]  #: by category
    plans: list[Plan]  #: issued during the run, in order
    notes: list[str]
    bytes_read: int  #: by accepted attempts
    wall_s: float
    driver_cpu_s: float  #: of the loop itself, without work that the engine did inside ``wait``

    @property
    def cancelled(self) -> bool:
        """Whether it ended on request."""
        return self.status == "cancelled"


def run(
    scheduler: Scheduler,
    engine: Engine,
    workload: Workload,
    *,
    clock: Callable[[], float] = time.monotonic,
    observers: Sequence[Observer] = (),
    planner: Callable[[PlanJob], Plan] | None = None,
    collector: Collector | None = None,
) -> RunOutcome:
    """Run to the end; a first Ctrl-C ends it with what is done so far, a second one at once."""
    planner = planner or scheduler.policies.order.replan
    loop = _Loop(scheduler, engine, clock, observers, planner, collector or Taken())
    begin, cpu = clock(), time.thread_time()
    try:
        with _Interrupts(engine) as interrupts:
            engine.start(workload)
            loop.until_resolved(interrupts)
    finally:
        engine.stop()
    cpu = time.thread_time() - cpu - engine.work_cpu_s
    return loop.outcome(clock() - begin, cpu)


@dataclass(slots=True)
class _Loop:
    scheduler: Scheduler
    engine: Engine
    clock: Callable[[], float]
    observers: Sequence[Observer]
    planner: Callable[[PlanJob], Plan]
    collector: Collector
    end: Resolve | None = None
    wake: float | None = None
    plans: list[Plan] = field(default_factory=list)

    def until_resolved(self, interrupts: _Interrupts) -> None:
        told = False
        while self.end is None:
            wake = self.wake
            timeout = None if wake is None else max(0.0, wake - self.clock())
            try:
                events = self.engine.wait(timeout)
            except KeyboardInterrupt:
                interrupts.count += 1
                if interrupts.count > 1:
                    raise
                events = []
            now = self.clock()
            if interrupts.count and not told:
                told = True
                events.append(CancelRequested("interrupted"))
            if wake is not None and now >= wake:
                self.wake = None
                events.append(Tick())
            self.feed(events, now)

    def feed(self, events: list[Event], now: float) -> None:
        """Give events to the scheduler and do what it says, until it has no more questions."""
        while events:
            commands = self.scheduler.on(events, now)
            answers: list[Event] = []
            orders: list[EngineCommand] = []
            for command in commands:
                if isinstance(command, Launch):  # by far the most
                    orders.append(command)
                elif isinstance(command, Take):
                    self.collector.add(command.handle, self.engine.take(command.handle))
                elif isinstance(command, Replan):
                    plan = self.planner(command.job)
                    self.plans.append(plan)
                    answers.append(Planned(plan))
                elif isinstance(command, WakeAt):
                    self.wake = command.time
                elif isinstance(command, Resolve):
                    self.end = command
                elif isinstance(command, TaskEnded):
                    continue  # observers tell whoever waits for a task
                else:
                    orders.append(command)
            if orders:
                self.engine.do(orders)
            for observer in self.observers:
                observer(events, commands, now)
            events = answers

    def outcome(self, wall_s: float, driver_cpu_s: float) -> RunOutcome:
        assert self.end is not None
        scheduler = self.scheduler
        return RunOutcome(
            status=self.end.status,
            failure=self.end.failure,
            reason=self.end.reason,
            partials=self.collector.partials(),
            ledger=scheduler.ledger,
            evidence={name: account.evidence for name, account in scheduler.accounts.items()},
            plans=self.plans,
            notes=list(scheduler.notes),
            bytes_read=scheduler.bytes_read,
            wall_s=wall_s,
            driver_cpu_s=driver_cpu_s,
        )


class _Interrupts:
    """Counts Ctrl-C instead of letting it break into the scheduler; the second one raises.

    Only in the main thread, where signals arrive, and only in place of Python's own handler: a host
    that installed another one knows what it wants.
    """

    def __init__(self, engine: Engine) -> None:
        self.count = 0
        self._engine = engine
        self._installed = False

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a handler's
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
        self._engine.wake()
