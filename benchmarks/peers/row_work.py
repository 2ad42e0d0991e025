"""What a workload over rows needs beside its work, for engines that are measured without a front door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.records import Failure, FailureKind, MergePartials, RowsReport
from windrow.engines.base import NO_READING, Outcome

if TYPE_CHECKING:
    from types import ModuleType

    from windrow.core.records import Rows, Task
    from windrow.engines.base import Job


class RowWork:
    """A workload that is its workers' side too; subclasses have ``run_rows``."""

    reading = NO_READING
    used = None

    def open_worker(self, worker: int) -> RowWork:  # noqa: ARG002 - all are alike
        return self

    def content(self, task: Task) -> Any:
        return task.payload

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.USER, type(error).__name__, str(error), "", error)

    def describe(self, task: Task) -> str:
        return f"task {task.id}"

    def hear(self, news: Any) -> None:
        pass

    def is_own(self, module: ModuleType) -> bool:  # noqa: ARG002 - a Protocol's
        return False

    def run(self, job: Job) -> Outcome:
        (name,) = job.task.makes
        if isinstance(job.content, MergePartials):
            return Outcome({name: sum(job.values)})
        (part,) = job.content.rows
        return Outcome({name: self.run_rows(part)}, RowsReport())

    def run_rows(self, part: Rows) -> Any:
        raise NotImplementedError

    def prepare(self, task: Task, plan: Any) -> None:
        pass

    def news(self) -> None:
        pass

    def close(self) -> None:
        pass
