"""The report of a session: one HTML page and a trace, from what is known of its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.units import format_count, format_seconds
from windrow.watch.graph_run import RUNNING, Findings, cause_words
from windrow.watch.report.memory import calls_table
from windrow.watch.report.page import build_page, timeline_section, write_text
from windrow.watch.report.plain_data import pathless, strict, without_paths
from windrow.watch.report.run import environment_facts
from windrow.watch.report.tables import heading, hint, listed, plural, show_micros, table, tiles, verdict
from windrow.watch.report.timeline import memory_data, throughput, timeline
from windrow.watch.task_graph import task_graph
from windrow.watch.trace import trace_text

if TYPE_CHECKING:
    from windrow.watch.graph_run import GraphRun
    from windrow.watch.log import CallRecord

SCRIPTS = ("timeline.js",)

#: Nodes of the drawing in a page, which is looked at as a whole.
MOST_NODES = 60
#: Lines of the tables.
MOST_LINES = 100
MOST_PATH = 60
MOST_WAITED = 10


def write_session_report(run: GraphRun, page: Path, trace: Path, environment: Any) -> tuple[bool, str]:
    """Write the page and the trace of a session; return whether it is complete and how it ended, in words."""
    found = Findings(run)
    write_text(page, session_page(run, found, environment))
    write_text(trace, trace_text(run.log, run.name, graph=run, links=found.links))
    state, headline, words = ending(run, found)
    return state == "complete", f"{headline} {words}"


def session_page(run: GraphRun, found: Findings, environment: Any) -> str:
    facts = {name: run.facts[name] for name in ("started", "ended") if run.facts.get(name)}
    graph = task_graph(run, MOST_NODES).svg()
    surroundings = pathless(strict({**facts, **environment}))
    memory = calls_table(run.facts.get("memory") or ())
    sections = (
        ("summary", "Summary", _summary(run, found)),
        ("names", "Tasks", _names(run, found)),
        (
            "graph",
            "Graph",
            f'<div class="scroll drawing" tabindex="0">{graph}</div>' if run.tasks else hint(_nothing(run)),
        ),
        timeline_section({"rows": "Tasks per second over time"}, run.log),
        *([("memory", "Memory of calls", memory)] if memory else []),
        ("path", "Critical path", _path(run, found)),
        ("waiting", "Waiting", _waiting(run, found)),
        ("failures", "Failures", _failures(run)),
        ("environment", "Environment", environment_facts(surroundings)),
    )
    version = str(run.facts.get("windrow") or environment.get("windrow", ""))
    return build_page(run.name, sections, _drawn(run), SCRIPTS, version)


def ending(run: GraphRun, found: Findings) -> tuple[str, str, str]:
    failed = sum(one.failed for one in found.names)
    cancelled = sum(one.cancelled for one in found.names)
    done = sum(one.done for one in found.names)
    reused = sum(run.log.reused.values())
    tasks = found.tasks if run.over else max(found.tasks, run.log.called)
    left = tasks - failed - cancelled - done
    parts = [f"{done:,} of {tasks:,} tasks are done"]
    counts = ((failed, "failed"), (cancelled, "were cancelled"), (left, "have not ended"))
    parts += [f"{count:,} {word}" for count, word in counts if count]
    if reused:
        parts.append(f"{plural(reused, 'call')} got the result of an earlier one")
    if reused and not tasks:
        parts = [f"nothing had to run: all {plural(reused, 'call')} got the result of an earlier one"]
    error = run.facts.get("error")
    why = f" It ended with an error: {without_paths(str(error))}" if error else ""
    words = f"{', '.join(parts)}.{why}"
    if not run.over:
        missing = tasks - found.tasks
        if missing:
            words += (
                f" It was killed, or is still going on: {missing:,} of these tasks had been called and are not in the log, "
                "where tasks are written when they end."
            )
        return "unfinished", "This session had not ended:", words
    state = "complete" if done == found.tasks and not error else "incomplete"
    return state, f"{state.capitalize()}:", words


def _nothing(run: GraphRun) -> str:
    return "No task ran: all results were there already." if run.log.reused else "No task was called."


def _summary(run: GraphRun, found: Findings) -> str:
    span, length = found.makespan, found.path.length
    numbers: list[tuple[str, ...]] = [(format_count(found.tasks), "tasks", plural(len(found.names), "name"))]
    if run.log.reused:
        numbers.append((format_count(sum(run.log.reused.values())), "reused", "results of earlier calls"))
    if span:
        numbers.append((show_micros(span), "from the first call to the last end"))
        where = f"engine: {run.engine}" if run.engine else ""
        numbers.append((str(run.workers), "worker" if run.workers == 1 else "workers", where))
        numbers.append((f"{100 * found.busy:.0f} %", "busy", f"{show_micros(found.work)} of work"))
        numbers.append((show_micros(length), "critical path", f"{100 * length / span:.0f} % of the time"))
        bound = "work / cores" if found.least > length else "critical path"
        numbers.append((show_micros(found.least), "at least needed", f"bound by {bound}"))
    dropped = sum(sums.count for sums in run.dropped.values())
    about = (
        f"Times, graph and charts are those of the latest {len(run.tasks):,} tasks; the {dropped:,} before them are only "
        "in the table of tasks. A session with rundir= keeps all one by one."
    )
    return "\n".join((verdict(*ending(run, found)), tiles(numbers), hint(about if dropped else "")))


def _names(run: GraphRun, found: Findings) -> str:
    if not found.names:
        return hint(_nothing(run))
    columns = (
        ("task", "name", "name"), ("calls", "count", "count"), ("time", "time", "micros bar"),
        ("mean", "mean", "micros"), ("longest", "longest", "micros"),
        ("mean wait", lambda one: one.waited / max(one.count, 1), "micros"),
        ("failed", "failed", "bad"), ("cancelled", "cancelled", "some"), ("retries", "retries", "some"),
        ("reused", "reused", "some"),
    )  # fmt: skip
    return table(found.names, columns, most=MOST_LINES, things="names")


def _path(run: GraphRun, found: Findings) -> str:
    path = found.path
    if not path.tasks:
        return hint("No task ran.")
    words = (
        f"The longest chain of tasks that need each other takes {show_micros(path.length)}, "
        f"{100 * path.length / max(found.makespan, 1):.0f} % of the {show_micros(found.makespan)} it took. However many "
        f"workers there are, it is not faster; with {plural(run.workers, 'worker')} and {show_micros(found.work)} of work "
        f"it takes at least {show_micros(found.least)}. Where an output was released early, only the time until then counts."
    )
    if found.early:
        total = show_micros(sum(found.early))
        words += f" {plural(len(found.early), 'task')} began before one they read from had ended, by {total} in all."

    def remark(step: tuple[Any, ...]) -> str:
        full = step[3].end - step[3].begin
        return f"of {show_micros(full)}, then released" if step[1] < full else ""

    steps = [
        (number, part, run.tasks[number].name, run.tasks[number].last)
        for number, part in zip(path.tasks, path.parts, strict=True)
    ]
    columns = (
        ("task", 2, "name"), ("number", 0, "number"), ("began at", lambda step: step[3].begin - found.first, "micros"),
        ("time", 1, "micros bar"), ("", remark, "remark"), ("worker", lambda step: step[3].worker, "number"),
    )  # fmt: skip
    return hint(words) + table(steps, columns, most=MOST_PATH, things="tasks")


def _waiting(run: GraphRun, found: Findings) -> str:
    total = sum(found.waited.values())
    if not total:
        return hint("No task waited.")
    causes = (
        ("waited", lambda one: cause_words(one[0]), "name"), ("over all tasks", 1, "micros"),
        ("share", lambda one: one[1] / total, "share"),
    )  # fmt: skip
    by_cause = table(found.waited.items(), causes)

    def waited(task: CallRecord) -> int:
        return task.end - task.called - found.waits[task.id].get(RUNNING, 0)

    def causes_of(task: CallRecord) -> str:
        shared = found.waits[task.id].items()
        parts = sorted(((spent, cause) for cause, spent in shared if cause != RUNNING), reverse=True)
        return ", ".join(f"{show_micros(spent)} {cause_words(cause)}" for spent, cause in parts)

    columns = (
        ("task", "name", "name"), ("number", "id", "number"), ("waited", waited, "micros"),
        ("because of", causes_of, "words"),
    )  # fmt: skip
    longest = table(sorted(run.tasks.values(), key=waited, reverse=True)[:MOST_WAITED], columns)
    return by_cause + heading("Those that waited longest") + longest


def _failures(run: GraphRun) -> str:
    tasks = [task for task in run.tasks.values() if task.state == "failed" or len(task.tries) > 1]
    tasks.sort(key=lambda task: (task.state != "failed", task.id))
    lost = [line for line in run.log.rare if line["event"] == "WorkerLost"]
    if not tasks and not lost:
        return hint("No task failed, none was tried again, and no worker was lost.")
    text = ""
    if tasks:
        columns = (
            ("task", "name", "name"), ("number", "id", "number"), ("ended", "state", "state"),
            ("attempts", lambda task: len(task.tries), "number"), ("why", _why, "words"),
        )  # fmt: skip
        text = table(tasks, columns, most=MOST_LINES, things="tasks")
    if lost:
        lines = [
            f"Worker {line.get('worker')} was lost at {format_seconds(line['t'])}: {line.get('failure', '')}"
            for line in lost
        ]
        text += listed([without_paths(line) for line in lines], "lost workers", MOST_WAITED)
    return text


def _why(task: CallRecord) -> str:
    """Say how the attempts of a task ended; what they have in common is said once."""
    ways = [f"{one.how}{f' ({one.why})' if one.why else ''}" for one in task.tries if one.how != "done"]
    different = list(dict.fromkeys(ways))
    return without_paths("; ".join(different) or task.why)


def _drawn(run: GraphRun) -> dict[str, Any]:
    log = run.log
    speed = throughput(log)
    return {
        "unfinished": not run.over,
        "counted": "tasks",
        "timeline": timeline(log, "other tasks"),
        "throughput": speed and {"step": speed["step"], "rows": speed["rows"]},
        "memory": memory_data(log),
    }
