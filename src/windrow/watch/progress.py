"""Progress of a run in rows: how many of how many, how fast, how long still.

It is shown every batch and returns at once unless it is time to draw; Rich is imported when the
first line is drawn. Numbers become a record and the record becomes text in pure functions; it
changes nothing in the run, and its output goes to stderr alone.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from windrow.core.commands import Launch
from windrow.core.events import Planned
from windrow.errors import UsageError
from windrow.units import format_count, format_seconds
from windrow.watch.orders import OrdersSeen

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from windrow.core.commands import Command
    from windrow.core.events import Event
    from windrow.core.rows import Standing
    from windrow.run.loop import Observer
    from windrow.watch.log import EventLog

__all__ = ["Rate", "Snapshot", "amount", "line", "snapshot", "speed", "watching"]

#: A run that is over sooner shows no bar: importing Rich would take longer than reading the line.
BAR_FIRST_S = 0.3
#: People cannot read faster, and drawing costs about a millisecond.
BAR_EVERY_S = 0.1
#: Plain lines end up in batch logs: enough to see that it lives, few enough to scroll through.
LINE_EVERY_S = 5.0
#: Long enough that single chunks do not make the rate jump, short enough to follow a slow file.
RATE_MEMORY_S = 10.0
#: Long enough to be read.
NEWS_S = 3.0


class Standings(Protocol):
    """Whoever can say how far the run is; the scheduler."""

    def standing(self) -> Standing:
        """Say how far the run is."""
        ...


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
    news: str = ""  #: what was decided just now: "new order in ttbar"

    @property
    def rows_total(self) -> int:
        """All rows, as far as is known or expected."""
        return self.rows_known + self.rows_expected

    @property
    def estimated(self) -> bool:
        """Whether the total may still change."""
        return self.files_open < self.files_total


class Rate:
    """Rows per second in which what is long ago counts little."""

    __slots__ = ("_memory_s", "_now", "_rows", "_sum_rows", "_sum_s")

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


def snapshot(
    standing: Standing, *, name: str, rate: float, elapsed_s: float, finished: bool = False, news: str = ""
) -> Snapshot:
    """Make the record of a moment from the scheduler's numbers."""
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
        news=news,
    )


def amount(shot: Snapshot) -> str:
    """Write how many rows of how many: "1.2 M of ~3.4 M rows"."""
    total = format_count(shot.rows_total)
    if shot.estimated:
        total = f"~{total}" if shot.rows_expected else f"{total}+"
    text = f"{format_count(shot.rows_done)} of {total} rows"
    if shot.rows_failed:
        text += f", {format_count(shot.rows_failed)} failed"
    return text


def speed(shot: Snapshot) -> str:
    """Write how fast, how long still and how many files: "400 k rows/s, 5 s left, 3 of 6 files"."""
    parts = [f"{format_count(shot.rate)} rows/s"]
    if shot.finished:
        parts.append(f"took {format_seconds(shot.elapsed_s)}")
    elif shot.eta_s:
        parts.append(f"{format_seconds(_rounded(shot.eta_s))} left")
    files = "file" if shot.files_total == 1 else "files"
    parts.append(f"{shot.files_open} of {shot.files_total} {files}")
    if shot.news and not shot.finished:
        parts.append(shot.news)
    return ", ".join(parts)


def line(shot: Snapshot) -> str:
    """Write everything in one line."""
    share = ""
    if shot.rows_total > 0 and (shot.rows_expected or not shot.estimated):
        # Rounded down: 100 % is said only when nothing is left.
        share = f" ({100 * (shot.rows_done + shot.rows_failed) // shot.rows_total} %)"
    return f"{shot.name}: {amount(shot)}{share}, {speed(shot)}"


def _rounded(seconds: float) -> float:
    # Nobody believes tenths of a forecast.
    return float(max(1, round(seconds)))


@contextmanager
def watching(
    scheduler: Standings,
    *,
    progress: bool | Callable[[Snapshot], Any] | None = None,
    name: str = "",
    rundir: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    stream: TextIO | None = None,
) -> Iterator[tuple[Observer, ...]]:
    """Show progress and keep a log while the body runs; gives the observers the loop is to call.

    Parameters
    ----------
    progress
        None: where a person looks (a terminal, a notebook); True: always, as plain lines where
        nobody does; False: never; a callable gets a :class:`Snapshot` now and then and at the end.
    rundir
        A directory, made if need be, for the event log ``events.jsonl``.
    clock
        The loop's clock: its times are compared.
    """
    display = _display(progress, sys.stderr if stream is None else stream)
    observers: list[Observer] = []
    with ExitStack() as stack:
        if rundir is not None:
            observers.append(stack.enter_context(_log(Path(rundir))))
        if display is not None:
            shown = _Progress(scheduler, display, name, clock())
            stack.callback(lambda: shown.end(clock()))
            observers.append(shown)
        yield tuple(observers)


