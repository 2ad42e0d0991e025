"""What is known of a graph of tasks that ran: when each was called, tried and ended, and what it needed for that.

All times are whole microseconds since the session began, so that what they add up to is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from windrow.watch.log import CallRecord, Try
from windrow.watch.readlog import HOW, Log, read_log


@dataclass(slots=True)
class ByName:
    """Sums over the calls of one name; times in microseconds."""

    name: str
    count: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    retries: int = 0
    ran: int = 0
    time: int = 0
    longest: int = 0
    reused: int = 0
    waited: int = 0

    def add(self, state: str, time: int, retries: int, *, ran: bool) -> None:
        self.count += 1
        self.done += state == "done"
        self.failed += state == "failed"
        self.cancelled += state == "cancelled"
        self.retries += retries
        self.ran += ran
        self.time += time
        self.longest = max(self.longest, time)

    @property
    def mean(self) -> float:
        return self.time / self.ran if self.ran else 0.0


class Link(NamedTuple):
    """A task could not begin before another had come so far."""

    source: int
    target: int
    at: int  #: when what the target needed was there
    output: str = ""  #: "" where only the order of two tasks counts


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRun:
    """A session as far as it went."""

    name: str
    tasks: Mapping[int, CallRecord]
    workers: int
    span: int  #: microseconds from its beginning to its end, or to the time of looking
    engine: str = ""
    over: bool = True
    log: Log = field(default_factory=lambda: read_log(()))
    dropped: Mapping[str, ByName] = field(default_factory=dict)  #: by name: tasks that are not kept
    facts: Mapping[str, Any] = field(default_factory=dict)  #: about the surroundings

    def there(self, output: str) -> Sequence[int] | None:
        """List when an output came to be there, in order; None if its task is not known.

        That is when it was heard of. Before that only the worker knows that made it: what it was given ahead begins then.
        """
        maker = self.tasks.get(maker_of(output))
        if maker is None:
            return None
        early = maker.released.get(output)
        if early:
            return [*(one.end for one in maker.tries if one.how == "done" and one.end < early[0]), *early]
        if len(maker.tries) == 1:  # by far the most
            only = maker.tries[0]
            return (only.end, only.heard) if only.how == "done" else ()
        done = [one for one in maker.tries if one.how == "done"]
        return sorted([time for one in done for time in (one.end, one.heard)])

    def links(self) -> list[Link]:
        """List what each task that ran had to wait for; of what came twice the latest that counts."""
        found = []
        for task in self.tasks.values():
            if not (task.reads or task.after):
                continue
            last = task.last
            if last is None:
                continue
            begin = last.begin
            for output in task.reads:
                times = self.there(output)
                place = bisect_right(times, begin) if times else 0
                if times and place:
                    found.append(Link(maker_of(output), task.id, times[place - 1], output))
            for number in task.after:
                source = self.tasks.get(number)
                if source is not None and source.end <= begin:
                    found.append(Link(source.id, task.id, source.end))
        return found


def maker_of(output: str) -> int:
    """Say which task makes an output; 0, which is none, for a name of another form."""
    number = output.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def graph_run(log: Log, facts: Mapping[str, Any], dropped: Mapping[str, ByName] | None = None) -> GraphRun:
    """Make a session of its log; ``facts`` are those of the manifest, ``dropped`` what is not in the log any more."""
    options = facts.get("options")
    chosen = options if isinstance(options, dict) else {}
    span = round(log.span * 1e6)
    tries = _tries(log)
    tasks = {number: _tried(call, tuple(tries.get(number, ())), span) for number, call in sorted(log.calls.items())}
    workers = {line["worker"] for line in log.rare if line["event"] == "WorkerJoined"}
    each = 2 if chosen.get("engine") == "auto" else 1  # a thread and a process, of which one runs at a time
    return GraphRun(
        name=str(facts.get("session") or "session"),
        engine=str(chosen.get("engine") or ""),
        tasks=tasks,
        workers=max(len(workers) // each, 1),
        span=span,
        over=facts.get("state") in ("complete", "failed"),
        log=log,
        facts=facts,
        dropped=dropped or {},
    )


def _tries(log: Log) -> dict[int, list[Try]]:
    attempts = log.attempts
    times = [
        np.rint(column * 1e6).astype(np.int64)
        for column in (attempts.launched, attempts.begin, attempts.end, attempts.heard)
    ]
    found: dict[int, list[Try]] = {}
    for task, attempt, worker, launched, begin, end, heard, how in zip(
        *(one.tolist() for one in (attempts.task, attempts.attempt, attempts.worker, *times, attempts.how)), strict=True
    ):
        found.setdefault(task, []).append(
            Try(attempt, worker, launched, begin, end, heard, HOW[how], log.words.get(attempt, ""))
        )
    for tries in found.values():
        if len(tries) > 1:
            tries.sort(key=lambda one: one.attempt)
    return found


def _tried(call: CallRecord, tries: tuple[Try, ...], now: int) -> CallRecord:
    released = [time for times in call.released.values() for time in times]
    if released:
        # An attempt had begun when it released something; its end may be heard late, and its beginning be taken for later.
        tries = tuple(
            one._replace(begin=min([one.begin, *(time for time in released if one.launched <= time <= one.heard)]))
            for one in tries
        )
    found = call._replace(tries=tries)
    counted, end, state = found.last, call.end or now, call.state
    # Its end is that of the attempt it ended with, which may be heard of later.
    if counted is not None and call.end and counted.heard == call.end:
        end = counted.end
    if not call.end:
        # One that its worker has not come to yet takes no time.
        runs = bool(tries) and tries[-1].how == "running" and tries[-1].end > tries[-1].begin
        state = "running" if runs else "waiting"
    return found._replace(end=max(end, call.called), state=state)


# -- what can be said of it: sums by name, the critical path, waiting, early releases -----------------
#
# The critical path is the time it would have taken with workers without end: the longest chain of tasks that needed each other.
# An output that was released early only counts for the time until its release.

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
