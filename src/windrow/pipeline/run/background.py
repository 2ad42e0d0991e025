"""A run that goes on while something else is done: its result so far, its end, and how to bring that about.

Questions are answered by the thread of the run between two batches of events, so that outputs, cutflow and ledger are of the
same rows. Everybody else only waits for the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from windrow.blocks.outputs import Value
from windrow.core.events import CancelRequested, Event
from windrow.errors import UsageError, WindrowError
from windrow.run.loop import RunOutcome

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial
    from windrow.core.rows import RowFeeder
    from windrow.core.scheduler import Scheduler
    from windrow.pipeline.results.result import Result
    from windrow.pipeline.run.partials import UnitedPartial
    from windrow.pipeline.run.stream import StreamPump
    from windrow.run.loop import Collector


class Inbox:
    """What comes to a run from outside: rows of a stream, questions, and the wish to end."""

    def __init__(self) -> None:
        self.pump: StreamPump | None = None
        self.answer: Callable[[], Result] | None = None  #: makes a result of what is done
        self.rows: Callable[[], int] = int  #: that are done: 0 before the run begins
        self._lock = threading.Lock()
        self._questions: list[Future[Result | None]] = []
        self._wake: Callable[[], None] | None = None
        self._stopped = self._told = self._closed = False

    # -- anybody's side ----------------------------------------------------------------------

    def ask(self) -> Future[Result | None]:
        """Ask for the result so far; the answer is None if the run has ended meanwhile."""
        question: Future[Result | None] = Future()
        with self._lock:
            if self._closed:
                question.set_result(None)
                return question
            self._questions.append(question)
            if self._wake is not None:
                self._wake()
        return question

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._wake is not None:
                self._wake()

    # -- the loop's side ---------------------------------------------------------------------

    def open(self, wake: Callable[[], None]) -> None:
        """The run begins, perhaps once more; ``wake`` makes it look here."""
        with self._lock:
            self._wake = wake
            self._told = False
        if self.pump is not None:
            self.pump.open(wake)

    def events(self) -> list[Event]:
        events: list[Event] = []
        with self._lock:
            questions, self._questions = self._questions, []
            stop = self._stopped and not self._told
            self._told |= stop
        if stop and self.pump is not None:
            self.pump.stop()
        elif stop:
            events.append(CancelRequested("stopped"))
        if self.pump is not None:
            events += self.pump.events()
        for question in questions:
            assert self.answer is not None
            try:
                question.set_result(self.answer())
            except Exception as error:  # noqa: BLE001 - it is the asker's
                question.set_exception(error)
        return events

    def close(self) -> None:
        """The loop has ended: nothing more is taken; who waits for an answer waits for the result, or another loop."""
        if self.pump is not None:
            self.pump.close()
        with self._lock:
            self._wake = None

    def end(self) -> None:
        with self._lock:
            self._closed = True
            questions, self._questions = self._questions, []
        for question in questions:
            question.set_result(None)


class Live:
    """A run in the background, made by ``analysis.start``; leaving it as a context stops it."""

    def __init__(self, run: Callable[[Inbox], Result], name: str) -> None:
        self._inbox = Inbox()
        self._run = run
        self._name = name
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._over = threading.Event()
        # Daemon: an interpreter that exits must not wait for a stream without an end.
        self._thread = threading.Thread(target=self._go, name=f"windrow-run-{name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "running" if self.running else "failed" if self._error else "ended"
        return f"<run of {self._name!r}: {state}, {self.rows:,} rows done>"

    def _go(self) -> None:
        try:
            self._result = self._run(self._inbox)
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
            self._error = error
            if isinstance(error, WindrowError):
                self._result = error.facts.get("result")
        finally:
            self._inbox.end()
            self._over.set()

    @property
    def running(self) -> bool:
        """Whether it goes on."""
        return not self._over.is_set()

    @property
    def rows(self) -> int:
        """Rows that are done."""
        return self._inbox.rows()

    def result(self) -> Result:
        """Return a result over everything that is done so far; it does not change when more is done.

        Its ledger calls rows missing that were taken and are not done yet. After the end it is the last one, also that of a
        run that failed, as far as there is one.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(
                "a run cannot be asked for its result by what it calls itself (a step, or progress=): ask from elsewhere"
            )
        found = self._inbox.ask().result()
        if found is not None:
            return found
        self._over.wait()
        if self._result is None:
            assert self._error is not None
            raise self._error
        return self._result

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it has come, and raise what made the run fail."""
        ended = self._over.wait(timeout)
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> Result:
        """End the run and return its result.

        A stream takes no more rows, and those it took are finished if that takes no more than a few seconds; any other run
        ends as after Ctrl-C.
        """
        self._inbox.stop()
        self.wait()
        assert self._result is not None
        return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._inbox.stop()
        self._over.wait()
        if kind is None and self._error is not None:
            raise self._error


def outcome_so_far(scheduler: Scheduler, rows: RowFeeder, collector: Collector) -> RunOutcome:
    """Give what a run has made so far as if it had ended; to be called in the thread of its loop."""
    return RunOutcome(
        status="complete",
        failure=None,
        reason="",
        partials={number: [_Copied(one) for one in parts] for number, parts in collector.partials().items()},
        rows=rows,
        notes=list(scheduler.notes),
        wall_s=0.0,
        driver_cpu_s=0.0,
    )


@dataclass(frozen=True, slots=True)
class _Copied:
    """A united partial whose outputs are copied, as a user's merge may change them, and so may the user."""

    united: UnitedPartial

    def whole(self) -> Partial:
        partial = self.united.whole()
        for node, leaf in partial.nodes.values.items():
            outputs = {key: Value(deepcopy(one.value), one.merge) for key, one in leaf.outputs.items()}
            partial.nodes.values[node] = replace(leaf, outputs=outputs)
        return partial
