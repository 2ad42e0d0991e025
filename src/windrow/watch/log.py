"""The log of a run or a session: one JSON line per attempt, of chunks and calls alike, and one per rare event.

The line of an attempt has ``t`` (when its end was heard of), ``task``, ``name``, ``attempt``, ``worker``, ``launched``, ``wall``
and ``how`` it ended: done, discarded (somebody else had done it already), failed, lost (with its worker), cancelled, or running
where a session is looked at. A chunk adds what it used and its rows. The last line of a call adds when it was ``called`` and
``ended``, its ``state`` and what it needed; a call that never ran has only that, with the attempt -1. All times are whole
microseconds, so that what they add up to is exact.

A line costs the driver a few microseconds, so it is formatted by hand and written in large pieces.
"""

from __future__ import annotations

import json
import warnings
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from windrow.core.commands import Launch, Resolve, Uncounted
from windrow.core.events import (
    Cancelled,
    CancelRequested,
    Exhausted,
    Failed,
    Finished,
    Planned,
    Started,
    WorkerJoined,
    WorkerLost,
)
from windrow.core.records import OpenInput, RunRows
from windrow.watch.lockmeter import LockMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Failure, Measurement, Plan, Rows

#: Characters collected before they are written: a write costs as much as ten lines.
PIECE = 65536

#: Seconds after which even a small piece is written, so that a person can follow the file.
PAUSE_S = 1.0

#: Unit borders that are written with an input; of one with more there is just their number.
MOST_BORDERS = 10_000

#: Seconds between two looks at the memory of the process.
MEMORY_EVERY_S = 0.25

#: Characters of a log that is kept in memory: about 100,000 tasks.
REMEMBERED = 20_000_000

#: Letters of a message: its beginning, which says what failed, and its end, where programs say why.
MESSAGE_BEGINNING, MESSAGE_END = 400, 1600

_ATTEMPT = '{"t":%d,"event":"attempt","task":%d,"name":%s,"attempt":%d,"worker":%d,"launched":%d,"wall":%d,"how":"%s"'
_CHUNK = ',"cpu":%d,"lock":%d,"read":%d,"peak":%d,"plan":%d,"input":%d,"start":%d,"stop":%d,"rows":%d}\n'
_CALL = ',"called":%d,"ended":%d,"state":"%s"'
_BETWEEN = '","'


class Attempt(NamedTuple):
    """One attempt, as far as its line is the same for chunks and calls; times in microseconds."""

    heard: int  #: 0 if it goes on
    task: int
    name: str
    attempt: int
    worker: int
    launched: int
    wall: int  #: 0 where the engine cannot tell
    how: str

    @property
    def text(self) -> str:
        """The beginning of its line."""
        return _ATTEMPT % (*self[:2], quoted(self.name), *self[3:])


class Call(NamedTuple):
    """A call, as the last line of it tells; times in microseconds."""

    id: int
    name: str
    called: int
    ended: int  #: 0 if it has not
    state: str
    reads: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    released: tuple[tuple[str, int], ...] = ()  #: outputs that were there before its end
    needs: tuple[tuple[str, float], ...] = (("cores", 1),)
    group: int = 0
    why: str = ""
    lacked: tuple[tuple[str, int], ...] = ()  #: how long it waited for resources and values, by their names


def chunk_line(one: Attempt, used: Measurement, plan: int, rows: Sequence[Rows], left_out: int) -> str:
    """Write an attempt at rows; those that were left out of the result are not counted."""
    first, last = (rows[0], rows[-1].stop) if rows else ((-1, 0, 0), 0)
    count = sum(stop - start for _, start, stop in rows) - left_out
    return one.text + _CHUNK % (
        micros(used.cpu), micros(used.lock_wait), used.bytes_read, used.peak_memory, plan, first[0], first[1], last, count
    )  # fmt: skip


def attempt_line(one: Attempt, why: str = "", held: int = 0) -> str:
    """Write an attempt that is not the last of its call, or came to nothing; ``held``: not tried again before."""
    more = {name: value for name, value in (("why", why), ("held", held)) if value}
    return f"{one.text}{_added(more)}}}\n"


