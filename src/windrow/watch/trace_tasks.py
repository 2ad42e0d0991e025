"""A session as a trace that Perfetto (ui.perfetto.dev) and Chrome's tracing open.

One thread per worker and a complete event per attempt, arrows from tasks to those that read from them, a mark where an
output was released. Beyond a limit only the longest attempts have arrows and marks, as viewers show no more.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from windrow.watch.report.plain_data import pathless, strict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from windrow.watch.graph_runs import GraphRun, Link

__all__ = ["task_trace"]

#: Attempts in a trace, the longest ones if there are more; and arrows.
MOST_EVENTS = 250_000
MOST_ARROWS = 50_000

_PROCESS = 1


def task_trace(run: GraphRun, links: Sequence[Link], most: int = MOST_EVENTS) -> str:
    """Return the whole trace as JSON."""
    events = [
        event if isinstance(event, str) else json.dumps(event, allow_nan=False) for event in _events(run, links, most)
    ]
    return '{"displayTimeUnit":"ms","traceEvents":[\n' + ",\n".join(events) + "\n]}\n"


def _events(run: GraphRun, links: Sequence[Link], most: int) -> Iterator[dict[str, Any] | str]:
    yield _named("process_name", 0, run.name)
    workers = {one.worker for task in run.tasks.values() for one in task.tries}
    for worker in sorted(workers):
        yield _named("thread_name", worker + 1, f"worker {worker}")
    attempts = [(one, task) for task in run.tasks.values() for one in task.tries]
    if len(attempts) > most:
        attempts = sorted(attempts, key=lambda pair: pair[0].begin - pair[0].end)[:most]
    for one, task in attempts:
        more: dict[str, Any] = {}
        if task.reads:
            more["reads"] = task.reads[:20]
        if task.group:
            more["group"] = task.group
        if one.why:
            more["why"] = pathless(strict(one.why))
        # By hand what is in all of them: a third of the time.
        yield (
            f'{{"name":{_quoted(task.name)},"ph":"X","ts":{one.begin},"pid":{_PROCESS},"tid":{one.worker + 1},"cat":"task",'
            f'"dur":{one.end - one.begin},"args":{{"task":{task.id},"attempt":{one.attempt},"ended":"{one.how}",'
            f'"waited_ms":{(one.begin - task.called) / 1e3}{"," + json.dumps(more)[1:-1] if more else ""}}}}}'
        )
    yield from _arrows(run, links)
    for line in run.rare:
        about = {key: value for key, value in line.items() if key not in ("t", "event")}
        yield _event("i", str(line["event"]), line["t"], -1, s="p", args=pathless(strict(about)))
    for time, size in run.memory:
        yield {"name": "memory", "ph": "C", "ts": time, "pid": _PROCESS, "args": {"MB": size / 1e6}}


@lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(name)


def _arrows(run: GraphRun, links: Sequence[Link]) -> Iterator[dict[str, Any] | str]:
    for number, link in enumerate(links[:MOST_ARROWS]):
        source, target = run.tasks[link.source].last, run.tasks[link.target].last
        if source is None or target is None:
            continue
        # An arrow must leave within its event, or the viewer ties it to another.
        leaves = min(max(link.at, source.begin), source.end)
        name = "value" if link.output else "after"
        both = f'"name":"{name}","cat":"needs","id":{number},"pid":{_PROCESS}'
        yield f'{{"ph":"s","ts":{leaves},"tid":{source.worker + 1},{both}}}'
        yield f'{{"ph":"f","ts":{target.begin},"tid":{target.worker + 1},"bp":"e",{both}}}'
    count = 0
    for task in run.tasks.values():
        last = task.last
        for output, time in task.released:
            count += 1
            if last is not None and count <= MOST_ARROWS:
                about = {"output": output}
                yield _event("i", f"released {output}", time, last.worker, s="t", args=about)


def _event(kind: str, name: str, time: int, worker: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": kind, "ts": time, "pid": _PROCESS, "tid": worker + 1, **more}


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": name}}
