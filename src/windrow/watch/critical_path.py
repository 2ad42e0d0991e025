"""The critical path of a graph that ran, and what its time was made of: pure functions of what was measured.

Two questions, two answers. How long would it have taken with workers without end? The longest chain of tasks that needed
each other: an output that was released early only counts for the time until its release. And why did it take as long as
it did? The way back from the last end: at each place what was waited for last, until the beginning is reached.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windrow.watch.graph_run import Link


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
