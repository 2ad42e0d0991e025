"""Launches for the worker's side of a pipeline, as engines make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.records import Opened, OpenInput, Plan, Rows, RunRows, Task
from windrow.engines.base import Job, Outcome

if TYPE_CHECKING:
    from windrow.pipeline.run.worker import RowsSide


def job(payload: Any, plan: Plan) -> Job:
    task = Task(1, plan.category, payload=payload, makes=("partial",))
    return Job(task, plan, payload, (), lambda name, value: None)


def open_input(side: RowsSide, number: int) -> Opened:
    report = side.run(job(OpenInput(number), Plan(id=0, category=""))).report
    assert isinstance(report, Opened)
    return report


def run_rows(side: RowsSide, rows: Rows, plan: Plan) -> Outcome:
    return side.run(job(RunRows((rows,)), plan))
