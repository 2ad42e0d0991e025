"""The run directory of a session: what it set out to do is written first, its tasks as they end, how it ended last."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError, WindrowError
from windrow.store.rundir import RunDirectory
from windrow.watch.environment import environment, installed_packages
from windrow.watch.log import own_memory
from windrow.watch.report_tasks_log import task_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.tasks.watching import Entry, Watch

__all__ = ["SESSION", "SessionLog"]

#: By which a manifest says that the directory is that of a session.
SESSION = "session"

#: Tasks whose lines are written together, and microseconds after which even fewer are.
PIECE, PAUSE_US = 500, 1_000_000
MEMORY_EVERY_US = 250_000


class SessionLog:
    """Writes down what a watch sees; an observer of the loop too, which comes after the watch."""

    def __init__(self, watch: Watch, rundir: Any, options: dict[str, Any]) -> None:
        self._watch = watch
        self._ended: list[Entry] = []
        self._rare: list[dict[str, Any]] = []
        self._written = self._looked = 0
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
        watch.ended = self._ended.append
        watch.rarely = self._rare.append

    @property
    def path(self) -> Path:
        """The directory."""
        return self._directory.path

    def __call__(
        self, events: Sequence[Event], commands: Sequence[Command], now: float
    ) -> None:  # an observer of the loop
        """Write when there is enough, or when it is time."""
        del events, commands, now
        time = self._watch.now()
        if time - self._looked >= MEMORY_EVERY_US:
            self._looked = time
            with self._watch.lock:
                self._rare.append({"t": time, "event": "memory", "rss": self._memory()})
        if len(self._ended) >= PIECE or time - self._written >= PAUSE_US:
            self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        if self._stream.closed:
            return
        with self._watch.lock:
            ended, self._ended[:] = list(self._ended), []
            rare, self._rare[:] = list(self._rare), []
            lines = [json.dumps(line) + "\n" for line in rare]
            lines += [task_line(entry.raw(), entry.raw_tries()) for entry in ended]
            self._written = self._watch.now()
            self._stream.write("".join(lines))
            self._stream.flush()

    def close(self, error: BaseException | str | None) -> None:
        """Write the rest, and how the session ended."""
        watch = self._watch
        self._rare.append({"t": watch.now(), "event": "memory", "rss": self._memory()})
        if watch.reused:
            self._rare.append({"t": watch.now(), "event": "reused", "names": watch.reused})
        self.flush()
        self._stream.close()
        self._directory.close_log()
        facts: dict[str, Any] = {"state": "complete", "ended": _now(), "tasks": dict(watch.counts)}
        if error is not None:
            said = isinstance(error, str | WindrowError)
            words = str(error) if said else f"{type(error).__name__}: {error}"
            facts |= {"state": "failed", "error": words}
        self._directory.write_manifest(facts)
        self._directory.close()

    def lines(self) -> Path:
        """Bring the log up to date and say where it is."""
        self.flush()
        return self._directory.log

    def manifest(self) -> dict[str, Any]:
        """Give what is known of the session."""
        return self._directory.read_manifest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
