"""The run behind a session: a thread with the scheduler's loop, and what it tells the futures."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Launch, OutputFailed, TaskEnded
from windrow.core.events import CancelRequested, Event, OutputReady, Started, Wanted
from windrow.core.options import Options
from windrow.core.policies import Policies
from windrow.core.records import Failure, Needs, named
from windrow.core.scheduler import Scheduler
from windrow.engines.machine_limits import granted_cores, granted_memory
from windrow.errors import EngineError, TaskError, UsageError
from windrow.run.loop import run
from windrow.shape.guided import Guided
from windrow.tasks.collecting import collecting_less
from windrow.tasks.failures import UnseenFailures, blamed, error_of
from windrow.tasks.future import BEGINNING, ELSEWHERE, Future, without_value
from windrow.tasks.inbox import Inbox
from windrow.tasks.staffed import Staffed, Unreadable
from windrow.tasks.waiting import refuse_in_fork
from windrow.tasks.workload import Ignored, TaskWorkload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import Command
    from windrow.core.records import Handle, Task
    from windrow.engines.base import Engine
    from windrow.tasks.call import Call, Content
    from windrow.tasks.pack import Packer
    from windrow.tasks.session import Session

__all__ = ["Driver"]

ENGINES = ("processes", "threads", "inline")

#: Seconds between two looks whether the run has ended, in which Ctrl-C is heard.
LOOK_S = 0.25
#: After so many, whoever waits for tasks that are cancelled and cannot be ended is told.
PATIENT_LOOKS = 2


class Driver:
    """Runs the graph of one session in a thread of its own."""

    def __init__(self, session: Session, engine: str, workers: int | None, resources: dict[str, float]) -> None:
        if engine not in ENGINES:
            raise UsageError(f"engine= is one of {ENGINES}, got {engine!r}")
        self.over = False  #: the run has ended
        self.error: BaseException | None = None  #: of the machinery
        self.stopped: BaseException | None = None  #: a task failed that ends the session
        self.unwanted = False  #: all is cancelled; known at once, also while a task holds up the run
        self._process = os.getpid()
        self._session = session
        self._workers = workers or granted_cores(os.environ)
        self.offers = self._offers(resources)  #: what tasks can need
        self._engine: Any = Staffed(self._make(engine), self.offers)
        self._take = self._engine.take
        self._isolated = engine == "processes"
        self._packer: Packer | None = None
        if self._isolated:
            from windrow.tasks.pack import Packer

            self._packer = Packer(session.initializer)
        self._inbox = Inbox(self._wake_all)
        self.leave = self._inbox.leave  #: tells the run something when it looks anyway
        self._called = session.watched.watch.called
        #: by task: what its stream made; the future where it is not valid before the task has ended
        self._streams: dict[int, dict[str, Future | None]] = {}
        #: by task: outputs that it released and might have taken back
        self._doubtful: dict[int, dict[str, Handle]] = {}
        self.unseen = UnseenFailures()
        self._watchers = session.watched.open(self._workers if engine != "inline" else 1)
        options = Options(open=True, on_error="skip", restart=self._isolated, ahead=True)
        self._scheduler = Scheduler((), Policies(Guided()), options)
        self._outputs = self._scheduler.tasks.graph.outputs
        self._done = threading.Event()
        # Daemon: an interpreter that exits must not wait for a task without an end.
        self.thread = threading.Thread(target=self._go, name=f"windrow-{session.name}", daemon=True)
        self.thread.start()

    def _make(self, engine: str) -> Engine:
        if engine == "processes":
            from windrow.engines.processes.engine import ProcessesEngine
            from windrow.engines.processes.startup import preload_for_tasks

            return ProcessesEngine(self._workers, preload=preload_for_tasks(self._workers))
        if engine == "threads":
            from windrow.engines.threads import ThreadsEngine

            return ThreadsEngine(self._workers)
        from windrow.engines.inline import InlineEngine

        return InlineEngine(1)

    def _offers(self, resources: dict[str, float]) -> Needs:
        memory = granted_memory(os.environ)
        return Needs.of({"cores": self._workers, "memory": memory, **resources})

    # -- the user's side

    @property
    def forked(self) -> bool:
        """Whether this is a fork of the process that has the run: threads do not come along."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise if nothing can be called any more."""
        refuse_in_fork(self, "a task cannot be called")
        if self.stopped is not None:
            raise TaskError(
                "the session was stopped, since a task failed that may not (on_failure='stop')"
            ) from self.stopped
        if self.error is not None:
            raise EngineError(f"the session broke: {self.error}") from self.error
        if self.over:
            raise UsageError("the session is closed; call tasks inside its with block")

    def packed(self, record: Call, content: Content) -> Any:
        """Make of a call what travels to a worker."""
        return content if self._packer is None else self._packer.pack(record.id, content)

    def send_again(self, function: Any) -> None:
        """What a function means has changed since it was sent to processes, or may have."""
        if self._packer is not None:
            self._packer.send_again(function)

    def submit(self, record: Call, task: Task) -> None:
        """Hand a task over."""
        session = self._session
        session.calls[record.id] = record
        session.open[record.id] = record
        self._called(task)
        self._inbox.put(task)
        if self.over:  # it ended just now, and may not have seen the call
            self._end_all()

    def tell(self, event: Event) -> None:
        """Tell the run something."""
        if type(event) is CancelRequested and event.task is None and event.groups is None:
            self.unwanted = True
        if not self.over:
            self._inbox.put(event)

    def join(self) -> None:
        """Wait for the end of the run; Ctrl-C cancels the rest, and leaves what goes on although it is cancelled."""
        try:
            self._wait()
        except KeyboardInterrupt:
            if self._isolated or not self.unwanted:
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
            looks += self.unwanted and not self._isolated
            if looks == PATIENT_LOOKS and (left := len(self._scheduler.tasks.attempts)):
                running = min(left, self._workers)
                what = "a running task" if running == 1 else f"{running} running tasks"
                sys.stderr.write(
                    f"windrow: waiting for {what}: threads cannot be interrupted. Ctrl-C leaves without waiting\n"
                )
                sys.stderr.flush()
        self.thread.join()

    # -- the thread

    def _go(self) -> None:
        workload = TaskWorkload(self._session.calls, self._session.initializer)
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
        """Say why nothing can run any more, if that is so."""
        failure = self._scheduler.failure
        return None if failure is None else failure.exception or EngineError(failure.message)

    def _wake_all(self) -> None:
        with self._session.changed:
            self._session.changed.notify_all()

    def _end_all(self) -> None:
        """Nothing more will happen: nobody may go on waiting."""
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

    def add(self, handle: Handle, value: Any) -> None:
        """A value was brought: the collector's side."""
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
        """Graphs have no rows."""
        return {}

    def _observe(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:  # noqa: ARG002
        records = self._session.open
        for event in events:
            if type(event) is Started:
                self._started(event)
            elif type(event) is OutputReady:
                self._released(event.handle)
        ended = False
        for command in commands:
            if type(command) is TaskEnded:
                ended = self._ended(command) or ended
            elif type(command) is Launch:
                record = records.get(command.task.id)
                if record is not None:
                    record.attempt = command.attempt
            elif type(command) is OutputFailed:
                future = self._session.futures.get(command.output)
                if future is not None:
                    future.failed(error_of(future.call, command.failure))
        if ended:
            with self._session.changed:
                self._session.changed.notify_all()

    def _started(self, event: Started) -> None:
        attempt = self._scheduler.tasks.attempts.get(event[:3])
        if attempt is None:
            return  # of a short task its end is here too, and nobody could have seen it run
        record = self._session.open.get(attempt.node.id)
        if record is None or record.attempt != event.attempt:
            return
        with BEGINNING:
            if record.state == "waiting":
                record.state = "running"
        for name in record.outputs:
            future = self._session.futures.get(name)
            if future is not None:
                future.set_running_or_notify_cancel_once()

    def _released(self, handle: Handle) -> None:
        """An output is there although its task goes on."""
        session = self._session
        record = session.open.get(int(handle.output.partition(".")[0]))
        if record is None or record.attempt != handle.attempt:
            return
        if handle.output not in self._outputs:
            return  # of a stream that was given up just now: nobody would ever make that
        future = session.futures.get(handle.output)
        sure = self._scheduler.tasks.sure(record.id)
        if handle.output not in record.outputs:
            # Of a stream: whoever iterates takes it from there, once, although a second attempt makes it again.
            items = self._streams.setdefault(record.id, {})
            if handle.output not in items:
                future = Future(session, record, handle.output)
                session.futures[handle.output] = future
                items[handle.output] = None if sure else future
                with session.changed:
                    record.streamed.append(future)
                    session.changed.notify_all()
        if future is not None and sure:
            if not future.is_here:  # else an attempt before has released it, which is final
                self._there(future, handle)
        elif handle.output in record.outputs:
            self._doubtful.setdefault(record.id, {})[handle.output] = handle

    def _there(self, future: Future, handle: Handle, *, ended: bool = False) -> None:
        """An output exists: give its value to the future, or say that it is elsewhere."""
        if not handle.here or handle.bytes:  # a size: it is large, and opened when it is wanted
            if future.eager:
                self._inbox.put(Wanted(future.output))
            else:
                future.arrived(ELSEWHERE)
            return
        try:
            value = self._take(handle)
        except KeyError:
            # Of an attempt that does not count, or does no longer, since what it read was withdrawn: then it is made again.
            if ended:
                self._there(future, handle._replace(here=False))
            return
        future.arrived(_plain(value))

    def _ended(self, command: TaskEnded) -> bool:
        session = self._session
        record = session.open.pop(command.task, None) or session.calls.get(command.task)
        if record is None:
            return False
        record.state, record.failure = command.state, command.failure
        doubtful = self._doubtful.pop(record.id, {}) if self._doubtful else {}
        if command.state == "done":
            if not self._isolated:
                record.content = None  # nothing that is here can be lost: it will not run again
            handle = command.handle
            for name in record.outputs:
                future = session.futures.get(name)
                if future is not None and handle is not None and future.waits:
                    self._there(future, named(handle, name), ended=True)
            if self._streams:
                for future in self._late(record):
                    future.arrived(ELSEWHERE)
            if self._isolated and not record.parents and record.outputs == (f"{record.id}.0",):
                # Not a stream, whose end is not all that it made.
                future = session.futures.get(record.outputs[0])
                if future is not None and not future.waits and future._result is not ELSEWHERE:
                    record.content = None  # the value is here, where it cannot be lost
            return True
        assert command.failure is not None
        if doubtful and command.state == "failed" and self._scheduler.tasks.sure(record.id):
            # That is final now, as nothing will be taken back.
            for name, released in doubtful.items():
                future = session.futures.get(name)
                if future is not None and future.waits:
                    self._there(future, released)
        self._give_up(record, command.failure)
        return True

    def _late(self, record: Call) -> list[Future]:
        """Give what a stream made that was not valid before its task had ended."""
        items = self._streams.pop(record.id, {}).values()
        return [one for one in items if one is not None and not one.done()]

    def _give_up(self, record: Call, failure: Failure) -> None:
        """A task has no value."""
        error, late = self.broken() or error_of(record, failure), self._late(record)
        if record.state == "cancelled" and self._scheduler.failure is None:
            for one in late:
                one.give_up()
            for future in without_value(self._session, record, self._outputs):
                future.give_up()
            return
        if blamed(record) is None:
            self.unseen.add(record)
            if record.rule == "stop" and self.stopped is None:
                self.stopped = error
                self._inbox.put(CancelRequested(f"task {record.name!r} failed"))
        self._fail(record, error)
        for one in late:
            output = self._outputs.get(one.output)
            if output is None or output.handle is None:
                one.failed(error)
            else:
                one.arrived(ELSEWHERE)  # it had released that, which stays

    def _fail(self, record: Call, error: BaseException) -> None:
        for future in without_value(self._session, record, self._outputs):
            future.failed(error)


def _plain(value: Any) -> Any:
    return None if type(value) is Ignored else value
