"""The program of a worker process: reads commands, runs launches, sends reports.

Reports are sent together, before the next job begins unless jobs are short and follow each other. An attempt's beginning goes with
them; where there is nothing else to report it waits for the end, as waking the driver costs more than a small task. The worker's page
says meanwhile which attempt runs: it outlives the process, so it is always known whose fault an end is, and a driver that has waited
a while looks there. All commands that have come are read between two jobs, so that a cancel overtakes what waits.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Cancel, Fetch, Launch, Recall, StopWorker
from windrow.core.events import Failed, FetchFailed
from windrow.core.records import NO_LIMITS, Failure, FailureKind, Handle, Life, Needs, RowsReport, Task
from windrow.engines.base import Job
from windrow.engines.job_runner import JobRunner
from windrow.engines.processes import messages
from windrow.engines.processes.serialize import culprit, portable
from windrow.engines.processes.transport import Arrival, Link, pack, store
from windrow.engines.processes.values import UNCHANGED, is_plain, is_small, library_of
from windrow.errors import EngineError
from windrow.units import estimate_bytes

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from windrow.core.records import Plan
    from windrow.engines.supervisor.status_page import StatusPage

#: Seconds in which the reports of short tasks are sent together while others wait behind them: a message for each wakes the driver
#: each time. Should one of them take long after all, the listening thread has them sent.
TOGETHER_S = 0.004
#: Seconds between two looks of the listening thread. It is not woken by what comes: that would take longer than a short task does.
LISTEN_S = 0.05
#: Bytes of an output from which on its readers map it: storing takes as long as one copy, of which each would need one.
MAPPED = 1 << 20


def main(sock: socket.socket, page: StatusPage) -> None:
    sock.setblocking(True)
    with contextlib.suppress(_DriverGone):
        ProcessWorker(Link(sock, frozenset((messages.INPUT,)))).work(page)


class _DriverGone(Exception):
    """The driver does not listen any more."""


class _Listening:
    """Hearing the driver while a task runs: what other workers wait for need not wait for the end of a long one.

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


