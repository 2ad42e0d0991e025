"""Launches and ends of attempts, as the loop shows them to its observers."""

from __future__ import annotations

from typing import Any

from windrow.core.commands import Launch, TaskEnded
from windrow.core.events import Finished
from windrow.core.records import Life, Measurement, Plan, Rows, RunRows, Task


def rows_task(number: int, *rows: Rows, category: str = "data") -> Task:
    return Task(number, category, sum(one.stop - one.start for one in rows), RunRows(rows))


def launched(task: Task, attempt: int | None = None, worker: int = 0, plan: Plan | None = None) -> Launch:
    """Give a task to a worker; without a number of its own the attempt has that of the task."""
    plan = plan or Plan(id=0, category=task.category)
    return Launch(task, task.id if attempt is None else attempt, Life(worker, 0), plan)


def finished(attempt: int, worker: int = 0, used: Measurement | None = None, report: Any = None) -> Finished:
    return Finished(attempt, Life(worker, 0), (), used or Measurement(), report)


def done(task: int, attempt: int | None = None) -> TaskEnded:
    """Say that a task is done by an attempt; without a number of its own that of the task."""
    return TaskEnded(task, "done", attempt=task if attempt is None else attempt)
