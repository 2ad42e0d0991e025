"""The report of a session: one HTML page that needs no network, in the style of those of pipelines."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.watch import report_tables, report_tasks_tables
from windrow.watch.files import write_whole
from windrow.watch.graph_drawing import TaskGraph
from windrow.watch.graph_nodes import nodes_and_edges
from windrow.watch.readlog import Log, Tasks
from windrow.watch.report import embedded, page_file, page_script
from windrow.watch.report_tasks_findings import Findings, find
from windrow.watch.report_timeline import memory_data, throughput, timeline
from windrow.watch.report_words import pathless, strict
from windrow.watch.trace_tasks import task_trace
from windrow.watch.waiting import RUNNING, cause_words

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.watch.graph_runs import GraphRun

__all__ = ["build_task_page", "timeline_log", "write_task_report"]

SCRIPTS = ("base.js", "tasks.js", "timeline.js")

#: Nodes of the drawing in a page, which is looked at as a whole.
MOST_NODES = 60
#: Names in the chart of waiting; a chart of more cannot be read.
MOST_BARS = 14

_MARKS = {"failed": "Failed", "lost": "WorkerLost"}
_FACTS = ("started", "ended")


def write_task_report(run: GraphRun, page: Path, trace: Path, environment: Any) -> str:
    """Write the page and the trace of a session; return how it ended, in words."""
    found = find(run)
    write_whole(page, build_task_page(run, found, environment))
    write_whole(trace, task_trace(run, found.links))
    _, headline, words = report_tasks_tables.verdict(run, found)
    return f"{headline} {words}"


def build_task_page(run: GraphRun, found: Findings, environment: Any) -> str:
    """Return the page."""
    nodes, edges = nodes_and_edges(run.tasks, MOST_NODES)
    facts = {name: run.facts[name] for name in _FACTS if run.facts.get(name)}
    surroundings = pathless(strict({**facts, **environment}))
    parts = {
        "title": escape(run.name),
        "style": page_file("page.css"),
        "charts": page_script("vendor/echarts.min.js"),
        "script": "\n".join(page_script(name) for name in SCRIPTS),
        "data": embedded(_drawn(run, found)),
        "version": escape(str(run.facts.get("windrow") or environment.get("windrow", ""))),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "summary": report_tasks_tables.summary(run, found),
        "names": report_tasks_tables.names(found),
        "graph": _graph(TaskGraph(run.name, nodes, edges, len(run.tasks))),
        "path": report_tasks_tables.path(run, found),
        "waiting": report_tasks_tables.waiting(run, found),
        "early": report_tasks_tables.early(run, found),
        "failures": report_tasks_tables.failures(run, found),
        "environment": report_tables.environment({"environment": surroundings}),
        "lognote": _about_log(run),
    }
    # All at once: what is put in is not looked at again.
    page = re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], page_file("tasks.html"))
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _graph(graph: TaskGraph) -> str:
    if not graph.nodes:
        return '<p class="hint">No task was called.</p>'
    return f'<div class="scroll drawing" tabindex="0">{graph.svg()}</div>'


def _about_log(run: GraphRun) -> str:
    if not run.unreadable:
        return ""
    return (
        f'<p class="hint">{run.unreadable:,} {"line" if run.unreadable == 1 else "lines"} of the log could not be read, as '
        "happens when a session is killed.</p>"
    )


def _drawn(run: GraphRun, found: Findings) -> dict[str, Any]:
    """Collect what the scripts draw."""
    log, names = timeline_log(run)
    lines = timeline(log, lambda number, _: names[number])
    if lines is not None:
        lines["colours"] = ["other tasks" if name == "other datasets" else name for name in lines["colours"]]  # fmt: skip
    speed = throughput(log)
    return {
        "unfinished": not run.over,
        "counted": "tasks",
        "timeline": lines,
        "throughput": speed and {"step": speed["step"], "rows": speed["rows"]},
        "memory": memory_data(log),
        "waiting": _waiting(found),
    }


def _waiting(found: Findings) -> dict[str, Any] | None:
    """Give for each name what its tasks waited for, those that waited most first."""
    names = sorted(found.names, key=lambda one: -sum(one.waited.values()))[:MOST_BARS]
    names = [one for one in names if one.waited]
    causes = [cause for cause in found.waited if any(one.waited.get(cause) for one in names)]
    if not names or not causes:
        return None
    return {
        "names": [one.name for one in names],
        "causes": [cause_words(cause) for cause in causes if cause != RUNNING],
        "seconds": [[round(one.waited.get(cause, 0) / 1e6, 6) for one in names] for cause in causes],
    }


def timeline_log(run: GraphRun) -> tuple[Log, list[str]]:
    """Give the attempts in the form that timelines are drawn from, and the names that its inputs stand for."""
    names = list(dict.fromkeys(task.name for task in run.tasks.values()))
    number = {name: place for place, name in enumerate(names)}
    rows = [
        (one.begin, one.end, one.attempt, one.worker, task.id, number[task.name], one.how != "done")
        for task in run.tasks.values()
        for one in task.tries
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    zeros = np.zeros(len(rows), dtype=np.int64)
    begin, end = columns[0] / 1e6, columns[1] / 1e6
    tasks = Tasks(
        begin=begin, end=end, wall=end - begin, cpu=end - begin, lock=0.0 * begin, read=zeros, attempt=columns[2],
        worker=columns[3], task=columns[4], input=columns[5], start=zeros, stop=zeros + 1, plan=zeros, peak=zeros,
        discarded=np.zeros(len(rows), dtype=np.bool_),
    )  # fmt: skip
    marks = [
        {"t": one.end / 1e6, "event": _MARKS[one.how], "worker": one.worker}
        for task in run.tasks.values()
        for one in task.tries
        if one.how in _MARKS
    ]
    memory = np.array(run.memory, dtype=np.float64).reshape(-1, 2)
    memory[:, 0] /= 1e6
    log = Log(
        tasks=tasks,
        memory=memory,
        rare=tuple(marks),
        counts={},
        span=run.span / 1e6,
        unreadable=run.unreadable,
        dropped=0,
    )
    return log, names
