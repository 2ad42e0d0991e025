"""Futures: what a task will have made, in the form of ``concurrent.futures``, which knows how to wait for many.

A value stays where it was made until it is asked for, if it is large and was made in another process.

Most futures are done before anybody looks at them, and of a graph there are many at a time. So the condition and the lists
that waiting takes are made when they are first needed.
"""

from __future__ import annotations

import concurrent.futures
import threading
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from windrow.errors import TaskError, UsageError
from windrow.tasks.declare import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windrow.tasks.call import Call
    from windrow.tasks.driver import Driver
    from windrow.tasks.session import Session


#: Stands for a value that exists and has not been brought here.
ELSEWHERE: Any = object()

#: Held while a task begins, or is cancelled before that: it is one of the two. Nothing is waited for under it.
BEGINNING = threading.RLock()

#: Held while a condition is put in its place, or found not to be there; nothing else is ever waited for under it.
_PLACE = threading.RLock()

#: Seconds between two looks while something is waited for.
LOOK_S = 1.0


def wait_for(condition: threading.Condition, met: Callable[[], Any], timeout: float | None = None) -> bool:
    """Wait as the condition would, and look up every second.

    Python hears of Ctrl-C between two steps of the program: one that comes just before a wait without an end is heard
    when that has ended.
    """
    until = None if timeout is None else monotonic() + timeout
    while not met():
        left = LOOK_S if until is None else min(until - monotonic(), LOOK_S)
        if left <= 0:
            return False
        condition.wait(left)
    return True


class Future(concurrent.futures.Future[Any]):
    """One output of a task."""

    eager = False  #: whether it is done only when the value is here
    kept: Any = None  #: what stands for a value that is read from the store instead

    # What the base class would make for each.
    _state = "PENDING"
    _result: Any = None
    _exception: BaseException | None = None
    _own_condition: threading.Condition | None = None
    _own_waiters: list[Any] | None = None
    _own_callbacks: list[Any] | None = None

    def __init__(self, session: Session, call: Call, output: str) -> None:
        self._session = session
        self.call = call  #: keeps what the task would need to be done again
        self.output = output  #: by which the graph knows it

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        found = self._own_condition
        if found is None:
            made = threading.Condition()
            with _PLACE:
                found = self._own_condition
                if found is None:
                    found = self._own_condition = made
        return found

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        with self._condition:
            if self._own_waiters is None:
                self._own_waiters = []
            return self._own_waiters

    @property
    def _done_callbacks(self) -> list[Any]:
        with self._condition:
            if self._own_callbacks is None:
                self._own_callbacks = []
            return self._own_callbacks

    def __repr__(self) -> str:
        return f"<future {self.output} of task {self.call.name!r}: {self._state.lower()}>"

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is neither true nor false before its value is known: ask for that with result()")

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.forget(self.output)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the value; raises what the task raised."""
        if self._state == "FINISHED":  # told after the value, and an exception before it
            value = self._result
            if value is not ELSEWHERE and self._exception is None:
                return value
        try:
            if self.waits:
                self._session.refuse_to_wait(repr(self))
            self._wait(timeout)
            value = super().result(0 if timeout is None else timeout)
            return self._bring(timeout) if value is ELSEWHERE else value
        except concurrent.futures.CancelledError:
            self._say_why_cancelled()
            raise
        finally:
            if self._state != "FINISHED" or self._exception is not None:
                self._session.seen(self)

    def _wait(self, timeout: float | None) -> None:
        if timeout is None:
            with self._condition:
                wait_for(self._condition, lambda: self._state not in ("PENDING", "RUNNING"))

    def _bring(self, timeout: float | None) -> Any:
        session = self._session
        session.expect(self)
        with self._condition:
            if self._result is ELSEWHERE and not session._driver.over:
                session.refuse_to_wait(f"{self!r}, whose value has to be brought,")
            found = wait_for(self._condition, lambda: self._result is not ELSEWHERE or session._driver.over, timeout)
        if self._exception is not None:
            raise self._exception
        if self._result is ELSEWHERE:
            if not found:
                raise TimeoutError
            raise TaskError(f"the session ended before the value of {self!r} was brought")
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end; return what the task raised, or None."""
        try:
            if self.waits:
                self._session.refuse_to_wait(repr(self))
            self._wait(timeout)
            return super().exception(0 if timeout is None else timeout)
        except concurrent.futures.CancelledError:
            self._say_why_cancelled()
            raise
        finally:
            self._session.seen(self)

    def _say_why_cancelled(self) -> None:
        """Raise with the reason, where it was not this very future that was cancelled."""
        why = self.call.failure
        if why is not None:
            raise concurrent.futures.CancelledError(
                f"task {self.call.name!r} has no value: {why.message}"
            ) from self._session._driver.stopped

    def cancel(self) -> bool:
        """Cancel the task unless it runs or has ended; its other outputs and all that needs it go with it."""
        if self.cancelled() or not self.waits:
            return self.cancelled()
        return cancel_call(self.call)

    def running(self) -> bool:
        """Whether the task runs; threads know that before anybody is told."""
        return super().running() or (self._state == "PENDING" and self.call.state == "running")

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call a function with this future once it is done and its value is here; tasks that it calls just run."""
        with self._condition:
            waits = not self.done() and self not in self._session.awaited
            if waits:
                # It is called by the run itself, which cannot wait for a value then.
                self.eager = True
                # Somebody waits for the call, also where nobody keeps the future.
                self._session.awaited.add(self)
        if waits:
            super().add_done_callback(self._session.awaited.discard)
        self._session.prepare(self)
        super().add_done_callback(partial(_call_outside, fn))

    def __array_function__(self, function: Any, *_: Any) -> Any:
        """Refuse functions of NumPy, which would make an array of objects."""
        what = f"numpy.{function.__name__} was given a future, which is not its value"
        raise UsageError(f"{what}: ask for values first (session.gather), or call it in a task")

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} cannot be pickled: a future is given to a task as an argument, or in a list, tuple, set or "
            "dictionary; inside other objects it is not found"
        )

    # -- the session's side

    @property
    def waits(self) -> bool:
        return self._state in ("PENDING", "RUNNING")

    @property
    def is_here(self) -> bool:
        """Whether it has an end, with its value if there is one."""
        return not self.waits and self._result is not ELSEWHERE

    def arrived(self, value: Any) -> None:
        with _PLACE:
            if self._own_condition is None:  # nobody looks, or can until it is done
                if self._state in ("PENDING", "RUNNING", "FINISHED"):
                    self._result, self._state = value, "FINISHED"
                return
        with self._condition:
            if self._state == "FINISHED":
                self._result = value
                self._condition.notify_all()
                return
            if self._state not in ("PENDING", "RUNNING"):
                return
            # As set_result does, which would take the lock once more.
            self._result, self._state = value, "FINISHED"
            for waiter in self._own_waiters or ():
                waiter.add_result(self)
            self._condition.notify_all()
        if self._own_callbacks:
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def failed(self, error: BaseException) -> None:
        """There will be no value, or the one there is cannot be brought."""
        with self._condition:
            if self._state == "FINISHED" and self._result is ELSEWHERE:
                self._exception, self._result = error, None
                self._condition.notify_all()
                return
        if not self.done() and self.set_running_or_notify_cancel_once():
            self.set_exception(error)

    def give_up(self) -> None:
        """The task was cancelled, perhaps while it was done again because the value was lost before it was brought."""
        with self._condition:
            if self._state == "FINISHED" and self._result is ELSEWHERE:
                self._exception, self._result = concurrent.futures.CancelledError(), None
                self._condition.notify_all()
            if self._state not in ("PENDING", "RUNNING"):
                return
            self._state = "CANCELLED"
            self._condition.notify_all()
        self.set_running_or_notify_cancel()
        self._invoke_callbacks()  # type: ignore[attr-defined]  # no public way is known

    def set_running_or_notify_cancel_once(self) -> bool:
        """Say that it runs, if that was not said yet; False if it was cancelled."""
        with self._condition:
            if self._state == "PENDING":
                self._state = "RUNNING"
            return self._state == "RUNNING"


def _call_outside(function: Callable[[Any], object], future: Future) -> None:
    """Call a function where no session is the current one, wherever that is: the run would wait for itself in a session's."""
    token = current.set(None)
    try:
        function(future)
    finally:
        current.reset(token)


