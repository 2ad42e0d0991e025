"""Futures of results that an earlier run has kept."""

from __future__ import annotations

import concurrent.futures
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from windrow.tasks.future import Future

if TYPE_CHECKING:
    from windrow.tasks.call import Call
    from windrow.tasks.keeping import KeptValue
    from windrow.tasks.session import Session


class KeptFuture(Future):
    """The future of a result that an earlier run has kept: done, and its value read when somebody asks."""

    def __init__(self, session: Session, record: Call, output: str, value: KeptValue, size: int) -> None:
        super().__init__(session, record, output)
        self.kept: KeptValue = value
        self._size = size
        self.set_result(value)

    def __del__(self) -> None:
        """The graph does not know of it."""

    def result(self, timeout: float | None = None) -> Any:
        """Read the value; CorruptFileError if it was damaged or removed since it was found."""
        with self._condition:
            if self._exception is None and self._result is self.kept:
                try:
                    self._result = self.kept.load()
                except Exception as error:
                    self._exception = error
                    raise
                self._session.reusing.read(self._size)
        return concurrent.futures.Future.result(self, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Say whether the value can be read: only reading it tells."""
        with suppress(Exception):
            self.result(timeout)
        return self._exception

    def add_done_callback(self, fn: Any) -> None:
        """Call a function with this future now."""
        concurrent.futures.Future.add_done_callback(self, fn)