def call_line(one: Attempt | None, call: Call, why: str = "", held: int = 0) -> str:
    """Write the attempt that a call ended with, None if there was none, and the call itself."""
    if one is None:
        one = Attempt(call.ended, call.id, call.name, -1, -1, 0, 0, "none")
    line = one.text + _CALL % (call.called, call.ended, call.state)
    if call.reads:
        # Names of outputs are numbers, dots and letters.
        line += f',"reads":["{_BETWEEN.join(call.reads)}"]'
    if call[6:] == _NOTHING_ELSE and not why and not held:  # by far the most
        return f"{line}}}\n"
    more: dict[str, Any] = {"why": why, "held": held, "after": call.after, "group": call.group, "reason": call.why}
    more |= {"released": call.released, "lacked": call.lacked}
    if call.needs != (("cores", 1),):
        more["needs"] = dict(call.needs)
    return f"{line}{_added({name: value for name, value in more.items() if value})}}}\n"


_NOTHING_ELSE = Call(0, "", 0, 0, "")[6:]


def _added(more: Mapping[str, Any]) -> str:
    return f",{json.dumps(more)[1:-1]}" if more else ""


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    """Write a name as JSON."""
    return json.dumps(name)


def micros(seconds: float) -> int:
    """Give a time as logs have it."""
    return int(seconds * 1e6)


def failure_words(failure: Failure | None) -> str:
    """Write a failure with the beginning and the end of its message; the whole is in the exception."""
    if failure is None:
        return ""
    words = f"{failure.type}: {failure.message}"
    if len(words) <= MESSAGE_BEGINNING + MESSAGE_END:
        return words
    return f"{words[:MESSAGE_BEGINNING]} ... {words[-MESSAGE_END:]}"


class OrdersSeen:
    """The order that each category was last known to have; plans are made at every checkpoint, and most change nothing."""

    __slots__ = ("_orders",)

    def __init__(self) -> None:
        self._orders: dict[str, tuple[str, ...]] = {}

    def launched(self, plan: Plan) -> None:
        """See a plan in use; the first one of a category tells what it began with."""
        if plan.category not in self._orders:
            self._orders[plan.category] = plan.order

    def changed(self, plan: Plan) -> bool:
        """See a plan that was made; say whether its order is another one."""
        before = self._orders.get(plan.category)
        self._orders[plan.category] = plan.order
        return plan.order != (plan.written if before is None else before)


