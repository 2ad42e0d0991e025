"""Workers that are processes of their own: they can be measured, limited and killed, and share nothing.

The supervisor makes them and tells how they ended; each has a socket to the driver, which waits for all of them in one selector and
never blocks on one. What a worker had sent before it died is reported before its death.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import weakref
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from windrow.core import events as happened
from windrow.core.commands import Cancel, Discard, Fetch, Launch, StartWorker, StopWorker
from windrow.core.records import DRIVER, Failure, FailureKind, Handle, Life, Made, Measurement
from windrow.engines.base import Capabilities
from windrow.engines.job_runner import at_least_one, joined, warn_unclosed
from windrow.engines.processes import messages
from windrow.engines.processes.connection import Connection
from windrow.engines.processes.messages import Forget, ForgetCommon, LaunchMessage, News, Packed, ReportMessage
from windrow.engines.processes.serialize import dumps
from windrow.engines.processes.startup import pack_workload, preload
from windrow.engines.processes.transport import APART, Arrival, Link, Parcel, pack
from windrow.engines.processes.values import own_copy
from windrow.engines.supervisor import kept
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload
    from windrow.engines.supervisor.client import ProcessEnd, Supervisor

#: Of a task whose payload says all.
NO_CALL = Packed(None, None, {})
ENTRY = "windrow.engines.processes.worker:main"
#: How long idle workers may take to close their files when the engine is stopped.
CLOSING_S = 1.0
#: Small outputs that a worker may keep although no task needs them, until it is told something else: waking it for each took longer
#: than a short task.
MOST_LATE = 256


class ProcessesEngine:
    """Workers in processes of their own; ``grace_s`` is what a cancelled attempt that runs has left to end by itself."""

    capabilities = Capabilities(can_kill=True, can_restart=True, isolates=True)
    work_cpu_s = 0.0

    def __init__(
        self,
        workers: int,
        *,
        number: int = 0,
        grace_s: float = 2.0,
        preload: Sequence[str] | None = None,
        metering: bool = True,
    ) -> None:
        self._count = at_least_one(workers)
        self._number = number  #: of the first worker
        self._grace_s = grace_s
        self._preload = preload
        self._metering = metering
        #: directory and search path of workers, if not those of this process
        self.place: tuple[str, list[str]] | None = None
        self._supervisor: Supervisor | None = None
        self._selector: selectors.BaseSelector | None = None
        self._bell = -1
        self._woken = False
        self._workload: Any = None  #: a Workload, between start and stop
        self._packed_workload: Any = None  #: its Parcel
        self._connections: dict[int, Connection] = {}  #: by worker
        self._anybody = False  #: whether any worker was ever ready
        self._events: list[happened.Event] = []
        self._outputs: dict[Handle, Any] = {}  #: of which a copy is here: small values, others as they came, packed
        self._opened: dict[Handle, Any] = {}  #: of those that came packed: for the first who takes them
        self._inputs = 0  #: parcels that were sent as inputs
        self._unclosed: dict[int, BaseException | None] = {}  #: what closing a worker's side raised

    # -- beginning

    def start(self, workload: Workload) -> None:
        """Make the workers; the workload is pickled once for those that begin together."""
        try:
            self._supervisor = kept.borrow(preload() if self._preload is None else self._preload)
            self._supervisor.start()  # it imports while we pickle
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._bell, selectors.EVENT_READ)
            self._workload = workload
            self._packed_workload = pack_workload(
                workload
            )  # what cannot be sent is refused before anybody is asked for
            for worker in range(self._number, self._number + self._count):
                self._connect(Life(worker, 0))
            self._selector.register(self._supervisor, selectors.EVENT_READ)
        except BaseException:
            self.stop()
            raise

    def _connect(self, life: Life, *, io: bool = False) -> None:
        assert self._supervisor is not None
        assert self._selector is not None
        process = self._supervisor.fork(*life, ENTRY)
        process.socket.setblocking(False)
        link = Link(process.socket, frozenset((messages.OUTPUT, messages.RELEASED)))
        connection = Connection(process, link, self._workload, self._grace_s, io=io)
        self._connections[life.worker] = connection
        self._selector.register(process.socket, selectors.EVENT_READ, connection)
        self._send(connection, pack((life, self._metering, self.place), messages.SETUP))
        if self._packed_workload is None:
            self._packed_workload = pack_workload(self._workload)
        self._send(connection, self._packed_workload)

    def _start_worker(self, command: StartWorker) -> None:
        try:
            self._connect(command.life, io=command.io)
        except (EngineError, OSError) as error:
            failure = Failure(FailureKind.LOST, type(error).__name__, str(error), "", error)
            self._events.append(happened.WorkerLost(command.life, failure))

    # -- commands

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Send commands to the workers; those for a life that has ended are dropped, as its loss is reported."""
        batches: dict[int, list[Any]] = {}
        now = monotonic()
        for command in commands:
            if isinstance(command, StartWorker):
                self._start_worker(command)
            elif isinstance(command, Discard):
                self._discard(command, batches)
            else:
                life = command.source if isinstance(command, Fetch) else command.life
                connection = self._connection(life)
                message = None if connection is None else self._told(connection, command, now)
                if message is not None:
                    batches.setdefault(life.worker, []).append(message)
        for worker, connection in self._connections.items():
            gone = connection.take_gone()
            if gone:
                batches.setdefault(worker, []).append(ForgetCommon(gone))
        for worker, batch in batches.items():
            connection = self._connections[worker]
            late, connection.late = connection.late, []
            self._send(connection, pack((late, batch), messages.COMMANDS))

    def _connection(self, life: Life) -> Connection | None:
        connection = self._connections.get(life.worker)
        return connection if connection is not None and connection.life == life else None

    def _told(self, connection: Connection, command: EngineCommand, now: float) -> Any:
        """Remember what a worker is told, and give what is sent; None if it need not be told at all."""
        if isinstance(command, Launch):  # by far the most
            return self._launch(connection, command, now)
        if isinstance(command, Fetch):
            connection.fetching.append((command, True))
        elif isinstance(command, Cancel):
            connection.cancel(command.attempt, now)
        elif isinstance(command, StopWorker):
            connection.ending = True
        return command

    def _launch(self, connection: Connection, launch: Launch, now: float) -> tuple[Any, ...] | None:
        """Send what a task needs before its launch, and give the launch as it travels; None if it was cancelled just now."""
        task = launch.task
        content = self._workload.content(task)
        if content is None:
            self._events.append(happened.Cancelled(launch.attempt, launch.life))
            return None
        if isinstance(content, Packed):
            packed, payload = content, None
        else:
            packed, payload = NO_CALL, task.payload
            if content is not payload:
                packed = messages.pack_call(task.id, *dumps(content, apart=APART), {})
        along, numbers, parcels = self._bring(launch)
        if packed.common:
            parcels = connection.missing_common(packed.common, weakref.ref(self)) + parcels
        if packed.parcel is not None:
            parcels.append(packed.parcel)
        for parcel in parcels:
            self._send(connection, parcel)
        connection.launch(launch, now)
        message = LaunchMessage(
            launch.attempt,
            task.id,
            task.category,
            task.size,
            payload,
            task.makes,
            connection.name_plan(launch.plan),
            launch.limits.amounts,
            tuple([(handle.output, handle.attempt) for handle in launch.inputs]),
            along,
            numbers,
            packed.small,
            task.consumes,
            launch.ahead,
            launch.mine,
        )
        return tuple(message)

    def _bring(self, launch: Launch) -> tuple[dict[int, Any], dict[int, int], list[Parcel]]:
        """Say how inputs that the worker lacks travel: small ones along with the launch, large ones by the numbers of parcels."""
        along: dict[int, Any] = {}
        numbers: dict[int, int] = {}
        parcels: list[Parcel] = []
        for position in launch.bring:
            output = self._outputs[launch.inputs[position]]
            if type(output) is Arrival:
                self._inputs += 1
                numbers[position] = self._inputs
                parcels.append(output.again(messages.INPUT, self._inputs))
            else:
                along[position] = output
        return along, numbers, parcels

    def has(self, handle: Handle) -> bool:
        return handle in self._outputs

    def give(self, handle: Handle, value: Any) -> None:
        """Take an output that was made elsewhere, so that it can be brought to workers."""
        self._outputs[handle] = value

    def _discard(self, command: Discard, batches: dict[int, list[Any]]) -> None:
        """Forget an output here, and note which workers must be told."""
        handle = command.handle
        key = handle.output, handle.attempt
        small = handle in self._outputs and type(self._outputs[handle]) is not Arrival
        for holder in command.holders:
            if not isinstance(holder, Life):
                self._outputs.pop(handle, None)
                self._opened.pop(handle, None)
                self._forget_fetches(handle)
                continue
            connection = self._connection(holder)
            if connection is None:
                continue
            if small and len(connection.late) < MOST_LATE:
                connection.late.append(key)
            else:
                batches.setdefault(holder.worker, []).append(Forget([key]))

    def _forget_fetches(self, handle: Handle) -> None:
        """Drop copies of an output that are on their way when they come."""
        for connection in self._connections.values():
            for position, (fetch, _) in enumerate(connection.fetching):
                if fetch.handle == handle:
                    connection.fetching[position] = (fetch, False)

    def _send(self, connection: Connection, parcel: Parcel) -> None:
        if not connection.link.send(parcel):
            self._listen(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _listen(self, connection: Connection, mask: int) -> None:
        assert self._selector is not None
        self._selector.modify(connection.process.socket, mask, connection)

    # -- events

    def wait(self, timeout: float | None) -> list[happened.Event]:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            now = monotonic()
            until = [connection.due() for connection in self._connections.values()]
            times = [time for time in (*until, deadline) if time is not None]
            self._poll(max(0.0, min(times) - now) if times else None)
            if self._woken:
                self.do(())  # what calls had in common may be gone
            if self._events or self._woken or (deadline is not None and monotonic() >= deadline):
                self._woken = False
                events, self._events = self._events, []
                return events

    def wake(self) -> None:
        self._woken = True
        if self._bell >= 0:  # a system call and no more: allowed in a signal handler
            os.eventfd_write(self._bell, 1)

    def _poll(self, timeout: float | None) -> None:
        """Read, write, bury and kill what is due, waiting for the first of it."""
        assert self._selector is not None
        assert self._supervisor is not None
        if self._events or self._woken:
            timeout = 0.0
        ended = False
        for key, mask in self._selector.select(timeout):
            connection = key.data
            if connection is not None:
                if mask & selectors.EVENT_READ:
                    self._read(connection)
                if mask & selectors.EVENT_WRITE and not connection.link.ended and connection.link.flush():
                    self._listen(connection, selectors.EVENT_READ)
            elif key.fd == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            else:
                ended = True
        if ended:
            for report in self._supervisor.reports():
                self._bury(report)
        now = monotonic()
        for connection in self._connections.values():
            self._began(connection, connection.look_if_due(now))
            kill_at = connection.kill_at()
            if kill_at is not None and kill_at <= now:
                connection.killed = True
                self._supervisor.kill(*connection.life)

    def _began(self, connection: Connection, started: happened.Started | None) -> None:
        """Report a beginning that was seen on a worker's page, unless the worker has reported it too."""
        if started is None:
            return
        # What was reported before the page was changed is there by now.
        while not connection.link.ended and self._read(connection):
            pass
        self._note(connection, started)

    def _note(self, connection: Connection, event: happened.Event) -> None:
        if connection.note(event, monotonic()):
            self._events.append(event)

    def _read(self, connection: Connection) -> bool:
        """Take what a worker has sent; False if nothing more is there."""
        assert self._supervisor is not None
        arrivals = connection.link.receive()
        for arrival in arrivals or ():
            self._arrived(connection, arrival)
        if connection.link.garbled:
            self._supervisor.kill(*connection.life)
        if connection.link.ended and self._selector is not None:
            self._selector.unregister(connection.process.socket)
        return arrivals is not None and not connection.link.ended

    def _arrived(self, connection: Connection, arrival: Arrival) -> None:
        if arrival.kind == messages.REPORTS:
            for message in arrival.open():
                if isinstance(message, News):
                    self._workload.hear(message.news)
                    self._packed_workload = None  # the next worker is to know it from its beginning
                elif isinstance(message, happened.FetchFailed):
                    connection.fetching.popleft()
                    self._events.append(message)
                else:
                    self._note(connection, self._event(connection, ReportMessage(*message)))
        elif arrival.kind == messages.OUTPUT:
            self._events.append(self._fetched(connection, arrival))
        elif arrival.kind == messages.RELEASED:
            connection.released.append(arrival)
        elif arrival.kind == messages.READY:
            connection.joined = self._anybody = True
            self._events.append(joined(connection.life, io=connection.io))
        elif arrival.kind == messages.UNCLOSED:
            self._unclosed[connection.life.worker] = arrival.open()
        elif arrival.kind == messages.BROKEN:
            failure = arrival.open()
            if connection.joined:
                raise EngineError(failure.message) from _cause(failure)
            connection.refused = failure

    def _event(self, connection: Connection, message: ReportMessage) -> happened.Event:
        attempt, life = message.attempt, connection.life
        if message.what == messages.STARTED:
            return happened.Started(attempt, life)
        if message.what == messages.CANCELLED:
            return happened.Cancelled(attempt, life)
        if message.what == messages.FAILED:
            return happened.Failed(attempt, life, message.report)
        values = message.values or {}
        for name, value in values.items():
            self._outputs[Handle(name, attempt)] = value
        made = tuple([Made(name, size, name in values) for name, size in message.made])
        if message.what == messages.FINISHED:
            return happened.Finished(attempt, life, made, Measurement._make(message.used), message.report)
        if message.parcel:
            arrival = connection.released.popleft()
            self._outputs[Handle(made[0].output, attempt)] = arrival
            made = (made[0]._replace(bytes=arrival.bytes, here=True),)
        return happened.OutputReady(attempt, life, made[0])

    def _fetched(self, connection: Connection, arrival: Arrival) -> happened.Event:
        """Keep an output that was asked for, and open it if the program itself wants it."""
        fetch, wanted = connection.fetching.popleft()
        handle, begin = fetch.handle, perf_counter()
        if wanted and fetch.open:
            try:
                self._opened[handle] = arrival.open(own=True)
            except Exception as error:  # noqa: BLE001 - a user's object that cannot be made again
                message = (
                    f"a result of worker {connection.life.worker} was pickled there but cannot be unpickled here "
                    f'({type(error).__name__}: {error}); return something that can be, or use engine="threads"'
                )
                failure = Failure(FailureKind.USER, type(error).__name__, message, "", error)
                return happened.FetchFailed(handle, connection.life, failure)
        if wanted:
            self._outputs[handle] = arrival
        return happened.Held(handle, DRIVER, arrival.bytes, arrival.seconds + perf_counter() - begin)

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        """Hand over an output that is here; without ``mine`` the program gets one of its own, and tasks the one that stays."""
        output = self._outputs.pop(handle) if mine else self._outputs[handle]
        if type(output) is not Arrival:
            return output if mine else own_copy(output, {})
        return self._opened.pop(handle) if handle in self._opened else output.open(own=not mine)

    # -- ends

    def _bury(self, ended: ProcessEnd) -> None:
        """Take the last words of a worker that is gone, and report its end."""
        connection = self._connection(Life(ended.worker, ended.incarnation))
        if connection is None:
            return
        if not connection.link.ended:
            while self._read(connection):
                pass
        for passed in connection.passed():
            self._note(connection, passed)
        self._began(connection, connection.look())
        self._disconnect(connection)
        self._events += connection.end(ended)
        failure = connection.explain_end(ended)
        # One that was ended from outside says nothing of the next one, which may well begin.
        if not self._anybody and not self._connections and failure is not None and failure.kind is not FailureKind.LOST:
            raise EngineError(f"no worker process could begin: {failure.message}") from _cause(failure)

    def _disconnect(self, connection: Connection) -> None:
        del self._connections[connection.life.worker]
        if not connection.link.ended and self._selector is not None:
            self._selector.unregister(connection.process.socket)
        connection.link.close()
        connection.process.close()

    def stop(self) -> None:
        """Let idle workers close their files, end all busy ones, and leave nothing behind."""
        try:
            if self._supervisor is not None and self._supervisor.alive and self._selector is not None:
                with contextlib.suppress(EngineError):  # of a worker that broke: nothing is at stake any more
                    self._close_workers()
        finally:
            for connection in list(self._connections.values()):
                self._disconnect(connection)
            if self._supervisor is not None:
                kept.give_back(self._supervisor)
            if self._selector is not None:
                self._selector.close()
            if self._bell >= 0:
                bell, self._bell = self._bell, -1
                os.close(bell)
            self._supervisor = self._selector = self._workload = self._packed_workload = None
            self._events.clear()
            self._outputs.clear()
            self._opened.clear()
        unclosed, self._unclosed = self._unclosed, {}
        warn_unclosed(unclosed)

    def _close_workers(self) -> None:
        until = monotonic() + CLOSING_S
        for connection in list(self._connections.values()):
            if connection.busy or not connection.joined:  # it would not listen
                self._disconnect(connection)
            elif not connection.ending:
                self.do([StopWorker(connection.life)])
        while self._connections and (left := until - monotonic()) > 0:
            self._events.clear()
            self._woken = False
            self._poll(left)


def _cause(failure: Failure) -> BaseException | None:
    """Give what was raised in a worker; None where that is only handed on."""
    return failure.exception if isinstance(failure.exception, BaseException) else None
