"""The run directory of a session: what it set out to do is written first, its tasks as they end, how it ended last."""

from __future__ import annotations

import json
import threading
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError, WindrowError
from windrow.store.rundir import RunDirectory
from windrow.watch.environment import environment, installed_packages
from windrow.watch.log import own_memory

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.tasks.history import History

#: By which a manifest says that the directory is that of a session.
SESSION = "session"

#: Seconds between two looks at what there is to write.
PAUSE_S = 0.25


class SessionLog:
    """Writes down what a watch sees, in a thread of its own: the loop would wait for the disk."""

    def __init__(self, watch: History, rundir: Any, options: dict[str, Any]) -> None:
        self._watch = watch
        self._texts: list[str] = []
        self._called = 0
        self._writing = threading.Lock()
        self._broken: OSError | None = None  #: nothing more can be written
        try:
            self._directory = RunDirectory.create(rundir)
            self._directory.write_manifest(
                {
                    "windrow": __version__,
                    SESSION: watch.name,
                    "state": "running",
                    "started": _now(),
                    "options": options,
                    "environment": environment(),
                    "packages": installed_packages(),
                }
            )
            self._stream = self._directory.log.open("w", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"rundir= {rundir} cannot be written to: {error}") from error
        self._memory = own_memory()
        # The loop also hears nothing while long tasks run, and a session may be killed then.
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write_on, name="windrow log", daemon=True)
        self._thread.start()
        watch.written = self._texts.append

    @property
    def path(self) -> Path:
        """The directory."""
        return self._directory.path

    def _write_on(self) -> None:
        while not self._stop.wait(PAUSE_S):
            self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        with self._writing:
            # The loop waits for the watch, and must not for the disk.
            lines = self._lines()
            if not lines or self._broken is not None or self._stream.closed:
                return
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except OSError as error:
                # A full disk must not take hours of work with it.
                self._broken = error

    def _lines(self) -> list[str]:
        """Take what was collected."""
        with self._watch.lock:
            lines, self._texts[:] = list(self._texts), []
            called, now = self._watch.counts["called"], self._watch.now()
        if called != self._called:  # of a session that is killed it says how much is missing
            self._called = called
            lines.append(json.dumps({"t": now, "event": "called", "tasks": called}) + "\n")
        if lines:
            memory = {"t": now, "event": "memory", "rss": self._memory()}
            lines.append(json.dumps(memory) + "\n")
        return lines

    def close(self, error: BaseException | str | None) -> None:
        """Write the rest, and how the session ended."""
        watch = self._watch
        self._stop.set()
        self._thread.join()
        if watch.reused:
            line = {"t": watch.now(), "event": "reused", "names": watch.reused}
            self._texts.append(json.dumps(line) + "\n")
        self.flush()
        try:
            self._end(error)
        except OSError as broken:
            self._broken = self._broken or broken
        finally:
            self._directory.close()
        if self._broken is not None:
            warnings.warn(
                f"the log of the session in {self._directory.path} is not complete: {self._broken}; its results are not "
                "touched by that",
                stacklevel=2,
            )

    def _end(self, error: BaseException | str | None) -> None:
        watch = self._watch
        self._stream.close()
        self._directory.close_log()
        facts: dict[str, Any] = {"state": "complete", "ended": _now(), "tasks": dict(watch.counts)}
        if error is not None:
            said = isinstance(error, str | WindrowError)
            words = str(error) if said else f"{type(error).__name__}: {error}"
            facts |= {"state": "failed", "error": words}
        self._directory.write_manifest(facts)

    def lines(self) -> Path:
        """Bring the log up to date and say where it is."""
        self.flush()
        return self._directory.log

    def manifest(self) -> dict[str, Any]:
        """Give what is known of the session."""
        return self._directory.read_manifest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