def _log(rundir: Path) -> EventLog:
    from windrow.watch.log import EventLog

    try:
        rundir.mkdir(parents=True, exist_ok=True)
        return EventLog.open(rundir / "events.jsonl")
    except OSError as error:
        raise UsageError(f"rundir= {rundir} cannot be written to: {error}") from error


class _Progress:
    """Takes part in every batch and draws when it is time."""

    __slots__ = (
        "_began", "_broken", "_display", "_name", "_news", "_next", "_orders", "_rate", "_scheduler", "_stale",
    )  # fmt: skip

    def __init__(self, scheduler: Standings, display: _Display, name: str, now: float) -> None:
        self._scheduler = scheduler
        self._display = display
        self._name = name
        self._began = now
        self._next = now + display.first_s
        self._rate = Rate(now)
        self._broken = False
        self._orders = OrdersSeen()
        self._news = ""
        self._stale = math.inf  #: when the news is none any more

    def __call__(self, events: Sequence[Event], commands: Sequence[Command], now: float) -> None:
        for command in commands:
            if type(command) is Launch:
                self._orders.launched(command.plan)
        for event in events:
            if type(event) is Planned and self._orders.changed(event.plan):
                self._news = f"new order in {event.plan.category}"
                self._stale = now + max(NEWS_S, self._display.every_s)
        if now > self._stale:
            self._news, self._stale = "", math.inf
        if now < self._next:
            return
        # From now on, not from when it was due: after a pause there is nothing to catch up with.
        self._next = now + self._display.every_s
        self._draw(self._display.show, now, finished=False)

    def end(self, now: float) -> None:
        if not self._broken:
            self._draw(self._display.end, now, finished=True)

    def _draw(self, draw: Callable[[Snapshot], Any], now: float, *, finished: bool) -> None:
        self._broken = True
        try:
            draw(self._snapshot(now, finished=finished))
        except OSError:
            if isinstance(self._display, _Call):
                raise
            # A terminal that went away must not take hours of work with it.
            self._next = math.inf
        else:
            self._broken = False

    def _snapshot(self, now: float, *, finished: bool) -> Snapshot:
        standing = self._scheduler.standing()
        return snapshot(
            standing,
            name=self._name,
            rate=self._rate.update(standing.done + standing.held, now),
            elapsed_s=now - self._began,
            finished=finished,
            news=self._news,
        )


# -- where it is shown -----------------------------------------------------------------------------


class _Display(Protocol):
    first_s: float  #: nothing is shown before
    every_s: float

    def show(self, shot: Snapshot) -> None: ...

    def end(self, shot: Snapshot) -> None: ...


def _display(progress: Any, stream: TextIO) -> _Display | None:
    if progress is None or isinstance(progress, bool):
        if progress is False:
            return None
        if "IPython" in sys.modules:  # whoever runs a notebook has imported it
            from windrow.watch.notebook import NotebookProgress, in_notebook

            if in_notebook():
                return NotebookProgress()
        if _is_terminal(stream):
            return _Bar(stream)
        return _Lines(stream) if progress else None
    if callable(progress):
        return _Call(progress)
    raise UsageError(f"progress= is True, False, None (on a terminal) or a callable, got {progress!r}")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # replaced by something that is no file, or closed
        return False


class _Call:
    first_s, every_s = 0.0, BAR_EVERY_S

    def __init__(self, function: Callable[[Snapshot], Any]) -> None:
        self.show = self.end = function


class _Lines:
    first_s = every_s = LINE_EVERY_S

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, shot: Snapshot) -> None:
        self._stream.write(line(shot) + "\n")
        self._stream.flush()

    end = show


class _Bar:
    first_s, every_s = BAR_FIRST_S, BAR_EVERY_S

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Any = None
        self._task: Any = None

    def show(self, shot: Snapshot) -> None:
        if self._bar is None:
            self._start(shot)
        known = shot.rows_expected or not shot.estimated
        self._bar.update(
            self._task,
            completed=shot.rows_done + shot.rows_failed,
            total=max(1, shot.rows_total) if known else None,
            amount=amount(shot),
            speed=speed(shot),
            refresh=True,
        )

    def end(self, shot: Snapshot) -> None:
        if self._bar is not None:  # otherwise the run was too short to be worth a bar
            self.show(shot)
            self._bar.stop()

    def _start(self, shot: Snapshot) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        def text(what: str) -> TextColumn:
            # One line whatever the width: a bar that wraps cannot be redrawn in place.
            cell = Column(no_wrap=True, overflow="ellipsis")
            return TextColumn(what, markup=False, table_column=cell)

        console = Console(stderr=True) if self._stream is sys.stderr else Console(file=self._stream)
        self._bar = Progress(
            text("{task.description}"), BarColumn(24), text("{task.fields[amount]}"),
            text("{task.fields[speed]}"),
            console=console,
            auto_refresh=False,
            # Rich prints above the bar what is written meanwhile, but to its own stream: what the
            # user sends to a file must stay there.
            redirect_stdout=_is_terminal(sys.stdout),
            redirect_stderr=True,
        )  # fmt: skip
        self._bar.start()
        self._task = self._bar.add_task(shot.name, total=None, amount="", speed="")
