"""The run directory of a session: what it set out to do is written first, its tasks as they end, how it ended last."""

from __future__ import annotations

import threading
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError, WindrowError
from windrow.store.rundir import RunDirectory
from windrow.watch.environment import environment, installed_packages
from windrow.watch.log import LogFile, own_memory

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.tasks.history import History

#: Seconds between two looks at what there is to write.
PAUSE_S = 0.25


class SessionLog(LogFile):
    """Writes down what a history sees, in a thread of its own: the loop would wait for the disk."""

    def __init__(self, watch: History, rundir: Any, options: dict[str, Any]) -> None:
        self._watch = watch
        self._called = 0
        self._writing = threading.Lock()
        try:
            self._directory = RunDirectory.create(rundir)
            self._directory.write_manifest(
                {
                    "windrow": __version__,
                    "session": watch.name,
                    "state": "running",
                    "started": _now(),
                    "options": options,
                    "environment": environment(),
                    "packages": installed_packages(),
                }
            )
            super().__init__(self._directory.log.open("w", encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"rundir= {rundir} cannot be written to: {error}") from error
        self._memory = own_memory()
        # The loop also hears nothing while long tasks run, and a session may be killed then.
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="windrow log", daemon=True)
        self._thread.start()
        watch.written = self.add

    def _write_on(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        with self._writing:
            self.write(self.take())

    def take(self) -> str:
        """Give what was collected, and forget it."""
        # The loop waits for the history, and must not for the disk.
        with self._watch.lock:
            called, now = self._watch.counts["called"], self._watch.now()
            if called != self._called:  # of a session that is killed it says how much is missing
                self._called = called
                self.note(now, "called", tasks=called)
            if self._lines:
                self.note(now, "memory", rss=self._memory())
            return super().take()

    def close(self, error: BaseException | str | None) -> None:
        """Write the rest, and how the session ended."""
        watch = self._watch
        self._stop.set()
        self._thread.join()
        # Always written: it says how long the session was, also if everything else is in the log already.
        self.note(watch.now(), "reused", names=watch.reused)
        broken = self.close_stream()
        facts: dict[str, Any] = {"state": "complete", "ended": _now(), "tasks": dict(watch.counts)}
        if error is not None:
            said = isinstance(error, str | WindrowError)
            words = str(error) if said else f"{type(error).__name__}: {error}"
            facts |= {"state": "failed", "error": words}
        try:
            self._directory.close_log()
            self._directory.write_manifest(facts)
        except OSError as failed:
            broken = broken or failed
        finally:
            self._directory.close()
        if broken is not None:
            warnings.warn(
                f"the log of the session in {self._directory.path} is not complete: {broken}; its results are not "
                "touched by that",
                stacklevel=2,
            )

    def lines(self) -> Path:
        """Bring the log up to date and say where it is."""
        self.flush()
        return self._directory.log

    def manifest(self) -> dict[str, Any]:
        """Give what is known of the session."""
        return self._directory.read_manifest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
