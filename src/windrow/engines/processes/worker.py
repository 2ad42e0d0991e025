"""The program of a worker process: reads commands, runs launches, sends reports.

Reports are sent together, before the next job begins unless jobs are short and follow each other. An attempt's beginning goes with
them; where there is nothing else to report it waits for the end, as waking the driver costs more than a small task. The worker's page
says meanwhile which attempt runs: it outlives the process, so it is always known whose fault an end is, and a driver that has waited
a while looks there. All commands that have come are read between two jobs, so that a cancel overtakes what waits.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Cancel, Fetch, Recall, StopWorker
from windrow.core.events import FetchFailed
from windrow.core.records import Failure, FailureKind, Handle, Life, RowsReport
from windrow.engines.job_runner import JobRunner, Meter
from windrow.engines.processes import messages
from windrow.engines.processes.serialize import culprit, portable
from windrow.engines.processes.transport import Arrival, Link, pack
from windrow.engines.processes.values import is_plain
from windrow.engines.processes.worker_tasks import WorkerTasks
from windrow.errors import EngineError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from windrow.engines.supervisor.status_page import StatusPage

#: Seconds in which the reports of short tasks are sent together while others wait behind them: a message for each wakes the driver
#: each time. Should one of them take long after all, the listening thread has them sent.
TOGETHER_S = 0.004
#: Seconds between two looks of the listening thread. It is not woken by what comes: that would take longer than a short task does.
LISTEN_S = 0.05


def main(sock: socket.socket, page: StatusPage) -> None:
    """Work until told to stop, or until the driver is gone."""
    sock.setblocking(True)
    worker = _Worker(Link(sock))
    with contextlib.suppress(_DriverGone):
        worker.work(page)


class _DriverGone(Exception):
    """The driver does not listen any more."""


class _Listening:
    """Hearing the driver while a task runs: what others wait for need not wait for the end of a long one.

    Inside of this context a thread takes the worker's turn at the link now and then.
    """

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
        self._inbox: deque[Any] = deque()  #: launches, what calls have in common, and what is done in their order
        #: Outputs that others wait for, so they come first; and what is to be forgotten after them.
        self._wanted: deque[Handle | messages.Forget] = deque()
        self._cancelled: set[int] = set()
        self._reports: list[Any] = []
        self._life = Life(0, 0)
        self._opened = False  #: the workload was asked to do something
        self._sent = 0.0  #: when reports were sent last
        self._tasks = WorkerTasks(self._life)
        self._listening = _Listening(self._answer)

    def work(self, page: StatusPage) -> None:
        """Take the workload, say that we are ready, and do commands one after the other."""
        try:
            runner = self._begin(page)
        except _DriverGone:
            raise
        except BaseException as error:  # noqa: BLE001 - told to the driver, which knows what to do
            self._tell_broken(error, "the work cannot be unpickled in a worker's process")
            return
        self._send(pack(None, messages.READY))
        try:
            self._loop(runner)
        except _DriverGone:
            raise
        except BaseException as error:  # noqa: BLE001 - a failure of the machinery: raised again in the driver
            self._tell_broken(error, "a worker's process broke")
            return
        problem = runner.close()
        if problem is not None:
            self._send(pack(portable(problem, self._life.worker), messages.UNCLOSED))

    def _begin(self, page: StatusPage) -> JobRunner:
        arrivals: list[Any] = []
        while len(arrivals) < 2:
            arrivals += self._receive()
        setup: messages.WorkerSetup = arrivals[0].open()
        self._life = setup.life
        self._tasks = WorkerTasks(setup.life)
        workload = arrivals[1].open()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            # All workers are copies of one process; what they draw from NumPy's own state must differ.
            numpy.random.seed()
        return JobRunner(workload, setup.life, Meter(page) if setup.metering else None)

    def _loop(self, runner: JobRunner) -> None:
        inbox = self._inbox
        while True:
            if not inbox:
                self._flush()
            if self._link.readable(wait=not (inbox or self._wanted)):
                self._read()
            while self._wanted:
                self._hand_over(self._wanted.popleft())
            while inbox:
                command = inbox.popleft()
                if isinstance(command, StopWorker):
                    self._flush()
                    return
                if isinstance(command, messages.LaunchMessage):
                    if self._launch(runner, command):
                        break  # something may have come meanwhile
                elif isinstance(command, Arrival):
                    self._tasks.keep_common(command)
                elif isinstance(command, messages.ForgetCommon):
                    self._tasks.forget_common(command.numbers)

    def _launch(self, runner: JobRunner, message: messages.LaunchMessage) -> bool:
        """Run a launch; say whether that took time."""
        number = message.attempt
        if number in self._cancelled:
            self._call_off(message)
            return False
        if not self._may_report_later(runner):
            self._reports.append(messages.ReportMessage(messages.STARTED, number))
            # The first job opens the workload's side: before the page knows of the attempt.
            if len(self._reports) > 1 or self._link.pending or not self._opened:
                self._flush()
        self._opened = True
        try:
            report = self._tasks.run(runner, message, self._tell, self._unwanted, self._listening)
        except KeyboardInterrupt as error:  # raised by the user's code: workers ignore the signal
            report = messages.ReportMessage(messages.FAILED, number, report=runner.classify(error))
        found = runner.news()
        if found is not None:
            self._reports.append(messages.News(found))  # before the report that may rely on it
        self._reports.append(self._sendable(report))
        self._cancelled.discard(number)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:  # noqa: BLE001, S110 - closed, or replaced by the user: theirs to see
            pass
        return True

    def _may_report_later(self, runner: JobRunner) -> bool:
        """Whether tasks are short and more of them wait, so that several can be reported together."""
        if not (runner.brief and self._inbox and self._opened) or self._link.pending:
            return False
        return time.monotonic() - self._sent < TOGETHER_S

    def _call_off(self, message: messages.LaunchMessage) -> None:
        """Say that an attempt will not begin."""
        self._cancelled.discard(message.attempt)
        self._reports.append(self._tasks.call_off(message))

    def _tell(self, report: messages.ReportMessage, parcel: Any = None) -> None:
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
            if isinstance(command, messages.LaunchMessage) and command.attempt in self._cancelled:
                self._call_off(command)
            else:
                inbox.append(command)
        # Whatever else pickling may do is done between two tasks, so that none of them is blamed for it.
        while self._wanted and (
            isinstance(self._wanted[0], messages.Forget) or is_plain(self._tasks.get(self._wanted[0]))
        ):
            self._hand_over(self._wanted.popleft())
        self._flush()

    def _hand_over(self, handle: Handle | messages.Forget) -> None:
        """Send an output to the driver, or forget some."""
        if isinstance(handle, messages.Forget):
            self._tasks.forget(handle.handles)
            return
        if self._reports or self._link.pending:
            self._flush()  # should pickling end the process, all before it is known to be innocent
        value = self._tasks.get(handle)
        try:
            parcel = pack(value, messages.OUTPUT)
        except BaseException as error:  # noqa: BLE001 - what pickling a user's object raises can be anything
            self._reports.append(FetchFailed(handle, self._life, self._unsendable(value, error)))
            return
        self._link.put(parcel)
        if parcel.file >= 0:
            self._flush()

    def _unsendable(self, value: Any, error: BaseException) -> Failure:
        worker = self._life.worker
        kind = FailureKind.EXHAUSTED if isinstance(error, MemoryError) else FailureKind.USER
        message = (
            f"a result cannot be sent from the process of worker {worker}: {culprit(value, 'the result')} "
            f"cannot be pickled ({type(error).__name__}: {error}); return something that can be pickled, or use "
            'engine="threads"'
        )
        stand_in = EngineError(message)
        stand_in.__cause__ = error
        return Failure(kind, type(error).__name__, message, "", portable(stand_in, worker))

    def _sendable(self, report: messages.ReportMessage) -> messages.ReportMessage:
        """Replace exceptions by what can be sent."""
        told = report.report
        if isinstance(told, Failure):
            return report._replace(report=self._sealed(told))
        if isinstance(told, RowsReport) and told.skipped:
            skipped = tuple((rows, self._sealed(why)) for rows, why in told.skipped)
            return report._replace(report=told._replace(skipped=skipped))
        return report

    def _sealed(self, failure: Failure) -> Failure:
        if failure.exception is None:
            return failure
        return replace(failure, exception=portable(failure.exception, self._life.worker))

    # -- the link

    def _read(self) -> None:
        """Put into the inbox what has come."""
        for arrival in self._receive():
            if self._tasks.arrived(arrival):
                continue
            if arrival.kind == messages.COMMON:
                self._inbox.append(arrival)  # in the order of launches and of forgetting
                continue
            forget, commands = arrival.open()  # a CommandsMessage
            if forget:
                self._tasks.forget(forget)
            for command in commands:
                if type(command) is tuple:  # by far the most
                    self._inbox.append(self._tasks.read(command))
                elif isinstance(command, (Fetch, messages.Forget)):
                    self._wanted.append(command.handle if isinstance(command, Fetch) else command)
                elif isinstance(command, Cancel):
                    self._cancelled.add(command.attempt)
                elif isinstance(command, Recall):
                    if self._tasks.waits(command.attempt):
                        self._cancelled.add(command.attempt)
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
            plain = [tuple(one) if type(one) is messages.ReportMessage else one for one in self._reports]
            self._link.put(pack(plain, messages.REPORTS))
            self._reports.clear()

    def _send(self, parcel: Any) -> None:
        self._link.put(parcel)
        self._flush()

    def _tell_broken(self, error: BaseException, what: str) -> None:
        message = f"{what}: {type(error).__name__}: {error}"
        failure = Failure(FailureKind.INTERNAL, type(error).__name__, message, "", portable(error, self._life.worker))
        self._send(pack(failure, messages.BROKEN))
