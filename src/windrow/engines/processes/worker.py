"""What runs in a worker's process: reads commands, does them with a shelf, sends reports.

Reports are sent together, before the next job begins unless jobs are short and follow each other. An attempt's beginning goes with them; where there is
nothing else to report it waits for the end, as waking the driver costs more than a small task. Its page says meanwhile
which attempt runs: it outlives the process, so it is always known whose fault an end is, and a driver that has waited
a while looks there. All commands that have come are read between two jobs, so that a cancel overtakes what waits.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.commands import Cancel, Discard, Fetch, Inspect, Launch, Merge, Recall, StopWorker
from windrow.core.events import Cancelled, Event, FetchFailed, Finished, Started
from windrow.core.records import Failure, FailureKind
from windrow.engines.processes.messages import COMMON, OUTPUT, ForgetCommon, Reader, write_report
from windrow.engines.processes.serialize import culprit, portable
from windrow.engines.processes.transport import Arrival, Link, pack
from windrow.engines.processes.values import is_plain
from windrow.engines.processes.worker_tasks import TaskLaunches
from windrow.engines.shelf import Shelf, failure_event
from windrow.errors import EngineError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from windrow.core.commands import EngineCommand
    from windrow.core.records import Handle
    from windrow.engines.supervisor.status_page import StatusPage

__all__ = [
    "BROKEN",
    "COMMANDS",
    "PARTIAL",
    "READY",
    "REPORTS",
    "SETUP",
    "UNCLOSED",
    "WORKLOAD",
    "Learned",
    "Setup",
    "main",
]

#: Kinds of parcels to a worker ...
SETUP, WORKLOAD, COMMANDS = range(1, 4)
#: ... and from it: a partial has its handle's id as tag; BROKEN has a Failure, UNCLOSED an exception.
READY, REPORTS, PARTIAL, BROKEN, UNCLOSED = range(11, 16)


#: Seconds in which the reports of short tasks are sent together while others wait behind them: a message for each wakes the
#: driver each time. Should one of them take long after all, what is heard meanwhile (``Listening``) has them sent.
TOGETHER_S = 0.004


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker is told first."""

    worker: int
    incarnation: int
    metering: bool = True


def main(sock: socket.socket, page: StatusPage) -> None:
    """Work until told to stop, or until the driver is gone."""
    sock.setblocking(True)
    worker = _Worker(Link(sock))
    with contextlib.suppress(_DriverGone):
        worker.work(page)


class Learned(NamedTuple):
    """What a worker learned beside its results, for the workload at home."""

    news: Any


class _DriverGone(Exception):
    """Nobody is there to work for."""


class _Meter:
    """What one attempt uses, as seen by its own process.

    CPU is that of all threads of the process and of the children that it has waited for, since all of it is spent on
    the attempt; the wait for the interpreter lock, which the shelf measures, is that of the worker's thread alone.
    """

    def __init__(self, page: StatusPage) -> None:
        self._page = page
        self._cpu = 0.0
        self._metered = True

    def begin(self, command: Launch, *, short: bool = False) -> None:
        """Start the limits and clear the peak; of a short attempt without limits say only that it begins."""
        limits = dict(command.limits.amounts) if command.limits.amounts else {}
        self._metered = bool(limits) or not short
        self._page.begin(
            command.attempt, int(limits.get("memory", 0)), float(limits.get("seconds", 0.0)),
            metered=self._metered,
        )  # fmt: skip
        if self._metered:
            self._cpu = _cpu_s()

    def end(self) -> tuple[float, int, int]:
        """End the limits; CPU seconds, peak of the process tree, memory that stays; zeros where it was not metered."""
        if not self._metered:
            self._page.end(metered=False)
            return 0.0, 0, 0
        cpu = _cpu_s() - self._cpu
        stays = self._page.resident()
        # The kernel counts pages in batches, and its peak may lag behind by one.
        return cpu, max(self._page.end(), stays), stays


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


#: Seconds between two looks.
LISTEN_S = 0.05


