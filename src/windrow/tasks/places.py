"""Threads or processes, for each task of a session with ``engine="auto"``: decided by what its calls on threads waited for.

A call gives the same wherever it runs, as it is packed when it is made. It begins on a thread where opening it there changes
nothing in the program; calls of a task that was seen to wait for the interpreter's lock go to processes from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic, process_time
from typing import TYPE_CHECKING

from windrow.core.records import ONE_CORE, Needs
from windrow.place.lock_watch import BUSY, SEEN_TASKS, WAITING
from windrow.shape.allocation.policy import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.core.policies import Tries
    from windrow.core.records import Measurement, Task
    from windrow.shape.allocation.policy import NodeSize
    from windrow.tasks.call import Call
    from windrow.tasks.weak_table import WeakTable

#: What workers offer, and how much of it: more than all tasks can take, as nobody is to wait for it.
THREAD, PROCESS, PLENTY = "a thread", "a process", 1e9
#: Seconds of a task's calls that must have been seen: moving costs next to nothing here.
SEEN_S = 0.1
#: Processors that calls of a task used themselves, if they are among those who hold the lock: those that sleep for 20 ms use 0.01.
OWN = 0.05


@dataclass(slots=True)
class Seen:
    """What calls of a task took on threads."""

    begin: float  #: when the first of them began, and the CPU seconds of the program then
    before: float
    calls: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    waited: float = 0.0

    def holds_lock(self, now: float, cpu: float, workers: int) -> bool:
        """Whether calls waited for the interpreter's lock: then a thread has it all the time, and the calls have it in turn."""
        if self.calls <= SEEN_TASKS or self.wall < SEEN_S:
            return False
        asked = self.cpu + self.waited  # the rest of its time a call was ready and had no processor
        busy = (cpu - self.before + self.wall - asked) / max(now - self.begin, 1e-9)
        return self.waited >= WAITING * asked and self.cpu * workers >= OWN * asked and busy >= BUSY[0]


class PlacePolicy(Allocation):
    """Grants each call a thread or a process."""

    clocks: tuple[Callable[[], float], ...] = (monotonic, process_time)  #: of what time it is, and of the program's CPU

    def __init__(
        self, calls: WeakTable[int, Call] | Mapping[int, Call], workers: int, nodes: Sequence[NodeSize] = ()
    ) -> None:
        super().__init__(nodes=nodes)
        self._calls, self._workers = calls, workers
        self._apart: dict[str, str] = {}  #: by name of a task: why its calls go to processes
        self._seen: dict[str, Seen] = {}
        self._needs: dict[tuple[Needs, str], Needs] = {}

    def grant(self, task: Task, tries: Tries) -> tuple[Needs, Needs]:
        needs, limits = super().grant(task, tries)
        name, call = task.category, self._calls.get(task.id)
        if name not in self._apart and call is not None and call.content is not None:
            alone = task.needs == ONE_CORE and task.deadline is None
            why = call.content.apart if alone else "it has limits, or needs more than a core"
            if why:
                self._apart[name] = why
        key = needs, PROCESS if name in self._apart else THREAD
        if key not in self._needs:
            self._needs[key] = Needs.of({**dict(needs.amounts), key[1]: 1})
        return self._needs[key], limits

    def seen(self, task: Task, measured: Measurement) -> bool:
        news = super().seen(task, measured)
        name = task.category
        if name in self._apart or not measured.cpu:
            return news
        now, cpu = (clock() for clock in self.clocks)
        seen = self._seen.setdefault(name, Seen(now - measured.wall, cpu - measured.cpu))
        seen.calls += 1
        seen.wall += measured.wall
        seen.cpu += measured.cpu
        seen.waited += measured.lock_wait
        if seen.holds_lock(now, cpu, self._workers):
            share = seen.waited / (seen.cpu + seen.waited)
            self._apart[name] = f"its calls waited {share:.0%} of their time for the interpreter's lock"
        return news or name in self._apart

    def in_words(self) -> list[str]:
        stay = ", ".join(one for one in self._seen if one not in self._apart)
        said = [f"on threads, as calls did not wait for the interpreter's lock: {stay}"] if stay else []
        return said + [f"in processes: {one}, as {why}" for one, why in self._apart.items()]
