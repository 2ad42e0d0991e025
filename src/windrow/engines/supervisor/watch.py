"""One worker as the supervisor watches it: its memory, its time, and whether a signal stopped it."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.engines.supervisor.process_tree import ProcessTree, descendants, end_all, look, send_signal
from windrow.engines.supervisor.status_page import WATCHFUL_S

if TYPE_CHECKING:
    from windrow.engines.supervisor.status_page import AttemptStatus, StatusPage

#: How often a worker is looked at where there are limits, or several processes, and else.
FAST_S, SLOW_S = 0.01, 0.1
#: How often a tree is searched for new processes.
DISCOVER_S = 0.05
#: How often it is asked whether a worker is stopped, and for how long it may be.
STATE_S, STOPPED_S = 0.5, 2.0
#: How long a stop signal may take to show.
FREEZE_S = 0.05


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why a worker is ended, or has ended."""

    kind: str
    resource: str = ""
    limit: float = 0.0
    used: float = 0.0


class WatchedWorker:
    """A worker, the page it writes to and the tree that grows from it."""

    def __init__(self, worker: int, incarnation: int, pid: int, page: StatusPage) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.pid = pid
        self.page = page
        self.reason: EndReason | None = None  #: once it is to be ended
        self.due = 0.0  #: when to look next
        self.peak = 0  #: bytes of the tree in this attempt
        self.exit_code = 0  #: once it has ended; negative: the signal
        self.report_by = 0.0
        self._tree = ProcessTree(pid)
        self._sequence = 0
        self._watchful_until = 0.0
        self._discovered = 0.0
        self._state_seen = 0.0
        self._was_stopped = False
        self._stopped_s = 0.0

    def close(self) -> None:
        """Let go of its files."""
        self.page.close()
        self._tree.close()

    def look(self, now: float) -> None:
        """See whether it keeps to its limits, and say when to look again."""
        if self.reason is not None:
            self._end_tree()
            self.due = now + FAST_S
            return
        if now - self._state_seen >= STATE_S:
            self._look_at_state(now)
        attempt = self.page.attempt()
        changed = self.page.sequence != self._sequence
        if changed:
            self._sequence = self.page.sequence
            self._discovered = self.peak = 0
        if attempt is not None:
            self._look_at_attempt(attempt, now)
        if self.page.limited and (changed or attempt is not None):
            self._watchful_until = now + WATCHFUL_S
        fast = now < self._watchful_until or (attempt is not None and len(self._tree) > 1)
        self.due = now + (FAST_S if fast else SLOW_S)

    def condemn(self, reason: EndReason) -> None:
        """End it, and all that descends from it; the first reason stands."""
        if self.reason is None:
            self.reason = reason
            self.due = 0.0
            self._end_tree()

    def _end_tree(self) -> None:
        # Until it is waited for, no other process can have its number.
        end_all(lambda: [self.pid, *descendants(self.pid)])

    def _look_at_attempt(self, attempt: AttemptStatus, now: float) -> None:
        """Compare what an attempt uses with its limits."""
        if now - self._discovered >= DISCOVER_S:
            self._discovered = now
            self._tree.discover()
        memory = self._tree.memory()
        if 0 < attempt.memory_limit < memory and len(self._tree) > 1:
            memory = self._tree.memory(exactly=True)  # the cheap answer errs on the side of more
        self.peak = max(self.peak, memory)
        self.page.tell_peak(attempt.sequence, self.peak)
        seconds = (time.monotonic_ns() - attempt.started_ns) / 1e9
        if 0 < attempt.memory_limit < memory:
            self._condemn_for(attempt, EndReason("exceeded", "memory", attempt.memory_limit, self.peak))
        elif 0 < attempt.seconds_limit < seconds:
            self._condemn_for(attempt, EndReason("exceeded", "seconds", attempt.seconds_limit, seconds))

    def _look_at_state(self, now: float) -> None:
        """Count for how long it is stopped, by looks: a supervisor that was stopped itself cannot tell."""
        process = look(self.pid)
        stopped = process is not None and process.state == "T"  # "t" is a debugger's business
        if not stopped:
            self._stopped_s = 0.0
        elif self._was_stopped:
            self._stopped_s += min(now - self._state_seen, STATE_S)
        self._was_stopped, self._state_seen = stopped, now
        if self._stopped_s >= STOPPED_S:
            self.condemn(EndReason("stopped", "seconds", STOPPED_S, self._stopped_s))

    def _condemn_for(self, attempt: AttemptStatus, reason: EndReason) -> None:
        """End it for what an attempt did, unless it is at another one by now."""
        process = look(self.pid)
        if process is None or not send_signal(process, signal.SIGSTOP):
            return
        give_up = time.monotonic() + FREEZE_S
        while process is not None and process.state in "RS" and time.monotonic() < give_up:
            time.sleep(0.0002)
            process = look(self.pid)
        if self.page.attempt() == attempt:
            self.condemn(reason)
        elif process is not None:
            send_signal(process, signal.SIGCONT)
