"""Why tasks waited: the time from the call of a task to its end, shared out among causes without a rest.

A moment belongs to the first cause that holds: the pause after a failure, an input that is not there, a task that must end
before, workers that are being started, and else that there was no room: a value was on its way, too little of a resource was
free, or no worker was. Of these the scheduler counts how long each of them was the cause.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from windrow.watch.graph_run import GraphRun
    from windrow.watch.log import CallRecord

RUNNING = "running"
VAIN = "vain"  #: in attempts that came to nothing
RESOURCE = "resource "  #: followed by its name

_WORDS = {
    RUNNING: "running",
    VAIN: "attempts that came to nothing",
    "inputs": "for inputs",
    "files": "for tasks that use the same files",
    "values": "for values to be brought",
    "failure": "pause after a failure",
    "memory": "for memory",
    "start": "for workers to be started",
    "worker": "for a free worker",
}
#: What every task needs; who waits for these waits for a worker.
COMMON = frozenset({"cores", "place"})


def cause_words(cause: str) -> str:
    """Write a cause as people read it."""
    if cause.startswith(RESOURCE):
        return f"for {cause.removeprefix(RESOURCE)}"
    return _WORDS.get(cause, cause)


def shared_out(
    task: CallRecord, there: Callable[[str], Sequence[int]], ended: Callable[[int], int], staffed: int = 0
) -> dict[str, int]:
    """Share out the time of one task.

    ``there`` says when an output came to be there, in order; (0,) where that is not known any more. ``ended`` says when a task
    ended; 0 where that is not known any more. ``staffed`` is when the first worker was there.
    """
    causes: dict[str, int] = {}
    clock, held, last = task.called, 0, task.end  #: all before the clock is shared out

    def wait(until: int, cause: str) -> None:
        nonlocal clock
        if until > clock:
            causes[cause] = causes.get(cause, 0) + until - clock
            clock = until

    def wait_to_launch(until: int) -> None:
        if until <= clock:
            return
        wait(min(held, until), "failure")
        for output in task.reads:
            times = there(output)
            place = bisect_right(times, until) - 1
            wait(times[place] if place >= 0 else until, "inputs")
        for number in task.after:
            wait(min(ended(number), until), "files")
        wait(min(staffed, until), "start")
        wait(until, "worker")

    for one in task.tries:
        wait_to_launch(min(one.launched, last))
        for output in task.reads if one.begin > one.launched else ():
            times = there(output)
            if times and one.launched < times[0] <= one.begin:  # it was launched ahead of that
                wait(min(times[0], last), "inputs")
        wait(min(one.begin, last), "worker")
        kept = one.how in ("done", "running")
        wait(min(one.end, last), RUNNING if kept else VAIN)
        held = one.held
        if one.how == "done":
            wait(last, "values")  # it cannot be run again, and had not ended before these were safe
            break
    wait_to_launch(last)
    _name_lacks(causes, task.lacked)
    return causes


def _name_lacks(causes: dict[str, int], lacked: Mapping[str, int]) -> None:
    """Say of the time without a place to run what the scheduler counted; nothing is added to it."""
    for name, time in lacked.items():
        cause = name if name in ("values", "memory") else RESOURCE + name
        room = causes.get("worker", 0)
        found = min(time - causes.get(cause, 0), room)
        if found > 0:
            causes[cause] = causes.get(cause, 0) + found
            if found == room:
                del causes["worker"]
            else:
                causes["worker"] = room - found


def waits(run: GraphRun) -> dict[int, dict[str, int]]:
    """Share out the time of every task."""
    tasks = run.tasks

    def there(output: str) -> Sequence[int]:
        times = run.there(output)
        return (0,) if times is None else times

    def ended(number: int) -> int:
        other = tasks.get(number)
        return 0 if other is None else other.end

    staffed = run.staffed  # which looks for it
    found = {number: shared_out(task, there, ended, staffed) for number, task in tasks.items()}
    waiting = [task for task in tasks.values() if task.state == "waiting" and not task.needs.keys() <= COMMON]
    if waiting:
        free = _free_now(run.log.offers, tasks.values())
        for task in waiting:
            _name_lacks(found[task.id], _lacking_now(task, free))
    return found


def _free_now(offers: Mapping[str, float], tasks: Collection[CallRecord]) -> dict[str, float]:
    """Say how much of each resource is left by the tasks that run at the time of looking."""
    free = {name: amount for name, amount in offers.items() if name not in COMMON}
    for task in tasks:
        if task.state == "running":
            for name in task.needs.keys() & free.keys():
                free[name] -= task.needs[name]
    return free


def _lacking_now(task: CallRecord, free: Mapping[str, float]) -> dict[str, int]:
    """Give the first resource that a task lacks, as the cause of all its time without a place to run."""
    for name in sorted(task.needs):
        if name in free and free[name] < task.needs[name] * (1 - 1e-9):
            return {name: task.end - task.called}
    return {}
