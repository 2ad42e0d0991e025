"""One task as a session remembers it: what happens to it while it goes on, and little of it when it is over.

Python's garbage collector looks again and again at all that may be part of a circle. So what is kept of the tasks that are
over, which may be tens of thousands, are plain tuples of plain values, at which it looks once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from windrow.core.records import ONE_CORE, Needs, Task
from windrow.watch.graph_runs import RawTask, RawTry
from windrow.watch.session_log import plain_line, task_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.core.commands import Launch

__all__ = ["Entry", "Past", "microseconds", "raws"]

#: A task that was done at the first attempt: task, name, reads, needs, called, ended, attempt, worker, launched, heard, wall.
Past: TypeAlias = (
    "tuple[int, str, tuple[str, ...], tuple[tuple[str, float], ...], float, float, int, int, float, float, float]"
)


class Entry:
    """One task, and its latest attempt; most tasks have no other."""

    __slots__ = (
        "attempt", "called", "earlier", "ended", "heard", "held", "how", "launched", "released", "state", "task", "wall",
        "why", "why_try", "worker",
    )  # fmt: skip

    def __init__(self, task: Task, called: float) -> None:
        self.task = task
        self.called = called
        self.ended = 0.0
        self.attempt = -1  #: none
        self.how = ""
        self.heard = 0.0
        self.state: str = "waiting"
        self.why = ""
        self.released: list[tuple[str, float]] | None = None  #: outputs, and when
        self.earlier: tuple[RawTry, ...] = ()

    def launched_at(self, command: Launch, time: float) -> None:
        """Another attempt begins."""
        if self.attempt >= 0:
            if not self.heard:  # it was called off, and may go on for a while
                self.heard, self.how = time, "cancelled"
            self.earlier = (*self.earlier, self._try())
        self.attempt, self.worker, self.launched = command.attempt, command.worker, time
        self.heard = self.wall = self.held = 0.0
        self.how = self.why_try = ""

    def _try(self) -> RawTry:
        return RawTry(
            self.task.id, self.attempt, self.worker, microseconds(self.launched), microseconds(self.heard), microseconds(self.wall), self.how,
            self.why_try, microseconds(self.held),
        )  # fmt: skip

    def raw(self) -> RawTask:
        """Give what analysis needs of the task."""
        task = self.task
        return RawTask(
            task.id, task.category, microseconds(self.called), microseconds(self.ended), self.state, task.reads, task.after,
            tuple([(name, microseconds(time)) for name, time in self.released or ()]), _needs(task.needs), task.group,
            self.why,
        )  # fmt: skip

    def line(self) -> str:
        """Write the task as a line of a log."""
        task = self.task
        if not self.is_plain or task.needs.amounts != ONE_CORE.amounts:
            return task_line(self.raw(), self.raw_tries())
        ended, launched, heard = (int(self.ended * 1e6), int(self.launched * 1e6), int(self.heard * 1e6))
        attempt = (self.attempt, self.worker, launched, heard, int(self.wall * 1e6))
        return plain_line(task.id, task.category, int(self.called * 1e6), ended, attempt, task.reads)

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to say of it but when it was called, ran and ended."""
        task = self.task
        return self.how == "done" == self.state and not (
            self.earlier or self.released or task.after or task.group or self.held or self.why
        )

    def past(self) -> Past:
        """Give what is kept of a plain one that is over."""
        task = self.task
        return (
            task.id, task.category, task.reads, task.needs.amounts, self.called, self.ended, self.attempt, self.worker,
            self.launched, self.heard, self.wall,
        )  # fmt: skip

    @classmethod
    def of_past(cls, past: Past) -> Entry:
        """Make one again of what was kept of it."""
        number, name, reads, needs, called, *_ = past
        entry = cls(Task(number, name, (), 1, Needs(needs), reads=reads), called)
        (_, _, _, _, _, entry.ended, entry.attempt, entry.worker, entry.launched, entry.heard, entry.wall) = past
        entry.held, entry.why_try, entry.how, entry.state = 0.0, "", "done", "done"
        return entry

    def raw_tries(self) -> list[RawTry]:
        """Give what analysis needs of its attempts."""
        return [*self.earlier, self._try()] if self.attempt >= 0 else list(self.earlier)


def microseconds(seconds: float) -> int:
    """Give a time as logs have it."""
    return int(seconds * 1e6)


@lru_cache(maxsize=1024)
def _needs(needs: Needs) -> dict[str, float]:
    return {name: amount for name, amount in needs.amounts if name != "place"}


def raws(entries: Iterable[Entry]) -> tuple[list[RawTask], list[RawTry]]:
    """Give tasks and attempts in the form that analysis takes."""
    tasks: list[RawTask] = []
    tries: list[RawTry] = []
    for entry in entries:
        tasks.append(entry.raw())
        tries += entry.raw_tries()
    return tasks, tries
