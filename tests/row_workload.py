"""A workload over rows for tests: subclasses say what opening, running and merging do. Imports little: workers load it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.records import Failure, FailureKind, MergePartials, Opened, OpenInput, RowsReport, RunRows
from windrow.engines.base import NO_READING, Outcome, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from windrow.core.records import Evidence, Measurement, Plan, Rows, Task
    from windrow.engines.base import Job


class RowSide:
    """A worker's side, with one method for each payload."""

    reading: Reading = NO_READING
    used: tuple[float, int] | None = None

    def run(self, job: Job) -> Outcome:
        payload = job.content
        if isinstance(payload, OpenInput):
            return Outcome({}, Opened(*self.open_input(payload.input)))
        (name,) = job.task.makes
        if isinstance(payload, MergePartials):
            return Outcome({name: self.merge(job.values)})
        assert isinstance(payload, RunRows)
        partial, measurement, evidence = self.run_rows(payload.rows, job.plan, job.prepared)
        return Outcome({name: partial}, RowsReport(evidence), measurement)

    def open_input(self, number: int) -> tuple[int, tuple[int, ...]]:
        raise NotImplementedError

    def run_rows(self, rows: tuple[Rows, ...], plan: Plan, prepared: Any) -> tuple[Any, Measurement, Evidence | None]:
        raise NotImplementedError

    def merge(self, partials: Sequence[Any]) -> Any:
        raise NotImplementedError

    def prepare(self, task: Task, plan: Plan) -> Any:
        return None

    def news(self) -> Any:
        return None

    def close(self) -> None:
        pass


class RowWork:
    """The driver's side."""

    def content(self, task: Task) -> Any:
        return task.payload

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.USER, type(error).__name__, str(error), "", error)

    def describe(self, task: Task) -> str:
        return f"task {task.id}"

    def hear(self, news: Any) -> None:
        raise AssertionError("nobody has news")

    def is_own(self, module: ModuleType) -> bool:
        return False
