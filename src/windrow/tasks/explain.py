"""``session.explain()``: why a task, or the session, took as long as it did, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.tasks.call import Call
from windrow.watch.graph_run import RUNNING, Findings, cause_words, maker_of, waits
from windrow.watch.report.session import ending
from windrow.watch.report.tables import show_micros

if TYPE_CHECKING:
    from windrow.tasks.session import Session
    from windrow.watch.graph_run import GraphRun
    from windrow.watch.log import CallRecord

#: Tasks of the critical path that are named one by one.
MOST_PATH = 12
#: Inputs of a task that are named one by one.
MOST_INPUTS = 4


class Explanation(str):
    """A text that is shown as it is, also where Python shows what an expression gave."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def explain(session: Session, what: Any = None) -> Explanation:
    run = session.watched.run()
    if what is None:
        return Explanation("\n".join(_of_session(session, run)))
    number = _number(session, what)
    task = run.tasks.get(number)
    if task is None:
        return Explanation(_unknown(session, what, number))
    return Explanation("\n".join(_of_task(session, run, task)))


def _number(session: Session, what: Any) -> int:
    call = getattr(what, "call", None)
    if isinstance(call, Call) and call.session is session:
        return call.id
    if isinstance(what, int) and not isinstance(what, bool):
        return what
    raise UsageError(
        f"explain() takes a future of this session, the number of a task, or nothing for the session; got {what!r}"
    )


def _unknown(session: Session, what: Any, number: int) -> str:
    call = getattr(what, "call", None)
    if isinstance(call, Call) and call.key is not None and call.state == "done":
        return f"task {number}, {call.name}: did not run; its result was kept by an earlier run of the same call"
    if session.watched.watch.dropped:
        return f"task {number} is not remembered any more: only the latest are; a session with rundir= keeps all"
    return f"no task {number} is known to this session yet"


# -- one task --------------------------------------------------------------------------------------


def _of_task(session: Session, run: GraphRun, task: CallRecord) -> list[str]:
    shared = waits(run)[task.id]
    lines = [f"task {task.id}, {task.name}: {task.state}{f' ({task.why})' if task.why else ''}"]
    whole = task.end - task.called
    until = "now" if task.state in ("waiting", "running") else "its end"
    lines.append(f"  called at {show_micros(task.called)}; {show_micros(whole)} until {until}")
    for cause, spent in sorted(shared.items(), key=lambda item: -item[1]):
        words = cause_words(cause)
        words = words if cause == RUNNING or words.startswith("pause") else f"waiting {words}"
        more = _last_input(run, task) if cause == "inputs" else ""
        lines.append(f"  {show_micros(spent):>10}  {words}{more}")
    last = task.last
    if last is not None:
        lines.append(f"  ran on worker {last.worker}")
    lines += [
        f"  attempt on worker {one.worker} {one.how}{f': {one.why}' if one.why else ''}"
        for one in task.tries
        if one.how not in ("done", "running")
    ]
    lines += _released(run, task)
    lines += _about_reuse(session, task)
    return lines


def _last_input(run: GraphRun, task: CallRecord) -> str:
    times = []
    for output in task.reads:
        maker = run.tasks.get(maker_of(output))
        if maker is None:
            continue
        there = run.there(output) or [run.span]
        began = run.span if task.last is None else task.last.begin
        times.append((max((time for time in there if time <= began), default=there[-1]), maker))
    if not times:
        return ""
    when, maker = max(times, key=lambda pair: pair[0])
    verbs = {"failed": "which failed", "cancelled": "which was cancelled"}
    verb = f"there at {show_micros(when)}" if when < run.span else verbs.get(maker.state, "which goes on")
    return f", the last from task {maker.id}, {maker.name}, {verb}"


def _released(run: GraphRun, task: CallRecord) -> list[str]:
    lines = []
    last = task.last
    if task.released and last is not None:
        # By all attempts: what the first one released is not released again.
        first = min(times[0] for times in task.released.values()) - task.tries[0].begin
        lines.append(f"  released {len(task.released)} outputs as they were made, the first {show_micros(first)} after it began")  # fmt: skip
    if last is None:
        return lines
    for output in task.reads[:MOST_INPUTS]:
        maker = run.tasks.get(maker_of(output))
        made = None if maker is None else maker.last
        if maker is not None and made is not None and made.begin <= last.begin < made.end:
            lines.append(f"  began {show_micros(made.end - last.begin)} before task {maker.id}, {maker.name}, had ended: {output} was released early")  # fmt: skip
    return lines


def _about_reuse(session: Session, task: CallRecord) -> list[str]:
    why = session.reusing.reason(task.id)
    if why:
        return [f"  its result: {why}"]
    record = session.calls.get(task.id)
    if record is not None and record.key is not None:
        return ["  no earlier call was the same, so it ran; the next one gets its result"]
    return []


# -- the session -----------------------------------------------------------------------------------


def _of_session(session: Session, run: GraphRun) -> list[str]:
    found = Findings(run)
    _, headline, words = ending(run, found)
    lines = [f"session {run.name}: {headline} {words}"]
    lines += _of_time(run, found) if found.makespan else []
    places = session._driver.places
    said = () if places is None else places.in_words()
    return [*lines, *[f"  {one}" for one in (*said, *session.reusing.in_words(), *session.reusing.notes)]]


def _of_time(run: GraphRun, found: Findings) -> list[str]:
    lines: list[str] = []
    path, span = found.path, found.makespan
    if run.dropped:
        lines.append(f"  of the latest {len(run.tasks):,} tasks; a session with rundir= keeps all:")
    lines.append(
        f"  took {show_micros(span)} with {run.workers} worker{'s' if run.workers > 1 else ''}; {show_micros(found.work)} of work, "
        f"{100 * found.busy:.0f} % busy"
    )
    lines.append(
        f"  no order on as many workers is faster than {show_micros(found.least)}; the critical path is {show_micros(path.length)}, "
        f"{100 * path.length / span:.0f} % of the time:"
    )
    numbers = list(zip(path.tasks, path.parts, strict=True))
    for number, part in numbers[:MOST_PATH]:
        lines.append(f"  {show_micros(part):>10}  task {number}, {run.tasks[number].name}")
    if len(numbers) > MOST_PATH:
        lines.append(f"              and {len(numbers) - MOST_PATH} more")
    if found.waited:
        lines.append("  tasks waited, added up:")
        lines += [f"  {show_micros(spent):>10}  {cause_words(cause)}" for cause, spent in found.waited.items()]
    if found.early:
        total = sum(found.early)
        lines.append(
            f"  {len(found.early)} tasks began before one they read from had ended, by {show_micros(total)} in all"
        )
    return lines
