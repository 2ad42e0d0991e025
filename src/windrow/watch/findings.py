"""What can be said of a session from what was measured: sums by name, the critical path, waiting, early releases."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from windrow.watch.critical_path import Path, Span, Stretch, critical_path, least_time, way_back
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """All of it."""

    names: Sequence[ByName]  #: those that took most time first
    tasks: int
    makespan: int  #: from the first call to the last end
    first: int  #: the first call
    work: float  #: core time of all attempts
    busy: float  #: share of the core time there was
    path: Path
    way: Sequence[Stretch]
    least: float
    waits: Mapping[int, Mapping[str, int]]  #: by task
    waited: Mapping[str, int]  #: by cause, over all tasks; without running
    early: Sequence[Early]
    links: Sequence[Link]


def find(run: GraphRun) -> Findings:
    """Work it all out; takes some seconds for some 100,000 tasks."""
    spans = {}
    for number, task in run.tasks.items():
        last = task.last
        if last is not None:
            spans[number] = Span(last.begin, last.end, last.worker, task.called)
    links = run.links()
    shared = waits(run)
    first = min((task.called for task in run.tasks.values()), default=0)
    end = max((span.end for span in spans.values()), default=first)
    work = sum(task.cores * (one.end - one.begin) for task in run.tasks.values() for one in task.tries)
    cores = run.log.offers.get("cores") or run.workers
    path = critical_path(spans, links)
    waited: dict[str, int] = defaultdict(int)
    for of_task in shared.values():
        for cause, time in of_task.items():
            if cause != RUNNING:
                waited[cause] += time
    names = _by_name(run, shared)
    return Findings(
        names=sorted(names.values(), key=lambda one: -one.time),
        tasks=sum(one.count for one in names.values()),
        makespan=end - first,
        first=first,
        work=work,
        busy=min(work / (cores * (end - first)), 1.0) if end > first else 0.0,
        path=path,
        way=way_back(spans, links, first),
        least=least_time(path.length, work, cores),
        waits=shared,
        waited=dict(sorted(waited.items(), key=lambda item: -item[1])),
        early=_early(spans, links),
        links=links,
    )


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
