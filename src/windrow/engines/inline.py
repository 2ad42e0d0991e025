"""The serial engine: runs one launch at a time inside ``wait``, in the caller's thread.

It is the reference for all other engines, and what tiny runs use. Several workers take turns. What it has in common with threads, the
values of outputs above all, is in its base.
"""

from __future__ import annotations

import threading
from collections import deque
from time import thread_time
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Cancel, Discard, Fetch, Launch, Recall, StartWorker, StopWorker
from windrow.core.events import Cancelled, Event, Failed, Finished, Held, OutputReady, Started, WorkerLost
from windrow.core.records import DRIVER, Failure, FailureKind, Handle, Life, Made, make_record
from windrow.engines.base import Capabilities, Job
from windrow.engines.job_runner import JobRunner, at_least_one, joined, warn_unclosed
from windrow.errors import EngineError
from windrow.units import estimate_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Prepared, Workload


class SharedMemoryEngine:
    """An engine whose workers share the driver's memory: outputs are made in one place and read in all.

    Single operations on dictionaries are atomic, so there is no lock: an output is under the attempt that made it, and an attempt is
    written to by one worker alone. The driver discards what no task needs; reports that come later are discarded once more.
    """

    capabilities = Capabilities()
    isolates = False  #: tasks get values of their own, as if they came from another process

    def __init__(self, workers: int, number: int = 0) -> None:
        self.work_cpu_s = 0.0
        self.outputs: dict[Handle, Any] = {}
        self.workload: Any = None  #: a Workload, once it was started
        self._numbers = range(number, number + at_least_one(workers))

    def start(self, workload: Workload) -> None:
        self.workload = workload
        for number in self._numbers:
            self._start_worker(Life(number, 0), io=False)

    def _start_worker(self, life: Life, *, io: bool) -> None:
        raise NotImplementedError

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        """Hand over an output; with ``mine`` it is forgotten here, else it stays until it is discarded."""
        return self.outputs.pop(handle) if mine else self.outputs[handle]

    def run(
        self,
        runner: JobRunner,
        launch: Launch,
        tell: Callable[[Event], None],
        cancelled: Container[int] = (),
        prepared: Sequence[Prepared] = (),
    ) -> Event:
        """Run a launch; ``tell`` is given what is to be reported before its end."""
        number, life, task = launch.attempt, launch.life, launch.task

        def release(name: str, value: Any) -> None:
            tell(OutputReady(number, life, self._keep(name, number, value)))

        try:
            inputs = launch.inputs
            values = tuple([self.take(handle, mine=task.consumes) for handle in inputs]) if inputs else ()
        except KeyError:
            # What it reads was not made after all, or was discarded just now as the task was called off.
            if launch.ahead:
                return Cancelled(number, life)
            message = f"what task {task.id} reads was gone when it began"
            return Failed(number, life, Failure(FailureKind.LOST, "OutputLost", message))
        content = self.workload.content(task)
        if content is None:
            return Cancelled(number, life)
        mine = launch.mine if self.isolates else None
        job = make_record(
            Job, (task, launch.plan, content, values, release, lambda: number in cancelled, None, mine, prepared)
        )
        del values  # whoever runs with them is the last to know them
        ran = runner.run(launch, job)
        if isinstance(ran, Failed):
            return ran
        made = tuple([self._keep(name, number, value) for name, value in ran.outputs.items()])
        return make_record(Finished, (number, life, made, ran.measurement, ran.report))

    def _keep(self, name: str, attempt: int, value: Any) -> Made:
        self.outputs[make_record(Handle, (name, attempt))] = value
        return make_record(Made, (name, estimate_bytes(value), True))


class InlineEngine(SharedMemoryEngine):
    """Workers that share the caller's thread."""

    def __init__(self, workers: int = 1) -> None:
        super().__init__(workers)
        self._runners: dict[Life, JobRunner] = {}
        self._queue: deque[Launch | StopWorker] = deque()
        self._events: list[Event] = []
        self._cancelled: set[int] = set()
        self._woken = threading.Event()

    def _start_worker(self, life: Life, *, io: bool) -> None:
        self._runners[life] = JobRunner(self.workload, life)
        self._events.append(joined(life, io=io, shares=True))

    def do(self, commands: Sequence[EngineCommand]) -> None:
        for command in commands:
            if isinstance(command, (Launch, StopWorker)):
                self._queue.append(command)
            elif isinstance(command, (Cancel, Recall)):  # in one thread none of them has begun
                self._cancelled.add(command.attempt)
            elif isinstance(command, Discard):
                self.outputs.pop(command.handle, None)
            elif isinstance(command, Fetch):
                self._events.append(Held(command.handle, DRIVER))
            elif isinstance(command, StartWorker):
                self._start_worker(command.life, io=command.io)

    def wait(self, timeout: float | None) -> list[Event]:
        """Run launches until one of them has something to report."""
        before = thread_time()
        try:
            while not self._events and self._queue:
                self._do_one(self._queue.popleft())
        finally:
            self.work_cpu_s += thread_time() - before
        if not self._events:
            if timeout is None and not self._woken.is_set():
                raise EngineError(
                    "the inline engine was asked to wait, but it has nothing to do: its caller "
                    "waits for an event that cannot come"
                )
            self._woken.wait(timeout)
        self._woken.clear()
        events, self._events = self._events, []
        return events

    def _do_one(self, command: Launch | StopWorker) -> None:
        events, life = self._events, command.life
        if isinstance(command, StopWorker):
            warn_unclosed({life.worker: self._runners.pop(life).close()})
            events.append(WorkerLost(life))
            return
        number = command.attempt
        if number in self._cancelled:
            events.append(Cancelled(number, life))
        else:
            events.append(Started(number, life))
            self._run(self._runners[life], command)
        self._cancelled.discard(number)

    def _run(self, runner: JobRunner, launch: Launch) -> None:
        try:
            self._events.append(self.run(runner, launch, self._events.append))
        except KeyboardInterrupt as error:
            if threading.current_thread() is not threading.main_thread():
                # No signal comes here: it was raised by the user's code.
                self._events.append(runner.failed(launch, error))
                return
            lost = Failure(FailureKind.LOST, "KeyboardInterrupt", "interrupted")
            self._events.append(Failed(launch.attempt, launch.life, lost))
            raise

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        self._queue.clear()
        errors = {life.worker: runner.close() for life, runner in self._runners.items()}
        self._runners.clear()
        self.outputs.clear()
        warn_unclosed(errors)
