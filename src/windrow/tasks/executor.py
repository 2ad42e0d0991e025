"""``wr.Executor``: the interface of ``concurrent.futures`` on a session, for programs that were written for it."""

from __future__ import annotations

import concurrent.futures
import threading
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.tasks.declare import Declared, task
from windrow.tasks.future import EagerFuture
from windrow.tasks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Executor"]


class Executor(concurrent.futures.Executor):
    """Runs calls in the workers of a session of its own.

    Parameters
    ----------
    max_workers
        Calls at a time; by default as many as there are cores.
    engine
        "processes", "threads" or "inline", as for ``wr.Session``.
    """

    def __init__(self, max_workers: int | None = None, *, engine: str = "processes") -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        self._session = Session(engine=engine, workers=max_workers, name="executor")
        self._declared: dict[int, tuple[Any, Declared]] = {}  #: by the function's identity
        self._lock = threading.Lock()
        self._over = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function in a worker; what it returns will be the future's value."""
        with self._lock:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            known = self._declared.get(id(fn))
            if known is None:
                known = self._declared[id(fn)] = (fn, _plain(fn))
            return self._session.call(known[1], args, kwargs, EagerFuture)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those there are, or cancel what has not begun."""
        with self._lock:
            self._over = True
        if cancel_futures:
            for future in list(self._session.futures.values()):
                future.cancel()
        if wait:
            self._session.close()
        else:
            self._session.end_later()


def _plain(fn: Callable[..., Any]) -> Declared:
    """A call of an executor has one value, whatever the function yields or is decorated with."""
    declared = getattr(fn, "declared", None)
    if isinstance(declared, Declared):
        if declared.outputs != 1:
            raise UsageError(
                f"task {declared.name!r} makes several outputs: call it in a session, an executor gives one future"
            )
        return declared
    name = getattr(fn, "__qualname__", None) or repr(fn)
    return task(fn, outputs=1, name=name).declared
