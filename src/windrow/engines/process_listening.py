"""Hearing the driver while a task of a graph goes on: what others wait for need not wait for the end of a long one.

A thread looks now and then whether a task runs, and takes the worker's turn at the link then. It is not woken by what
comes: that would take longer than a short task does.
"""

from __future__ import annotations

import contextlib
import threading
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Listening"]

#: Seconds between two looks.
LISTEN_S = 0.05


class Listening:
    """Whose turn it is at the link: the worker's own thread's, and the other one's inside of this context."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.turn = threading.Lock()  #: whoever reads or writes while a task goes on takes it
        self.turn.acquire()
        self._answer = answer
        self._begun = False
        self._trouble: BaseException | None = None

    def __enter__(self) -> None:
        if not self._begun:
            self._begun = True
            with contextlib.suppress(RuntimeError):  # no more threads are allowed: nobody listens
                threading.Thread(target=self._listen, name="windrow-listens", daemon=True).start()
        self.turn.release()

    def __exit__(self, *_: object) -> None:
        self.turn.acquire()
        if self._trouble is not None:
            raise self._trouble

    def _listen(self) -> None:
        while self._trouble is None:
            sleep(LISTEN_S)
            if self.turn.acquire(blocking=False):
                try:
                    self._answer()
                except BaseException as error:  # noqa: BLE001 - raised again where the worker works
                    self._trouble = error
                finally:
                    self.turn.release()