class ProcessWorker:
    """One life of a worker: the launches that came, and what it keeps for them."""

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
        self._listening = _Listening(self._answer)
        self._waiting: set[int] = set()  #: attempts that came and have not begun
        self._plans: dict[int, Plan] = {}
        self._contents: dict[int, Arrival] = {}  #: by task, until it is run
        self._inputs: dict[int, Arrival] = {}  #: by number of the parcel, until it is known what they are
        self._common: dict[int, Any] = {}  #: what calls share; unpacked when first needed
        #: by output and attempt: made here, or copies, which are unpacked when first needed
        self._outputs: dict[tuple[str, int], Any] = {}

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
        self._life, metering, place = arrivals[0].open()
        if place is not None:
            _go_to(*place)
        workload = arrivals[1].open()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            # All workers are copies of one process; what they draw from NumPy's own state must differ.
            numpy.random.seed()
        return JobRunner(workload, self._life, page if metering else None)

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
                else:
                    self.keep_common(command)

    # -- launches

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
            report = self._run(runner, message)
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

    def _run(self, runner: JobRunner, message: messages.LaunchMessage) -> messages.ReportMessage:
        """Run a launch; from its beginning on the listening thread may look what comes meanwhile."""
        number = message.attempt
        self._waiting.discard(number)
        arrival = self._contents.pop(message.task, None)
        if any(key not in self._outputs for key in message.inputs):
            if message.ahead:  # it was being made when the launch was sent, and came to nothing
                return messages.ReportMessage(messages.CANCELLED, number)
            lost = Failure(FailureKind.LOST, "OutputLost", f"what task {message.task} reads was gone when it began")
            return messages.ReportMessage(messages.FAILED, number, report=lost)
        with self._listening:
            try:
                runner.open()  # before functions among what it needs are made, which see what an initializer has set
            except Exception as error:  # noqa: BLE001 - told as the failure of the attempt
                return messages.ReportMessage(messages.FAILED, number, report=runner.classify(error))
            try:
                values, mine = self._give_inputs(message)
                content = message.payload
                if arrival is not None:
                    content = arrival.open()
                elif message.content is not None:
                    content = pickle.loads(message.content)  # noqa: S301 - from our own driver only
            except BaseException as error:  # noqa: BLE001 - a user's object that cannot be made again
                error.add_note("raised while what a task needs was unpickled in a worker's process")
                return messages.ReportMessage(messages.FAILED, number, report=runner.classify(error))
            if message.consumes:
                self._forget(self._outputs, message.inputs)
            task = Task(message.task, message.category, message.size, message.payload, makes=message.makes)
            limits = Needs(message.limits) if message.limits else NO_LIMITS
            launch = Launch(task, number, self._life, self._plans[message.plan], limits)
            job = Job(
                task, launch.plan, content, values,
                lambda name, value: self._release(number, name, value),
                lambda: self._unwanted(number),
                self.give_common, mine,
            )  # fmt: skip
            ran = runner.run(launch, job)
        if isinstance(ran, Failed):
            return messages.ReportMessage(messages.FAILED, number, report=ran.failure)
        made, small = [], {}
        for name, value in ran.outputs.items():
            self._outputs[name, number] = value
            if is_small(value):
                small[name] = value
            made.append((name, 0 if name in small else estimate_bytes(value)))
        return messages.ReportMessage(
            messages.FINISHED, number, tuple(made), small, False, tuple(ran.measurement), ran.report
        )

    def _release(self, attempt: int, name: str, value: Any) -> None:
        """Send an output of a task that goes on at once: it was released because other tasks wait for it."""
        self._outputs[name, attempt] = value
        report = messages.ReportMessage(messages.RELEASED_OUTPUT, attempt, ((name, estimate_bytes(value)),))
        if is_small(value):
            self._tell(report._replace(made=((name, 0),), values={name: value}))
            return
        try:
            parcel = pack(value, messages.RELEASED, attempt)
        except BaseException:  # noqa: BLE001 - whoever asks for it is told why
            self._tell(report)
        else:
            self._tell(report._replace(parcel=True), parcel)

    def _call_off(self, message: messages.LaunchMessage) -> None:
        self._cancelled.discard(message.attempt)
        self._waiting.discard(message.attempt)
        self._contents.pop(message.task, None)
        self._reports.append(messages.ReportMessage(messages.CANCELLED, message.attempt))

    def give_common(self, number: int, *, shared: bool = False) -> Any:
        """Give what calls have in common; of memory each gets its own, or all the same, to be read."""
        thing = self._common[number]
        if type(thing) is Arrival and not thing.pickled:
            return thing.body.toreadonly() if shared else thing.fresh()
        return _opened(self._common, number)

    def keep_common(self, what: Arrival | messages.ForgetCommon) -> None:
        """Keep what calls have in common, or forget some of it; launches that come later bring it again."""
        if isinstance(what, Arrival):
            self._common[what.tag] = what
        else:
            self._forget(self._common, what.numbers)

    def give_output(self, key: tuple[str, int]) -> Any:
        return _opened(self._outputs, key)

    def _give_inputs(self, message: messages.LaunchMessage) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Give what a task reads, and the positions of what is its own: what other tasks read too is mapped, where it can be."""
        values, mine = [], message.mine
        for position, key in enumerate(message.inputs):
            if message.payload is None and position not in message.mine and self._is_stored(key):
                values.append(self._outputs[key].open(own=True))
                mine = (*mine, position)
            else:
                values.append(self.give_output(key))
        return tuple(values), mine

    def _is_stored(self, key: tuple[str, int]) -> bool:
        """Whether an output is packed here and can be mapped; a large one of a known kind is now, as other tasks will read it."""
        thing = self._outputs[key]
        if type(thing) is Arrival:
            return thing.file is not None and thing.bytes - thing.pickled >= MAPPED
        large = estimate_bytes(thing) >= MAPPED and is_plain(thing) and library_of(thing) not in UNCHANGED
        stored = store(thing) if large else None
        if stored is not None:
            self._outputs[key] = stored
        return stored is not None

    @staticmethod
    def _forget(table: dict[Any, Any], keys: Iterable[Any]) -> None:
        for key in keys:
            table.pop(key, None)

    # -- while a job goes on

    def _tell(self, report: messages.ReportMessage, parcel: Any = None) -> None:
        """Report while a job goes on; what the report speaks of travels before it."""
        with self._listening.turn:
            if parcel is not None:
                self._put_reports()
                self._link.put(parcel)
            self._reports.append(report)
            self._flush()

    def _unwanted(self, attempt: int) -> bool:
        with self._listening.turn:
            while self._link.readable():
                self._read()
            return attempt in self._cancelled

    def _answer(self) -> None:
        """While a task goes on: give back what waits behind it and was called off, and send what other workers wait for."""
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
        while self._wanted and (isinstance(self._wanted[0], messages.Forget) or self._is_plain(self._wanted[0])):
            self._hand_over(self._wanted.popleft())
        self._flush()

    def _is_plain(self, handle: Handle) -> bool:
        thing = self._outputs[handle]
        return type(thing) is Arrival or is_plain(thing)

    def _hand_over(self, handle: Handle | messages.Forget) -> None:
        if isinstance(handle, messages.Forget):
            self._forget(self._outputs, handle.handles)
            return
        if self._reports or self._link.pending:
            self._flush()  # should pickling end the process, all before it is known to be innocent
        value = self._outputs[handle]
        try:
            parcel = value.again(messages.OUTPUT, 0) if type(value) is Arrival else pack(value, messages.OUTPUT)
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
        for arrival in self._receive():
            if arrival.kind == messages.CONTENT:
                self._contents[arrival.tag] = arrival
            elif arrival.kind == messages.INPUT:
                self._inputs[arrival.tag] = arrival
            elif arrival.kind == messages.COMMON:
                self._inbox.append(arrival)  # in the order of launches and of forgetting
            else:
                forget, commands = arrival.open()
                self._forget(self._outputs, forget)
                for command in commands:
                    self._take_command(command)

    def _take_command(self, command: Any) -> None:
        if type(command) is tuple:  # by far the most
            self._inbox.append(self._read_launch(messages.LaunchMessage(*command)))
        elif isinstance(command, Fetch):
            self._wanted.append(command.handle)
        elif isinstance(command, messages.Forget):
            self._wanted.append(command)
        elif isinstance(command, Cancel):
            self._cancelled.add(command.attempt)
        elif isinstance(command, Recall):
            if command.attempt in self._waiting:
                self._cancelled.add(command.attempt)
        else:
            self._inbox.append(command)

    def _read_launch(self, message: messages.LaunchMessage) -> messages.LaunchMessage:
        """Take a launch: what was brought for it is there for later tasks too, whatever becomes of it."""
        self._waiting.add(message.attempt)
        if not isinstance(message.plan, int):
            number, plan = message.plan
            self._plans[number] = plan
            message = message._replace(plan=number)
        for position, value in message.along.items():
            self._outputs[message.inputs[position]] = value
        for position, number in message.parcels.items():
            self._outputs[message.inputs[position]] = self._inputs.pop(number)
        return message

    def _receive(self) -> list[Any]:
        found = self._link.receive()
        if self._link.ended:
            raise _DriverGone
        return found or []

    def _flush(self) -> None:
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


def _go_to(directory: str, search: list[str]) -> None:
    """Work where a program on another machine does, as far as its files are seen from here too."""
    with contextlib.suppress(OSError):
        os.chdir(directory)
    sys.path += [one for one in search if one not in sys.path]


def _opened(table: dict[Any, Any], key: Any) -> Any:
    """Give what is in a table, unpacked; what cannot be unpacked stays as it is, so that each reader is told why."""
    thing = table[key]
    if type(thing) is Arrival:
        thing = table[key] = thing.open()
    return thing
