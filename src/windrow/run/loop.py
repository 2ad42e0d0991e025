"""The loop: events from the engine to the scheduler, commands from the scheduler to the engine.

It decides nothing. It knows the clock, answers the scheduler's questions with the planner, shows
everything to observers and turns Ctrl-C into an event. However it ends, the engine is stopped.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from windrow.core.commands import (
    Launch,
    OutputFailed,
    OutputMade,
    Publish,
    Replan,
    Resolve,
    Take,
    TaskEnded,
    Uncounted,
    WakeAt,
)
from windrow.core.events import CancelRequested, Event, Planned, Tick

if TYPE_CHECKING:
    from windrow.core.commands import Command, EngineCommand, Status
    from windrow.core.ledger import Ledger
    from windrow.core.records import Evidence, Failure, Handle, Plan, PlanJob
    from windrow.core.rows import RowFeeder
    from windrow.core.scheduler import Scheduler
    from windrow.engines.base import Engine, Workload


#: Seconds after which the inbox is looked at although nobody rang.
LISTEN_S = 0.25


#: Is shown the events, the commands that followed and the time of every batch; must be quick.
Observer: TypeAlias = "Callable[[Sequence[Event], Sequence[Command], float], None]"


class Collector(Protocol):
    """Where outputs go that are in the driver's hands: partials of rows, values that a future waits for."""

    def add(self, handle: Handle, value: Any, about: Any) -> None:
        """Take an output over; ``about`` is what the feeder says of it, such as the rows of a partial."""

    def partials(self) -> dict[int, list[Any]]:
        """Give all partials by input, in order of their first row."""


class Inbox(Protocol):
    """What comes to a run from outside of its engine: more inputs, questions, the wish to end."""

    def open(self, wake: Callable[[], None]) -> None:
        """The run begins; a thread that has something for it calls ``wake``."""

    def events(self) -> list[Event]:
        """Give what is new; asked for in the loop's thread, between two batches."""

    def stop(self) -> None:
        """The user wishes the run to end (Ctrl-C); how is said by ``events``."""

    def close(self) -> None:
        """The run has ended, and its workers too."""


