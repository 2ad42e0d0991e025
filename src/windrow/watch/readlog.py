"""Reading a log back: attempts as columns of numbers, calls, memory samples, and the few rare events.

What was killed leaves half a line at the end; lines that cannot be read are counted, and everything else is used.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import DataError
from windrow.watch.log import ONE_CORE, CallRecord

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Rare events that are kept.
MOST_RARE = 5_000

#: How attempts end, by the number they have in ``Attempts.how``.
HOW = ("done", "discarded", "failed", "lost", "cancelled", "running")
DONE, DISCARDED, FAILED, LOST, CANCELLED, RUNNING = range(len(HOW))
_NUMBER_OF = {how: number for number, how in enumerate(HOW)}

_COMMON = ("t", "launched", "wall", "task", "attempt", "worker")
_CHUNK = ("cpu", "lock", "read", "peak", "plan", "input", "start", "stop", "rows")
_COMMON_OF, _CHUNK_OF = itemgetter(*_COMMON), itemgetter(*_CHUNK)
_BOUNDS = ("limit", "block", "tried")
#: A call has nothing of a chunk, but counts as one thing if it is done.
_NO_CHUNK = (0, 0, 0, 0, 0, -1, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """One entry per attempt, in the order of the log; times in seconds."""

    begin: NDArray[np.float64]  #: when its worker took it up
    end: NDArray[np.float64]  #: when its worker was done with it
    launched: NDArray[np.float64]
    heard: NDArray[np.float64]  #: when its end was known where decisions are made
    wall: NDArray[np.float64]
    cpu: NDArray[np.float64]
    lock: NDArray[np.float64]
    read: NDArray[np.int64]  #: bytes
    task: NDArray[np.int64]
    attempt: NDArray[np.int64]
    worker: NDArray[np.int64]
    input: NDArray[np.int64]  #: -1 where it was about no rows
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    rows: NDArray[np.int64]  #: that are in its result; 1 for a call
    plan: NDArray[np.int64]
    peak: NDArray[np.int64]  #: bytes of memory; 0 where the engine cannot tell
    limit: NDArray[np.int64]  #: bytes of memory that it might use; 0: any
    block: NDArray[np.int64]  #: rows of a call of a step in it; 0: as its plan says
    tried: NDArray[np.int64]  #: rows that it was about, where memory was limited and it came to nothing
    name: NDArray[np.int64]  #: place in ``Log.names``
    how: NDArray[np.int64]  #: place in ``HOW``

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def done(self) -> NDArray[np.bool_]:
        return np.equal(self.how, DONE)

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Those that took time; what was called off may never have begun."""
        return np.not_equal(self.how, CANCELLED)


@dataclass(slots=True, kw_only=True)
class Log:
    """What a log says."""

    attempts: Attempts
    names: tuple[str, ...] = ()  #: of datasets or tasks
    words: dict[int, str] = field(default_factory=dict)  #: by attempt: why it failed
    memory: NDArray[np.float64]  #: lines of (time, bytes)
    rare: Sequence[dict[str, Any]] = ()  #: the first of them, times under "t"
    inputs: dict[int, dict[str, Any]] = field(default_factory=dict)  #: those that were opened, as logged
    span: float = 0.0  #: seconds from the first to the last thing that happened
    unreadable: int = 0  #: lines
    dropped: int = 0  #: lines that were not kept for want of room
    #: of a session
    calls: dict[int, CallRecord] = field(default_factory=dict)
    called: int = 0  #: so many, as far as it is known
    offers: dict[str, float] = field(default_factory=dict)
    brought: set[str] = field(default_factory=set)  #: outputs that were brought from the worker that made them
    reused: dict[str, int] = field(default_factory=dict)  #: by name: calls that did not run

    @property
    def ended(self) -> dict[str, Any] | None:
        """The line that says how the run ended; None if it was killed."""
        return next((line for line in reversed(self.rare) if line["event"] == "Resolve"), None)


def read_log(lines: Iterable[str], now: int | None = None) -> Log:
    """Read the lines of a log; time and memory grow with their number and with nothing else.

    Without ``now``, the first thing that happened is at zero. A session counts from its beginning, and ``now`` is the time of
    looking, at which what goes on has come so far.
    """
    found = _Reader()
    # What json.loads does, without looking around the value: a third of the time.
    decode = json.JSONDecoder().raw_decode
    for line in lines:
        try:
            found.take(decode(line)[0])
        except (ValueError, KeyError, TypeError, IndexError):
            found.log.unreadable += bool(line.strip())
    return found.finish(now)


