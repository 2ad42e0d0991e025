"""Progress of a session in tasks: how many are done, run, wait and failed, and for how long at least it goes on.

It is shown every batch and returns at once unless it is time to draw; Rich is imported when the first line is drawn.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from windrow.errors import UsageError
from windrow.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.tasks.watching import Watch

__all__ = ["Progress", "TasksShot", "line", "progress_of"]

#: A session that is over sooner shows nothing.
FIRST_S = 1.5
BAR_EVERY_S = 0.2
#: Every drawing is a message to the browser.
CELL_EVERY_S = 0.5
#: Plain lines end up in batch logs: enough to see that it lives, few enough to scroll through.
LINE_EVERY_S = 5.0
#: Looking at the tasks may take so much of the time; of very many it takes long.
SHARE = 0.05
#: Tasks of a name that must have ended before anything is said of the others.
ENOUGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksShot:
    """How far a session is at one moment; what a callable given as ``progress=`` gets."""

    name: str
    called: int
    done: int
    failed: int
    cancelled: int
    running: int
    elapsed_s: float
    left_s: float | None  #: at least, with all workers busy; None where nobody can tell
    finished: bool = False

    @property
    def waiting(self) -> int:
        """Tasks that were called and have not begun."""
        return self.called - self.done - self.failed - self.cancelled - self.running


def line(shot: TasksShot) -> str:
    """Write everything in one line."""
    parts = [f"{shot.done:,} of {shot.called:,} tasks done"]
    for count, word in (
        (shot.running, "running"),
        (shot.waiting, "waiting"),
        (shot.failed, "failed"),
        (shot.cancelled, "cancelled"),
    ):
        if count > 0:
            parts.append(f"{count:,} {word}")
    if shot.finished:
        parts.append(f"took {format_seconds(shot.elapsed_s)}")
    elif shot.left_s is not None:
        parts.append(f"at least {format_seconds(max(1.0, round(shot.left_s)))} left")
    return f"{shot.name}: {', '.join(parts)}"


class Progress:
    """An observer of the loop, which comes after the watch, and draws when it is time."""

    def __init__(self, watch: Watch, show: Callable[[TasksShot], Any], every_s: float, workers: int) -> None:
        self._watch = watch
        self._show = show
        self._every_s = every_s
        self._workers = workers
        self._began = monotonic()
        self._next = self._began + max(FIRST_S, every_s)
        self._shown = False
        self._idle, self._heard = False, self._began  #: whether nothing was open, the last time
        self._drawing = threading.RLock()
        self._later: threading.Timer | None = None

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
        """Draw if it is time."""
        del events, commands
        if self._idle and now - self._heard > FIRST_S:  # begins anew, perhaps for a short time
            self._next = max(self._next, now + FIRST_S)
        counts = self._watch.counts
        ended = counts["done"] + counts["failed"] + counts["cancelled"]
        self._idle, self._heard = counts["called"] == ended, now
        if now >= self._next:
            self._draw(finished=False)
        elif self._idle and self._shown and self._later is None:
            # Nothing may happen for long: the line must not say until then that tasks run.
            self._later = threading.Timer(self._next - now, self._draw_later)
            self._later.daemon = True
            self._later.start()

    def end(self) -> None:
        """Say how it ended, if anything was said before."""
        if self._later is not None:
            self._later.cancel()
        with self._drawing:
            if self._shown:
                self._draw(finished=True)
                self._shown = False

    def _draw_later(self) -> None:
        self._later = None
        with self._drawing:
            if self._shown:
                self._draw(finished=False)

    def _draw(self, *, finished: bool) -> None:
        with self._drawing:
            began, self._shown = monotonic(), True
            shot = self.shot(finished=finished)
            took = monotonic() - began
            self._next = max(self._next, began + self._every_s, began + took / SHARE)
            try:
                self._show(shot)
            except OSError:
                # A terminal that went away must not take hours of work with it.
                self._next = float("inf")
                self._shown = False

    def shot(self, *, finished: bool = False) -> TasksShot:
        """Look at the watch."""
        watch = self._watch
        with watch.lock:
            # More are given to workers than these can do at a time.
            running = min(len(watch.running), self._workers)
            left = None if finished else self._left()
            counts = dict(watch.counts)
        return TasksShot(
            name=watch.name, running=running, elapsed_s=monotonic() - self._began, left_s=left, finished=finished, **counts
        )  # fmt: skip

    def _left(self) -> float | None:
        """Add up what tasks that have not ended will take, if all are called and some of each name are known."""
        watch = self._watch
        if not watch.closed:
            return None
        spent: dict[str, float] = defaultdict(float)
        known: Counter[str] = Counter()
        left: Counter[str] = Counter()
        for entry in list(watch.entries.values()):
            name = entry.task.category
            if entry.state == "done":
                known[name] += 1
                spent[name] += entry.wall
            elif not entry.ended:
                left[name] += 1
        for past in list(watch.past.values()):
            known[past[1]] += 1
            spent[past[1]] += past[-1]
        if not left or any(known[name] < ENOUGH for name in left):
            return None
        return sum(count * spent[name] / known[name] for name, count in left.items()) / self._workers


def progress_of(watch: Watch, progress: Any, workers: int) -> Progress | None:
    """Make what shows progress; None if nobody is to see it."""
    stream = sys.stderr
    if progress is None or isinstance(progress, bool):
        if progress is False:
            return None
        if "IPython" in sys.modules:  # whoever runs a notebook has imported it
            from windrow.watch.notebook import in_notebook

            if in_notebook():
                return Progress(watch, _Cell().show, CELL_EVERY_S, workers)
        if _is_terminal(stream):
            bar = _Bar(stream, watch, asked=bool(progress))
            return Progress(watch, bar.show, BAR_EVERY_S, workers)
        return Progress(watch, _lines(stream), LINE_EVERY_S, workers) if progress else None
    if callable(progress):
        return Progress(watch, progress, BAR_EVERY_S, workers)
    raise UsageError(f"progress= is True, False, None (on a terminal or in a notebook) or a callable, got {progress!r}")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # replaced by something that is no file, or closed
        return False


def _lines(stream: TextIO) -> Callable[[TasksShot], None]:
    def show(shot: TasksShot) -> None:
        stream.write(line(shot) + "\n")
        stream.flush()

    return show


class _Cell:
    """One output of a notebook's cell that is drawn again in its place; what a later cell calls is shown there."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._cell = 0
        self._idle = True

    def show(self, shot: TasksShot) -> None:
        output = {"text/plain": line(shot)}
        ipython = import_module("IPython")
        cell = ipython.get_ipython().execution_count
        if self._idle and self._cell != cell and not shot.finished:
            self._handle = ipython.display.display(output, raw=True, display_id=True)
            self._cell = cell
        elif self._handle is not None:
            self._handle.update(output, raw=True)
        self._idle = not (shot.running or shot.waiting)


class _Bar:
    """One line on a terminal that is drawn again and again; what the program prints stays above it.

    Only while the program is in the session's ``with`` block or waits for its end. Else somebody may be typing, and nobody
    may ever end the session, and so the line: there are plain lines then, for those who ask for them.
    """

    def __init__(self, stream: TextIO, watch: Watch, *, asked: bool) -> None:
        self._stream = stream
        self._watch = watch
        self._write = _lines(stream) if asked else None
        self._written = 0.0
        self._live: Any = None

    def show(self, shot: TasksShot) -> None:
        if self._live is not None or self._watch.within or self._watch.closed:
            self._draw(shot)
        elif self._write is not None and (shot.finished or shot.elapsed_s - self._written >= LINE_EVERY_S):
            self._written = shot.elapsed_s
            self._write(shot)

    def _draw(self, shot: TasksShot) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        if self._live is None:
            self._live = Live(
                console=Console(file=self._stream), auto_refresh=False, redirect_stdout=_is_terminal(sys.stdout)
            )
            self._live.start()
        self._live.update(Text(line(shot), no_wrap=True, overflow="ellipsis"), refresh=True)
        if shot.finished:
            self._live.stop()
