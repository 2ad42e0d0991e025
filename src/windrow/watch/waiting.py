"""Why tasks waited: the time from the call of a task to its end, shared out among causes without a rest.

The scheduler counts what the time of a task goes into, and its end tells. Of a task that goes on, or of which nothing was
counted, its inputs and its attempts tell as much as they can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.watch.graph_run import GraphRun
    from windrow.watch.log import CallRecord

RUNNING = "running"
WORKER = "worker"

_WORDS = {
    RUNNING: "running",
    "inputs": "for inputs",
    "values": "for values to be brought",
    "pause": "pause after a failure",
    WORKER: "for a free worker",
}
#: What every task needs; who waits for these waits for a worker.
COMMON = frozenset({"cores", "place"})
#: Causes under the names that the scheduler counts them by; others are resources.
_CAUSES = {"run": RUNNING, "queue": WORKER, **dict.fromkeys(COMMON, WORKER)}


def cause_words(cause: str) -> str:
    return _WORDS.get(cause, f"for {cause}")


def waits(run: GraphRun) -> dict[int, dict[str, int]]:
    """Share out the time of every task: for each what its time went into, in microseconds."""
    free = {name: amount for name, amount in run.log.offers.items() if name not in COMMON}
    for task in run.tasks.values():
        if task.state == "running":
            for name in task.needs.keys() & free.keys():
                free[name] -= task.needs[name]
    return {number: _counted(task) if task.spent else _looked_at(task, run, free) for number, task in run.tasks.items()}


def _counted(task: CallRecord) -> dict[str, int]:
    causes: dict[str, int] = {}
    for name, time in task.spent.items():
        cause = _CAUSES.get(name, name)
        causes[cause] = causes.get(cause, 0) + time
    # The scheduler hears of a call after it was made, and of an end after it was reached.
    rest = task.end - task.called - sum(causes.values())
    for cause in (WORKER, RUNNING, *causes):
        change = max(rest, -causes.get(cause, 0))
        causes[cause] = causes.get(cause, 0) + change
        rest -= change
    return {cause: time for cause, time in causes.items() if time}


def _looked_at(task: CallRecord, run: GraphRun, free: Mapping[str, float]) -> dict[str, int]:
    last = task.last
    begin = task.end if last is None else max(min(last.begin, task.end), task.called)
    ready = task.called
    for output in task.reads:
        times = run.there(output)
        if times is not None:
            ready = max(ready, max((time for time in times if time <= begin), default=begin))
    lacking = [name for name in sorted(task.needs) if name in free and free[name] < task.needs[name] * (1 - 1e-9)]
    place = lacking[0] if task.state == "waiting" and lacking else WORKER
    causes = {"inputs": ready - task.called, place: begin - ready, RUNNING: task.end - begin}
    return {cause: time for cause, time in causes.items() if time}