class _Listening:
    """Whose turn it is at the link: the worker's own thread's, and the other one's inside of this context."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.turn = threading.Lock()  #: whoever reads or writes while a task goes on takes it
        self.turn.acquire()
        self._answer = answer
        self._begun = False
        self._trouble: BaseException | None = None

    def __enter__(self) -> None:
        if not self._begun:
            self._begun = True
            with contextlib.suppress(RuntimeError):  # no more threads are allowed: nobody listens
                threading.Thread(target=self._listen, name="windrow-listens", daemon=True).start()
        self.turn.release()

    def __exit__(self, *_: object) -> None:
        self.turn.acquire()
        if self._trouble is not None:
            raise self._trouble

    def _listen(self) -> None:
        while self._trouble is None:
            time.sleep(LISTEN_S)
            if self.turn.acquire(blocking=False):
                try:
                    self._answer()
                except BaseException as error:  # noqa: BLE001 - raised again where the worker works
                    self._trouble = error
                finally:
                    self.turn.release()


class _Worker:
    """One life of a worker."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox: deque[Any] = deque()  #: commands, and what calls have in common
        #: outputs of graphs: others wait for them, so they come first
        self._wanted: deque[Handle] = deque()
        self._reader = Reader()
        self._cancelled: set[int] = set()
        self._reports: list[Event | Learned] = []
        self._number = 0
        self._incarnation = 0
        self._opened = False  #: the workload was asked to do something
        self._sent = 0.0  #: when reports were sent last
        self._tasks = TaskLaunches(0, 0)  #: of graphs
        self._listening = _Listening(self._answer)

    def work(self, page: StatusPage) -> None:
        """Take the workload, say that we are ready, and do commands one after the other."""
        try:
            shelf = self._begin(page)
        except _DriverGone:
            raise
        except BaseException as error:  # noqa: BLE001 - told to the driver, which knows what to do
            self._tell_broken(error, "the work cannot be unpickled in a worker's process")
            return
        self._send(pack(None, READY))
        try:
            self._loop(shelf)
        except _DriverGone:
            raise
        except BaseException as error:  # noqa: BLE001 - a failure of the machinery: raised again in the driver
            self._tell_broken(error, "a worker's process broke")
            return
        problem = shelf.close()
        if problem is not None:
            self._send(pack(portable(problem, self._number), UNCLOSED))

    def _begin(self, page: StatusPage) -> Shelf:
        arrivals: list[Any] = []
        while len(arrivals) < 2:
            arrivals += self._receive()
        setup: Setup = arrivals[0].open()
        self._number, self._incarnation = setup.worker, setup.incarnation
        self._tasks = TaskLaunches(setup.worker, setup.incarnation)
        workload = arrivals[1].open()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            # All workers are copies of one process; what they draw from NumPy's own state must differ.
            numpy.random.seed()
        meter = _Meter(page) if setup.metering else None
        return Shelf(workload, setup.worker, setup.incarnation, meter)

    def _loop(self, shelf: Shelf) -> None:
        inbox = self._inbox
        while True:
            if not inbox:
                self._flush()
            if self._link.readable(wait=not (inbox or self._wanted)):
                self._read()
            while self._wanted:
                self._fetch(shelf, self._wanted.popleft())
            while inbox:
                command = inbox.popleft()
                if isinstance(command, StopWorker):
                    self._flush()
                    return
                if self._do(shelf, command):
                    break  # something may have come meanwhile

    def _do(self, shelf: Shelf, command: EngineCommand) -> bool:
        """Do a command; say whether that took time."""
        if isinstance(command, Launch):
            number = command.attempt
            if number in self._cancelled:
                self._call_off(command)
                return False
            if command.task.inputs or not self._may_report_later(shelf):
                self._reports.append(Started(number, self._number, self._incarnation))
                # The first job opens the workload's side: before the page knows of the attempt.
                if len(self._reports) > 1 or self._link.pending or not self._opened:
                    self._flush()
            self._job(shelf, command)
            self._cancelled.discard(number)
        elif isinstance(command, (Inspect, Merge)):
            self._flush()
            self._job(shelf, command)
        elif isinstance(command, Fetch):
            self._fetch(shelf, command.handle)
        elif isinstance(command, Discard):
            if command.handle.rows:
                shelf.partials.pop(command.handle.id, None)
            else:
                self._tasks.discard(command.handle)
            return False
        elif isinstance(command, Arrival):
            self._tasks.keep_common(command)
            return False
        elif isinstance(command, ForgetCommon):
            self._tasks.forget_common(command.numbers)
            return False
        return True

    def _may_report_later(self, shelf: Shelf) -> bool:
        """Whether tasks are short and more of them wait, so that several can be reported together."""
        if not (shelf.brief and self._inbox and self._opened) or self._link.pending:
            return False
        return time.monotonic() - self._sent < TOGETHER_S

    def _call_off(self, command: Launch) -> None:
        """Say that an attempt will not begin."""
        self._cancelled.discard(command.attempt)
        self._reports.append(Cancelled(command.attempt, self._number, self._incarnation))
        if not command.task.inputs:
            self._tasks.cancelled(command)

    def _job(self, shelf: Shelf, command: Launch | Inspect | Merge) -> None:
        self._opened = True
        try:
            if isinstance(command, Launch) and not command.task.inputs:
                event = self._tasks.run(shelf, command, self._tell, self._unwanted, self._listening)
            else:
                event = shelf.do(command)
        except KeyboardInterrupt as error:  # raised by the user's code: workers ignore the signal
            event = failure_event(command, shelf.classify(error))
        found = shelf.news()
        if found is not None:
            self._reports.append(Learned(found))  # before the event that may rely on it
        self._reports.append(self._sendable(event))
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:  # noqa: BLE001, S110 - closed, or replaced by the user: theirs to see
            pass

    def _tell(self, report: Any, parcel: Any = None) -> None:
        """Report while a job goes on; what the report speaks of travels before it."""
        with self._listening.turn:
            if parcel is not None:
                self._put_reports()
                self._link.put(parcel)
            self._reports.append(report)
            self._flush()

    def _unwanted(self, attempt: int) -> bool:
        """Whether the attempt that runs was cancelled meanwhile."""
        with self._listening.turn:
            while self._link.readable():
                self._read()
            return attempt in self._cancelled

    def _answer(self) -> None:
        """While a task goes on: give back what waits behind it and was called off, and send what others wait for."""
        while self._link.readable():
            self._read()
        inbox = self._inbox
        for _ in range(len(inbox) if self._cancelled else 0):
            command = inbox.popleft()
            if isinstance(command, Launch) and command.attempt in self._cancelled:
                self._call_off(command)
            else:
                inbox.append(command)
        # Whatever else pickling may do is done between two tasks, so that none of them is blamed for it.
        while self._wanted and is_plain(self._tasks.get(self._wanted[0])):
            self._fetch(None, self._wanted.popleft())
        self._flush()

    def _fetch(self, shelf: Shelf | None, handle: Handle) -> None:
        if not handle.rows and (self._reports or self._link.pending):
            self._flush()  # should pickling end the process, all before it is known to be innocent
        if handle.rows:
            assert shelf is not None
            partial = shelf.partials.pop(handle.id)
        else:
            partial = self._tasks.get(handle)
        try:
            parcel = pack(partial, PARTIAL if handle.rows else OUTPUT, handle.id)
        except BaseException as error:  # noqa: BLE001 - what pickling a user's object raises can be anything
            self._reports.append(FetchFailed(handle, self._unsendable(partial, error)))
            return
        self._put_reports()
        self._link.put(parcel)
        if parcel.file >= 0:
            self._flush()

    def _unsendable(self, partial: Any, error: BaseException) -> Failure:
        kind = FailureKind.EXHAUSTED if isinstance(error, MemoryError) else FailureKind.USER
        message = (
            f"a result cannot be sent from the process of worker {self._number}: {culprit(partial, 'the result')} "
            f"cannot be pickled ({type(error).__name__}: {error}); return something that can be pickled, or use "
            'engine="threads"'
        )
        stand_in = EngineError(message)
        stand_in.__cause__ = error
        return Failure(kind, type(error).__name__, message, "", portable(stand_in, self._number))

    def _sendable(self, event: Any) -> Any:
        """Replace exceptions by what can be sent."""
        if type(event) is tuple:  # of a task of a graph
            return event
        failure = getattr(event, "failure", None)
        if failure is not None:
            return event._replace(failure=self._sealed(failure))
        if isinstance(event, Finished) and event.skipped:
            skipped = tuple((rows, self._sealed(why)) for rows, why in event.skipped)
            return event._replace(skipped=skipped)
        return event

    def _sealed(self, failure: Failure) -> Failure:
        if failure.exception is None:
            return failure
        return replace(failure, exception=portable(failure.exception, self._number))

    # -- the link

    def _read(self) -> None:
        """Put into the inbox what has come."""
        for arrival in self._receive():
            if self._tasks.arrived(arrival):
                continue
            if arrival.kind == COMMON:
                self._inbox.append(arrival)  # in the order of launches and of forgetting
                continue
            for command in arrival.open():
                if type(command) is tuple:  # by far the most
                    self._inbox.append(self._reader.read(command))
                elif type(command) is list:
                    self._inbox.append(self._tasks.read(command))
                elif isinstance(command, Cancel):
                    self._cancelled.add(command.attempt)
                elif isinstance(command, Recall):
                    if self._tasks.waits(command.attempt):
                        self._cancelled.add(command.attempt)
                elif isinstance(command, Fetch) and not command.handle.rows:
                    self._wanted.append(command.handle)
                else:
                    self._inbox.append(command)

    def _receive(self) -> list[Any]:
        found = self._link.receive()
        if self._link.ended:
            raise _DriverGone
        return found or []

    def _flush(self) -> None:
        """Send all reports, and what was put before them."""
        self._put_reports()
        self._link.flush()
        self._sent = time.monotonic()
        if self._link.deaf:
            raise _DriverGone

    def _put_reports(self) -> None:
        if self._reports:
            self._link.put(pack([write_report(one) for one in self._reports], REPORTS))
            self._reports.clear()

    def _send(self, parcel: Any) -> None:
        self._link.put(parcel)
        self._flush()

    def _tell_broken(self, error: BaseException, what: str) -> None:
        message = f"{what}: {type(error).__name__}: {error}"
        failure = Failure(FailureKind.INTERNAL, type(error).__name__, message, "", portable(error, self._number))
        self._send(pack(failure, BROKEN))
