"""Progress of runs and sessions: how much of how much, how fast, how long still; on a terminal, in a notebook, as lines.

A record says how far it is, and a display shows records. A run looks at every batch of its loop and returns at once unless it
is time to draw; a session has a thread that looks now and then, as its loop may hear nothing for long. Both only read, and
write to stderr alone; Rich is imported when the first line is drawn.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from windrow.errors import UsageError
from windrow.units import format_count, format_seconds
from windrow.watch.log import EventLog

if TYPE_CHECKING:
    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.rows import Standing
    from windrow.run.loop import Observer

#: A run that is over sooner shows no bar: importing Rich would take longer than reading the line.
BAR_FIRST_S = 0.3
#: A session that is over sooner shows nothing, nor does one that begins anew for a shorter time.
SESSION_FIRST_S = 1.5
#: People cannot read faster, and drawing costs about a millisecond.
BAR_EVERY_S = 0.1
#: Every drawing in a notebook is a message to the browser.
CELL_EVERY_S = 0.25
#: Plain lines end up in batch logs: enough to see that it lives, few enough to scroll through.
LINE_EVERY_S = 5.0
#: Looking at a session may take so much of the time; of very many tasks it takes long.
LOOK_SHARE = 0.05
#: Long enough that single chunks do not make the rate jump, short enough to follow a slow file.
RATE_MEMORY_S = 10.0


# -- records ---------------------------------------------------------------------------------------


def _forecast(seconds: float) -> str:
    # Nobody believes tenths of a forecast.
    return format_seconds(float(max(1, round(seconds))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How far a run is at one moment; what a callable given as ``progress=`` gets."""

    name: str
    rows_done: int  #: accepted, fetched or not
    rows_failed: int
    rows_known: int  #: in the files that were opened
    rows_expected: int  #: estimate for the files that were not
    rate: float  #: rows per second, recent ones counting most; of the whole run once finished
    eta_s: float | None  #: None where nobody can tell
    elapsed_s: float
    files_open: int  #: opened so far
    files_total: int
    finished: bool  #: the run is over, though not necessarily complete

    @property
    def rows_total(self) -> int:
        """All rows, as far as is known or expected."""
        return self.rows_known + self.rows_expected

    @property
    def estimated(self) -> bool:
        """Whether the total may still change."""
        return self.files_open < self.files_total

    @property
    def counts(self) -> tuple[int, int] | None:
        """Rows that are over, of all rows; None where the number of rows is not known."""
        known = self.rows_expected or not self.estimated
        return (self.rows_done + self.rows_failed, self.rows_total) if known else None

    @property
    def amount(self) -> str:
        """How many rows of how many: "1.2 M of ~3.4 M rows"."""
        total = format_count(self.rows_total)
        if self.estimated:
            total = f"~{total}" if self.rows_expected else f"{total}+"
        failed = f", {format_count(self.rows_failed)} failed" if self.rows_failed else ""
        return f"{format_count(self.rows_done)} of {total} rows{failed}"

    @property
    def pace(self) -> str:
        """How fast, how long still and how many files: "400 k rows/s, 5 s left, 3 of 6 files"."""
        parts = [f"{format_count(self.rate)} rows/s"]
        if self.finished:
            parts.append(f"took {format_seconds(self.elapsed_s)}")
        elif self.eta_s:
            parts.append(f"{_forecast(self.eta_s)} left")
        files = "file" if self.files_total == 1 else "files"
        parts.append(f"{self.files_open} of {self.files_total} {files}")
        return ", ".join(parts)

    @property
    def line(self) -> str:
        share = ""
        if self.counts is not None and self.rows_total > 0:
            # Rounded down: 100 % is said only when nothing is left.
            share = f" ({100 * self.counts[0] // self.counts[1]} %)"
        return f"{self.name}: {self.amount}{share}, {self.pace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot:
    """How far a session is at one moment; what a callable given as ``progress=`` gets."""

    name: str
    called: int
    done: int
    failed: int
    cancelled: int
    running: int
    elapsed_s: float
    left_s: float | None  #: at least, with all workers busy; None where nobody can tell
    reused: int = 0  #: calls that got the result of an earlier one
    finished: bool = False

    @property
    def ended(self) -> int:
        return self.done + self.failed + self.cancelled

    @property
    def waiting(self) -> int:
        """Tasks that were called and have not begun."""
        return self.called - self.ended - self.running

    @property
    def counts(self) -> tuple[int, int]:
        """Tasks that are over, of those that were called."""
        return self.ended, self.called

    @property
    def amount(self) -> str:
        """How many tasks of how many: "3 of 10 tasks done, 2 running, 5 waiting"."""
        parts = [f"{self.done:,} of {self.called:,} tasks done"] if self.called or not self.reused else []
        counts = ("running", "waiting", "failed", "cancelled", "reused")
        parts += [f"{getattr(self, name):,} {name}" for name in counts if getattr(self, name) > 0]
        return ", ".join(parts)

    @property
    def pace(self) -> str:
        """How long it took, or still takes."""
        if self.finished:
            return f"took {format_seconds(self.elapsed_s)}"
        return "" if self.left_s is None else f"at least {_forecast(self.left_s)} left"

    @property
    def line(self) -> str:
        return f"{self.name}: {', '.join(filter(None, (self.amount, self.pace)))}"


