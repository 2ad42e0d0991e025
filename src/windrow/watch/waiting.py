"""Why tasks waited: the time from the call of a task to its end, shared out among causes without a rest.

A moment belongs to the first cause that holds: the pause after a failure, an input that is not there, a task that must end
before, workers that are being started, a value on its way, a resource of which too little is free, and else that no worker
was free.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from windrow.watch.graph_run import GraphRun, Ran
    from windrow.watch.readlog import Brought

    _Kind = tuple[tuple[str, float], ...]  #: needs of several resources

RUNNING = "running"
VAIN = "vain"  #: in attempts that came to nothing
DOUBT = "doubt"  #: it was done, and what it had read might have been taken back
RESOURCE = "resource "  #: followed by its name

_WORDS = {
    RUNNING: "running",
    VAIN: "attempts that came to nothing",
    "inputs": "for inputs",
    "files": "for tasks that use the same files",
    "values": "for values to be brought",
    "failure": "pause after a failure",
    DOUBT: "until nothing they had read could be taken back",
    "memory": "for memory",
    "start": "for workers to be started",
    "worker": "for a free worker",
}
#: Words of the scheduler for what it counts; all others are names of resources.
_COUNTED = {
    "run": RUNNING, "queue": "worker", "worker": "worker", "inputs": "inputs", "values": "values", "pause": "failure",
}  # fmt: skip
#: What every task needs; who waits for these waits for a worker.
_COMMON = frozenset({"cores", "place"})
_UNUSED: tuple[list[int], list[float]] = ([], [])


def cause_words(cause: str) -> str:
    """Write a cause as people read it."""
    if cause.startswith(RESOURCE):
        return f"for {cause.removeprefix(RESOURCE)}"
    return _WORDS.get(cause, cause)


class Supply:
    """How much of each resource was free when; ``holds`` are (begin, end, needs) of what was taken."""

    def __init__(self, offers: Mapping[str, float], holds: Iterable[tuple[int, int, Mapping[str, float]]]) -> None:
        self._offers = offers
        changes: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for begin, end, needs in holds:
            for name, amount in needs.items():
                if name not in _COMMON and end > begin:
                    changes[name] += [(begin, amount), (end, -amount)]
        self._used = {name: _steps(of_one) for name, of_one in changes.items()}
        self._short: dict[_Kind, tuple[list[int], list[int], list[bool]]] = {}

    def lacking(self, needs: Mapping[str, float], begin: int, end: int) -> dict[str, int]:
        """Share out a time in which a task with these needs did not run, as far as a resource was the cause."""
        names = sorted(name for name in needs if name in self._offers and name not in _COMMON)
        names.sort(key=lambda name: name == "memory")
        found: dict[str, int] = {}
        # What lacks first in this order is the cause: by differences of "any of the first k lacks".
        known = 0
        for number, name in enumerate(names):
            kind = tuple((one, needs[one]) for one in names[: number + 1])
            total = self._lacked(kind, begin, end)
            if total > known:
                found["memory" if name == "memory" else RESOURCE + name] = total - known
            known = total
        return found

    def _lacked(self, kind: _Kind, begin: int, end: int) -> int:
        """Say how long between two times there was too little of any of these."""
        times, sums, lacks = self._index(kind)

        def until(time: int) -> int:
            place = bisect_right(times, time) - 1
            return sums[place] + (time - times[place] if lacks[place] else 0)

        return until(end) - until(begin)

    def _index(self, kind: _Kind) -> tuple[list[int], list[int], list[bool]]:
        """Give the times at which something changes, how long any of these lacked until each, and whether from then on."""
        found = self._short.get(kind)
        if found is None:
            changes = (time for name, _ in kind for time in self._used.get(name, _UNUSED)[0])
            times = sorted({0, *changes})
            lacks = [any(self._free(name, time) < amount * (1 - 1e-9) for name, amount in kind) for time in times]
            sums = [0]
            for place, (time, later) in enumerate(pairwise(times)):
                sums.append(sums[-1] + (later - time if lacks[place] else 0))
            found = self._short[kind] = (times, sums, lacks)
        return found

    def _free(self, name: str, time: int) -> float:
        times, used = self._used.get(name, _UNUSED)
        place = bisect_right(times, time) - 1
        return self._offers.get(name, 0.0) - (used[place] if place >= 0 else 0.0)


def _steps(changes: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    times: list[int] = []
    used: list[float] = []
    level = 0.0
    for time, amount in sorted(changes):
        level += amount
        if times and times[-1] == time:
            used[-1] = level
        else:
            times.append(time)
            used.append(level)
    return times, used


class _Account:
    """The time of one task while it is shared out, from its call on."""

    __slots__ = ("causes", "clock")

    def __init__(self, clock: int) -> None:
        self.clock = clock
        self.causes: dict[str, int] = {}

    def wait(self, until: int, cause: str) -> None:
        """From here on until then there was one cause."""
        if until > self.clock:
            self.causes[cause] = self.causes.get(cause, 0) + until - self.clock
            self.clock = until

    def wait_for_room(self, until: int, needs: Mapping[str, float], supply: Supply) -> None:
        """It had all it needed but a place to run."""
        if until <= self.clock:
            return
        rest = until - self.clock
        if not needs.keys() <= _COMMON:
            for cause, time in supply.lacking(needs, self.clock, until).items():
                self.causes[cause] = self.causes.get(cause, 0) + time
                rest -= time
        if rest:
            self.causes["worker"] = self.causes.get("worker", 0) + rest
        self.clock = until


def shared_out(
    task: Ran,
    there: Callable[[str], Sequence[int]],
    ended: Callable[[int], int],
    brought: Mapping[str, Sequence[Brought]],
    supply: Supply,
    staffed: int = 0,
) -> dict[str, int]:
    """Share out the time of one task.

    Parameters
    ----------
    there
        Says when an output came to be there, in order; (0,) where that is not known any more.
    ended
        Says when a task ended; 0 where that is not known any more.
    staffed
        When the first worker was there.
    """
    account, held, last = _Account(task.called), 0, task.end

    def wait_to_launch(until: int) -> None:
        if until <= account.clock:
            return
        account.wait(min(held, until), "failure")
        for output in task.reads:
            times = there(output)
            place = bisect_right(times, until) - 1
            account.wait(times[place] if place >= 0 else until, "inputs")
        for number in task.after:
            account.wait(min(ended(number), until), "files")
        account.wait(min(staffed, until), "start")
        if brought:
            for begin, end in _joined(task.reads, brought, account.clock, until):
                account.wait_for_room(begin, task.needs, supply)
                account.wait(end, "values")
        account.wait_for_room(until, task.needs, supply)

    for one in task.tries:
        wait_to_launch(min(one.launched, last))
        for output in task.reads if one.begin > one.launched else ():
            times = there(output)
            if times and one.launched < times[0] <= one.begin:  # it was launched ahead of that
                account.wait(min(times[0], last), "inputs")
        account.wait(min(one.begin, last), "worker")
        kept = one.how in ("done", "running")
        account.wait(min(one.end, last), RUNNING if kept else VAIN)
        held = one.held
        if one.how == "done":
            account.wait(last, DOUBT)
            break
    wait_to_launch(last)
    return account.causes


def _joined(
    outputs: Iterable[str], brought: Mapping[str, Sequence[Brought]], begin: int, end: int
) -> list[tuple[int, int]]:
    """Give the times between two in which any of these outputs was on its way, those that touch as one."""
    times = sorted(
        (max(one.begin, begin), min(one.end, end))
        for output in outputs
        for one in brought.get(output, ())
        if one.end > begin and one.begin < end
    )
    found: list[tuple[int, int]] = []
    for first, last in times:
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def waits(run: GraphRun) -> dict[int, dict[str, int]]:
    """Share out the time of every task."""
    tasks = run.tasks

    def there(output: str) -> Sequence[int]:
        times = run.there(output)
        return (0,) if times is None else times

    def ended(number: int) -> int:
        other = tasks.get(number)
        return 0 if other is None else other.end

    supply = Supply(run.log.offers, _holds(tasks.values()))
    staffed = run.staffed  # which looks for it
    brought = run.log.brought
    return {
        number: _counted(task.spent) or shared_out(task, there, ended, brought, supply, staffed)
        for number, task in tasks.items()
    }


def _counted(spent: Mapping[str, int]) -> dict[str, int]:
    """Give what the scheduler counted in the words used here."""
    found: dict[str, int] = {}
    for what, time in spent.items():
        cause = _COUNTED.get(what, RESOURCE + what)
        found[cause] = found.get(cause, 0) + time
    return found


def _holds(tasks: Collection[Ran]) -> list[tuple[int, int, Mapping[str, float]]]:
    """List what was taken when: from its launch, or from the end of the one its worker had before."""
    if all(task.needs.keys() <= _COMMON for task in tasks):
        return []
    all_tries = sorted(
        ((one.begin, one.end, one, task.needs) for task in tasks for one in task.tries), key=lambda item: item[:2]
    )
    free: dict[int, int] = {}
    found: list[tuple[int, int, Mapping[str, float]]] = []
    for _, end, one, needs in all_tries:
        begin = max(one.launched, min(free.get(one.worker, 0), one.begin))
        found.append((begin, one.heard, needs))
        free[one.worker] = end
    return found
