"""Workers that are processes of their own: they can be measured, limited and killed, and share nothing.

The supervisor makes them and tells how they ended; each has a socket to the driver, which waits for all of them in one
selector and never blocks on one. What a worker had sent before it died is reported before its death.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Cancel, Discard, Fetch, Inspect, Launch, Merge, Shrink, StartWorker, StopWorker
from windrow.core.events import Event, Fetched, FetchFailed, Started, WorkerJoined, WorkerLost
from windrow.core.records import Failure, FailureKind, Handle, Worker
from windrow.engines.base import Capabilities
from windrow.engines.processes import worker as worker_side
from windrow.engines.processes.connection import Life
from windrow.engines.processes.messages import OUTPUT, RELEASED, ForgetCommon, read_report
from windrow.engines.processes.outputs import ProcessOutputs, discard_everywhere, read_task_report
from windrow.engines.processes.startup import pack_workload, preload, why_nobody
from windrow.engines.processes.transport import Link, Parcel, pack
from windrow.engines.shelf import at_least_one, warn_unclosed
from windrow.engines.supervisor.client import Supervisor
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload
    from windrow.engines.processes.transport import Arrival
    from windrow.engines.supervisor.client import ProcessEnd

__all__ = ["ProcessesEngine"]

ENTRY = "windrow.engines.processes.worker:main"
#: How long idle workers may take to close their files when the engine is stopped.
CLOSING_S = 1.0
#: Small outputs that a worker may keep although nobody needs them, until it is told something else: waking it for each
#: took longer than a short task.
MOST_LATE = 256


class ProcessesEngine:
    """Workers in processes of their own; ``grace_s`` is what a cancelled attempt that runs has left to end by itself."""

    capabilities = Capabilities(can_kill=True, can_limit=True, measures_memory=True, isolates=True)
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
        self._supervisor: Supervisor | None = None
        self._selector: selectors.BaseSelector | None = None
        self._bell = -1
        self._woken = False
        self._workload: Parcel | None = None
        self._lives: dict[int, Life] = {}  #: by worker
        self._anybody = False  #: whether any worker was ever ready
        self._events: list[Event] = []
        self._fetched: dict[int, Any] = {}  #: handle id -> partial
        self._outputs = ProcessOutputs()  #: of graphs
        self._content: Callable[[int], Any]  #: what tasks of a graph have to do
        self._unclosed: dict[int, BaseException | None] = {}  #: what closing a worker's side raised
        self._hears: Callable[[Any], None]  #: the workload, for what workers learned

    # -- beginning

    def start(self, workload: Workload) -> None:
        """Make the workers; the workload is pickled once for all of them."""
        try:
            supervisor = self._supervisor = Supervisor(preload() if self._preload is None else self._preload)
            supervisor.start()  # it imports while we pickle
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._bell, selectors.EVENT_READ)
            self._workload = pack_workload(workload)
            self._hears = getattr(workload, "hear", lambda _: None)
            self._content = getattr(workload, "content", lambda _: None)
            for worker in range(self._number, self._number + self._count):
                self._begin(supervisor, worker, 0)
            self._selector.register(supervisor, selectors.EVENT_READ)
        except BaseException:
            self.stop()
            raise

    def _begin(self, supervisor: Supervisor, worker: int, incarnation: int) -> None:
        assert self._selector is not None
        assert self._workload is not None
        child = supervisor.fork(worker, incarnation, ENTRY)
        child.socket.setblocking(False)
        life = Life(child, Link(child.socket, frozenset((OUTPUT, RELEASED))), self._grace_s)
        self._lives[worker] = life
        self._selector.register(child.socket, selectors.EVENT_READ, life)
        setup = worker_side.Setup(worker, incarnation, self._metering)
        self._send(life, pack(setup, worker_side.SETUP))
        self._send(life, self._workload)

    def _start_worker(self, worker: int, incarnation: int) -> None:
        assert self._supervisor is not None
        try:
            self._begin(self._supervisor, worker, incarnation)
        except (EngineError, OSError) as error:
            failure = Failure(FailureKind.LOST, type(error).__name__, str(error), "", error)
            self._events.append(WorkerLost(worker, incarnation, failure))

    # -- commands

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Send commands to the workers; those for a life that has ended are dropped, as its loss is reported."""
        batches: dict[int, list[EngineCommand | tuple[Any, ...]]] = {}
        now = monotonic()
        for command in commands:
            if isinstance(command, StartWorker):
                self._start_worker(command.worker, command.incarnation)
                continue
            if isinstance(command, Discard) and not command.handle.rows:
                small = command.handle.here and not command.handle.bytes
                for holder in discard_everywhere(self._outputs, command, self._lives):
                    if small and len(holder.late) < MOST_LATE:
                        holder.late.append(command)
                    else:
                        batches.setdefault(holder.worker, []).append(command)
                continue
            if isinstance(command, (Fetch, Discard)):
                worker, incarnation = command.handle.worker, command.handle.incarnation
            else:
                worker, incarnation = command.worker, command.incarnation
            life = self._lives.get(worker)
            if life is None or life.incarnation != incarnation:
                if isinstance(command, Discard):
                    self._fetched.pop(command.handle.id, None)
            elif isinstance(command, Launch):  # by far the most
                written = self._written(life, command)
                if written is not None:
                    life.launch(command, now)
                    batches.setdefault(worker, []).append(written)
            elif self._told(life, command, now):
                batches.setdefault(worker, []).append(command)
        for worker, batch in batches.items():
            life = self._lives[worker]
            batch[:0], life.late = life.late, []
            self._send(life, pack(batch, worker_side.COMMANDS))
            gone = life.take_gone()
            if gone:
                self._send(life, pack([ForgetCommon(gone)], worker_side.COMMANDS))
            if life.has_too_much():
                self._send(life, pack([ForgetCommon()], worker_side.COMMANDS))

    def _written(self, life: Life, command: Launch) -> Any:
        """Send what a task needs before its launch, and say how that travels; None if it was cancelled just now."""
        if command.task.inputs:
            return life.writer.write(command)
        content = self._content(command.task.id)
        if content is None:
            self._events.append(life.not_sent(command))
            return None
        parcels, written = self._outputs.launch(life, command, content)
        for parcel in parcels:
            self._send(life, parcel)
        return written

    def _told(self, life: Life, command: EngineCommand, now: float) -> bool:
        """Remember what a worker is told; False if it need not be told at all."""
        if isinstance(command, Fetch) and not command.handle.rows:
            life.outputs.append(command.handle)
        elif isinstance(command, Fetch):
            life.fetching[command.handle.id] = (command.handle, True)
        elif isinstance(command, Discard):
            handle = command.handle
            if handle.id in life.fetching:  # on its way
                life.fetching[handle.id] = (handle, False)
                return False
            return self._fetched.pop(handle.id, life) is life
        elif isinstance(command, Cancel):
            life.cancel(command.attempt, now)
        elif isinstance(command, (Inspect, Merge)):
            life.unanswered += 1
        elif isinstance(command, StopWorker):
            life.ending = True
        return not isinstance(command, Shrink)  # workloads do not know how

    def _send(self, life: Life, parcel: Parcel) -> None:
        if not life.link.send(parcel):
            self._listen(life, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _listen(self, life: Life, mask: int) -> None:
        assert self._selector is not None
        self._selector.modify(life.child.socket, mask, life)

    # -- events

    def wait(self, timeout: float | None) -> list[Event]:
        """Return what the workers reported and how they ended."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            now = monotonic()
            until = [life.due() for life in self._lives.values()]
            times = [time for time in (*until, deadline) if time is not None]
            self._poll(max(0.0, min(times) - now) if times else None)
            if self._events or self._woken or (deadline is not None and monotonic() >= deadline):
                self._woken = False
                events, self._events = self._events, []
                return events

    def wake(self) -> None:
        """Make ``wait`` return."""
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
            life = key.data
            if life is not None:
                if mask & selectors.EVENT_READ:
                    self._read(life)
                if mask & selectors.EVENT_WRITE and not life.link.ended and life.link.flush():
                    self._listen(life, selectors.EVENT_READ)
            elif key.fd == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            else:
                ended = True
        if ended:
            for report in self._supervisor.reports():
                self._bury(report)
        now = monotonic()
        for life in self._lives.values():
            self._began(life, life.look_if_due(now))
            kill_at = life.kill_at()
            if kill_at is not None and kill_at <= now:
                life.killed()
                self._supervisor.kill(life.worker, life.incarnation)

    def _began(self, life: Life, started: Started | None) -> None:
        """Report a beginning that was seen on a worker's page, unless the worker has reported it too."""
        if started is None:
            return
        # What was reported before the page was changed is there by now.
        while not life.link.ended and self._read(life):
            pass
        if life.note(started, monotonic()):
            self._events.append(started)

    def _read(self, life: Life) -> bool:
        """Take what a worker has sent; False if nothing more is there."""
        assert self._supervisor is not None
        arrivals = life.link.receive()
        for arrival in arrivals or ():
            self._arrived(life, arrival)
        if life.link.garbled:
            self._supervisor.kill(life.worker, life.incarnation)
        if life.link.ended and self._selector is not None:
            self._selector.unregister(life.child.socket)
        return arrivals is not None and not life.link.ended

    def _arrived(self, life: Life, arrival: Arrival) -> None:
        if arrival.kind == worker_side.REPORTS:
            now = monotonic()
            for written in arrival.open():
                if type(written) is tuple and len(written) < 5:
                    event = read_task_report(written, life, self._outputs)
                else:
                    event = read_report(written, life.worker, life.incarnation)
                if isinstance(event, worker_side.Learned):
                    self._hears(event.news)
                    continue
                if life.note(event, now):
                    self._events.append(event)
        elif arrival.kind == worker_side.PARTIAL:
            self._events.append(self._open_partial(life, arrival))
        elif arrival.kind == RELEASED:
            life.released.append(arrival)
        elif arrival.kind == OUTPUT:
            handle = life.outputs.popleft()
            self._outputs.came(handle, arrival)
            self._events.append(Fetched(handle, arrival.seconds, arrival.bytes))
        elif arrival.kind == worker_side.READY:
            life.joined = self._anybody = True
            self._events.append(WorkerJoined(Worker(life.worker, life.incarnation)))
        elif arrival.kind == worker_side.UNCLOSED:
            self._unclosed[life.worker] = arrival.open()
        elif arrival.kind == worker_side.BROKEN:
            failure = arrival.open()
            if life.joined:
                raise EngineError(failure.message) from failure.exception
            life.refused = failure

    def _open_partial(self, life: Life, arrival: Arrival) -> Event:
        handle, wanted = life.fetching.pop(arrival.tag)
        begin = perf_counter()
        if wanted:
            try:
                self._fetched[handle.id] = arrival.open()
            except Exception as error:  # noqa: BLE001 - a user's object that cannot be made again
                message = (
                    f"a result of worker {life.worker} was pickled there but cannot be unpickled here "
                    f'({type(error).__name__}: {error}); return something that can be, or use engine="threads"'
                )
                return FetchFailed(handle, Failure(FailureKind.USER, type(error).__name__, message, "", error))
        return Fetched(handle, arrival.seconds + perf_counter() - begin, arrival.bytes)

    def take(self, handle: Handle) -> Any:
        """Hand over a fetched partial."""
        return self._fetched.pop(handle.id) if handle.rows else self._outputs.take(handle)

    def _bury(self, ended: ProcessEnd) -> None:
        """Take the last words of a worker that is gone, and report its end."""
        life = self._lives.get(ended.worker)
        if life is None or life.incarnation != ended.incarnation:
            return
        if not life.link.ended:
            while self._read(life):
                pass
        for passed in life.passed():
            if life.note(passed, monotonic()):
                self._events.append(passed)
        self._began(life, life.look())
        self._forget(life)
        self._outputs.lost(life.worker)
        self._events += life.end(ended)
        if not self._anybody and not self._lives and (why := why_nobody(self._events)):
            raise EngineError(why) from (life.refused.exception if life.refused else None)

    def _forget(self, life: Life) -> None:
        del self._lives[life.worker]
        if not life.link.ended and self._selector is not None:
            self._selector.unregister(life.child.socket)
        life.link.close()
        life.child.close()

    def stop(self) -> None:
        """Let idle workers close their files, end all others, and leave nothing behind."""
        try:
            if self._supervisor is not None and self._supervisor.alive and self._selector is not None:
                with contextlib.suppress(EngineError):  # of a worker that broke: nothing is at stake any more
                    self._close_workers()
        finally:
            for life in list(self._lives.values()):
                self._forget(life)
            if self._supervisor is not None:
                self._supervisor.stop()
            if self._selector is not None:
                self._selector.close()
            if self._bell >= 0:
                bell, self._bell = self._bell, -1
                os.close(bell)
            self._supervisor = self._selector = self._workload = None
            self._events.clear()
            self._fetched.clear()
        unclosed, self._unclosed = self._unclosed, {}
        warn_unclosed(unclosed)

    def _close_workers(self) -> None:
        until = monotonic() + CLOSING_S
        for life in list(self._lives.values()):
            if life.busy or not life.joined:  # it would not listen
                self._forget(life)
            elif not life.ending:
                self.do([StopWorker(life.worker, life.incarnation)])
        while self._lives and (left := until - monotonic()) > 0:
            self._events.clear()
            self._woken = False
            self._poll(left)