class Taken:
    """The collector that keeps partials as they come."""

    def __init__(self) -> None:
        self._taken: list[tuple[Any, Any]] = []

    def add(self, handle: Handle, value: Any, about: Any) -> None:  # noqa: ARG002 - a Protocol's
        self._taken.append((about, value))

    def partials(self) -> dict[int, list[Any]]:
        partials: dict[int, list[Any]] = {}
        # By rows alone: partials need not be comparable.
        for rows, partial in sorted(self._taken, key=lambda pair: pair[0]):
            partials.setdefault(rows[0].input, []).append(partial)
        return partials


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run ended and what it made."""

    status: Status
    failure: Failure | None
    reason: str  #: why it was stopped, if it was
    partials: dict[int, list[Any]]  #: by input, in order of their first row
    rows: RowFeeder | None  #: where rows came from, if any were run
    notes: list[str]
    wall_s: float
    driver_cpu_s: float  #: of the loop itself, without work that the engine did inside ``wait``

    @property
    def cancelled(self) -> bool:
        return self.status == "cancelled"

    @property
    def ledger(self) -> Ledger:
        assert self.rows is not None
        return self.rows.ledger

    @property
    def evidence(self) -> dict[str, Evidence]:
        return {} if self.rows is None else {name: one.evidence for name, one in self.rows.accounts.items()}

    @property
    def bytes_read(self) -> int:
        return 0 if self.rows is None else self.rows.bytes_read


def run(
    scheduler: Scheduler,
    engine: Engine,
    workload: Workload,
    *,
    clock: Callable[[], float] = time.monotonic,
    observers: Sequence[Observer] = (),
    planner: Callable[[PlanJob], Plan] | None = None,
    collector: Collector | None = None,
    inbox: Inbox | None = None,
) -> RunOutcome:
    """Run to the end; a first Ctrl-C ends it with what is done so far, a second one at once.

    With an inbox, SIGTERM is like Ctrl-C, and the first of them is a wish told to the inbox.
    """
    rows = scheduler.feeder
    if planner is None and rows is not None:
        planner = rows.policies.order.replan
    loop = _Loop(scheduler, engine, clock, observers, planner, collector or Taken(), inbox)
    begin, cpu = clock(), time.thread_time()
    try:
        with _Interrupts(engine, terminate=inbox is not None) as interrupts:
            engine.start(workload)
            if inbox is not None:
                inbox.open(engine.wake)
            loop.until_resolved(interrupts)
    finally:
        try:
            engine.stop()
        finally:
            if inbox is not None:
                inbox.close()
    cpu = time.thread_time() - cpu - engine.work_cpu_s
    wall_s = clock() - begin
    assert loop.end is not None
    return RunOutcome(
        status=loop.end.status,
        failure=loop.end.failure,
        reason=loop.end.reason,
        partials=loop.collector.partials(),
        rows=rows,
        notes=list(scheduler.notes),
        wall_s=wall_s,
        driver_cpu_s=cpu,
    )


#: Commands that are for the loop itself.
_OTHERS = frozenset({Take, Replan, WakeAt, Resolve})
#: Commands that are for observers alone: they tell whoever waits for a task.
_NEWS = frozenset({TaskEnded, OutputMade, OutputFailed, Publish, Uncounted})


@dataclass(slots=True)
class _Loop:
    scheduler: Scheduler
    engine: Engine
    clock: Callable[[], float]
    observers: Sequence[Observer]
    planner: Callable[[PlanJob], Plan] | None
    collector: Collector
    inbox: Inbox | None = None
    end: Resolve | None = None
    wake: float | None = None

    def until_resolved(self, interrupts: _Interrupts) -> None:
        told = False
        while not self.ended():
            wake = self.wake
            timeout = None if wake is None else max(0.0, wake - self.clock())
            if self.inbox is not None:
                timeout = LISTEN_S if timeout is None else min(LISTEN_S, timeout)
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
                if self.inbox is None:
                    events.append(CancelRequested("interrupted"))
                else:
                    self.inbox.stop()
            if wake is not None and now >= wake:
                self.wake = None
                events.append(Tick())
            if self.inbox is not None:
                # First, and looked for last: what was said before a report was caused holds when that is heard.
                events[:0] = self.inbox.events()
            self.feed(events, now)

    def ended(self) -> bool:
        """Say whether the run is resolved, after what has come from outside since."""
        if self.end is None and self.inbox is not None:
            self.feed(self.inbox.events(), self.clock())
        return self.end is not None

    def feed(self, events: list[Event], now: float) -> None:
        """Give events to the scheduler and do what it says, until it has no more questions."""
        while events:
            commands = self.scheduler.on(events, now)
            answers: list[Event] = []
            orders: list[EngineCommand] = []
            for command in commands:
                kind = type(command)
                if kind is Launch:  # by far the most
                    orders.append(command)  # type: ignore[arg-type]
                elif kind in _OTHERS:
                    self._obey(command, answers)
                elif kind not in _NEWS:
                    orders.append(command)  # type: ignore[arg-type]
            if orders:
                self.engine.do(orders)
            for observer in self.observers:
                observer(events, commands, now)
            events = answers

    def _obey(self, command: Command, answers: list[Event]) -> None:
        if isinstance(command, Take):
            value = self.engine.take(command.handle, mine=command.mine)
            self.collector.add(command.handle, value, command.about)
        elif isinstance(command, Replan):
            assert self.planner is not None
            answers.append(Planned(self.planner(command.job)))
        elif isinstance(command, WakeAt):
            self.wake = command.time
        elif isinstance(command, Resolve):
            self.end = command


class _Interrupts:
    """Counts Ctrl-C instead of letting it break into the scheduler; the second one raises.

    Only in the main thread, where signals arrive. A host that installed a handler of its own knows
    what it wants: that one is asked, and counts if it raises. With ``terminate``, SIGTERM counts
    too, where no other handler is set.
    """

    def __init__(self, engine: Engine, *, terminate: bool = False) -> None:
        self.count = 0
        self._engine = engine
        self._wanted: dict[int, Any] = {signal.SIGINT: signal.default_int_handler}
        if terminate:
            self._wanted[signal.SIGTERM] = signal.SIG_DFL
        self._installed: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, own in self._wanted.items():
                found = signal.getsignal(number)
                if found is own or (number == signal.SIGINT and callable(found)):
                    signal.signal(number, self._interrupt)
                    self._installed[number] = found
        return self

    def __exit__(self, *_: object) -> None:
        for number, found in self._installed.items():
            signal.signal(number, found)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        found = self._installed[number]
        if found is not self._wanted[number]:
            try:
                found(number, frame)
            except KeyboardInterrupt:
                pass  # wherever we are: the loop hears of it where it can bear it
            else:
                return
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
        self._engine.wake()
