"""Outputs where all workers share the driver's memory: made in one place, read in all.

Single operations on dictionaries are atomic, so there is no lock: an output is under the attempt that made it, and an attempt is
written to by one worker alone. The driver discards what no task needs; reports that come later are discarded once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.events import Cancelled, Event, Failed, Finished, OutputReady
from windrow.core.records import Failure, FailureKind, Handle, Made, make_record
from windrow.engines.base import Job
from windrow.engines.job_runner import estimate_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from windrow.core.commands import Launch
    from windrow.engines.base import Prepared, Workload
    from windrow.engines.job_runner import JobRunner


class SharedOutputs:
    """Values of outputs by attempt and name, and the launches that make and read them."""

    def __init__(self) -> None:
        self._values: dict[Handle, Any] = {}

    def get(self, handle: Handle, *, mine: bool = False) -> Any:
        """Give an output; with ``mine`` it is forgotten here, else it stays until it is discarded."""
        return self._values.pop(handle) if mine else self._values[handle]

    def discard(self, handle: Handle) -> None:
        """Forget an output."""
        self._values.pop(handle, None)

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()

    def run(
        self,
        runner: JobRunner,
        launch: Launch,
        workload: Workload,
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
            values = tuple([self.get(handle, mine=task.consumes) for handle in inputs]) if inputs else ()
        except KeyError:
            # What it reads was not made after all, or was discarded just now as the task was called off.
            if launch.ahead:
                return Cancelled(number, life)
            message = f"what task {task.id} reads was gone when it began"
            return Failed(number, life, Failure(FailureKind.LOST, "OutputLost", message))
        content = workload.content(task)
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
        self._values[make_record(Handle, (name, attempt))] = value
        return make_record(Made, (name, estimate_bytes(value), True))
