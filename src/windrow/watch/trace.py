"""A run or a session as a trace that Perfetto (ui.perfetto.dev) and Chrome's tracing open.

One thread per worker, a complete event per attempt, counters for memory and throughput; of a session also arrows from tasks to
those that read from them, and a mark where an output was released. A trace has a limited size: beyond it, later attempts and
further arrows are left out, and a mark says how many.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.watch.log import quoted
from windrow.watch.readlog import DISCARDED, HOW
from windrow.watch.report.plain_data import pathless, strict
from windrow.watch.report.timeline import memory_data, throughput

if TYPE_CHECKING:
    from windrow.watch.graph_run import GraphRun, Link
    from windrow.watch.readlog import Log

#: Events for attempts; about 70 MB of JSON, which the viewers open in a few seconds.
MOST_EVENTS = 250_000
#: Samples of memory.
MOST_SAMPLES = 20_000
#: Arrows, and marks of outputs that were released.
MOST_ARROWS = 50_000

# Formatted by hand, which takes a quarter of the time of json.dumps.
_ATTEMPT = '{"name":%s,"cat":"%s","ph":"X","ts":%.3f,"dur":%.3f,"pid":1,"tid":%d,"args":{"task":%d,"attempt":%d,'
_CHUNK = '"file":%s,"start":%d,"stop":%d,"rows":%d,"plan":%d,"cpu_s":%.6f,"lock_s":%.6f,"bytes_read":%d%s}}'


def trace_text(
    log: Log,
    name: str,
    file_of: Callable[[int], str] = lambda _: "",
    *,
    graph: GraphRun | None = None,
    links: Sequence[Link] = (),
    most: int = MOST_EVENTS,
) -> str:
    """Return the whole trace as JSON; ``file_of`` names an input, ``graph`` and ``links`` are those of a session."""
    rare = [*_names(log, name), *_rare(log), *_counters(log, rates=graph is None)]
    if len(log.attempts) > most:
        missing = f"{len(log.attempts) - most:,} later attempts are not in this trace"
        rare.append(_mark(missing, _us(log.span), -1, "p", {}))
    arrows: Iterable[str] = ()
    if graph is not None:
        rare += _releases(graph)
        arrows = _arrows(graph, links)
    written = (json.dumps(event, allow_nan=False) for event in rare)
    events = ",\n".join(chain(written, islice(_attempts(log, file_of, graph), most), arrows))
    return f'{{"displayTimeUnit":"ms","traceEvents":[\n{events}\n]}}\n'


def _names(log: Log, name: str) -> Iterator[dict[str, Any]]:
    yield {"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": name}}
    for worker in np.unique(log.attempts.worker).tolist():
        yield {"name": "thread_name", "ph": "M", "pid": 1, "tid": worker + 1, "args": {"name": f"worker {worker}"}}


def _rare(log: Log) -> Iterator[dict[str, Any]]:
    for line in log.rare:
        about = {key: value for key, value in line.items() if key not in ("t", "event")}
        name = str(line["event"])
        if name == "Planned" and "changed" in line:
            # What was decided about an order stands out from that it was thought about.
            name = f"{'new order' if line['changed'] else 'order kept'}: {line.get('category', '')}"
        yield _mark(name, _us(line["t"]), -1, "p", strict(pathless(about)))


def _mark(name: str, time: float, worker: int, scope: str, about: Any) -> dict[str, Any]:
    return {"name": name, "ph": "i", "s": scope, "ts": time, "pid": 1, "tid": worker + 1, "args": about}


def _attempts(log: Log, file_of: Callable[[int], str], graph: GraphRun | None) -> Iterator[str]:
    all_of = log.attempts
    names = [quoted(name) for name in log.names]
    files = {number: json.dumps(file_of(number)) for number in np.unique(all_of.input).tolist()}
    columns = (
        all_of.name, all_of.begin, all_of.end, all_of.worker, all_of.task, all_of.attempt, all_of.how, all_of.input,
        all_of.start, all_of.stop, all_of.rows, all_of.plan, all_of.cpu, all_of.lock, all_of.read,
    )  # fmt: skip
    for name, begin, end, worker, task, attempt, how, source, *chunk in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        kind = "discarded" if how == DISCARDED else "task"
        text = _ATTEMPT % (names[name], kind, 1e6 * begin, 1e6 * (end - begin), worker + 1, task, attempt)
        why = log.words.get(attempt, "")
        if graph is None:
            more = f',"ended":"{HOW[how]}","why":{json.dumps(pathless(why))}' if why else ""
            yield text + _CHUNK % (files[source], *chunk, more)
        else:
            yield f"{text}{_about_call(graph, task, begin, HOW[how], why)}}}}}"


def _about_call(graph: GraphRun, number: int, begin: float, how: str, why: str) -> str:
    task = graph.tasks.get(number)
    if task is None:
        return f'"ended":"{how}"'
    more: dict[str, Any] = {"reads": task.reads[:20], "group": task.group, "why": pathless(strict(why))}
    more = {name: value for name, value in more.items() if value}
    waited = (1e6 * begin - task.called) / 1e3
    return f'"ended":"{how}","waited_ms":{waited:.3f}{"," + json.dumps(more)[1:-1] if more else ""}'


def _arrows(graph: GraphRun, links: Sequence[Link]) -> Iterator[str]:
    for number, link in enumerate(links[:MOST_ARROWS]):
        source, target = graph.tasks[link.source].last, graph.tasks[link.target].last
        if source is None or target is None:
            continue
        # An arrow must leave within its event, or the viewer ties it to another.
        leaves = min(max(link.at, source.begin), source.end)
        both = f'"name":"{"value" if link.output else "after"}","cat":"needs","id":{number},"pid":1'
        yield f'{{"ph":"s","ts":{leaves},"tid":{source.worker + 1},{both}}}'
        yield f'{{"ph":"f","ts":{target.begin},"tid":{target.worker + 1},"bp":"e",{both}}}'


def _releases(graph: GraphRun) -> Iterator[dict[str, Any]]:
    released = [
        (task, output, time)
        for task in graph.tasks.values()
        for output, times in task.released.items()
        for time in times
    ]
    for task, output, time in released[:MOST_ARROWS]:
        if task.last is not None:
            yield _mark(f"released {output}", time, task.last.worker, "t", {"output": output})


def _counters(log: Log, *, rates: bool) -> Iterator[dict[str, Any]]:
    memory = memory_data(log, MOST_SAMPLES)
    if memory is not None:
        for time, size in zip(memory["time"], memory["bytes"], strict=True):
            yield _counter("memory", time, {"MB": size / 1e6})
    speed = throughput(log) if rates else None
    if speed is None:
        return
    for number, (rows, read) in enumerate(zip(speed["rows"], speed["read"], strict=True)):
        time = number * speed["step"]
        yield _counter("rows per second", time, {"rows/s": rows})
        yield _counter("read per second", time, {"MB/s": read / 1e6})


def _counter(name: str, time: float, values: dict[str, float]) -> dict[str, Any]:
    return {"name": name, "ph": "C", "ts": _us(time), "pid": 1, "args": values}


def _us(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1e6, 3)
