"""What can be said of a session from what was measured: sums by name, the critical path, waiting, early releases.

The critical path is the time it would have taken with workers without end: the longest chain of tasks that needed each other.
An output that was released early only counts for the time until its release.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from windrow.watch.graph_run import ByName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.watch.graph_run import GraphRun, Link
    from windrow.watch.log import CallRecord


RUNNING = "running"
WORKER = "worker"

_WORDS = {
    RUNNING: "running",
    "inputs": "for inputs",
    "values": "for values to be brought",
    "pause": "pause after a failure",
    WORKER: "for a free worker",
}
#: What every task needs; who waits for these waits for a worker.
COMMON = frozenset({"cores", "place"})
#: Causes under the names that the scheduler counts them by; others are resources.
_CAUSES = {"run": RUNNING, "queue": WORKER, **dict.fromkeys(COMMON, WORKER)}


class Findings:
    """All of it; takes some seconds for some 100,000 tasks."""

    def __init__(self, run: GraphRun) -> None:
        tried = [(number, task.last) for number, task in run.tasks.items()]
        spans = {number: Span(one.begin, one.end) for number, one in tried if one is not None}
        most = run.workers * max((task.cores for task in run.tasks.values()), default=1)  # which so many tasks can use
        cores = min(run.log.offers.get("cores") or run.workers, max(most, 1))
        self.links: Sequence[Link] = run.links()
        self.waits: Mapping[int, Mapping[str, int]] = waits(run)  #: by task
        self.first = min((task.called for task in run.tasks.values()), default=0)  #: call
        #: from the first call to the last end
        self.makespan = max((span.end for span in spans.values()), default=self.first) - self.first
        #: core time of all attempts, and its share of the core time there was
        self.work = sum(task.cores * (one.end - one.begin) for task in run.tasks.values() for one in task.tries)
        self.busy = min(self.work / (cores * self.makespan), 1.0) if self.makespan else 0.0
        self.path = critical_path(spans, self.links)
        self.least = least_time(self.path.length, self.work, cores)
        #: tasks that began before one they read from had ended: by how much
        self.early = []
        for link in self.links:
            if link.output and link.source in spans and link.target in spans:
                end = spans[link.source].end
                by = end - spans[link.target].begin
                if by > 0 and link.at < end:
                    self.early.append(by)
        names = _by_name(run, self.waits).values()
        self.names = sorted(names, key=lambda one: -one.time)  #: those that took most time first
        self.tasks = sum(one.count for one in names)
        waited: dict[str, int] = defaultdict(int)
        for of_task in self.waits.values():
            for cause, time in of_task.items():
                if cause != RUNNING:
                    waited[cause] += time
        #: by cause, over all tasks; without running
        self.waited = dict(sorted(waited.items(), key=lambda item: -item[1]))


def _by_name(run: GraphRun, shared: Mapping[int, Mapping[str, int]]) -> dict[str, ByName]:
    names = {name: replace(sums) for name, sums in run.dropped.items()}
    for number, task in run.tasks.items():
        one = names.get(task.name) or names.setdefault(task.name, ByName(task.name))
        spent = sum([each.end - each.begin for each in task.tries])
        retries = sum([each.how in ("failed", "lost") for each in task.tries[:-1]])
        one.add(task.state, spent, retries, ran=bool(task.tries))
        one.waited += sum(shared[number].values()) - shared[number].get(RUNNING, 0)
    for name, count in run.log.reused.items():
        names.setdefault(name, ByName(name)).reused = count
    return names


# -- the critical path -----------------------------------------------------------------------------


class Span(NamedTuple):
    """When a task ran."""

    begin: int
    end: int


class Path(NamedTuple):
    """A chain of tasks; each part is what of the task had to pass before the next could begin."""

    tasks: tuple[int, ...]
    parts: tuple[int, ...]

    @property
    def length(self) -> int:
        return sum(self.parts)


def critical_path(spans: Mapping[int, Span], links: Iterable[Link]) -> Path:
    """Find the longest chain; links that do not fit the measured times, as of tasks that were made again, are left out."""
    before: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for link in links:
        giving, taking = spans.get(link.source), spans.get(link.target)
        if giving is None or taking is None:
            continue
        part = min(link.at, giving.end, taking.begin) - giving.begin
        if part >= 0 and link.source != link.target:
            before[link.target].append((link.source, part))
    # A link never leads back in time, so this order has sources first; of equal times the lower number was called first.
    order = [number for _, number in sorted([(span.begin, one) for one, span in spans.items()])]
    reach: dict[int, int] = {}  #: the longest way to the beginning of a task
    came: dict[int, tuple[int, int]] = {}
    for number in order:
        best = 0
        for source, part in before.get(number, ()):
            # One that is not there yet began at the same time: nothing passed between them.
            if source in reach and reach[source] + part >= best:
                best = reach[source] + part
                came[number] = (source, part)
        reach[number] = best
    if not order:
        return Path((), ())
    last = max(order, key=lambda number: reach[number] + spans[number].end - spans[number].begin)
    tasks, parts = [last], [spans[last].end - spans[last].begin]
    while tasks[-1] in came:
        source, part = came[tasks[-1]]
        tasks.append(source)
        parts.append(part)
    return Path(tuple(reversed(tasks)), tuple(reversed(parts)))


def least_time(path: int, work: float, cores: float) -> float:
    """Give the time that no order of the same tasks on as many cores could have beaten."""
    return max(float(path), work / max(cores, 1.0))


# -- waiting by cause: the time from the call of a task to its end, without a rest --------------------
#
# The scheduler counts what the time of a task goes into, and its end tells. Of a task that goes on, or of which nothing was
# counted, its inputs and its attempts tell as much as they can.


def cause_words(cause: str) -> str:
    return _WORDS.get(cause, f"for {cause}")


def waits(run: GraphRun) -> dict[int, dict[str, int]]:
    """Share out the time of every task: for each what its time went into, in microseconds."""
    free = {name: amount for name, amount in run.log.offers.items() if name not in COMMON}
    for task in run.tasks.values():
        if task.state == "running":
            for name in task.needs.keys() & free.keys():
                free[name] -= task.needs[name]
    return {number: _counted(task) if task.spent else _looked_at(task, run, free) for number, task in run.tasks.items()}


def _counted(task: CallRecord) -> dict[str, int]:
    causes: dict[str, int] = {}
    for name, time in task.spent.items():
        cause = _CAUSES.get(name, name)
        causes[cause] = causes.get(cause, 0) + time
    # The scheduler hears of a call after it was made, and of an end after it was reached.
    rest = task.end - task.called - sum(causes.values())
    for cause in (WORKER, RUNNING, *causes):
        change = max(rest, -causes.get(cause, 0))
        causes[cause] = causes.get(cause, 0) + change
        rest -= change
    return {cause: time for cause, time in causes.items() if time}


def _looked_at(task: CallRecord, run: GraphRun, free: Mapping[str, float]) -> dict[str, int]:
    last = task.last
    begin = task.end if last is None else max(min(last.begin, task.end), task.called)
    ready = task.called
    for output in task.reads:
        times = run.there(output)
        if times is not None:
            ready = max(ready, max((time for time in times if time <= begin), default=begin))
    lacking = [name for name in sorted(task.needs) if name in free and free[name] < task.needs[name] * (1 - 1e-9)]
    place = lacking[0] if task.state == "waiting" and lacking else WORKER
    causes = {"inputs": ready - task.called, place: begin - ready, RUNNING: task.end - begin}
    return {cause: time for cause, time in causes.items() if time}
