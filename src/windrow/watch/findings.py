"""What can be said of a session from what was measured: sums by name, the critical path, waiting, early releases.

Two questions, two answers. How long would it have taken with workers without end? The longest chain of tasks that needed
each other: an output that was released early only counts for the time until its release. And why did it take as long as
it did? The way back from the last end: at each place what was waited for last, until the beginning is reached.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from windrow.watch.graph_run import ByName
from windrow.watch.waiting import RUNNING, VAIN, waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.watch.graph_run import GraphRun, Link


class Early(NamedTuple):
    """A task that began before the one it reads from had ended."""

    source: int
    target: int
    output: str
    by: int  #: microseconds before the end of the source


class Findings:
    """All of it; takes some seconds for some 100,000 tasks."""

    def __init__(self, run: GraphRun) -> None:
        tried = [(number, task.called, task.last) for number, task in run.tasks.items()]
        spans = {
            number: Span(one.begin, one.end, one.worker, called) for number, called, one in tried if one is not None
        }
        cores = run.log.offers.get("cores") or run.workers
        self.links: Sequence[Link] = run.links()
        self.waits: Mapping[int, Mapping[str, int]] = waits(run)  #: by task
        self.first = min((task.called for task in run.tasks.values()), default=0)  #: call
        #: from the first call to the last end
        self.makespan = max((span.end for span in spans.values()), default=self.first) - self.first
        #: core time of all attempts, and its share of the core time there was
        self.work = sum(task.cores * (one.end - one.begin) for task in run.tasks.values() for one in task.tries)
        self.busy = min(self.work / (cores * self.makespan), 1.0) if self.makespan else 0.0
        self.path = critical_path(spans, self.links)
        self.way = way_back(spans, self.links, self.first)
        self.least = least_time(self.path.length, self.work, cores)
        self.early = _early(spans, self.links)
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


def _early(spans: Mapping[int, Span], links: Sequence[Link]) -> list[Early]:
    found = []
    for link in links:
        if link.output and link.source in spans and link.target in spans:
            end = spans[link.source].end
            by = end - spans[link.target].begin
            if by > 0 and link.at < end:
                found.append(Early(link.source, link.target, link.output, by))
    return sorted(found, key=lambda one: -one.by)


def _by_name(run: GraphRun, shared: Mapping[int, Mapping[str, int]]) -> dict[str, ByName]:
    names = {name: replace(sums, waited=defaultdict(int)) for name, sums in run.dropped.items()}
    for number, task in run.tasks.items():
        one = names.get(task.name) or names.setdefault(task.name, ByName(task.name))
        spent = sum([each.end - each.begin for each in task.tries])
        retries = sum([each.how in ("failed", "lost") for each in task.tries[:-1]])
        one.add(task.state, spent, retries, ran=bool(task.tries))
        for cause, time in shared[number].items():
            if cause not in (RUNNING, VAIN):
                one.waited[cause] += time
    for name, count in run.log.reused.items():
        names.setdefault(name, ByName(name)).reused = count
    return names


# -- the critical path, and the way back -----------------------------------------------------------


class Span(NamedTuple):
    """When a task ran, and where; ``called`` is when it was asked for."""

    begin: int
    end: int
    worker: int = 0
    called: int = 0


class Path(NamedTuple):
    """A chain of tasks; each part is what of the task had to pass before the next could begin."""

    tasks: tuple[int, ...]
    parts: tuple[int, ...]

    @property
    def length(self) -> int:
        """The time the chain takes however many workers there are."""
        return sum(self.parts)


class Stretch(NamedTuple):
    """A part of the time between the beginning and the last end."""

    kind: str  #: "running", "worker" (or what else kept a task that had all it needed) or "program"
    task: int  #: that ran, that waited, or that the program had not called yet
    begin: int
    end: int


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


def way_back(spans: Mapping[int, Span], links: Iterable[Link], beginning: int = 0) -> tuple[Stretch, ...]:
    """Tile the time from the beginning to the last end with what was waited for, from the first to the last.

    A task that ran is explained by what made it begin: the last of its inputs, or the task that had its worker before, or
    its call. A call is explained by the task that ended last before it, as programs call when they know something.
    """
    if not spans:
        return ()
    needed: dict[int, list[Link]] = defaultdict(list)
    for link in links:
        if link.source in spans and link.target in spans:
            needed[link.target].append(link)
    by_end = [number for _, number in sorted([(span.end, one) for one, span in spans.items()])]
    at_worker = _before_at_worker(spans)
    found: list[Stretch] = []
    number, until = by_end[-1], spans[by_end[-1]].end
    seen: set[int] = set()
    place = len(by_end)
    while True:
        seen.add(number)
        span = spans[number]
        begin = min(max(span.begin, beginning), until)
        found.append(Stretch("running", number, begin, until))
        causes = [(min(max(span.called, beginning), begin), 0, 0)]
        causes += [(min(link.at, begin), 1, link.source) for link in needed[number] if link.source not in seen]
        previous = at_worker.get(number)
        if previous is not None and previous not in seen:
            causes.append((min(spans[previous].end, begin), 2, previous))
        when, kind, source = max(causes)
        if when < begin:
            found.append(Stretch("worker", number, when, begin))
        if kind:
            number, until = source, when
            continue
        # Called: whatever ended last before that.
        while place and (spans[by_end[place - 1]].end > when or by_end[place - 1] in seen):
            place -= 1
        earlier = by_end[place - 1] if place else None
        ended = max(spans[earlier].end, beginning) if earlier is not None else beginning
        if when > ended:
            found.append(Stretch("program", number, ended, when))
        if earlier is None or ended <= beginning:
            break
        number, until = earlier, ended
    return tuple(reversed([one for one in found if one.end > one.begin]))


def _before_at_worker(spans: Mapping[int, Span]) -> dict[int, int]:
    """Say which task each worker had before."""
    found: dict[int, int] = {}
    latest: dict[int, int] = {}
    for _, _, number, worker in sorted([(span.begin, span.end, number, span.worker) for number, span in spans.items()]):
        if worker in latest:
            found[number] = latest[worker]
        latest[worker] = number
    return found
