"""What can be said of a session from what was measured: sums by name, the critical path, waiting, early releases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from windrow.watch.critical_path import Span, critical_path, least_time, way_back
from windrow.watch.graph_run import ByName
from windrow.watch.waiting import RUNNING, VAIN, waits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
