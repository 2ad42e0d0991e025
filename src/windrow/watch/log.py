"""The log of a run or a session: one JSON line per attempt, of chunks and calls alike, and one per rare event.

The line of an attempt has ``t`` (when its end was heard of), ``task``, ``name``, ``attempt``, ``worker``, ``launched``, ``wall``
and ``how`` it ended: done, discarded (another attempt had done it already), failed, lost (with its worker), cancelled, or running
where a session is looked at. A chunk adds what it used and its rows, and where it was limited the memory it might use and the rows of a call
(``block``); one that came to nothing the rows it was about (``tried``). The last line of a call adds when it was ``called`` and
``ended``, its ``state`` and what it needed; a call that never ran has only that, with the attempt -1. All times are whole
microseconds, so that what they add up to is exact.

A line costs the driver a few microseconds, so it is formatted by hand and written in large pieces.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TextIO

from windrow.core.commands import Launch, Resolve, Uncounted
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
from windrow.core.records import NO_REPORT, EvaluateUnit, OpenInput, RunRows

if TYPE_CHECKING:
    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.records import Failure, Plan

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
_CHUNK = ',"cpu":%d,"lock":%d,"read":%d,"peak":%d,"plan":%d,"input":%d,"start":%d,"stop":%d,"rows":%d'
_CALL = ',"called":%d,"ended":%d,"state":"%s","spent":%s'
_BETWEEN = '","'

NOTHING: Mapping[str, Any] = MappingProxyType({})
#: What a call needs if nobody says anything else.
ONE_CORE: Mapping[str, float] = MappingProxyType({"cores": 1})


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
        return _ATTEMPT % (*self[:2], quoted(self.name), *self[3:])


class Try(NamedTuple):
    """One attempt at a call as it is read back, with when its worker took it up and was done with it."""

    attempt: int
    worker: int
    launched: int  #: when it was given to its worker, which may have had others to do first
    begin: int
    end: int
    heard: int  #: when its end was known where decisions are made
    how: str = "done"  #: "done", "failed", "lost", "cancelled", or "running" if it had not ended
    why: str = ""


class CallRecord(NamedTuple):
    """One call of a task; times in microseconds. Its line has no tries: each has its own."""

    id: int
    name: str
    called: int
    end: int  #: in a line 0 if it has not ended; read back, the time of looking then
    state: str  #: "waiting", "running", "done", "failed" or "cancelled"
    tries: tuple[Try, ...] = ()
    reads: tuple[str, ...] = ()
    after: tuple[int, ...] = ()  #: tasks that had to end before
    released: Mapping[str, Sequence[int]] = NOTHING  #: when outputs were there before its end
    needs: Mapping[str, float] = ONE_CORE
    group: int = 0
    why: str = ""
    spent: Mapping[str, int] = NOTHING  #: what its time went into, by the names that the scheduler counts by

    @property
    def cores(self) -> float:
        return self.needs.get("cores", 1.0)

    @property
    def last(self) -> Try | None:
        """The attempt that counts: the first that was done, else the latest."""
        if len(self.tries) > 1:
            for one in self.tries:
                if one.how == "done":
                    return one
        return self.tries[-1] if self.tries else None


def attempt_line(one: Attempt, why: str = "", **bounds: int) -> str:
    """Write an attempt that is not the last of its call, or came to nothing."""
    return f"{one.text}{_added(why=why, **bounds)}}}\n"


def call_line(one: Attempt | None, call: CallRecord, why: str = "") -> str:
    """Write the attempt that a call ended with, None if there was none, and the call itself."""
    if one is None:
        one = Attempt(call.end, call.id, call.name, -1, -1, 0, 0, "none")
    line = one.text + _CALL % (call.called, call.end, call.state, json.dumps(dict(call.spent)))
    if call.reads:
        # Names of outputs are numbers, dots and letters.
        line += f',"reads":["{_BETWEEN.join(call.reads)}"]'
    if call[7:12] == _NOTHING_ELSE and not why:  # by far the most
        return f"{line}}}\n"
    needs = {} if call.needs == ONE_CORE else dict(call.needs)
    more = _added(
        why=why, after=call.after, group=call.group, reason=call.why, needs=needs, released=dict(call.released),
    )  # fmt: skip
    return f"{line}{more}}}\n"


_NOTHING_ELSE = CallRecord(0, "", 0, 0, "")[7:12]


def _bounds(launch: Launch | None, **more: float) -> dict[str, int]:
    """Say how the memory of rows was limited, and what else is to be said only then."""
    if launch is None or not (limit := dict(launch.limits.amounts).get("memory")):
        return {}
    block = launch.task.payload.block if isinstance(launch.task.payload, RunRows) else 0
    return {"limit": int(limit), "block": block, **{name: int(value) for name, value in more.items()}}


def _added(**more: Any) -> str:
    told = {name: value for name, value in more.items() if value}
    return f",{json.dumps(told)[1:-1]}" if told else ""


@lru_cache(maxsize=1024)
def quoted(name: str) -> str:
    return json.dumps(name)


def micros(seconds: float) -> int:
    return int(seconds * 1e6)


def failure_words(failure: Failure | None) -> str:
    """Write a failure with the beginning and the end of its message; the whole is in the exception."""
    if failure is None:
        return ""
    words = f"{failure.type}: {failure.message}"
    if len(words) <= MESSAGE_BEGINNING + MESSAGE_END:
        return words
    return f"{words[:MESSAGE_BEGINNING]} ... {words[-MESSAGE_END:]}"


class LogFile:
    """A stream that lines are written to in pieces; one that breaks ends the writing and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._size = 0  #: characters of these
        self._broken: OSError | None = None  #: nothing more can be written

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._size += len(line)

    def note(self, time: int, what: str, **facts: Any) -> None:
        """Collect the line of a rare event; the time is in microseconds."""
        self.add(json.dumps({"t": time, "event": what, **facts}) + "\n")

    def take(self) -> str:
        lines, self._lines, self._size = self._lines, [], 0
        return "".join(lines)

    def write(self, text: str) -> None:
        try:
            if text and self._broken is None and not self._stream.closed:
                self._stream.write(text)
                self._stream.flush()
        except OSError as error:
            # A full disk must not take hours of work with it.
            self._broken = error

    def flush(self) -> None:
        self.write(self.take())

    def close_stream(self) -> OSError | None:
        """Write the rest and close; return what could not be done."""
        self.flush()
        try:
            self._stream.close()
        except OSError as error:
            self._broken = self._broken or error
        broken, self._broken = self._broken, None
        return broken


