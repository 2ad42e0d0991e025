"""``wr.Executor``: the interface of ``concurrent.futures`` on a session, for programs that were written for it.

It behaves as those of the standard library do, futures among the arguments included: they are passed on as they are.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import os
import sys
import threading
import weakref
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from windrow.core.records import ONE_CORE
from windrow.engines.machine_limits import granted_cores
from windrow.errors import InitializerError, UsageError
from windrow.tasks.declare import Declared
from windrow.tasks.future import EagerFuture, cancel_call
from windrow.tasks.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


#: Where the standard library's executors tell of initializers that failed.
LOG = logging.getLogger("concurrent.futures")


class Executor(concurrent.futures.Executor):
    """Runs calls in the workers of a session of its own.

    What differs from the executors of the standard library: a process that dies is replaced and its call tried once more,
    and a call that ends its process each time fails alone, with an error that is a ``BrokenExecutor``; functions and
    arguments may come from a notebook, or be lambdas. A task that was declared with ``wr.task`` is called as one: futures of
    this executor among its arguments are replaced by their values, and what it needs counts.

    Parameters
    ----------
    max_workers
        Calls at a time; by default as many as there are cores.
    engine
        "processes", "auto", "threads" or "inline", as for ``wr.Session``.
    initializer, initargs
        Called once in each worker, before its first call. If it raises, the executor is broken.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        engine: str = "processes",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        #: Libraries look at this to know how much to submit at a time.
        self._max_workers = max_workers or granted_cores(os.environ)
        self._session = Session(
            engine=engine,
            workers=self._max_workers,
            reuse=False,
            store=False,
            initializer=None if initializer is None else partial(_begin, initializer, initargs),
            name="executor",
        )
        self._session.tells = False  # of failures: the standard library's do not
        self._named: dict[int, tuple[Any, Declared]] = {}  #: by identity; sent once
        self._others: dict[str, Declared] = {}  #: by name, for functions that go with each call
        self._lock = threading.RLock()  # pickling an argument may submit something itself
        self._over = False
        _living.add(self._session)
        # An executor that is forgotten ends when its calls have, and takes its workers along.
        weakref.finalize(self, self._session.end_later).atexit = False

    @property
    def _broken(self) -> BaseException | None:
        driver = self._session._driver
        return driver.error or driver.broken()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function in a worker; what it returns will be the future's value."""
        with self._lock:
            if self._broken is not None:
                raise concurrent.futures.BrokenExecutor(
                    f"the executor is not usable any more: {self._broken}"
                ) from self._broken
            if self._over or _ended:
                what = "shutdown" if self._over else "interpreter shutdown"
                raise RuntimeError(f"cannot schedule new futures after {what}")
            declared = getattr(fn, "declared", None)
            if isinstance(declared, Declared) and type(fn) is not _Mapped:
                if declared.outputs != 1:
                    raise UsageError(
                        f"task {declared.name!r} makes several outputs: call it in a session, an executor gives one "
                        "future"
                    )
                return self._session.call(declared, args, kwargs, EagerFuture)
            return self._call(fn, args, kwargs)

    def _call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(fn) is _Mapped:
            declared, given = fn.declared, _Given(args, kwargs)
        elif _is_named(fn):
            if id(fn) not in self._named:
                self._named[id(fn)] = (fn, _Mapped(fn).declared)
            declared, given = self._named[id(fn)][1], _Given(args, kwargs)
        else:
            name = _name(fn)
            if name not in self._others:
                self._others[name] = Declared(name=name, function=_run, needs=ONE_CORE)
            declared, given = self._others[name], _Given((fn, *args), kwargs)
        try:
            return self._session.call(declared, (given,), {}, EagerFuture)
        except UsageError as error:
            if error.__cause__ is None:
                raise
            # What cannot be pickled: the standard library's tell it where the result is asked for.
            failed: concurrent.futures.Future[Any] = concurrent.futures.Future()
            error.__cause__.add_note(str(error))
            failed.set_exception(error.__cause__)
            return failed

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **more: Any,
    ) -> Iterator[Any]:
        """Call a function for the items of iterables; gives the results in their order.

        With processes, ``chunksize`` items go together. All calls are submitted before this returns; ``buffersize`` says
        otherwise from Python 3.14 on.
        """
        if not self._session._isolated:
            return super().map(fn, *iterables, timeout=timeout, **more)
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        if chunksize == 1:
            once = fn if isinstance(getattr(fn, "declared", None), Declared) else _Mapped(fn)
            return super().map(once, *iterables, timeout=timeout, **more)
        chunks = _chunks(zip(*iterables, strict=False), chunksize)
        return _one_by_one(super().map(_Mapped(_Each(fn)), chunks, timeout=timeout, **more))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; wait for those there are, or cancel what has not begun."""
        with self._lock:
            self._over = True
            if cancel_futures:
                for call in list(self._session.open.values()):
                    cancel_call(call)
            self._session.end_later()
        if wait:
            _close(self._session)


class _Given:
    """Arguments that are passed on as they are: no futures are looked for in them."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs

    def __reduce__(self) -> Any:
        return _Given, (self.args, self.kwargs)


class _Function:
    """A function that is known by name, and so sent to each worker once."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, given: _Given) -> Any:
        return self.function(*given.args, **given.kwargs)


class _Mapped:
    """A function of many calls: it is sent to each worker once."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        inner = function.function if isinstance(function, _Each) else function
        self.declared = Declared(name=_name(inner), function=_Function(function), needs=ONE_CORE)

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


class _Each:
    """A function of many items, for one of each."""

    __slots__ = ("__weakref__", "function")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, chunk: list[tuple[Any, ...]]) -> list[Any]:
        return [self.function(*items) for items in chunk]


def _begin(initializer: Callable[..., object], initargs: tuple[Any, ...]) -> None:
    try:
        initializer(*initargs)
    except BaseException:
        LOG.critical("Exception in initializer:", exc_info=True)
        raise


def _run(given: _Given) -> Any:
    return given.args[0](*given.args[1:], **given.kwargs)


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def _is_named(fn: Any) -> bool:
    """Whether a function is what its module knows under its name: there are not many such, and they are not forgotten."""
    name = getattr(fn, "__name__", None)
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    return isinstance(name, str) and getattr(module, name, None) is fn


def _chunks(items: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while chunk := list(islice(items, size)):
        yield chunk


def _one_by_one(lists: Iterator[list[Any]]) -> Iterator[Any]:
    """Give what is in lists, and keep nothing of it."""
    for some in lists:
        some.reverse()
        while some:
            yield some.pop()


# -- the end of the interpreter

#: Sessions of executors; a session lives as long as its run does.
_living: weakref.WeakSet[Session] = weakref.WeakSet()


_ended: list[bool] = []  #: something is in it when nothing more can be submitted


def _close(session: Session) -> None:
    """Wait for the end; that an initializer failed was told to everybody who waits for a call."""
    with suppress(InitializerError):
        session.close()


@atexit.register
def _end_all() -> None:
    """Finish what was submitted, as the executors of the standard library do."""
    _ended.append(True)
    for session in list(_living):
        session.end_later()
    for session in list(_living):
        _close(session)
