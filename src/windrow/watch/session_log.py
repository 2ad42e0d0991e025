"""The log of a session: one line of JSON per task that ended and per rare event, and how it is read back.

A session that was killed leaves half a line at the end; what cannot be read is counted, and everything else is used.
"""

from __future__ import annotations

import json
from collections import deque
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from windrow.watch.graph_runs import Brought, GraphRun, RawTask, RawTry, assembled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["plain_line", "read_task_log", "task_line"]

#: Rare events that are kept word for word.
MOST_RARE = 5_000

_KEPT = ("WorkerJoined", "WorkerLost", "CancelRequested")
_ONE_CORE = {"cores": 1}
_BETWEEN = '","'


def task_line(task: RawTask, tries: Iterable[RawTry]) -> str:
    """Write a task that has ended."""
    # By hand: half of the time of json.dumps, and most tasks have nothing else to tell.
    attempts = ",".join([_attempt(one) for one in tries])
    line = (
        f'{{"t":{task.ended},"event":"task","task":{task.id},"name":{_quoted(task.name)},'
        f'"called":{task.called},"state":"{task.state}","tries":[{attempts}]'
    )
    if task.reads:
        # Names of outputs are numbers, dots and letters.
        line += f',"reads":["{_BETWEEN.join(task.reads)}"]'
    if task.after:
        line += f',"after":{list(task.after)}'
    if task.group:
        line += f',"group":{task.group}'
    more: dict[str, Any] = {}
    if task.released:
        more["released"] = [list(one) for one in task.released]
    if task.needs != _ONE_CORE:
        more["needs"] = dict(task.needs)
    if task.why:
        more["why"] = task.why
    return f"{line}{',' + json.dumps(more)[1:-1] if more else ''}}}\n"


def plain_line(
    number: int, name: str, called: int, ended: int, attempt: tuple[int, int, int, int, int], reads: tuple[str, ...]
) -> str:
    """Write a task that was done at the first attempt and has nothing else to tell, as ``task_line`` does."""
    own, worker, launched, heard, wall = attempt
    more = f',"reads":["{_BETWEEN.join(reads)}"]' if reads else ""
    return (
        f'{{"t":{ended},"event":"task","task":{number},"name":{_quoted(name)},"called":{called},"state":"done",'
        f'"tries":[[{own},{worker},{launched},{heard},{wall},"done"]]{more}}}\n'
    )


def _attempt(one: RawTry) -> str:
    text = f'[{one.attempt},{one.worker},{one.launched},{one.heard},{one.wall},"{one.how}"'
    return f"{text},{json.dumps(one.why)},{one.held}]" if one.why or one.held else f"{text}]"


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(name)


def read_task_log(
    lines: Iterable[str],
    facts: Mapping[str, Any],
    *,
    unfinished: tuple[list[RawTask], list[RawTry]] | None = None,
    now: int | None = None,
) -> GraphRun:
    """Read the lines of a log; ``facts`` are those of the manifest.

    Parameters
    ----------
    unfinished
        Tasks and attempts of a session that goes on, which the log does not have yet.
    now
        The time of looking at a session that goes on.
    """
    tasks, tries = ([], []) if unfinished is None else unfinished
    found = _Found(list(tasks), list(tries))
    # What json.loads does, without looking around the value.
    decode = json.JSONDecoder().raw_decode
    for line in lines:
        try:
            record = decode(line)[0]
            found.take(record)
        except (ValueError, KeyError, TypeError, IndexError):
            found.unreadable += bool(line.strip())
    span = max(found.last, now or 0)
    options = facts.get("options")
    chosen = options if isinstance(options, dict) else {}
    ended = facts.get("state") in ("complete", "failed")
    return GraphRun(
        name=str(facts.get("session") or "session"),
        engine=str(chosen.get("engine") or ""),
        tasks=assembled(found.tasks.values(), list(chain.from_iterable(found.tries.values())), span),
        workers=max(len(found.workers), 1),
        span=span,
        over=ended,
        offers=found.offers,
        brought=found.brought,
        memory=found.memory,
        rare=list(found.rare),
        reused=found.reused,
        facts=facts,
        unreadable=found.unreadable,
        called=found.called,
    )


class _Found:
    """What was read so far."""

    def __init__(self, tasks: list[RawTask], tries: list[RawTry]) -> None:
        self.tasks = {task.id: task for task in tasks}
        self.tries: dict[int, list[RawTry]] = {}
        for one in tries:
            self.tries.setdefault(one.task, []).append(one)
        self.workers: set[int] = set()
        self.offers: dict[str, float] = {}
        self.brought: dict[str, list[Brought]] = {}
        self.memory: list[tuple[int, int]] = []
        self.rare: deque[dict[str, Any]] = deque(maxlen=MOST_RARE)
        self.reused: dict[str, int] = {}
        self.called = 0
        self.last = 0
        self.unreadable = 0

    def take(self, line: dict[str, Any]) -> None:
        """Take a line; raises if it is none of ours."""
        kind, time = line["event"], int(line["t"])
        if time > self.last:
            self.last = time
        if kind == "task":
            self._task(line, time)
        elif kind == "memory":
            self.memory.append((time, int(line["rss"])))
        elif kind == "brought":
            one = Brought(int(line["begin"]), time, int(line["bytes"]))
            self.brought.setdefault(str(line["output"]), []).append(one)
        elif kind == "offers":
            self.offers = {str(name): float(amount) for name, amount in line["offers"].items()}
        elif kind == "called":
            self.called = int(line["tasks"])
        elif kind == "reused":
            self.reused = {str(name): int(count) for name, count in line["names"].items()}
        elif kind in _KEPT:
            self.rare.append(line)
            if kind == "WorkerJoined":
                self.workers.add(int(line["worker"]))

    def _task(self, line: dict[str, Any], time: int) -> None:
        number = int(line["task"])
        get = line.get
        released = get("released", ())
        task = RawTask(
            number,
            str(line["name"]),
            int(line["called"]),
            time,
            str(line["state"]),
            tuple(get("reads", ())),
            tuple(get("after", ())),
            tuple([(name, when) for name, when in released]) if released else (),
            get("needs", _ONE_CORE),
            get("group", 0),
            get("why", ""),
        )
        tries = [RawTry(number, *one) for one in line["tries"]]
        # One that ran once more after its end has a second line, which says all.
        self.tasks[number], self.tries[number] = task, tries
