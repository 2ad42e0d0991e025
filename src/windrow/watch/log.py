"""The event log: one compact JSON line per task, and one per rare event. It only reads.

A line costs the driver a few microseconds, so it is formatted by hand and written in large pieces.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from windrow.core.commands import Discard, Launch, Resolve
from windrow.core.events import (
    Cancelled,
    CancelRequested,
    Discovered,
    Failed,
    Finished,
    InspectFailed,
    MergeFailed,
    Planned,
    WorkerJoined,
    WorkerLost,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event

__all__ = ["EventLog"]

#: Characters collected before they are written: a write costs as much as ten lines.
PIECE = 65536

#: Seconds after which even a small piece is written, so that a person can follow the file.
PAUSE_S = 1.0

_TASK = (
    '{"t":%.6f,"event":"%s","task":%d,"attempt":%d,"worker":%d,"input":%d,"start":%d,"stop":%d,'
    '"plan":%d,"launched":%.6f,"wall":%.6f,"cpu":%.6f,"lock":%.6f,"read":%d}\n'
)


class EventLog:
    """An observer of the loop that writes lines to a stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._size = 0
        self._written: float | None = None  #: when
        self._launched: dict[int, tuple[int, int, float]] = {}  #: attempt -> task, plan, time

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Log into a file, which is made anew."""
        return cls(Path(path).open("w", encoding="utf-8"))

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
        """See a batch."""
        discarded: list[int] = []
        for command in commands:
            if isinstance(command, Launch):
                self._launched[command.attempt] = (command.task.id, command.plan.id, now)
            elif isinstance(command, Discard):
                discarded.append(command.handle.id)
            elif isinstance(command, Resolve):
                self._rare(now, command)
        for event in events:
            if isinstance(event, Finished):
                self._finished(event, now, discarded)
            elif type(event) in _RARE:
                self._rare(now, event)
        if self._written is None:
            self._written = now
        if self._size >= PIECE or (self._size and now - self._written >= PAUSE_S):
            self.flush()
            self._written = now

    def _finished(self, event: Finished, now: float, discarded: list[int]) -> None:
        task, plan, begun = self._launched.pop(event.attempt, (0, 0, now))
        handle, used = event.handle, event.measurement
        rows = handle.rows
        line = _TASK % (
            now,
            "discarded" if handle.id in discarded else "finished",
            task,
            event.attempt,
            event.worker,
            rows[0].input,
            rows[0].start,
            rows[-1].stop,
            plan,
            begun,
            used.wall,
            used.cpu,
            used.lock_wait,
            used.bytes_read,
        )
        self._lines.append(line)
        self._size += len(line)

    def _rare(self, now: float, record: Any) -> None:
        """Write any other record field by field; there are few of them."""
        fields = {"t": round(now, 6), "event": type(record).__name__}
        for name, value in zip(record._fields, record, strict=True):
            if name == "borders":
                fields["units"] = max(len(value) - 1, 0)
            else:
                fields[name] = value if isinstance(value, int | float | str | None) else str(value)
        if type(record) in (Failed, Cancelled):
            self._launched.pop(record.attempt, None)
        line = json.dumps(fields) + "\n"
        self._lines.append(line)
        self._size += len(line)

    def flush(self) -> None:
        """Write what was collected."""
        self._stream.write("".join(self._lines))
        self._stream.flush()
        self._lines.clear()
        self._size = 0

    def close(self) -> None:
        """Write what was collected and close the stream."""
        if not self._stream.closed:
            self.flush()
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_RARE = frozenset(
    {
        CancelRequested,
        Cancelled,
        Discovered,
        Failed,
        InspectFailed,
        MergeFailed,
        Planned,
        WorkerJoined,
        WorkerLost,
    }
)