class EagerFuture(Future):
    """A future that is done when its value is here, as those of executors are."""

    eager = True

    def __bool__(self) -> bool:
        return True  # as those of executors

    def arrived(self, value: Any) -> None:
        """The value is here: let the arguments go if the task has ended, as it will never run again then."""
        if self.call.state == "done":
            self.call.content = None
        super().arrived(value)

    def failed(self, error: BaseException) -> None:
        self.call.content = None
        super().failed(error)


class StreamFuture:
    """Outputs of a task whose number is not known: an iterator of futures that come as they are made."""

    def __init__(self, session: Session, call: Call, end: Future) -> None:
        self._session = session
        self.call = call
        self._end = end  #: is there when no more will come

    def __iter__(self) -> Iterator[Future]:
        return self

    def __next__(self) -> Future:
        session, call, end = self._session, self.call, self._end
        with session.changed:
            if not (call.streamed or end.done()):
                session.refuse_to_wait(f"the next output of task {call.name!r}")
            wait_for(session.changed, lambda: call.streamed or end.done() or session._driver.over)
            if call.streamed:
                return call.streamed.popleft()
        end.result()  # raises what the task raised
        raise StopIteration

    def __repr__(self) -> str:
        return f"<stream of task {self.call.name!r}>"


def cancel_call(call: Call) -> bool:
    """Cancel a call with all its futures, unless it runs or has ended; the program need not have one of them."""
    with BEGINNING:
        if call.state not in ("waiting", "cancelled"):
            return False
        call.state = "cancelled"
    session = call.session
    session.cancel_task(call)
    # Callbacks of theirs may do anything, so nothing is held here any more.
    for name in call.outputs:
        future = session.futures.get(name)
        if future is not None:
            future.give_up()
    return True


def refuse_in_fork(driver: Driver, what: str) -> None:
    """Raise in a fork of the process that has the run: nothing would ever be done there, or answered."""
    if driver.forked:
        raise UsageError(
            f"{what} in a process that was forked (os.fork, multiprocessing) from the one that opened the session: the "
            "session runs in that one alone; open another one here"
        )


def without_value(session: Session, call: Call, exists: Callable[[str], bool]) -> list[Future]:
    """List the futures of a task that has ended badly; what it had released before is final, and may yet be brought."""
    found = (session.futures.get(name) for name in call.outputs)
    return [future for future in found if future is not None and (future.waits or not exists(future.output))]
