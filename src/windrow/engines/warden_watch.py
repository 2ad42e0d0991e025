"""One worker as the warden's server watches it: its memory, its time, and whether somebody stopped it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.engines.page import Sleep
from windrow.engines.tree import Tree, descendants, end_all, look, send_signal

if TYPE_CHECKING:
    from windrow.engines.page import Attempt, Page

__all__ = ["ACTIVE_S", "FAST_S", "Verdict", "Watched"]

#: How often memory is looked at where there is a limit, or several processes.
FAST_S = 0.01
#: How often a tree is searched for new processes.
DISCOVER_S = 0.05
#: How often a worker without limits is looked at while it works, and while it does not.
ACTIVE_S, IDLE_S = 0.1, 1.0
#: How often it is asked whether a worker is stopped, and for how long it may be.
STATE_S, STOPPED_S = 0.5, 2.0
#: How long a stop signal may take to show.
FREEZE_S = 0.05


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a worker is ended, or has ended."""

    kind: str
    resource: str = ""
    limit: float = 0.0
    used: float = 0.0


class Watched:
    """A worker, the page it writes to and the tree that grows from it."""

    def __init__(self, worker: int, incarnation: int, pid: int, page: Page) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.pid = pid
        self.page = page
        self.verdict: Verdict | None = None  #: once it is to be ended
        self.due = 0.0  #: when to look next
        self.peak = 0  #: bytes of the tree in this attempt
        self.exit_code = 0  #: once it has ended; negative: the signal
        self.report_by = 0.0
        self._tree = Tree(pid)
        self._sequence = 0
        self._discovered = 0.0
        self._state_seen = 0.0
        self._was_stopped = False
        self._stopped_s = 0.0

    def close(self) -> None:
        """Let go of its files."""
        self.page.close()
        self._tree.close()

    def tell_asleep(self, sleep: Sleep) -> None:
        """Ask it to ring, or not to; if it should have rung just before, it is looked at now."""
        self.page.tell_asleep(sleep)
        rings = sleep == Sleep.DEEP or (sleep == Sleep.LIGHT and self.page.limited)
        if rings and self.page.sequence != self._sequence:
            self.due = 0.0

    @property
    def limits_changed(self) -> bool:
        """Whether it began something with limits, or ended it, since the last look: nobody rings up a server that is awake."""
        return self.page.sequence != self._sequence and self.page.limited

    def look(self, now: float) -> None:
        """See whether it keeps to its limits, and say when to look again."""
        if self.verdict is None:
            self.due = now + self._look(now)
        else:
            self._end_tree()
            self.due = now + FAST_S

    def condemn(self, verdict: Verdict) -> None:
        """End it, and all that descends from it; the first verdict stands."""
        if self.verdict is None:
            self.verdict = verdict
            self.due = 0.0
            self._end_tree()

    def _end_tree(self) -> None:
        # Until it is waited for, nobody else can have its number.
        end_all(lambda: [self.pid, *descendants(self.pid)])

    def _look(self, now: float) -> float:
        """Look; return how many seconds later to look again."""
        if now - self._state_seen >= STATE_S:
            self._look_at_state(now)
        changed = self._sequence != self.page.sequence
        self._sequence = self.page.sequence
        attempt = self.page.attempt()
        if changed:
            self.peak = 0
        if attempt is None:
            # Between two attempts with limits it is not worth falling asleep and being rung up.
            return IDLE_S if not changed else FAST_S if self.page.limited else ACTIVE_S
        if changed or now - self._discovered >= DISCOVER_S:
            self._discovered = now
            self._tree.discover()
        memory = self._memory(attempt)
        seconds = (time.monotonic_ns() - attempt.started_ns) / 1e9
        if 0 < attempt.memory_limit < memory:
            limit = attempt.memory_limit
            self._condemn_for(attempt, Verdict("exceeded", "memory", limit, self.peak))
        elif 0 < attempt.seconds_limit < seconds:
            limit_s = attempt.seconds_limit
            self._condemn_for(attempt, Verdict("exceeded", "seconds", limit_s, seconds))
        if attempt.memory_limit or len(self._tree) > 1:
            return FAST_S
        left = attempt.seconds_limit - seconds if attempt.seconds_limit else ACTIVE_S
        return min(max(left, 0.001), ACTIVE_S)

    def _memory(self, attempt: Attempt) -> int:
        memory = self._tree.memory()
        if 0 < attempt.memory_limit < memory and len(self._tree) > 1:
            memory = self._tree.memory(exactly=True)  # the cheap answer errs on the side of more
        self.peak = max(self.peak, memory)
        self.page.tell_peak(attempt.sequence, self.peak)
        return memory

    def _look_at_state(self, now: float) -> None:
        """Count for how long it is stopped, by looks: a server that was stopped itself cannot tell."""
        process = look(self.pid)
        stopped = process is not None and process.state == "T"  # "t" is a debugger's business
        if not stopped:
            self._stopped_s = 0.0
        elif self._was_stopped:
            self._stopped_s += min(now - self._state_seen, STATE_S)
        self._was_stopped, self._state_seen = stopped, now
        if self._stopped_s >= STOPPED_S:
            self.condemn(Verdict("stopped", "seconds", STOPPED_S, self._stopped_s))

    def _condemn_for(self, attempt: Attempt, verdict: Verdict) -> None:
        """End it for what an attempt did, unless it is at another one by now."""
        process = look(self.pid)
        if process is None or not send_signal(process, signal.SIGSTOP):
            return
        give_up = time.monotonic() + FREEZE_S
        while process is not None and process.state in "RS" and time.monotonic() < give_up:
            time.sleep(0.0002)
            process = look(self.pid)
        if self.page.attempt() == attempt:
            self.condemn(verdict)
        elif process is not None:
            send_signal(process, signal.SIGCONT)
