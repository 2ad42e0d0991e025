"""What the processes of a node do in tests: tasks say it by name. Imports little, as every process loads it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from row_workload import RowWork
from windrow.engines.base import NO_READING, Outcome

if TYPE_CHECKING:
    from windrow.engines.base import Job

__all__ = ["LARGE", "Work"]

LARGE = 300_000  #: numbers of an output that goes along with nothing


class Work(RowWork):
    """The driver's side."""

    def open_worker(self, worker: int) -> Any:
        return Side()


class Side:
    """A process."""

    reading = NO_READING
    used = None

    def run(self, job: Job) -> Outcome:
        if job.content == "pid":
            return Outcome({"out": os.getpid()})
        if job.content == "make":
            return Outcome({"out": np.arange(LARGE)})
        if job.content == "die":
            os._exit(3)
        return Outcome({"out": sum(np.size(one) for one in job.values)})

    def prepare(self, task: Any, plan: Any) -> None:
        return None

    def news(self) -> None:
        return None

    def close(self) -> None:
        pass
