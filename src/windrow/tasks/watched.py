"""A session that can be asked: what it remembers, the run directory where it writes that down, and the report made of it."""

from __future__ import annotations

import atexit
import sys
import threading
import warnings
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from windrow import __version__
from windrow.errors import UsageError, WindrowError
from windrow.run.garbage import collecting_less
from windrow.store.rundir import REPORT, TRACE, RunDirectory, time_text
from windrow.tasks.history import History
from windrow.watch.environment import environment, installed_packages
from windrow.watch.graph_run import graph_run
from windrow.watch.log import LogFile, own_memory
from windrow.watch.readlog import read_log
from windrow.watch.report.page import report_places

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.run.loop import Observer
    from windrow.watch.graph_run import GraphRun
    from windrow.watch.progress import SessionProgress, SessionSnapshot

#: Seconds between two looks at what there is to write.
PAUSE_S = 0.25

_open: WeakSet[Watched] = WeakSet()  #: of sessions that nobody has closed yet


@atexit.register
def _say_what_is_lost() -> None:
    for one in list(_open):
        counts = one.watch.counts
        left = counts["called"] - counts["done"] - counts["failed"] - counts["cancelled"]
        if left > 0 and sys.stderr is not None:
            sys.stderr.write(
                f"windrow: the program has ended, and session {one.watch.name!r} was not closed: {left:,} of "
                f"{counts['called']:,} tasks had not ended and are lost; use it in a with block, or call close()\n"
            )


class Watched:
    """What watches one session."""

    def __init__(
        self,
        name: str,
        engine: str,
        rundir: Any = None,
        progress: bool | Callable[[SessionSnapshot], Any] | None = None,
    ) -> None:
        self.watch = History(name, engine)
        self.rundir = None if rundir is None else Path(rundir)
        self.log: SessionLog | None = None
        self._progress = progress
        self._shown: SessionProgress | None = None
        self._over = False

    def open(self, workers: int) -> list[Observer]:
        from windrow.watch.progress import SessionProgress, choose_display

        watch, display = self.watch, choose_display(self._progress)
        if self.rundir is not None:
            options = {"engine": self.watch.engine, "workers": workers}
            self.log = SessionLog(self.watch, self.rundir, options)
        if display is not None:
            # Without a block somebody may be typing, and nobody may ever end the session, and so the line.
            self._shown = SessionProgress(
                lambda finished: watch.snapshot(workers, finished=finished),
                display,
                may_draw=lambda: watch.within or watch.closed or bool(self._progress),
            )
        _open.add(self)
        return [watch]

    def close(self, error: BaseException | str | None) -> None:
        if self._over:
            return
        self._over = True
        _open.discard(self)
        self.watch.close()
        if self._shown is not None:
            self._shown.end()
        if self.log is not None:
            self.log.close(error)

    @collecting_less()
    def run(self) -> GraphRun:
        """Say what ran so far; all of it where there is a run directory, else as far as it is remembered."""
        if self.log is None:
            return self.watch.run()
        # Before the log is brought up to date: what ends meanwhile is in it, and what is there counts.
        unfinished = self.watch.open_lines().splitlines()
        with self.log.lines().open(encoding="utf-8", errors="replace") as lines:
            log = read_log(chain(unfinished, lines), self.watch.now())
        # The log has what was reused at the end only.
        facts = {**self.log.directory.read_manifest(), "memory": self.watch.memory()}
        return graph_run(replace(log, reused=dict(self.watch.reused)), facts)

    def report(self, path: Any) -> Path:
        page, trace = report_places(self.rundir, path, REPORT, TRACE)
        _write(self.run(), page, trace)
        return page


class SessionLog(LogFile):
    """Writes down what a history sees, in a thread of its own: the loop would wait for the disk."""

    def __init__(self, watch: History, rundir: Any, options: dict[str, Any]) -> None:
        self._watch = watch
        self._called = 0
        self._writing = threading.Lock()
        try:
            self.directory = RunDirectory.create(rundir)
            self.directory.write_manifest(
                {
                    "windrow": __version__,
                    "session": watch.name,
                    "state": "running",
                    "started": time_text(),
                    "options": options,
                    "environment": environment(),
                    "packages": installed_packages(),
                }
            )
            super().__init__(self.directory.log.open("w", encoding="utf-8"))
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
        with self._writing:
            self.write(self.take())

    def take(self) -> str:
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
        watch = self._watch
        self._stop.set()
        self._thread.join()
        # Always written: it says how long the session was, also if everything else is in the log already.
        self.note(watch.now(), "reused", names=watch.reused)
        broken = self.close_stream()
        facts: dict[str, Any] = {"state": "complete", "ended": time_text(), "tasks": dict(watch.counts)}
        facts["memory"] = watch.memory()
        if error is not None:
            said = isinstance(error, str | WindrowError)
            words = str(error) if said else f"{type(error).__name__}: {error}"
            facts |= {"state": "failed", "error": words}
        try:
            self.directory.close_log()
            self.directory.write_manifest(facts)
        except OSError as failed:
            broken = broken or failed
        finally:
            self.directory.close()
        if broken is not None:
            warnings.warn(
                f"the log of the session in {self.directory.path} is not complete: {broken}; its results are not "
                "touched by that",
                stacklevel=2,
            )

    def lines(self) -> Path:
        self.flush()
        return self.directory.log


@collecting_less()
def report_session_directory(
    rundir: Path, page: Path | None = None, trace: Path | None = None
) -> tuple[Path, Path, bool, str]:
    """Write the report of a session's run directory; return page, trace, whether it is complete and how it ended."""
    directory = RunDirectory.open(rundir)
    lines = directory.log.read_text(encoding="utf-8", errors="replace") if directory.log.exists() else ""  # fmt: skip
    run = graph_run(read_log(lines.splitlines(), now=0), directory.read_manifest())
    own_page, own_trace = report_places(rundir, page, REPORT, TRACE)
    return own_page, trace or own_trace, *_write(run, own_page, trace or own_trace)


@collecting_less()
def _write(run: GraphRun, page: Path, trace: Path) -> tuple[bool, str]:
    from windrow.watch.report.session import write_session_report

    kept = run.facts.get("environment")
    surroundings = kept if isinstance(kept, dict) else environment()
    return write_session_report(run, page, trace, {"windrow": __version__, **surroundings})
