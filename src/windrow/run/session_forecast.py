"""What a recorded session would take with other workers: its tasks put onto so many workers, the oldest that can run first.

A task can run when what it reads is there and the tasks before it have ended. Its program calls it as long after the task that
had ended last before the call as it did when it was recorded: programs call when they know something.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from windrow.errors import DataError
from windrow.store.rundir import RunDirectory
from windrow.watch.findings import Findings, least_time
from windrow.watch.graph_run import graph_run, maker_of
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from windrow.watch.log import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionForecast:
    """What the tasks of a session would take on so many workers."""

    workers: int
    seconds: float
    speedup: float  #: against the recorded session
    busy: float  #: share of the workers' time
    limit: str  #: what keeps it from being quicker, in words


class RecordedSession:
    """A session that can be foretold from, read from its run directory; times in seconds."""

    def __init__(self, directory: RunDirectory) -> None:
        with directory.log.open(encoding="utf-8", errors="replace") as lines:
            self.run = graph_run(read_log(lines, now=0), directory.read_manifest())
        found = Findings(self.run)
        if not found.makespan:
            raise DataError(f"{directory.log} tells of no task that ran, so there is nothing to foretell from")
        self.seconds = found.makespan / 1e6  #: from the first call to the last end
        self.path = found.path.length / 1e6  #: critical
        self.work = found.work / 1e6  #: of all tasks


def is_session(path: Path) -> bool:
    return "session" in RunDirectory.open(path).read_manifest()


def forecast_session(recorded: RecordedSession, workers: int) -> SessionForecast:
    tasks = {number: task for number, task in recorded.run.tasks.items() if task.last is not None}
    seconds = _makespan(tasks, workers)
    least = least_time(round(recorded.path * 1e6), recorded.work * 1e6, workers) / 1e6
    if seconds > 1.05 * least:
        limit = "what tasks wait for: each other, and the program that calls them"
    elif recorded.path >= recorded.work / workers:
        limit = "the critical path: more workers would not make it quicker"
    else:
        limit = "the work itself: more workers would make it quicker"
    return SessionForecast(
        workers=workers,
        seconds=seconds,
        speedup=recorded.seconds / seconds,
        busy=min(recorded.work / (workers * seconds), 1.0),
        limit=limit,
    )


def _makespan(tasks: Mapping[int, CallRecord], workers: int) -> float:
    """Put tasks onto workers; give the seconds until the last one ends."""
    needs = {number: _needed(task, tasks) for number, task in tasks.items()}
    for number, (before, delay) in _calls(tasks).items():
        needs[number].append((before, delay))
    readers: dict[int, list[int]] = {}
    for number, sources in needs.items():
        for source, _ in sources:
            readers.setdefault(source, []).append(number)
    left = {number: len(sources) for number, sources in needs.items()}
    ready: list[tuple[int, int]] = []  #: (when it can begin, task)
    for number, count in left.items():
        if not count:
            heappush(ready, (0, number))
    free = [0] * workers  #: when each worker is free, a heap
    begins: dict[int, int] = {}
    last = 0
    while ready:
        can, number = heappop(ready)
        width = min(max(round(tasks[number].cores), 1), workers)
        held = [heappop(free) for _ in range(width)]
        begin = max(can, held[-1])
        end = begin + sum(one.end - one.begin for one in tasks[number].tries)
        for _ in held:
            heappush(free, end)
        begins[number] = begin
        last = max(last, end)
        for reader in readers.get(number, ()):
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, (max(begins[source] + after for source, after in needs[reader]), reader))
    return max(last, 1) / 1e6


def _needed(task: CallRecord, tasks: Mapping[int, CallRecord]) -> list[tuple[int, int]]:
    """List the tasks that one needs, and how long after the beginning of each it has what it needs."""
    found = []
    for output in task.reads:
        maker = tasks.get(maker_of(output))
        if maker is not None and maker.id < task.id:
            there = maker.released.get(output) or [maker.end]
            found.append((maker.id, max(there[-1] - maker.tries[0].begin, 0)))
    found += [(number, _length(tasks[number])) for number in task.after if number in tasks and number < task.id]
    return found


def _calls(tasks: Mapping[int, CallRecord]) -> dict[int, tuple[int, int]]:
    """Say for each task that was called after another had ended which one that was, and how long after its beginning."""
    by_end = sorted((task.end, number) for number, task in tasks.items())
    found = {}
    for number, task in tasks.items():
        place = bisect_right(by_end, (task.called, number))
        # The one that ended last among those that were called before.
        _, before = max((one for one in by_end[max(place - 8, 0) : place] if one[1] < number), default=(0, None))
        if before is not None:
            found[number] = before, _length(tasks[before]) + task.called - tasks[before].end
    return found


def _length(task: CallRecord) -> int:
    return task.end - task.tries[0].begin
