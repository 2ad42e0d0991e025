"""What a session tells its run: calls, questions, what nobody will ask for any more, and the end."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from windrow.core.events import CancelRequested, Event, Submitted
from windrow.core.records import Task

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Inbox"]


class Inbox:
    """A queue that any thread may put into, also one that is just collecting garbage: it takes no lock."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self.closed = threading.Event()
        self._queue: deque[Task | Event] = deque()
        self._wake: Callable[[], None] | None = None
        self._rung = False  #: the run will look
        self._over = False
        self._ended = ended

    def put(self, news: Task | Event) -> None:
        """Tell the run something, and see to it that it looks."""
        self._queue.append(news)
        wake = self._wake  # the run may end just now
        if not self._rung and wake is not None:
            self._rung = True
            wake()

    def leave(self, news: Event) -> None:
        """Tell it something when it looks anyway."""
        if not self._over:
            self._queue.append(news)

    # -- the loop's side

    def open(self, wake: Callable[[], None]) -> None:
        """The run begins."""
        self._wake = wake
        wake()

    def events(self) -> list[Event]:
        """Give what has come; calls that follow each other go together."""
        queue = self._queue
        self._rung = False  # before looking: whoever comes later rings again
        if not queue:
            return []
        found: list[Event] = []
        tasks: list[Task] = []
        for _ in range(len(queue)):
            news = queue.popleft()
            if type(news) is Task:
                tasks.append(news)
                continue
            if tasks:
                found.append(Submitted((), tuple(tasks)))
                tasks = []
            found.append(news)  # type: ignore[arg-type]
        if tasks:
            found.append(Submitted((), tuple(tasks)))
        return found

    def stop(self) -> None:
        """Somebody wishes the run to end."""
        self.put(CancelRequested("interrupted"))

    def close(self) -> None:
        """The run has ended."""
        self._over = True
        self.closed.set()
        self._wake = None
        self._ended()
