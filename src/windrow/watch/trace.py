"""The timeline as a trace that Perfetto (ui.perfetto.dev) and Chrome's tracing open.

One thread per worker, a complete event per task, counters for memory and throughput. A trace has a
limited size: beyond it, neighbouring tasks of a worker become one event.
"""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.watch.report.plain_data import pathless, strict
from windrow.watch.report.timeline import memory_data, throughput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windrow.watch.readlog import Log

__all__ = ["MOST_EVENTS", "trace_text"]

#: Events for tasks; about 70 MB of JSON, which the viewers open in a few seconds.
MOST_EVENTS = 250_000
#: Samples of memory.
MOST_SAMPLES = 20_000

_PROCESS = 1
_TIMELESS = ("t", "event")

# Formatted by hand, which takes a quarter of the time of json.dumps.
_TASK = (
    '{"name":%s,"cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":1,"tid":%d,"args":{"file":%s,'
    '"start":%d,"stop":%d,"rows":%d,"task":%d,"attempt":%d,"plan":%d,"cpu_s":%.6f,"lock_s":%.6f,'
    '"bytes_read":%d}}'
)


def trace_text(log: Log, name: str, label: Callable[[int], tuple[str, str]], most: int = MOST_EVENTS) -> str:
    """Return the whole trace as JSON; ``label(input)`` gives the dataset and the file's name."""
    if len(log.tasks) <= most:
        tasks = _tasks(log, label)
    else:
        tasks = _written(_joined(log, -(-len(log.tasks) // most)))
    around = (_written(_names(log, name)), tasks, _written(_rare(log)), _written(_counters(log)))
    events = ",\n".join(chain.from_iterable(around))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{events}\n]}}\n'


def _written(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (json.dumps(event, allow_nan=False) for event in events)


def _names(log: Log, name: str) -> Iterator[dict[str, Any]]:
    yield _named("process_name", 0, name)
    for worker in np.unique(log.tasks.worker).tolist():
        yield _named("thread_name", worker + 1, f"worker {worker}")


def _rare(log: Log) -> Iterator[dict[str, Any]]:
    for line in log.rare:
        yield {
            "name": _called(line),
            "ph": "i",
            "s": "p",
            "ts": _us(line["t"]),
            "pid": _PROCESS,
            "tid": 0,
            "args": strict(pathless({k: v for k, v in line.items() if k not in _TIMELESS})),
        }


def _called(line: dict[str, Any]) -> str:
    """Name an event as people would; what was decided about an order stands out from that it was thought about."""
    if line["event"] != "Planned" or "changed" not in line:
        return str(line["event"])
    return f"{'new order' if line['changed'] else 'order kept'}: {line.get('category', '')}"


def _tasks(log: Log, label: Callable[[int], tuple[str, str]]) -> Iterator[str]:
    tasks = log.tasks
    labels = {source: tuple(json.dumps(text) for text in label(source)) for source in np.unique(tasks.input).tolist()}
    columns = (
        tasks.begin, tasks.end, tasks.worker, tasks.input, tasks.start, tasks.stop, tasks.task,
        tasks.attempt, tasks.plan, tasks.cpu, tasks.lock, tasks.read, tasks.discarded,
    )  # fmt: skip
    for begin, end, worker, source, start, stop, task, attempt, plan, cpu, lock, read, discarded in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        dataset, file = labels[source]
        kind = "discarded" if discarded else "task"
        yield _TASK % (
            dataset, kind, 1e6 * begin, 1e6 * (end - begin), worker + 1, file, start, stop,
            stop - start, task, attempt, plan, cpu, lock, read,
        )  # fmt: skip


def _joined(log: Log, group: int) -> Iterator[dict[str, Any]]:
    """Make one event of up to ``group`` tasks that a worker did one after the other."""
    tasks = log.tasks
    for worker in np.unique(tasks.worker).tolist():
        mine = np.flatnonzero(tasks.worker == worker)
        mine = mine[np.argsort(tasks.begin[mine], kind="stable")]
        firsts = np.arange(0, len(mine), group)
        lasts = np.minimum(firsts + group, len(mine)) - 1
        sums = [
            np.add.reduceat(column[mine], firsts).tolist()
            for column in (tasks.rows, tasks.cpu, tasks.read, tasks.end - tasks.begin)
        ]
        begins, ends = tasks.begin[mine[firsts]].tolist(), tasks.end[mine[lasts]].tolist()
        counts = (lasts - firsts + 1).tolist()
        for begin, end, count, rows, cpu, read, busy in zip(begins, ends, counts, *sums, strict=True):
            yield {
                "name": f"{count} tasks",
                "cat": "task",
                "ph": "X",
                "ts": _us(begin),
                "dur": _us(end - begin),
                "pid": _PROCESS,
                "tid": worker + 1,
                "args": {
                    "tasks": count,
                    "rows": rows,
                    "cpu_s": round(cpu, 6),
                    "busy_s": round(busy, 6),
                    "bytes_read": read,
                },
            }


def _counters(log: Log) -> Iterator[dict[str, Any]]:
    memory = memory_data(log, MOST_SAMPLES)
    if memory is not None:
        for time, size in zip(memory["time"], memory["bytes"], strict=True):
            yield _counter("memory", time, {"MB": size / 1e6})
    speed = throughput(log)
    if speed is None:
        return
    for number, (rows, read) in enumerate(zip(speed["rows"], speed["read"], strict=True)):
        time = number * speed["step"]
        yield _counter("rows per second", time, {"rows/s": rows})
        yield _counter("read per second", time, {"MB/s": read / 1e6})


def _counter(name: str, time: float, values: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "ts": _us(time), "pid": _PROCESS, "args": values}


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1e6, 3)
