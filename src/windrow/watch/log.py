"""The event log: one compact JSON line per task, and one per rare event. It only reads.

A line costs the driver a few microseconds, so it is formatted by hand and written in large pieces.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

from windrow.core.commands import Launch, Resolve, TaskEnded
from windrow.core.events import (
    Cancelled,
    CancelRequested,
    Exhausted,
    Failed,
    Finished,
    Planned,
    WorkerJoined,
    WorkerLost,
)
from windrow.core.records import Opened, OpenInput, Rows, RunRows
from windrow.watch.lockmeter import LockMeter
from windrow.watch.orders import OrdersSeen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Plan, Task

__all__ = ["EventLog", "own_memory"]

#: Characters collected before they are written: a write costs as much as ten lines.
PIECE = 65536

#: Seconds after which even a small piece is written, so that a person can follow the file.
PAUSE_S = 1.0

#: What a task that is about no rows is logged with.
NO_ROWS = (Rows(-1, 0, 0),)

#: Unit borders that are written with an input; of one with more there is just their number.
MOST_BORDERS = 10_000

#: Seconds between two looks at the memory of the process.
MEMORY_EVERY_S = 0.25

#: Characters of a log that is kept in memory: about 100,000 tasks.
REMEMBERED = 20_000_000

_TASK = (
    '{"t":%.6f,"event":"%s","task":%d,"attempt":%d,"worker":%d,"input":%d,"start":%d,"stop":%d,'
    '"plan":%d,"launched":%.6f,"wall":%.6f,"cpu":%.6f,"lock":%.6f,"read":%d,"peak":%d}\n'
)


class Stream(Protocol):
    """What lines are written to: a text file, or memory."""

    @property
    def closed(self) -> bool:
        """Whether nothing more can be written."""
        ...

    def write(self, text: str, /) -> int:
        """Take text."""
        ...

    def flush(self) -> None:
        """Let others see it."""
        ...

    def close(self) -> None:
        """Take no more."""
        ...


class EventLog:
    """An observer of the loop that writes lines to a stream."""

    def __init__(self, stream: Stream, memory: Callable[[], int] | None = None, lock: LockMeter | None = None) -> None:
        self._stream = stream
        self._memory = memory
        self._lock = lock
        self._looked: float | None = None  #: at the memory, when
        self._lines: list[str] = []
        self._size = 0
        self._written: float | None = None  #: when
        self._launched: dict[int, tuple[Task, int, float]] = {}  #: attempt -> task, plan, time
        self._orders = OrdersSeen()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Log into a file, which is made anew."""
        return cls(Path(path).open("w", encoding="utf-8"), own_memory(), LockMeter())

    @classmethod
    def remembered(cls) -> Self:
        """Log into memory, as far as there is room; ``text`` gives it back."""
        return cls(_Remembered(REMEMBERED), own_memory())

    @property
    def text(self) -> str | None:
        """The lines so far, where they are kept in memory."""
        if not isinstance(self._stream, _Remembered):
            return None
        self.flush()
        return self._stream.text()

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
        """See a batch."""
        if self._memory is not None and (self._looked is None or now - self._looked >= MEMORY_EVERY_S):
            if self._looked is None and self._lock is not None:
                self._lock.start()
            self._looked = now
            held = "" if self._lock is None or self._lock.share is None else self._held()
            self._add(f'{{"t":{now:.6f},"event":"memory","rss":{self._memory()}{held}}}\n')
        counted: set[int] = set()
        for command in commands:
            if isinstance(command, Launch):
                self._launched[command.attempt] = (command.task, command.plan.id, now)
                self._orders.launched(command.plan)
            elif isinstance(command, TaskEnded):
                counted.add(command.attempt)
            elif isinstance(command, Resolve):
                self._rare(now, command)
        for event in events:
            if isinstance(event, Finished):
                self._finished(event, now, counted)
            elif isinstance(event, Planned):
                self._planned(event.plan, now)
            elif type(event) in _RARE:
                self._rare(now, event)
        if self._written is None:
            self._written = now
        if self._size >= PIECE or (self._size and now - self._written >= PAUSE_S):
            self.flush()
            self._written = now

    def _held(self) -> str:
        """Say in what share of the looks so far somebody had the interpreter lock."""
        assert self._lock is not None
        return f',"held":{self._lock.share or 0.0:.4f},"looks":{self._lock.looks}'

    def _finished(self, event: Finished, now: float, counted: set[int]) -> None:
        launched = self._launched.pop(event.attempt, None)
        if launched is None:
            return
        task, plan, begun = launched
        if isinstance(event.report, Opened):
            self._opened(task.payload, event.report, event, now)
            return
        used = event.measurement
        rows = task.payload.rows if isinstance(task.payload, RunRows) else NO_ROWS
        line = _TASK % (
            now,
            "finished" if event.attempt in counted else "discarded",
            task.id,
            event.attempt,
            event.life.worker,
            rows[0].input,
            rows[0].start,
            rows[-1].stop,
            plan,
            begun,
            used.wall,
            used.cpu,
            used.lock_wait,
            used.bytes_read,
            used.peak_memory,
        )
        self._add(line)

    def _opened(self, payload: OpenInput, report: Opened, event: Finished, now: float) -> None:
        fields: dict[str, Any] = {
            "t": round(now, 6),
            "event": "Discovered",
            "input": payload.input,
            "rows": report.rows,
        }
        fields["units"] = max(len(report.borders) - 1, 0)
        if len(report.borders) <= MOST_BORDERS:
            fields["borders"] = list(report.borders)
        fields |= {"worker": event.life.worker, "incarnation": event.life.incarnation}
        self._add(json.dumps(fields) + "\n")

    def _planned(self, plan: Plan, now: float) -> None:
        """Write a plan: the order where it is another one, else only that it was thought about."""
        changed = self._orders.changed(plan)
        fields: dict[str, Any] = {
            "t": round(now, 6),
            "event": "Planned",
            "plan": plan.id,
            "category": plan.category,
            "changed": changed,
            "reason": plan.reason,
            "sample": plan.sample,
        }
        if changed:
            fields["order"] = list(plan.order)
            fields["guards"] = [list(guard) for guard in plan.guards]
        self._add(json.dumps(fields) + "\n")

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _rare(self, now: float, record: Any) -> None:
        """Write any other record field by field; there are few of them."""
        fields: dict[str, Any] = {"t": round(now, 6), "event": type(record).__name__}
        for name, value in zip(record._fields, record, strict=True):
            if name == "life":
                fields |= {"worker": value.worker, "incarnation": value.incarnation}
            else:
                fields[name] = value if isinstance(value, int | float | str | None) else str(value)
        if type(record) in (Failed, Cancelled, Exhausted):
            self._launched.pop(record.attempt, None)
        self._add(json.dumps(fields) + "\n")

    def flush(self) -> None:
        """Write what was collected."""
        self._stream.write("".join(self._lines))
        self._stream.flush()
        self._lines.clear()
        self._size = 0

    def close(self) -> None:
        """Write what was collected and close the stream."""
        if self._lock is not None:
            self._lock.stop()
        if not self._stream.closed:
            self.flush()
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Remembered:
    """Lines in memory; what does not fit any more is counted."""

    closed = False

    def __init__(self, room: int) -> None:
        self._parts: list[str] = []
        self._room = room
        self._dropped = 0

    def write(self, text: str) -> int:
        if len(text) > self._room:
            self._dropped += text.count("\n")
        else:
            self._room -= len(text)
            self._parts.append(text)
        return len(text)

    def text(self) -> str:
        dropped = f'{{"event":"dropped","lines":{self._dropped}}}\n' if self._dropped else ""
        return "".join(self._parts) + dropped

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def own_memory() -> Callable[[], int]:
    """Return a function that says how much memory this process has."""
    import psutil

    process = psutil.Process()
    return lambda: int(process.memory_info().rss)


_RARE = frozenset({CancelRequested, Cancelled, Exhausted, Failed, WorkerJoined, WorkerLost})