Shot: TypeAlias = Snapshot | SessionSnapshot


# -- displays --------------------------------------------------------------------------------------


def choose_display(progress: Any, stream: TextIO | None = None) -> Display | None:
    """Choose by what was asked for and by where it runs; None: nothing is shown."""
    stream = sys.stderr if stream is None else stream
    if callable(progress):
        return Call(progress)
    if progress is not None and not isinstance(progress, bool):
        raise UsageError(
            f"progress= is True, False, None (on a terminal or in a notebook) or a callable, got {progress!r}"
        )
    if progress is False:
        return None
    if in_notebook():
        return Cell()
    if is_terminal(stream):
        return Bar(stream)
    return Lines(stream) if progress else None


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # replaced by something that is no file, or closed
        return False


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")  # whoever runs a notebook has imported it
    shell = None if ipython is None else ipython.get_ipython()
    # Hosted notebooks have shells of their own, made of this one.
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class Call:
    """A function of the user's."""

    first_s, every_s = 0.0, BAR_EVERY_S

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.show = function


class Lines:
    """A line of text now and then, and one at the end."""

    first_s = every_s = LINE_EVERY_S

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, shot: Shot) -> None:
        self._stream.write(shot.line + "\n")
        self._stream.flush()


class Bar:
    """One line on a terminal that is drawn again in its place; what the program prints stays above it."""

    first_s, every_s = BAR_FIRST_S, BAR_EVERY_S

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Any = None
        self._task: Any = None

    @property
    def begun(self) -> bool:
        return self._bar is not None

    def show(self, shot: Shot) -> None:
        """Draw the line; of what was too short to be worth one not even the end."""
        if self._bar is None:
            if shot.finished:
                return
            self._start(shot)
        done, total = shot.counts or (0, None)
        total = None if total is None else max(1, total)
        texts = {"amount": shot.amount, "pace": shot.pace}
        self._bar.update(self._task, completed=done, total=total, refresh=True, **texts)
        if shot.finished:
            self._bar.stop()
            self._bar = None

    def _start(self, shot: Shot) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        def text(what: str) -> TextColumn:
            # One line whatever the width: a bar that wraps cannot be redrawn in place.
            cell = Column(no_wrap=True, overflow="ellipsis")
            return TextColumn(what, markup=False, table_column=cell)

        console = Console(stderr=True) if self._stream is sys.stderr else Console(file=self._stream)
        self._bar = Progress(
            text("{task.description}"), BarColumn(24), text("{task.fields[amount]}"), text("{task.fields[pace]}"),
            console=console,
            auto_refresh=False,
            # Rich prints above the bar what is written meanwhile, but to its own stream: what the
            # user sends to a file must stay there.
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(shot.name, total=None, amount="", pace="")


class Cell:
    """One output of a notebook's cell, drawn again in its place; what a later cell begins is shown there.

    Rich would need widgets for that, and leaves empty outputs where there are none.
    """

    first_s, every_s = BAR_FIRST_S, CELL_EVERY_S

    def __init__(self) -> None:
        self._handle: Any = None
        self._number = 0
        self._idle = False  #: all that was known of was done: what comes next belongs to another cell

    def show(self, shot: Shot) -> None:
        """Draw a bar while it lasts and a line of text after it; nothing for what was short."""
        share = "" if shot.counts is None else f' max="{max(1, shot.counts[1])}" value="{shot.counts[0]}"'
        bar = f'<progress{share} style="width:16em"></progress>'
        words = escape(", ".join(filter(None, (shot.amount, shot.pace))))
        html = escape(shot.line) if shot.finished else f"{escape(shot.name)} {bar} {words}"
        output = {"text/plain": shot.line, "text/html": f"<div>{html}</div>"}
        shell = import_module("IPython").get_ipython()
        number = 0 if shell is None else int(shell.execution_count)
        if not shot.finished and (self._handle is None or (self._idle and number != self._number)):
            self._handle = import_module("IPython.display").display(output, raw=True, display_id=True)
            self._number = number
        elif self._handle is not None:
            self._handle.update(output, raw=True)
        self._idle = shot.counts is not None and shot.counts[0] == shot.counts[1]


#: Shows records, the last of which is finished: nothing before ``first_s``, then every ``every_s``.
Display: TypeAlias = Call | Lines | Bar | Cell


# -- a run -----------------------------------------------------------------------------------------


class Rate:
    """Rows per second in which what is long ago counts little."""

    def __init__(self, now: float, memory_s: float = RATE_MEMORY_S) -> None:
        self._memory_s = memory_s
        self._now = now
        self._rows = 0
        self._sum_rows = self._sum_s = 0.0

    def update(self, rows: int, now: float) -> float:
        """Take the rows done until now; return the rate."""
        spent = now - self._now
        if spent > 0:
            # Decaying sums of rows and of seconds: right from the first value on.
            kept = math.exp(-spent / self._memory_s)
            counted_s = -self._memory_s * math.expm1(-spent / self._memory_s)
            self._sum_rows = kept * self._sum_rows + (rows - self._rows) * counted_s / spent
            self._sum_s = kept * self._sum_s + counted_s
            self._rows, self._now = rows, now
        # Rows of a lost worker are given back, which is no negative speed.
        return max(0.0, self._sum_rows / self._sum_s) if self._sum_s > 0 else 0.0


def snapshot(standing: Standing, *, name: str, rate: float, elapsed_s: float, finished: bool = False) -> Snapshot:
    done = standing.done + standing.held
    left = max(0, standing.known + standing.expected - done - standing.failed)
    if finished:
        rate = done / elapsed_s if elapsed_s > 0 else 0.0
    # Where unopened files hold nobody knows how much, an end in sight would be a guess.
    blind = standing.inputs_unopened > 0 and standing.expected == 0
    return Snapshot(
        name=name,
        rows_done=done,
        rows_failed=standing.failed,
        rows_known=standing.known,
        rows_expected=standing.expected,
        rate=rate,
        eta_s=None if finished or blind or rate <= 0 else left / rate,
        elapsed_s=elapsed_s,
        files_open=standing.inputs - standing.inputs_unopened,
        files_total=standing.inputs,
        finished=finished,
    )


@contextmanager
def watching(
    rows: Any,
    *,
    progress: bool | Callable[[Snapshot], Any] | None = None,
    name: str = "",
    rundir: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    stream: TextIO | None = None,
) -> Iterator[tuple[Observer, ...]]:
    """Show progress and keep a log while the body runs; gives the observers the loop is to call.

    ``rows`` has ``standing()``, and ``clock`` is that of the loop. ``progress`` is None for where a person looks (a terminal, a
    notebook), True for always, as plain lines elsewhere, False for never; a callable gets a :class:`Snapshot` now and
    then and at the end. ``rundir``, made if need be, gets the event log ``events.jsonl``.
    """
    display = choose_display(progress, stream)
    observers: list[Observer] = []
    with ExitStack() as stack:
        if rundir is not None:
            directory = Path(rundir)
            try:
                directory.mkdir(parents=True, exist_ok=True)
                log = EventLog.open(directory / "events.jsonl")
            except OSError as error:
                raise UsageError(f"rundir= {directory} cannot be written to: {error}") from error
            observers.append(stack.enter_context(log))
        if display is not None:
            shown = _RunProgress(rows.standing, display, name, clock())
            stack.callback(lambda: shown.end(clock()))
            observers.append(shown)
        yield tuple(observers)


class _RunProgress:
    """Takes part in every batch and draws when it is time."""

    def __init__(self, standing: Callable[[], Standing], display: Display, name: str, now: float) -> None:
        self._standing = standing
        self._display = display
        self._name = name
        self._began = now
        self._next = now + display.first_s
        self._rate = Rate(now)
        self._broken = False

    def __call__(self, _events: Sequence[Event], _commands: Sequence[Command], now: float) -> None:
        if now < self._next:
            return
        # From now on, not from when it was due: after a pause there is nothing to catch up with.
        self._next = now + self._display.every_s
        self._draw(now, finished=False)

    def end(self, now: float) -> None:
        if not self._broken:
            self._draw(now, finished=True)

    def _draw(self, now: float, *, finished: bool) -> None:
        standing = self._standing()
        shot = snapshot(
            standing,
            name=self._name,
            rate=self._rate.update(standing.done + standing.held, now),
            elapsed_s=now - self._began,
            finished=finished,
        )
        self._broken = True
        try:
            self._display.show(shot)
        except OSError:
            if isinstance(self._display, Call):
                raise
            # A terminal that went away must not take hours of work with it.
            self._next = math.inf
        else:
            self._broken = False


# -- a session -------------------------------------------------------------------------------------


class SessionProgress:
    """A thread that looks at a session now and then and shows what has changed.

    ``look`` gives a record of the moment, and is told whether it is the last one. ``may_draw`` says whether a line may be drawn on a
    terminal, where the user may be typing.
    """

    def __init__(
        self, look: Callable[[bool], SessionSnapshot], display: Display, *, may_draw: Callable[[], bool] = lambda: True
    ) -> None:
        self._look = look
        self._display = display
        self._may_draw = may_draw
        self._over = threading.Event()
        self._seen: tuple[int, ...] | None = None  #: what was shown last
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._watch, name="windrow progress", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        shot = self._look(True)
        if self._seen is not None or shot.called or shot.reused:
            self._show(shot)

    def _watch(self) -> None:
        pause = self._display.every_s
        first_s = SESSION_FIRST_S if self._display.first_s else 0.0
        while not self._over.wait(pause):
            began = time.monotonic()
            shot = self._look(False)
            pause = max(self._display.every_s, (time.monotonic() - began) / LOOK_SHARE)
            now = (shot.called, shot.ended, shot.running, shot.reused)
            if shot.called == shot.ended:
                self._busy_since = None
                due = self._seen is not None  # the line must not go on to say that tasks run
            else:
                self._busy_since = began if self._busy_since is None else self._busy_since
                due = began - self._busy_since >= first_s
            if due and now != self._seen:
                self._seen = now
                if not self._show(shot):
                    return

    def _show(self, shot: SessionSnapshot) -> bool:
        """Show a record; False if the terminal is gone."""
        display = self._display
        if isinstance(display, Bar) and not (display.begun or self._may_draw()):
            return True
        try:
            display.show(shot)
        except OSError:
            return False  # a terminal that went away must not take hours of work with it
        return True
