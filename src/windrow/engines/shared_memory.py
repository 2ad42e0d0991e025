"""Engines whose workers share the driver's memory: outputs are made in one place and read in all.

Single operations on dictionaries are atomic, so there is no lock: an output is under the attempt that made it, and an attempt is
written to by one worker alone. The driver discards what no task needs; reports that come later are discarded once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.events import Cancelled, Event, Failed, Finished, OutputReady
from windrow.core.records import Failure, FailureKind, Handle, Life, Made, make_record
from windrow.engines.base import Capabilities, Job
from windrow.engines.job_runner import at_least_one, estimate_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from windrow.core.commands import Launch
    from windrow.engines.base import Prepared, Workload
    from windrow.engines.job_runner import JobRunner


class SharedMemoryEngine:
    """What such engines have in common: the values of outputs, and running launches that make and read them."""

    capabilities = Capabilities()

    def __init__(self, workers: int) -> None:
        self.work_cpu_s = 0.0
        self.outputs: dict[Handle, Any] = {}
        self.workload: Any = None  #: a Workload, once it was started
        self._count = at_least_one(workers)

    def start(self, workload: Workload) -> None:
        """Start the workers."""
        self.workload = workload
        for number in range(self._count):
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
        job = Job(task, launch.plan, content, values, release, lambda: number in cancelled, prepared=prepared)
        del values  # whoever runs with them is the last to know them
        ran = runner.run(launch, job)
        if isinstance(ran, Failed):
            return ran
        made = tuple([self._keep(name, number, value) for name, value in ran.outputs.items()])
        return make_record(Finished, (number, life, made, ran.measurement, ran.report))

    def _keep(self, name: str, attempt: int, value: Any) -> Made:
        self.outputs[make_record(Handle, (name, attempt))] = value
        return make_record(Made, (name, estimate_bytes(value), True))