class _Reader:
    """A log as far as it is read, and the numbers that its columns are made of at the end."""

    def __init__(self) -> None:
        none: Any = np.empty(0, dtype=np.int64)
        self.log = Log(attempts=Attempts(**dict.fromkeys(Attempts.__slots__, none)), memory=np.empty((0, 2)))
        self.numbers = array("q")
        self.memory = array("q")
        self.names: dict[str, int] = {}
        self.rare: list[dict[str, Any]] = []
        self.latest = 0  #: of what is not kept otherwise

    def take(self, line: dict[str, Any]) -> None:
        """Take a line; raises if it is none of ours."""
        kind = line["event"]
        if kind in ("finished", "discarded", "task") or ("called" in line and "spent" not in line):
            raise DataError("this log was made by an earlier version of Windrow, which wrote other lines: run it again")
        if kind == "dropped":
            self.log.dropped += int(line["lines"])
            return
        time = line["t"]
        if not isinstance(time, int):
            raise TypeError(f"a time is a whole number of microseconds, not {time!r}")
        if kind == "attempt":
            self._attempt(line)
        elif kind == "memory":
            self.memory.extend((time, line["rss"]))
        elif kind == "brought":
            self.log.brought.add(str(line["output"]))
        elif kind == "offers":
            self.log.offers = {str(name): float(amount) for name, amount in line["offers"].items()}
        elif kind == "called":
            self.log.called = int(line["tasks"])
        elif kind == "reused":
            self.log.reused = {str(name): int(count) for name, count in line["names"].items()}
        elif len(self.rare) < MOST_RARE or kind == "Resolve":
            self.rare.append({**line, "event": str(kind)})
        if kind == "Discovered":
            self.log.inputs[int(line["input"])] = line
        self.latest = max(self.latest, time)

    def _attempt(self, line: dict[str, Any]) -> None:
        name = self.names.setdefault(str(line["name"]), len(self.names))
        if line["attempt"] >= 0:
            chunk = _CHUNK_OF(line) if "rows" in line else (*_NO_CHUNK, line["how"] == "done")
            bounds = (0, 0, 0)
            if "limit" in line:
                bounds = (line["limit"], line.get("block", 0), line.get("tried", 0))
                chunk = (*chunk[:3], line.get("peak", 0), *chunk[4:])
            row = array("q", (*_COMMON_OF(line), *chunk, *bounds, name, _NUMBER_OF[line["how"]]))
            if "why" in line:
                self.log.words[int(line["attempt"])] = str(line["why"])
            self.numbers.extend(row)
        if "called" in line:
            get = line.get
            number = int(line["task"])
            self.log.calls[number] = CallRecord(
                number, str(line["name"]), int(line["called"]), int(line["ended"]), str(line["state"]), (),
                tuple(get("reads", ())), tuple(get("after", ())), get("released", {}), get("needs", ONE_CORE),
                get("group", 0), get("reason", ""), line["spent"],
            )  # fmt: skip

    def finish(self, now: int | None) -> Log:
        names = ("heard", *_COMMON[1:], *_CHUNK, *_BOUNDS, "name", "how")
        table = np.frombuffer(self.numbers, dtype=np.int64).reshape(-1, len(names))
        column: dict[str, Any] = dict(zip(names, table.T, strict=True))
        # What went on when a session was looked at, and has a line of its end by now.
        goes_on = column["how"] == RUNNING
        if goes_on.any():
            keep = ~(goes_on & np.isin(column["attempt"], column["attempt"][~goes_on]))
            column = {name: values[keep] for name, values in column.items()}
        seen = np.frombuffer(self.memory, dtype=np.int64).reshape(-1, 2)
        rare = [line["t"] for line in self.rare]
        starts = [*column["launched"].tolist(), *seen[:, 0].tolist(), *rare]
        first = min(starts, default=0) if now is None else 0
        last = max(self.latest, now or 0) if starts or now is not None else 0
        column["heard"] = np.where(column["how"] == RUNNING, last, column["heard"])
        begin, end = _worked(column)
        times = {"begin": begin, "end": end, "launched": column.pop("launched"), "heard": column.pop("heard")}
        seconds: dict[str, Any] = {name: (value - first) / 1e6 for name, value in times.items()}
        seconds |= {name: column.pop(name) / 1e6 for name in ("wall", "cpu", "lock")}
        memory = seen.astype(np.float64)
        memory[:, 0] = (seen[:, 0] - first) / 1e6
        log = self.log
        log.attempts, log.memory, log.names = Attempts(**seconds, **column), memory, tuple(self.names)
        log.rare = tuple({**line, "t": (line["t"] - first) / 1e6} for line in self.rare)
        log.inputs = {number: {**line, "t": (line["t"] - first) / 1e6} for number, line in log.inputs.items()}
        log.span = (last - first) / 1e6
        return log


def _worked(column: Mapping[str, NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find when each attempt was worked on: a worker has one at a time.

    The log has when an attempt was sent and when the driver heard of its end, several ends at once where the driver was busy.
    Backwards from the last attempt of a worker, each one ended at the latest when the next began. One of which it is not known
    how long it took began when the one before had ended.
    """
    begin, end = column["launched"].copy(), column["heard"].copy()
    order = np.lexsort((column["attempt"], column["heard"]))
    columns = [column[name][order].tolist() for name in ("worker", "launched", "heard", "wall")]
    rows = list(zip(order.tolist(), *columns, strict=True))
    limits: dict[int, int] = {}
    for place, worker, launched, heard, wall in reversed(rows):
        stop = max(min(heard, limits.get(worker, heard)), launched)
        limits[worker] = begin[place] = max(launched, stop - wall)
        end[place] = stop
    free: dict[int, int] = {}
    for place, worker, launched, _, wall in rows:
        if not wall:
            begin[place] = min(max(launched, free.get(worker, 0)), end[place])
        free[worker] = int(end[place])
    return begin, end
