"""What a session remembers of its calls: of each what its lines in a log are made of, of a long session only of the latest.

It watches the loop and decides nothing. A task costs three to five microseconds; lines are written when a report asks.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from functools import lru_cache
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Fetch, Launch, Recall, TaskEnded
from windrow.core.events import (
    Cancelled,
    CancelRequested,
    Closed,
    Exhausted,
    Failed,
    Finished,
    Held,
    OutputReady,
    PoolChanged,
    WorkerJoined,
    WorkerLost,
)
from windrow.watch.graph_run import ByName, graph_run
from windrow.watch.log import NOTHING, ONE_CORE, Attempt, CallRecord, attempt_line, call_line, failure_words, micros
from windrow.watch.progress import SessionSnapshot
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Task
    from windrow.watch.graph_run import GraphRun

#: Calls that are kept one by one, about 15 MB of them; older ones are added up by name.
MOST_TASKS = 50_000
#: Workers that came and went, and wishes to stop.
MOST_RARE = 1_000
#: Tasks of a name that must have ended before anything is said of how long the others take.
ENOUGH = 3


class _Entry:
    """A call, and its latest attempt; most have no other."""

    __slots__ = (
        "attempt", "called", "earlier", "end", "heard", "how", "launched", "released", "task", "wall", "why", "worker",
    )  # fmt: skip

    def __init__(self, task: Task, called: float) -> None:
        self.task = task
        self.called = called
        #: when it ended, how, why, and what its time went into
        self.end: tuple[float, str, str, tuple[tuple[str, float], ...]] | None = None
        self.attempt = -1  #: none
        self.heard = self.wall = 0.0
        self.how = self.why = ""
        self.released: dict[str, list[int]] | None = None  #: outputs, and when
        self.earlier = ""  #: lines of earlier attempts

    def launch(self, attempt: int, worker: int, time: float) -> None:
        if self.attempt >= 0:
            if not self.heard:  # it was called off, and may go on for a while
                self.heard, self.how = time, "cancelled"
            self.earlier += self.attempt_line()
        self.attempt, self.worker, self.launched = attempt, worker, time
        self.heard = self.wall = 0.0
        self.how, self.why = "running", ""

    def latest(self) -> Attempt | None:
        if self.attempt < 0:
            return None
        task = self.task
        return Attempt(
            int(self.heard * 1e6), task.id, task.category, self.attempt, self.worker, int(self.launched * 1e6),
            int(self.wall * 1e6), self.how,
        )  # fmt: skip

    def attempt_line(self) -> str:
        latest = self.latest()
        return "" if latest is None else attempt_line(latest, self.why)

    def call_line(self, latest: Attempt | None) -> str:
        task = self.task
        ended, state, why, spent = self.end or (0.0, "waiting", "", ())
        call = CallRecord(
            task.id, task.category, int(self.called * 1e6), int(ended * 1e6), state, (), task.reads, (*task.after, *task.beside),
            self.released or NOTHING, _needs(task.needs.amounts), task.group, why,
            {name: micros(time) for name, time in spent},
        )  # fmt: skip
        return call_line(latest, call, self.why)

    def lines(self) -> str:
        return self.earlier + self.call_line(self.latest())


@lru_cache(maxsize=256)
def _needs(amounts: tuple[tuple[str, float], ...]) -> Mapping[str, float]:
    """Give what a task needs, without the place that every task takes."""
    needs = dict(amounts)
    if len(needs) > 1:
        needs.pop("place", None)
    return ONE_CORE if needs == ONE_CORE else needs


class History:
    """An observer of the loop; other threads may ask it at any time."""

    def __init__(self, name: str, engine: str, most: int = MOST_TASKS) -> None:
        self.name = name
        self.engine = engine
        self.over = False
        self.written: Callable[[str], None] | None = None  #: is given every line, if anybody wishes so
        self.memory: Callable[[], list[dict[str, Any]]] = list  #: what calls used and were granted, by name
        self.within = False  #: somebody has entered the session's block, so that it will be closed
        self.closed = False  #: nothing more will be called
        self.counts = {"called": 0, "done": 0, "failed": 0, "cancelled": 0}
        self.reused: Counter[str] = Counter()  #: by name: calls that were answered without a task
        self.dropped: dict[str, ByName] = {}
        self.entries: dict[int, _Entry] = {}  #: calls that have not ended
        self.ended: dict[int, _Entry] = {}  #: those that have, the oldest first
        self.running: dict[int, _Entry] = {}  #: by attempt
        self.rare: deque[dict[str, Any]] = deque(maxlen=MOST_RARE)
        self.brought: deque[dict[str, Any]] = deque(maxlen=most)
        self.lock = threading.Lock()
        self._offers: dict[str, Any] = {"t": 0, "event": "offers", "offers": {}}
        self._spent: dict[str, tuple[int, float]] = {}  #: by name: tasks that were done, and their seconds
        self._fetching: dict[str, float] = {}
        #: attempts that may come back without having begun: recalled, or launched ahead of what they read
        self._returnable: set[int] = set()
        self._most = most
        self._began = monotonic()
        self._ended_at = 0

    # -- what happens

    def called(self, task: Task) -> None:
        self.entries[task.id] = _Entry(task, monotonic() - self._began)
        self.counts["called"] += 1

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
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
        # One that has ended runs once more because what it made was lost.
        entry = self.entries.get(command.task.id) or self.ended.get(command.task.id)
        if entry is None:
            return
        entry.launch(command.attempt, command.life.worker, time)
        self.running[command.attempt] = entry
        if command.ahead:
            self._returnable.add(command.attempt)

    def _finished(self, event: Finished, time: float) -> None:
        entry = self._heard(event.attempt, time, "done")
        if entry is not None:
            entry.wall = event.measurement.wall
            if entry.end is not None:
                self._write_again(entry)

    def _failed(self, event: Failed, time: float) -> None:
        self._fail(event.attempt, time, "failed", failure_words(event.failure))

    def _exhausted(self, event: Exhausted, time: float) -> None:
        self._fail(event.attempt, time, "failed", f"more {event.resource} than its limit")

    def _cancelled(self, event: Cancelled, time: float) -> None:
        returned = event.attempt in self._returnable
        entry = self._heard(event.attempt, time, "cancelled")
        if returned and entry is not None:
            entry.attempt = -1  # it had not begun, and goes to another worker: as if it had not been launched

    def _heard(self, attempt: int, time: float, how: str) -> _Entry | None:
        """An attempt has ended; give its entry if it is the latest."""
        entry = self.running.pop(attempt, None)
        self._returnable.discard(attempt)
        if entry is None or entry.attempt != attempt:
            return None
        entry.heard, entry.how = time, how
        return entry

    def _fail(self, attempt: int, time: float, how: str, why: str) -> None:
        entry = self._heard(attempt, time, how)
        if entry is not None:
            entry.why = why
            self._write_again(entry)

    def _write_again(self, entry: _Entry) -> None:
        if entry.end is not None and self.written is not None:
            self.written(entry.attempt_line())

    def _released(self, event: OutputReady, time: float) -> None:
        entry = self.running.get(event.attempt)
        if entry is not None and entry.attempt == event.attempt:
            entry.released = entry.released or {}
            entry.released.setdefault(event.made.output, []).append(micros(time))

    def _recall(self, command: Recall, time: float) -> None:  # noqa: ARG002 - told like all others
        self._returnable.add(command.attempt)

    def _fetch(self, command: Fetch, time: float) -> None:
        self._fetching[command.handle.output] = time

    def _fetched(self, event: Held, time: float) -> None:
        output = event.handle.output
        begin = micros(self._fetching.pop(output, time))
        line = {"t": micros(time), "event": "brought", "output": output, "begin": begin, "bytes": event.bytes}
        self.brought.append(line)
        self._write(line)

    def _joined(self, event: WorkerJoined, time: float) -> None:
        self._rare(time, "WorkerJoined", worker=event.worker.life.worker)

    def _lost(self, event: WorkerLost, time: float) -> None:
        worker = event.life.worker
        for attempt, entry in list(self.running.items()):
            if entry.worker == worker:
                self._fail(attempt, time, "lost", failure_words(event.failure))
        if event.failure is not None:
            self._rare(time, "WorkerLost", worker=worker, failure=failure_words(event.failure))

    def _pool(self, event: PoolChanged, time: float) -> None:
        self._offers = {"t": micros(time), "event": "offers", "offers": dict(event.offers.amounts)}
        self._write(self._offers)

    def _close(self, _: Closed, time: float) -> None:  # noqa: ARG002 - told like all others
        self.closed = True

    def _stop(self, event: CancelRequested, time: float) -> None:
        self._rare(time, "CancelRequested", reason=event.reason)

    def _end(self, command: TaskEnded, time: float) -> None:
        number = command.task
        entry = self.entries.pop(number, None) or self.ended.get(number)
        if entry is None:
            return
        why = "" if command.failure is None else failure_words(command.failure)
        before, entry.end = entry.end, (time, command.state, why, command.spent)
        self.counts[command.state] += 1
        self.ended[number] = entry
        if before is not None:
            self.counts[before[1]] -= 1  # it was done, and fails later
        elif command.state == "done" and entry.attempt >= 0:
            count, seconds = self._spent.get(entry.task.category, (0, 0.0))
            self._spent[entry.task.category] = (count + 1, seconds + entry.wall)
        if self.written is not None:
            self.written(entry.lines() if before is None else entry.call_line(None))
        if len(self.ended) > self._most + self._most // 10:
            # Many at a time: the first of a dictionary is found by passing over all that were before it.
            for old in list(islice(self.ended, len(self.ended) - self._most)):
                self._drop(self.ended.pop(old))

    def _drop(self, entry: _Entry) -> None:
        name = entry.task.category
        sums = self.dropped.get(name) or self.dropped.setdefault(name, ByName(name))
        ran = entry.attempt >= 0
        state = "" if entry.end is None else entry.end[1]
        sums.add(state, micros(entry.wall) if ran else 0, entry.earlier.count("\n"), ran=ran)

    def _rare(self, time: float, what: str, **facts: Any) -> None:
        line = {"t": micros(time), "event": what, **facts}
        self.rare.append(line)
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        if self.written is not None:
            self.written(json.dumps(line) + "\n")

    # -- what others ask

    def close(self) -> None:
        self.over = True
        self._ended_at = self.now()

    def now(self) -> int:
        return self._ended_at or int((monotonic() - self._began) * 1e6)

    def run(self) -> GraphRun:
        with self.lock:
            now = self.now()
            text = "".join([one.lines() for one in (*self.ended.values(), *self.entries.values())])
            others = [
                self._offers,
                *self.rare,
                *self.brought,
                {"t": now, "event": "reused", "names": dict(self.reused)},
            ]
            dropped = dict(self.dropped)
        text += "".join([json.dumps(line) + "\n" for line in others])
        state = "complete" if self.over else "running"
        facts = {"session": self.name, "state": state, "options": {"engine": self.engine}, "memory": self.memory()}
        return graph_run(read_log(text.splitlines(), now), facts, dropped)

    def open_lines(self) -> str:
        """Write the calls that have not ended, and the attempts that go on of those that have."""
        with self.lock:
            again = [one.attempt_line() for one in self.running.values() if one.end and one.end[0] <= one.launched]
            return "".join([*again, *(one.lines() for one in self.entries.values())])

    def snapshot(self, workers: int, *, finished: bool = False) -> SessionSnapshot:
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
        left = Counter(entry.task.category for entry in list(self.entries.values()))
        known = {name: self._spent.get(name, (0, 0.0)) for name in left}
        if not left or any(count < ENOUGH for count, _ in known.values()):
            return None
        return sum(number * known[name][1] / known[name][0] for name, number in left.items()) / workers


_EVENTS: dict[type, Callable[[History, Any, float], None]] = {
    Finished: History._finished,
    Failed: History._failed,
    Exhausted: History._exhausted,
    Cancelled: History._cancelled,
    OutputReady: History._released,
    Held: History._fetched,
    WorkerJoined: History._joined,
    WorkerLost: History._lost,
    PoolChanged: History._pool,
    CancelRequested: History._stop,
    Closed: History._close,
}
_COMMANDS: dict[type, Callable[[History, Any, float], None]] = {
    Launch: History._launched,
    TaskEnded: History._end,
    Recall: History._recall,
    Fetch: History._fetch,
}
