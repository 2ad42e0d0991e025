"""The parts of a session's report that are text and tables: HTML from what was found, everything escaped."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING

from windrow.units import format_count, format_seconds
from windrow.watch.report_pieces import hint, more, share_bar, table, tile
from windrow.watch.report_words import without_paths
from windrow.watch.waiting import RUNNING, cause_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.watch.graph_runs import GraphRun, Ran
    from windrow.watch.report_tasks_findings import Findings

__all__ = ["early", "failures", "names", "path", "summary", "verdict", "waiting"]

#: Lines of a table that are shown; the others are counted.
MOST_LINES = 100
MOST_PATH = 60

_WAY = {
    "running": "a task ran",
    "worker": "a task that could run waited for a place",
    "program": "the program had not called the next task yet",
}


def time(micros: float) -> str:
    """Write a time."""
    return format_seconds(micros / 1e6) if micros else "0 s"


def verdict(run: GraphRun, found: Findings) -> tuple[str, str, str]:
    """Say how it ended: a state, a headline and a sentence."""
    failed = sum(one.failed for one in found.names)
    cancelled = sum(one.cancelled for one in found.names)
    done = sum(one.done for one in found.names)
    tasks = found.tasks if run.over else max(found.tasks, run.called)
    left = tasks - failed - cancelled - done
    parts = [f"{done:,} of {tasks:,} tasks are done"]
    parts += [f"{count:,} {word}" for count, word in ((failed, "failed"), (cancelled, "were cancelled"), (left, "have not ended")) if count]  # fmt: skip
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


def summary(run: GraphRun, found: Findings) -> str:
    """Write the heading: how it ended, and the numbers one looks for first."""
    state, headline, words = verdict(run, found)
    span, length = found.makespan, found.path.length
    names = "1 name" if len(found.names) == 1 else f"{len(found.names):,} names"
    tiles = [tile(format_count(found.tasks), "tasks", names)]
    if span:
        tiles.append(tile(time(span), "from the first call to the last end"))
        busy = found.work / (span * run.workers)
        where = f"engine: {run.engine}" if run.engine else ""
        tiles.append(tile(str(run.workers), "worker" if run.workers == 1 else "workers", where))
        tiles.append(tile(f"{100 * min(busy, 1.0):.0f} %", "busy", f"{time(found.work)} of work"))
        tiles.append(tile(time(length), "critical path", f"{100 * length / span:.0f} % of the time"))
        bound = "work / workers" if found.least > length else "critical path"
        tiles.append(tile(time(found.least), "at least needed", f"bound by {bound}"))
    return "\n".join(
        [
            f'<p class="verdict {state}"><strong>{escape(headline)}</strong> {escape(words)}</p>',
            f'<div class="tiles">{"".join(tiles)}</div>',
            _way_bar(found),
            _about_dropped(run),
        ]
    )


def _about_dropped(run: GraphRun) -> str:
    dropped = sum(sums.count for sums in run.dropped.values())
    if not dropped:
        return ""
    return hint(
        f"Times, graph and charts are those of the latest {len(run.tasks):,} tasks; the {dropped:,} before them are only "
        "in the table of tasks. A session with rundir= keeps all one by one."
    )


def _way_bar(found: Findings) -> str:
    """Draw what the time was made of, going back from the last end to what was waited for."""
    sums: dict[str, int] = defaultdict(int)
    for one in found.way:
        sums[one.kind] += one.end - one.begin
    total = sum(sums.values())
    if not total:
        return ""
    kinds = (
        ("running", "cpu", "tasks that others waited for"),
        ("worker", "lock", "waiting for a place to run"),
        ("program", "waiting", "the program"),
    )
    return share_bar(
        "What the time was spent on, back from the last end",
        ((look, what, _WAY[kind], sums[kind] / total) for kind, look, what in kinds),
    )


def names(found: Findings) -> str:
    """Write the table of tasks by name."""
    if not found.names:
        return hint("No task was called.")
    most = max(one.time for one in found.names) or 1
    rows = []
    for one in found.names[:MOST_LINES]:
        bar = f'<span class="bar" style="width:{100 * one.time / most:.1f}%"></span>'
        waited = sum(one.waited.values()) / max(one.count, 1)
        rows.append(
            f'<tr><th scope="row">{escape(one.name)}</th><td>{one.count:,}</td>'
            f'<td class="barcell">{bar}<span>{time(one.time)}</span></td><td>{time(one.mean)}</td>'
            f"<td>{time(one.longest)}</td><td>{time(waited)}</td>{_count(one.failed, bad=True)}"
            f"{_count(one.cancelled)}{_count(one.retries)}{_count(one.reused)}</tr>"
        )
    heads = ("task", "calls", "time", "mean", "longest", "mean wait", "failed", "cancelled", "retries", "reused")  # fmt: skip
    return table(heads, rows, left=1) + more(len(found.names) - MOST_LINES, "names")


def _count(number: int, *, bad: bool = False) -> str:
    if not number:
        return '<td class="kind">-</td>'
    return f'<td class="kind failed">{number:,}</td>' if bad else f"<td>{number:,}</td>"


def path(run: GraphRun, found: Findings) -> str:
    """Write the critical path as a table."""
    chain = found.path
    if not chain.tasks:
        return hint("No task ran.")
    words = (
        f"The longest chain of tasks that need each other takes {time(chain.length)}, "
        f"{100 * chain.length / max(found.makespan, 1):.0f} % of the {time(found.makespan)} it took. However many "
        f"workers there are, it is not faster; with {run.workers} and {time(found.work)} of work it takes at least "
        f"{time(found.least)}. Where an output was released early, only the time until then counts."
    )
    rows = []
    shown = _ends(len(chain.tasks))
    most = max(chain.parts) or 1
    for place in shown:
        number, part = chain.tasks[place], chain.parts[place]
        task = run.tasks[number]
        last = task.last
        assert last is not None
        bar = f'<span class="bar" style="width:{100 * part / most:.1f}%"></span>'
        full = last.end - last.begin
        remark = f"of {time(full)}, then released" if part < full else ""
        rows.append(
            f'<tr><th scope="row">{escape(task.name)}</th><td>{number}</td><td>{time(last.begin - found.first)}</td>'
            f'<td class="barcell">{bar}<span>{time(part)}</span></td><td class="remark">{remark}</td>'
            f"<td>{last.worker}</td></tr>"
        )
        if len(shown) < len(chain.tasks) and place == MOST_PATH // 2 - 1:
            left = len(chain.tasks) - len(shown)
            rows.append(f'<tr><td colspan="6" class="left kind">{left:,} more</td></tr>')
    heads = ("task", "number", "began at", "time", "", "worker")
    return hint(escape(words)) + table(heads, rows, left=(0, 4))


def _ends(length: int) -> list[int]:
    """Choose the first and last of a long list."""
    if length <= MOST_PATH:
        return list(range(length))
    half = MOST_PATH // 2
    return [*range(half), *range(length - half, length)]


def waiting(run: GraphRun, found: Findings) -> str:
    """Write what tasks waited for: by cause, by name, and those that waited longest."""
    total = sum(found.waited.values())
    if not total:
        return hint("No task waited.")
    rows = [
        f'<tr><th scope="row">{escape(cause_words(cause))}</th><td>{time(spent)}</td><td>{100 * spent / total:.1f} %</td></tr>'
        for cause, spent in found.waited.items()
    ]
    text = table(("waited", "over all tasks", "share"), rows, left=1)
    longest = sorted(run.tasks, key=lambda number: found.waits[number].get(RUNNING, 0) - _whole(run.tasks[number]))[:10]
    lines = [
        f'<tr><th scope="row">{escape(run.tasks[number].name)}</th><td>{number}</td>'
        f"<td>{time(_whole(run.tasks[number]) - found.waits[number].get(RUNNING, 0))}</td>"
        f'<td class="words left">{escape(_causes(found.waits[number]))}</td></tr>'
        for number in longest
    ]
    return f"{text}<h3>Those that waited longest</h3>" + table(
        ("task", "number", "waited", "because of"), lines, left=(0, 3)
    )


def _whole(task: Ran) -> int:
    return task.end - task.called


def _causes(shared: Mapping[str, int]) -> str:
    parts = sorted(((spent, cause) for cause, spent in shared.items() if cause != RUNNING), reverse=True)
    return ", ".join(f"{time(spent)} {cause_words(cause)}" for spent, cause in parts)


def early(run: GraphRun, found: Findings) -> str:
    """Write which tasks began before what they read from had ended."""
    if not found.early:
        return hint(
            "No task began before the ones it reads from had ended. Tasks with several outputs release each as it is made: "
            "generators by themselves, functions with wr.ready."
        )
    pairs: dict[tuple[str, str], list[int]] = defaultdict(list)
    for one in found.early:
        pairs[run.tasks[one.source].name, run.tasks[one.target].name].append(one.by)
    rows = [
        f'<tr><th scope="row">{escape(source)}</th><td class="left">{escape(target)}</td><td>{len(times):,}</td>'
        f"<td>{time(sum(times))}</td><td>{time(max(times))}</td></tr>"
        for (source, target), times in sorted(pairs.items(), key=lambda item: -sum(item[1]))
    ]
    total = sum(one.by for one in found.early)
    released = sum(len({name for name, _ in task.released}) for task in run.tasks.values())
    words = (
        f"{released:,} outputs were released before their task had ended; {len(found.early):,} times another began with one "
        f"before that end, by {time(total)} in all."
    )
    heads = ("from", "to", "times", "earlier, in all", "at most")
    return hint(words) + table(heads, rows[:MOST_LINES], left=2)


def failures(run: GraphRun, found: Findings) -> str:
    """Write what failed, was tried again or was lost."""
    del found
    lines = [
        (task.state != "failed", task.id, task)
        for task in run.tasks.values()
        if task.state == "failed" or len(task.tries) > 1
    ]
    lines.sort(key=lambda item: item[:2])
    lost = [line for line in run.rare if line["event"] == "WorkerLost"]
    if not lines and not lost:
        return hint("No task failed, none was tried again, and no worker was lost.")
    rows = []
    for _, number, task in lines[:MOST_LINES]:
        tries = "; ".join(f"{one.how}{f' ({one.why})' if one.why else ''}" for one in task.tries if one.how != "done")
        why = without_paths(tries or task.why)
        look = " failed" if task.state == "failed" else ""
        rows.append(
            f'<tr><th scope="row">{escape(task.name)}</th><td>{number}</td><td class="kind{look}">{task.state}</td>'
            f'<td>{len(task.tries)}</td><td class="words left">{escape(why)}</td></tr>'
        )
    text = ""
    if rows:
        heads = ("task", "number", "ended", "attempts", "why")
        text = table(heads, rows, left=(0, 4)) + more(len(lines) - MOST_LINES, "tasks")
    for line in lost[:10]:
        why = without_paths(str(line.get("why", "")))
        text += hint(escape(f"Worker {line.get('worker')} was lost at {time(line['t'])}: {why}"))
    return text + more(len(lost) - 10, "lost workers")