# -- the log of a run ------------------------------------------------------------------------------


class EventLog(LogFile):
    """An observer of the loop that writes lines to a stream."""

    def __init__(self, stream: TextIO, memory: Callable[[], int] | None = None) -> None:
        super().__init__(stream)
        self._memory = memory
        self._looked: float | None = None  #: at the memory, when
        self._written: float | None = None  #: when
        self._launched: dict[int, tuple[Launch, float]] = {}  #: by attempt, and when
        self._orders: dict[str, tuple[str, ...]] = {}  #: by category, as last known: most plans change nothing

    @classmethod
    def open(cls, path: str | Path) -> Self:
        return cls(Path(path).open("w", encoding="utf-8"), own_memory())

    @classmethod
    def remembered(cls) -> Self:
        """Log into memory, as far as there is room; ``text`` gives it back."""
        return cls(_Remembered(), own_memory())

    @property
    def text(self) -> str | None:
        if not isinstance(self._stream, _Remembered):
            return None
        self.flush()
        dropped = f'{{"event":"dropped","lines":{self._stream.dropped}}}\n' if self._stream.dropped else ""
        return self._stream.getvalue() + dropped

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
        if self._memory is not None and (self._looked is None or now - self._looked >= MEMORY_EVERY_S):
            self._looked = now
            self.note(micros(now), "memory", rss=self._memory())
        uncounted = set()
        for command in commands:
            if type(command) is Launch:
                self._launched[command.attempt] = command, now
                self._orders.setdefault(command.plan.category, command.plan.order)
            elif isinstance(command, Uncounted):
                uncounted.add(command.attempt)
            elif isinstance(command, Resolve):
                why = failure_words(command.failure) or None
                self.note(micros(now), "Resolve", status=command.status, failure=why, reason=command.reason)
        for event in events:
            if isinstance(event, Finished):
                self._finished(event, "discarded" if event.attempt in uncounted else "done", now)
            elif isinstance(event, Failed | Exhausted | Cancelled | WorkerLost):
                self._ended_badly(event, now)
            elif isinstance(event, Planned):
                self._planned(event.plan, now)
            elif isinstance(event, WorkerJoined):
                self.note(micros(now), "WorkerJoined", worker=event.worker.life.worker)
            elif isinstance(event, CancelRequested):
                self.note(micros(now), "CancelRequested", reason=event.reason)
        if self._written is None:
            self._written = now
        if self._size >= PIECE or (self._size and now - self._written >= PAUSE_S):
            self.flush()
            self._written = now

    def _attempt(self, attempt: int, worker: int, now: float, wall: float, how: str) -> tuple[Attempt, Launch | None]:
        """Make an attempt of what was launched; with that."""
        launch, begun = self._launched.pop(attempt, (None, now))
        number, name = (0, "") if launch is None else (launch.task.id, launch.task.category)
        return Attempt(micros(now), number, name, attempt, worker, micros(begun), micros(wall), how), launch

    def _finished(self, event: Finished, how: str, now: float) -> None:
        """Write the end of a chunk or an evaluation, or an input that was opened; merges are part of the chunks they are made of."""
        used, worker = event.measurement, event.life.worker
        one, launch = self._attempt(event.attempt, worker, now, used.wall, how)
        payload = None if launch is None else launch.task.payload
        if launch is not None and isinstance(payload, (RunRows, EvaluateUnit)):
            # The rows of a unit in parts are in the lines of its parts.
            report, chunk = event.report or NO_REPORT, payload.rows if isinstance(payload, RunRows) else ()
            left_out = sum(rows.stop - rows.start for rows, _ in report.skipped)
            if report.rest is not None:  # not run: it is in the line of another chunk
                chunk = (chunk[0]._replace(stop=report.rest.start),)
            first, last = (chunk[0], chunk[-1].stop) if chunk else ((-1, 0, 0), 0)
            count = max(sum(stop - start for _, start, stop in chunk) - left_out, 0)
            self.add(one.text + _CHUNK % (
                micros(used.cpu), micros(used.lock_wait), used.bytes_read, used.peak_memory, launch.plan.id, first[0], first[1],
                last, count,
            ) + f"{_added(**_bounds(launch))}}}\n")  # fmt: skip
        elif isinstance(payload, OpenInput):
            rows, borders = event.report.rows, event.report.borders
            facts: dict[str, Any] = {"input": payload.input, "rows": rows, "units": max(len(borders) - 1, 0)}
            if len(borders) <= MOST_BORDERS:
                facts["borders"] = list(borders)
            self.note(micros(now), "Discovered", worker=worker, **facts)

    def _ended_badly(self, event: Failed | Exhausted | Cancelled | WorkerLost, now: float) -> None:
        worker = event.life.worker
        if isinstance(event, WorkerLost):
            why = failure_words(event.failure)
            for attempt in [number for number, one in self._launched.items() if one[0].life.worker == worker]:
                self.add(attempt_line(self._attempt(attempt, worker, now, 0.0, "lost")[0], why))
            self.note(micros(now), "WorkerLost", worker=worker, failure=why)
            return
        how, why = "cancelled", ""
        if isinstance(event, Failed):
            how, why = "failed", failure_words(event.failure)
        elif isinstance(event, Exhausted):
            how, why = "failed", f"more {event.resource} than its limit"
        one, launch = self._attempt(event.attempt, worker, now, 0.0, how)
        peak = event.used if isinstance(event, Exhausted) and event.resource == "memory" else 0
        tried = 0 if launch is None else launch.task.size
        self.add(attempt_line(one, why, **_bounds(launch, tried=tried, peak=peak)))

    def _planned(self, plan: Plan, now: float) -> None:
        """Write a plan: the order where it is another one, else only that it was thought about."""
        changed = plan.order != self._orders.get(plan.category, plan.written)
        self._orders[plan.category] = plan.order
        facts: dict[str, Any] = {"changed": changed, "reason": plan.reason, "sample": plan.sample}
        if changed:
            facts |= {"order": list(plan.order), "guards": [list(guard) for guard in plan.guards]}
        self.note(micros(now), "Planned", plan=plan.id, category=plan.category, **facts)

    def close(self) -> None:
        """Write what was collected and close the stream; warn if that could not be done."""
        broken = self.close_stream()
        if broken is not None:
            name = getattr(self._stream, "name", "in memory")
            warnings.warn(f"the log {name} is not complete: {broken}; the result is not touched by that", stacklevel=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Remembered(io.StringIO):
    """Lines in memory, as far as there is room; what does not fit any more is counted."""

    dropped = 0

    def write(self, text: str, /) -> int:
        if self.tell() + len(text) > REMEMBERED:
            self.dropped += text.count("\n")
            return len(text)
        return super().write(text)

    def close(self) -> None:
        """Keep what was written: it is asked for when the run is over."""


def own_memory() -> Callable[[], int]:
    import psutil

    process = psutil.Process()
    return lambda: int(process.memory_info().rss)
