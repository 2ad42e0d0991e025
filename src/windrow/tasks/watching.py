"""What a session remembers of its tasks: little of each, of a long session only of the latest, and all of them in a log.

It watches the loop and decides nothing. A task costs two to four microseconds, with a run directory as much again for its line.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Fetch, Launch, Recall, TaskEnded
from windrow.core.delays import BACK_OFF_S
from windrow.core.events import (
    Cancelled,
    CancelRequested,
    Closed,
    Exhausted,
    Failed,
    Fetched,
    Finished,
    OutputReady,
    PoolChanged,
    WorkerJoined,
    WorkerLost,
)
from windrow.core.records import FailureKind
from windrow.tasks.watching_entries import Entry, Past, microseconds, raws
from windrow.watch.graph_runs import Brought, GraphRun, Sums, assembled
from windrow.watch.progress import SessionSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Failure, Task
    from windrow.watch.graph_runs import RawTask, RawTry

__all__ = ["Entry", "Watch"]

#: Tasks that are kept one by one, about 50 MB of them; older ones are added up by name.
MOST_TASKS = 50_000
#: Workers that came and went, and wishes to stop.
MOST_RARE = 1_000
#: Tasks of a name that must have ended before anything is said of how long the others take.
ENOUGH = 3
#: Letters of a message; the whole is in the exception.
MESSAGE = 400


class Watch:
    """An observer of the loop; others may ask it at any time."""

    def __init__(self, name: str, engine: str, most: int = MOST_TASKS) -> None:
        self.name = name
        self.engine = engine
        self.over = False
        #: are told of tasks that have ended, and of all else, if anybody wishes so
        self.ended: Callable[[Entry], None] | None = None
        self.rarely: Callable[[dict[str, Any]], None] | None = None
        self.within = False  #: somebody has entered the session's block, so that it will be closed
        self.closed = False  #: nothing more will be called
        self.workers: set[int] = set()
        self.offers: dict[str, float] = {}
        self.counts = {"called": 0, "done": 0, "failed": 0, "cancelled": 0}
        self.reused: dict[str, int] = {}  #: by name: calls that were answered without a task
        self.dropped: dict[str, Sums] = {}
        self.entries: dict[int, Entry] = {}  #: tasks that have not ended, and such of which there is more to tell
        self.past: dict[int, Past] = {}  #: the others
        self.running: dict[int, Entry] = {}  #: by attempt
        self.rare: deque[dict[str, Any]] = deque(maxlen=MOST_RARE)
        self.brought: deque[tuple[str, Brought]] = deque(maxlen=most)
        self.lock = threading.Lock()
        self._kept: deque[int] = deque()  #: tasks that have ended, the oldest first
        self._fetching: dict[str, float] = {}
        #: attempts that may come back without having begun: recalled, or launched ahead of what they read
        self._returnable: set[int] = set()
        self._most = most
        self._began = monotonic()
        self._ended_at = 0

    # -- what happens

    def called(self, task: Task) -> None:
        """A task is called; the run has not heard of it yet."""
        self.entries[task.id] = Entry(task, monotonic() - self._began)
        self.counts["called"] += 1

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
        """See a batch."""
        time = now - self._began
        with self.lock:
            for event in events:
                see = _EVENTS.get(type(event))
                if see is not None:
                    see(self, event, time)
            for command in commands:
                see = _COMMANDS.get(type(command))
                if see is not None:
                    see(self, command, time)

    def _launched(self, command: Launch, time: float) -> None:
        entry = self._entry(command.task.id)
        if entry is not None:
            entry.launched_at(command, time)
            self.running[command.attempt] = entry
            if command.ahead:
                self._returnable.add(command.attempt)

    def _finished(self, event: Finished, time: float) -> None:
        entry = self.running.pop(event.attempt, None)
        if self._returnable:
            self._returnable.discard(event.attempt)
        if entry is not None and entry.attempt == event.attempt:
            entry.heard, entry.how, entry.wall = time, "done", event.measurement.wall
            if entry.ended and self.ended is not None:
                self.ended(entry)  # it had ended before, and ran once more

    def _failed(self, event: Failed, time: float) -> None:
        self._badly(event.attempt, time, "failed", event.failure)

    def _exhausted(self, event: Exhausted, time: float) -> None:
        entry = self._badly(event.attempt, time, "failed", None)
        if entry is not None:
            entry.why_try = f"more {event.resource} than its limit"

    def _cancelled(self, event: Cancelled, time: float) -> None:
        if event.attempt in self._returnable:
            # It had not begun, and goes to another worker: as if it had not been launched.
            self._returnable.discard(event.attempt)
            entry = self.running.pop(event.attempt, None)
            if entry is not None and entry.attempt == event.attempt:
                entry.attempt = -1
            return
        self._badly(event.attempt, time, "cancelled", None)

    def _badly(self, attempt: int, time: float, how: str, failure: Failure | None) -> Entry | None:
        entry = self.running.pop(attempt, None)
        self._returnable.discard(attempt)
        if entry is not None and entry.attempt == attempt:
            entry.heard, entry.how = time, how
            if failure is not None:
                entry.why_try = _words(failure)
                if failure.kind is FailureKind.TRANSIENT_IO:
                    entry.held = time + BACK_OFF_S[0]
        return entry

    def _released(self, event: OutputReady, time: float) -> None:
        entry = self.running.get(event.attempt)
        if entry is not None and entry.attempt == event.attempt:
            entry.released = entry.released or []
            entry.released.append((event.handle.output, time))

    def _recall(self, command: Recall, time: float) -> None:  # noqa: ARG002 - told like all others
        self._returnable.add(command.attempt)

    def _fetch(self, command: Fetch, time: float) -> None:
        self._fetching[command.handle.output] = time

    def _fetched(self, event: Fetched, time: float) -> None:
        output = event.handle.output
        one = Brought(microseconds(self._fetching.pop(output, time)), microseconds(time), event.bytes)
        self.brought.append((output, one))
        line = {"t": one.end, "event": "brought", "output": output, "begin": one.begin, "bytes": one.bytes}
        self._note(line)

    def _joined(self, event: WorkerJoined, time: float) -> None:
        self.workers.add(event.worker.id)
        self._rare(time, "WorkerJoined", worker=event.worker.id)

    def _lost(self, event: WorkerLost, time: float) -> None:
        why = "" if event.failure is None else _words(event.failure)
        for attempt, entry in list(self.running.items()):
            if entry.worker == event.worker:
                self._badly(attempt, time, "lost", event.failure)
        if event.failure is not None:
            self._rare(time, "WorkerLost", worker=event.worker, why=why)

    def _pool(self, event: PoolChanged, time: float) -> None:
        self.offers = dict(event.offers.amounts)
        self._note({"t": microseconds(time), "event": "offers", "offers": self.offers})

    def _close(self, _: Closed, time: float) -> None:  # noqa: ARG002 - told like all others
        self.closed = True

    def _stop(self, event: CancelRequested, time: float) -> None:
        self._rare(time, "CancelRequested", why=event.reason[:MESSAGE])

    def _end(self, command: TaskEnded, time: float) -> None:
        entry = self._entry(command.task)
        if entry is None:
            return
        again = bool(entry.ended)
        if again:  # one that was done fails later
            self.counts[entry.state] -= 1
        entry.ended, entry.state = time, command.state
        if command.failure is not None:
            entry.why = _words(command.failure)
        self.counts[command.state] += 1
        if self.ended is not None:
            self.ended(entry)
        if entry.is_plain:
            self.past[command.task] = entry.past()
            del self.entries[command.task]
        if not again:
            self._kept.append(command.task)
            if len(self._kept) > self._most:
                self._drop(self._kept.popleft())

    def _entry(self, number: int) -> Entry | None:
        """Find a task that goes on, or does so again."""
        entry = self.entries.get(number)
        if entry is None and number in self.past:
            entry = self.entries[number] = Entry.of_past(self.past.pop(number))
        return entry

    def _drop(self, number: int) -> None:
        """Keep of a task only what it adds to those of its name."""
        entry = self._entry(number)
        assert entry is not None
        del self.entries[number]
        sums = self.dropped.setdefault(entry.task.category, Sums())
        took = entry.wall if entry.attempt >= 0 else 0.0
        sums.count += 1
        sums.seconds += took
        sums.longest = max(sums.longest, took)
        sums.failed += entry.state == "failed"
        sums.cancelled += entry.state == "cancelled"
        sums.retries += len(entry.earlier)
        sums.ran += entry.attempt >= 0

    def _rare(self, time: float, what: str, **facts: Any) -> None:
        line = {"t": microseconds(time), "event": what, **facts}
        self.rare.append(line)
        self._note(line)

    def _note(self, line: dict[str, Any]) -> None:
        if self.rarely is not None:
            self.rarely(line)

    # -- what others ask

    def answered(self, name: str) -> None:
        """A call was answered with what an identical one gave."""
        self.reused[name] = self.reused.get(name, 0) + 1

    def close(self) -> None:
        """The session has ended."""
        self.over = True
        self._ended_at = self.now()

    def now(self) -> int:
        """Give the time since the session began, or how long it was."""
        return self._ended_at or int((monotonic() - self._began) * 1e6)

    def run(self) -> GraphRun:
        """Say what ran so far, as far as it is kept here."""
        with self.lock:
            now = self.now()
            tasks, tries = raws(self._all())
            all_brought, rare = list(self.brought), list(self.rare)
            dropped, reused = dict(self.dropped), dict(self.reused)
        brought: dict[str, list[Brought]] = {}
        for output, one in all_brought:
            brought.setdefault(output, []).append(one)
        return GraphRun(
            name=self.name,
            engine=self.engine,
            tasks=assembled(tasks, tries, now),
            workers=max(len(self.workers), 1),
            span=now,
            over=self.over,
            offers=dict(self.offers),
            brought=brought,
            dropped=dropped,
            rare=rare,
            reused=reused,
        )

    def _all(self) -> list[Entry]:
        """List all tasks that are kept one by one, in the order of their calls."""
        known = {number: Entry.of_past(past) for number, past in self.past.items()}
        known.update(self.entries)
        return [known[number] for number in sorted(known)]

    def snapshot(self, workers: int, *, finished: bool = False) -> SessionSnapshot:
        """Say how far the session is."""
        with self.lock:
            return SessionSnapshot(
                name=self.name,
                # More are given to workers than these can do at a time.
                running=min(len(self.running), workers),
                elapsed_s=self.now() / 1e6,
                left_s=None if finished else self._left(workers),
                reused=sum(self.reused.values()),
                finished=finished,
                **self.counts,
            )

    def _left(self, workers: int) -> float | None:
        """Add up what tasks that have not ended will take, if all are called and some of each name are known."""
        if not self.closed:
            return None
        spent: dict[str, float] = defaultdict(float)
        known: Counter[str] = Counter()
        left: Counter[str] = Counter()
        for entry in list(self.entries.values()):
            name = entry.task.category
            if entry.state == "done":
                known[name] += 1
                spent[name] += entry.wall
            elif not entry.ended:
                left[name] += 1
        for past in list(self.past.values()):
            known[past[1]] += 1
            spent[past[1]] += past[-1]
        if not left or any(known[name] < ENOUGH for name in left):
            return None
        return sum(count * spent[name] / known[name] for name, count in left.items()) / workers

    def open_tasks(self) -> tuple[list[RawTask], list[RawTry]]:
        """Give the tasks that have not ended."""
        with self.lock:
            return raws([entry for entry in list(self.entries.values()) if not entry.ended])


def _words(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"[:MESSAGE]


_EVENTS: dict[type, Callable[[Watch, Any, float], None]] = {
    Finished: Watch._finished,
    Failed: Watch._failed,
    Exhausted: Watch._exhausted,
    Cancelled: Watch._cancelled,
    OutputReady: Watch._released,
    Fetched: Watch._fetched,
    WorkerJoined: Watch._joined,
    WorkerLost: Watch._lost,
    PoolChanged: Watch._pool,
    CancelRequested: Watch._stop,
    Closed: Watch._close,
}
_COMMANDS: dict[type, Callable[[Watch, Any, float], None]] = {
    Launch: Watch._launched,
    TaskEnded: Watch._end,
    Recall: Watch._recall,
    Fetch: Watch._fetch,
}