# -- the log of a run ------------------------------------------------------------------------------


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
        self._launched: dict[int, tuple[Launch, float]] = {}  #: by attempt, and when
        self._orders = OrdersSeen()
        self._broken: OSError | None = None  #: nothing more can be written

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
            self._add(f'{{"t":{micros(now)},"event":"memory","rss":{self._memory()}{self._held()}}}\n')
        uncounted: set[int] = set()
        for command in commands:
            if type(command) is Launch:
                self._launched[command.attempt] = command, now
                self._orders.launched(command.plan)
            elif type(command) is Uncounted:
                uncounted.add(command.attempt)
            elif type(command) is Resolve:
                self._rare(now, command)
        for event in events:
            if type(event) is Finished:  # by far the most, but beginnings
                self._finished(event, uncounted, now)
            elif type(event) is not Started:
                self._see(event, now)
        if self._written is None:
            self._written = now
        if self._size >= PIECE or (self._size and now - self._written >= PAUSE_S):
            self.flush()
            self._written = now

    def _see(self, event: Event, now: float) -> None:
        if isinstance(event, Planned):
            self._planned(event.plan, now)
        elif isinstance(event, Failed | Exhausted | Cancelled):
            self._ended_badly(event, now)
        elif isinstance(event, _RARE):
            self._rare(now, event)

    def _held(self) -> str:
        """Say in what share of the looks so far somebody had the interpreter lock."""
        if self._lock is None or self._lock.share is None:
            return ""
        return f',"held":{self._lock.share:.4f},"looks":{self._lock.looks}'

    def _attempt(self, attempt: int, worker: int, now: float, wall: float, how: str) -> tuple[Attempt, int, Any]:
        """Make an attempt of what was launched; with the number of its plan, and its task."""
        launch, begun = self._launched.pop(attempt, (None, now))
        if launch is None:
            return Attempt(micros(now), 0, "", attempt, worker, micros(begun), micros(wall), how), 0, None
        task = launch.task
        made = Attempt(micros(now), task.id, task.category, attempt, worker, micros(begun), micros(wall), how)
        return made, launch.plan.id, task

    def _finished(self, event: Finished, uncounted: Container[int], now: float) -> None:
        """Write the end of a chunk, or an input that was opened; merges are part of the chunks they are made of."""
        used, worker = event.measurement, event.life.worker
        how = "discarded" if event.attempt in uncounted else "done"
        one, plan, task = self._attempt(event.attempt, worker, now, used.wall, how)
        payload = None if task is None else task.payload
        if isinstance(payload, RunRows):
            left_out = (
                sum(rows.stop - rows.start for rows, _ in event.report.skipped) if event.report is not None else 0
            )
            self._add(chunk_line(one, used, plan, payload.rows, left_out))
        elif isinstance(payload, OpenInput):
            rows, borders = event.report.rows, event.report.borders
            fields: dict[str, Any] = {"input": payload.input, "rows": rows, "units": max(len(borders) - 1, 0)}
            fields["worker"] = worker
            if len(borders) <= MOST_BORDERS:
                fields["borders"] = list(borders)
            self._note(now, "Discovered", fields)

    def _ended_badly(self, event: Failed | Exhausted | Cancelled, now: float) -> None:
        how, why = "cancelled", ""
        if isinstance(event, Failed):
            how, why = "failed", failure_words(event.failure)
        elif isinstance(event, Exhausted):
            how, why = "failed", f"more {event.resource} than its limit"
        one, _, _ = self._attempt(event.attempt, event.life.worker, now, 0.0, how)
        self._add(attempt_line(one, why))

    def _planned(self, plan: Plan, now: float) -> None:
        """Write a plan: the order where it is another one, else only that it was thought about."""
        changed = self._orders.changed(plan)
        fields: dict[str, Any] = {
            "plan": plan.id, "category": plan.category, "changed": changed, "reason": plan.reason, "sample": plan.sample,
        }  # fmt: skip
        if changed:
            fields["order"] = list(plan.order)
            fields["guards"] = [list(guard) for guard in plan.guards]
        self._note(now, "Planned", fields)

    def _rare(self, now: float, record: Any) -> None:
        """Write any other record field by field; there are few of them."""
        kind = type(record).__name__
        fields = {
            name: value if isinstance(value, int | float | str | None) else str(value)
            for name, value in zip(record._fields, record, strict=True)
        }
        if isinstance(record, WorkerJoined):
            fields["worker"] = record.worker.life.worker
        elif isinstance(record, WorkerLost):
            worker, why = record.life.worker, failure_words(record.failure)
            fields = {"worker": worker, "failure": why}
            for attempt in [number for number, one in self._launched.items() if one[0].life.worker == worker]:
                lost, _, _ = self._attempt(attempt, worker, now, 0.0, "lost")
                self._add(attempt_line(lost, why))
        self._note(now, kind, fields)

    def _note(self, now: float, what: str, fields: Mapping[str, Any]) -> None:
        self._add(json.dumps({"t": micros(now), "event": what, **fields}) + "\n")

    def _add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def flush(self) -> None:
        """Write what was collected."""
        try:
            if self._broken is None:
                self._stream.write("".join(self._lines))
                self._stream.flush()
        except OSError as error:
            # A full disk must not take hours of work with it.
            self._broken = error
        self._lines.clear()
        self._size = 0

    def close(self) -> None:
        """Write what was collected and close the stream; warn if that could not be done."""
        if self._lock is not None:
            self._lock.stop()
        if not self._stream.closed:
            self.flush()
            try:
                self._stream.close()
            except OSError as error:
                self._broken = self._broken or error
        if self._broken is not None:
            name = getattr(self._stream, "name", "in memory")
            warnings.warn(
                f"the log {name} is not complete: {self._broken}; the result is not touched by that", stacklevel=2
            )
            self._broken = None

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


_RARE = (CancelRequested, WorkerJoined, WorkerLost)
