"""What is known of a graph of tasks that ran: when each was called, tried and ended, and what it needed for that.

All times are whole microseconds since the session began, so that what they add up to is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.watch.log import CallRecord, Try
from windrow.watch.readlog import HOW, Log, read_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    return GraphRun(
        name=str(facts.get("session") or "session"),
        engine=str(chosen.get("engine") or ""),
        tasks=tasks,
        workers=max(len(workers), 1),
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
