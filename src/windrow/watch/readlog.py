"""Reading an event log back: tasks as columns of numbers, memory samples, and the few rare events.

A run that was killed leaves half a line at the end; lines that cannot be read are counted, and
everything else is used. Times are moved so that the first thing that happened is at zero.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = ["Log", "Tasks", "read_log"]

#: Rare events that are kept word for word; the others are counted by kind.
MOST_RARE = 5_000

_NAMES = (
    "t", "launched", "wall", "cpu", "lock", "read", "task", "attempt", "worker", "input", "start",
    "stop", "plan",
)  # fmt: skip
_FIELDS = itemgetter(*_NAMES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """One entry per task that ended well, in the order of the log; times in seconds."""

    begin: NDArray[np.float64]  #: when its worker took it up
    end: NDArray[np.float64]  #: when its worker was done with it
    wall: NDArray[np.float64]
    cpu: NDArray[np.float64]
    lock: NDArray[np.float64]
    read: NDArray[np.int64]  #: bytes
    task: NDArray[np.int64]
    attempt: NDArray[np.int64]
    worker: NDArray[np.int64]
    input: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    plan: NDArray[np.int64]
    peak: NDArray[np.int64]  #: bytes of memory; 0 where the engine cannot tell
    discarded: NDArray[np.bool_]  #: somebody else had done the rows already

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def rows(self) -> NDArray[np.int64]:
        """How many rows each task had."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What an event log says."""

    tasks: Tasks
    memory: NDArray[np.float64]  #: lines of (time, bytes)
    rare: tuple[dict[str, Any], ...]  #: the first of them, times under "t"
    counts: dict[str, int]  #: how many lines of each kind
    span: float  #: seconds from the first to the last thing that happened
    unreadable: int  #: lines
    dropped: int  #: lines that were not kept for want of room

    @property
    def ended(self) -> dict[str, Any] | None:
        """The line that says how the run ended; None if it was killed."""
        return next((line for line in reversed(self.rare) if line["event"] == "Resolve"), None)


def read_log(lines: Iterable[str]) -> Log:
    """Read the lines of a log; time and memory grow with their number and with nothing else."""
    numbers, memory, discarded = array("d"), array("d"), array("b")
    rare: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    unreadable = dropped = 0
    # What json.loads does, without looking around the value: a third of the time.
    decode = json.JSONDecoder().raw_decode
    for line in lines:
        try:
            record = decode(line)[0]
            kind = record["event"]
            if kind in ("finished", "discarded"):
                numbers.extend(array("d", (*_FIELDS(record), record.get("peak", 0))))
                discarded.append(kind == "discarded")
            elif kind == "memory":
                memory.extend(array("d", (record["t"], record["rss"])))
            elif kind == "dropped":
                dropped += int(record["lines"])
                continue
            elif len(rare) < MOST_RARE or kind == "Resolve":
                rare.append({**record, "event": str(kind), "t": float(record["t"])})
        except (ValueError, KeyError, TypeError):
            unreadable += bool(line.strip())
            continue
        counts[str(kind)] += 1
    names = (*_NAMES, "peak")  # older logs have no peaks
    table = np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(names))
    seen = np.frombuffer(memory, dtype=np.float64).reshape(-1, 2).copy()
    column = dict(zip(names, table.T, strict=True))
    first, last = _limits(column, seen, rare)
    begin, end = _worked(column)
    seen[:, 0] -= first
    whole = {name: column[name].astype(np.int64) for name in names[5:]}
    return Log(
        tasks=Tasks(
            begin=begin - first, end=end - first, wall=column["wall"], cpu=column["cpu"],
            lock=column["lock"], discarded=np.frombuffer(discarded, dtype=np.bool_), **whole,
        ),
        memory=seen,
        rare=tuple({**line, "t": line["t"] - first} for line in rare),
        counts=dict(counts),
        span=last - first,
        unreadable=unreadable,
        dropped=dropped,
    )  # fmt: skip


def _limits(
    column: dict[str, NDArray[np.float64]], memory: NDArray[np.float64], rare: list[dict[str, Any]]
) -> tuple[float, float]:
    early = [column["launched"], memory[:, 0], np.array([line["t"] for line in rare])]
    late = [column["t"], *early[1:]]
    return (
        min((float(times.min()) for times in early if times.size), default=0.0),
        max((float(times.max()) for times in late if times.size), default=0.0),
    )


def _worked(column: dict[str, NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Find when each task was worked on: a worker has one at a time.

    The log has when a task was sent and when the driver heard of its end, several ends at once
    where the driver was busy. Backwards from the last task of a worker, each one ended at the
    latest when the next began.
    """
    begin, end = column["launched"].copy(), column["t"].copy()
    order = np.lexsort((np.arange(len(end)), column["t"], column["worker"]))[::-1]
    worker: float | None = None
    limit = 0.0
    for place, mine, launched, heard, wall in zip(
        order.tolist(),
        column["worker"][order].tolist(),
        column["launched"][order].tolist(),
        column["t"][order].tolist(),
        column["wall"][order].tolist(),
        strict=True,
    ):
        stop = heard if mine != worker else min(heard, limit)
        stop = max(stop, launched)
        # An engine that cannot tell how long a task took leaves 0.
        start = max(launched, stop - wall) if wall > 0 else launched
        begin[place], end[place] = start, stop
        worker, limit = mine, start
    return begin, end
