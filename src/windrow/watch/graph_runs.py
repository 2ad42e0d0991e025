"""What is known of a graph of tasks that ran: when each was called, tried and ended, and what it needed for that.

All times are whole microseconds since the session began, so that what they add up to is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Brought", "GraphRun", "Link", "Ran", "RawTask", "RawTry", "Sums", "Try", "assembled", "maker_of", "worked"]


class Try(NamedTuple):
    """One attempt at a task."""

    attempt: int
    worker: int
    launched: int  #: when it was given to its worker, which may have had others to do first
    begin: int
    end: int
    heard: int  #: when its end was known where decisions are made
    how: str = "done"  #: "done", "failed", "lost", "cancelled", or "running" if it had not ended
    why: str = ""
    held: int = 0  #: the task was not tried again before


class Brought(NamedTuple):
    """A value that was brought from the worker that made it."""

    begin: int
    end: int
    bytes: int = 0


class Ran(NamedTuple):
    """One task."""

    id: int
    name: str
    called: int
    end: int  #: or the time of looking, if it had not ended
    state: str  #: "waiting", "running", "done", "failed" or "cancelled"
    tries: tuple[Try, ...] = ()
    reads: tuple[str, ...] = ()
    after: tuple[int, ...] = ()  #: tasks that had to end before
    released: tuple[tuple[str, int], ...] = ()  #: outputs that were there before its end
    needs: Mapping[str, float] = MappingProxyType({})
    group: int = 0
    why: str = ""

    @property
    def cores(self) -> float:
        """Cores that it holds while it runs."""
        return self.needs.get("cores", 1.0)

    @property
    def last(self) -> Try | None:
        """The attempt that counts: the first that was done, else the latest."""
        return _counting(self.tries)


def _counting(tries: tuple[Try, ...]) -> Try | None:
    if len(tries) > 1:
        for one in tries:
            if one.how == "done":
                return one
    return tries[-1] if tries else None


@dataclass(slots=True)
class Sums:
    """What is left of tasks that are not kept one by one."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    failed: int = 0
    cancelled: int = 0
    retries: int = 0
    ran: int = 0


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
    tasks: Mapping[int, Ran]
    workers: int
    span: int  #: microseconds from its beginning to its end, or to the time of looking
    engine: str = ""
    over: bool = True
    offers: Mapping[str, float] = field(default_factory=dict)
    brought: Mapping[str, Sequence[Brought]] = field(default_factory=dict)  #: by output
    dropped: Mapping[str, Sums] = field(default_factory=dict)  #: by name: tasks that are not kept
    memory: Sequence[tuple[int, int]] = ()  #: (time, bytes)
    rare: Sequence[Mapping[str, Any]] = ()  #: workers that came and went, wishes to stop
    reused: Mapping[str, int] = field(default_factory=dict)  #: by name: calls that did not run
    facts: Mapping[str, Any] = field(default_factory=dict)  #: about the surroundings
    unreadable: int = 0  #: lines of the log
    called: int = 0  #: tasks, as far as the log knows; of one that was killed there may be fewer in it

    #: by task: when each of its outputs was released, made when somebody first asks
    _releases: dict[int, dict[str, list[int]]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def there(self, output: str) -> Sequence[int] | None:
        """List when an output came to be there, in order; None if its task is not known.

        That is when it was heard of. Before that only the worker knows that made it: what it was given ahead begins then.
        """
        maker = self.tasks.get(maker_of(output))
        if maker is None:
            return None
        if maker.released:
            by_output = self._releases.get(maker.id)
            if by_output is None:
                by_output = self._releases[maker.id] = {}
                for name, time in sorted(maker.released, key=lambda one: one[1]):
                    by_output.setdefault(name, []).append(time)
            early = by_output.get(output)
            if early:
                known = [one.end for one in maker.tries if one.how == "done" and one.end < early[0]]
                return [*known, *early] if known else early
        if len(maker.tries) == 1:  # by far the most
            only = maker.tries[0]
            return (only.end, only.heard) if only.how == "done" else ()
        done = [one for one in maker.tries if one.how == "done"]
        return sorted([time for one in done for time in (one.end, one.heard)])

    @property
    def staffed(self) -> int:
        """When the first worker was there, as far as that is known."""
        joined = [int(line["t"]) for line in self.rare if line["event"] == "WorkerJoined"]
        return min(joined, default=0)

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


class RawTry(NamedTuple):
    """An attempt as it is heard of: several reports may come at once."""

    task: int
    attempt: int
    worker: int
    launched: int
    heard: int  #: 0 if it goes on
    wall: int  #: 0 where the engine cannot tell
    how: str
    why: str = ""
    held: int = 0


def worked(raw: Sequence[RawTry], now: int) -> dict[int, list[Try]]:
    """Find when each attempt was worked on; return them by task.

    A worker has one at a time, but may report several at once when it has done them. Backwards from its last, each one
    ended at the latest when the next began. One of which nobody says how long it took began when the one before had ended.
    """
    limits: dict[int, int] = {}
    ends: list[tuple[RawTry, int, int]] = []
    for one in sorted(raw, key=lambda one: (one.heard or now, one.attempt), reverse=True):
        _, _, worker, launched, heard, wall, _, _, _ = one
        end = heard or now
        limit = limits.get(worker, end)
        end = max(limit if limit < end else end, launched)
        begin = end - wall
        if begin < launched:
            begin = launched
        limits[worker] = begin
        ends.append((one, begin, end))
    found: dict[int, list[Try]] = {}
    free: dict[int, int] = {}
    for one, begin, end in reversed(ends):
        task, attempt, worker, launched, heard, wall, how, why, held = one
        if not wall:
            begin = min(max(launched, free.get(worker, 0)), end)
        free[worker] = end
        done = Try(attempt, worker, launched, begin, end, heard or now, how or "running", why, held)
        before = found.get(task)
        if before is None:
            found[task] = [done]
        else:
            before.append(done)
    for tries in found.values():
        if len(tries) > 1:
            tries.sort(key=lambda one: one.attempt)
    return found


class RawTask(NamedTuple):
    """A task as it is heard of."""

    id: int
    name: str
    called: int
    ended: int  #: 0 if it has not
    state: str
    reads: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    released: tuple[tuple[str, int], ...] = ()
    needs: Mapping[str, float] = MappingProxyType({})
    group: int = 0
    why: str = ""


def _begun_by(one: Try, released: tuple[tuple[str, int], ...]) -> Try:
    """An attempt had begun when it released something; its end may be heard late, and its beginning be taken for later."""
    times = [time for _, time in released if one.launched <= time <= one.heard]
    return one._replace(begin=min(one.begin, *times)) if times else one


def assembled(tasks: Iterable[RawTask], raw: Sequence[RawTry], now: int) -> dict[int, Ran]:
    """Put together what was heard of tasks and of their attempts."""
    tries = worked(raw, now)
    found = {}
    for task in tasks:
        mine = tuple(tries.get(task.id, ()))
        if task.released:
            mine = tuple([_begun_by(one, task.released) for one in mine])
        end = task.ended or now
        counted = _counting(mine)
        # Its end is that of the attempt it ended with, which may be heard of later.
        if counted is not None and task.ended and counted.heard == task.ended:
            end = counted.end
        state = task.state
        if not task.ended:
            # One that its worker has not come to yet takes no time.
            runs = bool(mine) and mine[-1].how == "running" and mine[-1].end > mine[-1].begin
            state = "running" if runs else "waiting"
        found[task.id] = Ran(
            task.id, task.name, task.called, max(end, task.called), state, mine, task.reads, task.after,
            task.released, task.needs, task.group, task.why,
        )  # fmt: skip
    return found
