"""The run behind a session: a thread with the scheduler's loop, what the session tells it, and what it tells the futures."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.commands import OutputFailed, OutputMade, Publish, TaskEnded
from windrow.core.events import CancelRequested, Event, Published, Released, Started, Submitted, Wanted
from windrow.core.policies import Options
from windrow.core.records import NO_NEEDS, Failure, Handle, Needs, Task, make_record
from windrow.core.scheduler import Scheduler
from windrow.engines.dask.cluster import nodes_of
from windrow.engines.machine_limits import granted_cores, granted_memory
from windrow.engines.pooled import PooledEngine
from windrow.errors import EngineError, TaskError, UsageError
from windrow.run.garbage import CallsSeen, collecting_less
from windrow.run.loop import run
from windrow.shape.allocation.policy import Allocation, NodeSize
from windrow.tasks.failures import blamed, error_of
from windrow.tasks.future import BEGINNING, ELSEWHERE, Future, refuse_in_fork, without_value
from windrow.tasks.places import PLENTY, PROCESS, THREAD, PlacePolicy
from windrow.tasks.worker import CallWorkload, Ignored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import Command
    from windrow.core.records import Made, Worker
    from windrow.engines.base import Engine
    from windrow.tasks.call import Call
    from windrow.tasks.pack import Packer
    from windrow.tasks.session import Session

ISOLATED = ("processes", "auto", "dask")  #: each call and each value is packed, or as good as that
ENGINES = (*ISOLATED, "threads", "inline")
#: Number of the first worker for input and output on a cluster, whose other workers are numbered as they come.
FIRST_IO = 1 << 30

#: Seconds between two looks whether the run has ended, in which Ctrl-C is heard.
LOOK_S = 0.25
#: After so many, whoever waits for tasks that are cancelled and cannot be ended is told.
PATIENT_LOOKS = 2

#: Seconds after which a thread that calls task after task lets the run have the interpreter lock, while processes wait for work:
#: by itself Python would take 5 ms, several times, before all of them have begun.
TURN_S = 0.001

#: The pool of a session: cores, memory, devices and licences. Its workers have nothing but a place each.
POOL = "session"


class Driver:
    """Runs the graph of one session in a thread of its own."""

    def __init__(
        self, session: Session, engine: str, workers: int | None, resources: dict[str, float], client: Any = None
    ) -> None:
        if engine not in ENGINES or (engine == "dask" and client is None):
            named = tuple(one for one in ENGINES if one != "dask")
            raise UsageError(f"engine= is one of {named}, a client of a Dask cluster, or its address, got {engine!r}")
        self.over = False  #: the run has ended
        self.error: BaseException | None = None  #: of the machinery
        self.stopped: BaseException | None = None  #: a task failed that ends the session
        self.unwanted = False  #: all is cancelled; known at once, also while a task holds up the run
        self._process = os.getpid()
        self._session = session
        self._workers, memory, nodes = _machines(workers, client)
        most = self._workers if client is None else max((one.places for one in nodes), default=1)
        self.offers = Needs.of({"cores": most, "memory": memory, **resources})  #: what tasks can need
        own = self._make(engine, client)
        self._take = own.take
        shared = (
            self.offers if client is None else Needs.of(resources)
        )  # machines of a cluster have cores and memory each
        self._engine: Any = SessionEngine(own, shared, both=engine == "auto")
        self._isolated = engine in ISOLATED
        self._can_kill = engine in ("processes", "dask")  #: what runs although it is cancelled
        self._packer: Packer | None = None
        if self._isolated:
            from windrow.tasks.pack import Packer

            self._packer = Packer(session.initializer)
        self._let_run_at = 0.0  #: when a thread that calls task after task has to let the run go on
        self._inbox = CallInbox(self._wake_all)
        self.cancelled_groups = self._inbox.cancelled
        self.forget = self._inbox.forget
        self._called = session.watched.watch.called
        self._seen = CallsSeen()
        self._streamed: dict[int, set[str]] = {}  #: by task that has not ended: what its stream made so far
        #: those that failed by themselves, and at which nobody has looked yet: they would be lost in the end
        self.unseen: dict[int, Call] = {}
        self._watchers = session.watched.open(self._workers if engine != "inline" else 1)
        options = Options(
            open=True,
            restart=self._engine.capabilities.can_restart,
            ahead=True,
            io_workers=self._workers,
            first_io=2 * self._workers if client is None else FIRST_IO,  # behind those of both kinds
            elastic=client is not None,
            direct=client is not None,
            far=client is not None,
        )
        offered = dict(self.offers.amounts).get("memory", 0)
        if client is None:
            nodes = [NodeSize(offered, self._workers)] if offered and self._isolated else []
        nodes = [one for one in nodes if one.memory]
        self.places = PlacePolicy(session.calls, self._workers, nodes) if engine == "auto" else None
        policy = self.places or Allocation(nodes=nodes)
        session.watched.watch.memory = partial(policy.describe, lines=False)
        self._scheduler = Scheduler(policy=policy, options=options)
        self._done = threading.Event()
        # Daemon: an interpreter that exits must not wait for a task without an end.
        self.thread = threading.Thread(target=self._go, name=f"windrow-{session.name}", daemon=True)
        self.thread.start()

    def _make(self, engine: str, client: Any) -> Engine:
        if client is not None:
            from windrow.engines.dask.engine import DaskEngine
            from windrow.engines.processes.startup import preload_for_tasks

            cluster = DaskEngine(client, load=preload_for_tasks(self._workers), pooled=True)
            cluster.left_s = lambda: len(self._session.open) * cluster.mean_s()
            return cluster
        if engine in ISOLATED:
            from windrow.engines.both import BothEngines
            from windrow.engines.processes.engine import ProcessesEngine
            from windrow.engines.processes.startup import preload_for_tasks

            kind = ProcessesEngine if engine == "processes" else BothEngines
            return kind(self._workers, preload=preload_for_tasks(self._workers))
        if engine == "threads":
            from windrow.engines.threads import ThreadsEngine

            return ThreadsEngine(self._workers)
        from windrow.engines.inline import InlineEngine

        return InlineEngine(1)

    # -- the user's side

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that has the run: threads do not come along."""
        return os.getpid() != self._process

    def check(self) -> None:
        if self.over or self.stopped is not None or self.error is not None or os.getpid() != self._process:
            self._refuse_calls()

    def _refuse_calls(self) -> None:
        refuse_in_fork(self, "a task cannot be called")
        if self.stopped is not None:
            raise TaskError(
                "the session was stopped, since a task failed that may not (on_failure='stop')"
            ) from self.stopped
        if self.error is not None:
            raise EngineError(f"the session broke: {self.error}") from self.error
        raise UsageError("the session is closed; call tasks inside its with block")

    def submit(self, record: Call, task: Task) -> None:
        session = self._session
        if self._isolated or record.key is not None:  # else nobody asks for it once it has ended
            session.calls[record.id] = record
        session.open[record.id] = record
        self._called(task)
        self._inbox.put(task)
        if self._isolated and (now := monotonic()) > self._let_run_at:
            self._let_run_at = now + TURN_S
            sleep(0)
        if self.over:  # it ended just now, and may not have seen the call
            self._end_all()

    def tell(self, event: Event) -> None:
        if type(event) is CancelRequested and event.task is None and event.groups is None:
            self.unwanted = True
        if not self.over:
            self._inbox.put(event)

    def join(self) -> None:
        """Wait for the end of the run; Ctrl-C cancels the rest, and leaves what goes on although it is cancelled."""
        try:
            self._wait()
        except KeyboardInterrupt:
            if self._can_kill or not self.unwanted:
                self.tell(CancelRequested("interrupted"))
                self._wait()
            raise
        if self.error is not None:
            raise self.error

    def _wait(self) -> None:
        looks = 0
        self.thread.join(0)  # refuses to wait for itself
        # Not for the thread: one whose join is interrupted counts as ended in some versions of Python.
        while not self._done.wait(LOOK_S):
            looks += self.unwanted and not self._can_kill
            if looks == PATIENT_LOOKS and (left := len(self._scheduler.queues.attempts)):
                running = min(left, self._workers)
                what = "a running task" if running == 1 else f"{running} running tasks"
                sys.stderr.write(
                    f"windrow: waiting for {what}: threads cannot be interrupted. Ctrl-C leaves without waiting\n"
                )
                sys.stderr.flush()
        self.thread.join()

    # -- the thread

    def _go(self) -> None:
        session = self._session
        workload = self._workload = CallWorkload(session.calls if self._isolated else session.open, session.initializer)
        try:
            with collecting_less():
                run(
                    self._scheduler, self._engine, workload, observers=[self._observe, *self._watchers], collector=self,
                    inbox=self._inbox,
                )  # fmt: skip
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
            self.error = error
        finally:
            self.error = self.error or self.broken()
            self.over = True
            try:
                self._end_all()
            finally:
                self._done.set()

    def broken(self) -> BaseException | None:
        failure = self._scheduler.failure
        return None if failure is None else failure.exception or EngineError(failure.message)

    def _wake_all(self) -> None:
        with self._session.changed:
            self._session.changed.notify_all()

    def _end_all(self) -> None:
        """Nothing more will happen: no thread may go on waiting."""
        session = self._session
        for record in list(session.open.values()):
            error = self.error or TaskError(f"task {record.name!r} did not run: the session ended")
            self._fail(record, error)
        for future in list(session.futures.values()):
            if not future.done():  # its task has ended, and the value was not brought
                future.failed(self.error or TaskError(f"{future!r}: the session ended"))
            with future._condition:
                future._condition.notify_all()
        session.open.clear()
        self._wake_all()

    # -- what the loop tells

    def add(self, handle: Handle, value: Any, about: object = None) -> None:  # noqa: ARG002 - a Protocol's
        future = self._session.futures.get(handle.output)
        if future is None:
            return
        if type(value) is Unreadable:
            value.error.add_note(
                f"raised while the value of {future!r}, which was made in another process, was unpickled"
            )
            future.failed(value.error)
        else:
            future.arrived(_plain(value))

    def partials(self) -> dict[int, list[Any]]:
        return {}

    def _observe(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:  # noqa: ARG002
        waiting = len(self._session.open)
        self._seen.leave_calls(waiting, self._session.watched.watch.counts["called"] - waiting)
        for event in events:
            if type(event) is Started:
                attempt = self._scheduler.queues.attempts.get(event.attempt)
                if (
                    attempt is not None and not attempt.void
                ):  # else its end is here too, and nobody could have seen it run
                    self._started(attempt.node.id)
        ended = False
        for command in commands:
            if type(command) is TaskEnded:
                ended = self._ended(command) or ended
            elif type(command) is OutputMade:
                self._released(command)
            elif type(command) is OutputFailed:
                future = self._session.futures.get(command.output)
                if future is not None:
                    future.failed(error_of(future.call, command.failure))
            elif type(command) is Publish:
                self._inbox.put(Published(command.task, self._publish(command.task)))
        if ended:
            self._wake_all()

    def _publish(self, task: int) -> Failure | None:
        try:
            self._session.files.publish(self._session.open[task])
        except Exception as error:  # noqa: BLE001 - told as the failure of the task
            return self._workload.classify(error)
        return None

    def _started(self, task: int) -> None:
        record = self._session.open.get(task)
        if record is None:
            return
        with BEGINNING:
            if record.state == "waiting":
                record.state = "running"
        for name in record.outputs:
            future = self._session.futures.get(name)
            if future is not None:
                future.set_running_or_notify_cancel_once()

    def _released(self, command: OutputMade) -> None:
        session = self._session
        record = session.open.get(command.task)
        if record is None:
            return
        if command.made.output not in record.outputs:
            self._stream(record, command.made)
        future = session.futures.get(command.made.output)
        if future is not None and not future.is_here:  # else an attempt before has released it, which is final
            self._there(future, command.made, command.handle.attempt)

    def _stream(self, record: Call, made: Made) -> None:
        """A stream has one more output: its iterator takes it, once, although a second attempt makes it again."""
        session = self._session
        items = self._streamed.setdefault(record.id, set())
        if made.output in items:
            return
        items.add(made.output)
        future = Future(session, record, made.output)
        session.futures[made.output] = future
        with session.changed:
            record.streamed.append(future)
            session.changed.notify_all()

    def _there(self, future: Future, made: Made, attempt: int) -> None:
        """An output exists: give its value to the future, or say that it is elsewhere."""
        # With a size it is large: in another process it was packed, and is opened when it is wanted.
        if made.here and not (self._isolated and made.bytes):
            try:
                value = self._take(make_record(Handle, (made.output, attempt)))
            except KeyError:
                pass  # dropped since, as nobody seemed to need it
            else:
                future.arrived(_plain(value))
                return
        if future.eager:
            self._inbox.put(Wanted(future.output))
        else:
            future.arrived(ELSEWHERE)

    def _ended(self, command: TaskEnded) -> bool:
        session = self._session
        record = session.open.pop(command.task, None) or session.calls.get(command.task)
        if record is None:
            return False
        record.state, record.failure = command.state, command.failure
        if command.state == "done":
            if not self._isolated:
                record.content = None  # nothing that is here can be lost: it will not run again
            for made in command.made:
                if made.output not in record.outputs:
                    self._stream(record, made)
                future = session.futures.get(made.output)
                if future is not None and future._state in ("PENDING", "RUNNING"):
                    self._there(future, made, command.attempt)
            if self._isolated and not record.parents and record.outputs == (f"{record.id}.0",):
                # Not a stream, whose end is not all that it made.
                future = session.futures.get(record.outputs[0])
                if future is not None and not future.waits and future._result is not ELSEWHERE:
                    record.content = None  # the value is here, where it cannot be lost
        else:
            assert command.failure is not None
            self._give_up(record, command.failure)
        self._streamed.pop(record.id, None)
        return True

    def _give_up(self, record: Call, failure: Failure) -> None:
        """A task has no value; what it had released before is final."""
        if record.state == "cancelled" and self._scheduler.failure is None:
            for future in without_value(self._session, record, self._exists):
                future.give_up()
            return
        error = self.broken() or error_of(record, failure)
        if blamed(record) is None:
            self.unseen[record.id] = record
            if record.rule == "stop" and self.stopped is None:
                self.stopped = error
                self._inbox.put(CancelRequested(f"task {record.name!r} failed"))
        self._fail(record, error)

    def _exists(self, output: str) -> bool:
        known = self._scheduler.graph.outputs.get(output)
        return known is not None and bool(known.holders)

    def _fail(self, record: Call, error: BaseException) -> None:
        for future in without_value(self._session, record, self._exists):
            future.failed(error)


def _plain(value: Any) -> Any:
    return None if type(value) is Ignored else value


class CallInbox:
    """A queue of calls and questions that any thread may put into, also one that is just collecting garbage: it takes no lock."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self.closed = threading.Event()
        self._queue: deque[Task | Event | str] = deque()
        self._wake: Callable[[], None] | None = None
        self.cancelled: set[int] = set()  #: groups of which also later calls are cancelled
        self._rung = False  #: the run will look
        self._over = False
        self._ended = ended

    def put(self, news: Task | Event) -> None:
        self._queue.append(news)
        wake = self._wake  # the run may end just now
        if not self._rung and wake is not None:
            self._rung = True
            wake()

    def forget(self, output: str) -> None:
        """The last future of an output is gone: the run hears of that when it looks anyway."""
        if not self._over:
            self._queue.append(output)

    # -- the loop's side

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        wake()

    def events(self) -> list[Event]:
        queue = self._queue
        self._rung = False  # before looking: whoever comes later rings again
        if not queue:
            return []
        found: list[Event] = []
        tasks: list[Task] = []
        forgotten: list[str] = []
        for _ in range(len(queue)):
            news = queue.popleft()
            if type(news) is Task:
                tasks.append(news)
                continue
            if type(news) is str:
                forgotten.append(news)
                continue
            if tasks:
                found += self._submitted(tasks)
                tasks = []
            found.append(news)  # type: ignore[arg-type]
        if tasks:
            found += self._submitted(tasks)
        if forgotten:  # last: who reads them was called before
            found.append(Released(tuple(forgotten)))
        return found

    def _submitted(self, tasks: list[Task]) -> list[Event]:
        """Submit tasks; those of groups that were cancelled are cancelled before they can begin."""
        late = [one.id for one in tasks if one.group in self.cancelled] if self.cancelled else ()
        return [Submitted((), tuple(tasks)), *[CancelRequested("its group was cancelled", task=one) for one in late]]

    def stop(self) -> None:
        self.put(CancelRequested("interrupted"))

    def close(self) -> None:
        self._over = True
        self.closed.set()
        self._wake = None
        self._ended()


def _machines(workers: int | None, client: Any) -> tuple[int, int, list[NodeSize]]:
    """Count the workers; give the memory of the largest machine, and of a cluster what all of them have."""
    if client is None:
        return workers or granted_cores(os.environ), granted_memory(os.environ), []
    there = nodes_of(client)
    nodes = [NodeSize(memory, cores) for memory, cores in there.sizes]
    return max(there.cores, 1), int(max((one.memory for one in nodes), default=0)), nodes


class SessionEngine(PooledEngine):
    """An engine whose workers draw on what a session has; with ``both`` there are threads and processes."""

    def __init__(self, engine: Engine, offers: Needs, *, both: bool = False) -> None:
        places = {one: Needs.of({one: PLENTY}) for one in (THREAD, PROCESS) if both}
        super().__init__(engine, {**places, POOL: offers})  # the last one is what reports tell of
        self._both = both  #: it has threads and processes, and tasks need one or the other

    def pools_of(self, worker: Worker) -> Worker:
        place = (THREAD if worker.shares else PROCESS,) if self._both else ()
        return worker._replace(offers=NO_NEEDS, pools=(*worker.pools, POOL, *place))

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        """Hand over a value. What a user's object raises while it is made again is the value's fault, not the run's."""
        try:
            return self._engine.take(handle, mine=mine)
        except BaseException as error:  # noqa: BLE001 - raised again where somebody asks for the value
            return Unreadable(error)


class Unreadable(NamedTuple):
    """Stands for a value that was made elsewhere and cannot be made again here."""

    error: BaseException
