"""Running the body of a task: what it returns, yields or declares ready becomes its outputs, one by one.

The same code runs it in a worker and, outside a session, where it is called: there outputs are simply collected.
"""

from __future__ import annotations

import functools
import inspect
import os
from contextvars import ContextVar
from numbers import Number
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from windrow.core.records import ONE_CORE
from windrow.errors import TaskOutputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.core.records import Needs

#: As ``outputs=``: how many there are is known when the body has ended.
STREAM = "stream"

_forks = 0  #: between the first process and this one; asking the system which one it is takes longer than a short task's body


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)

_releasing: ContextVar[_Releasing | None] = ContextVar("windrow_releasing", default=None)


def cores_of_task() -> int | None:
    """Say how many cores the task has whose body runs here; None: no task of a session does."""
    releasing = _releasing.get()
    if releasing is None or releasing._release is None:
        return None
    return max(int(dict(releasing.needs.amounts).get("cores", 1)), 1)


def is_generator(function: Callable[..., Any]) -> bool:
    return inspect.isgeneratorfunction(inspect.unwrap(function))


def ready(value: Any, index: int = 0) -> None:
    """Release an output of the task that runs: tasks that wait for it need not wait for this one's end.

    What is released is final: returning or releasing it again is an error.
    """
    releasing = _releasing.get()
    if releasing is None:
        raise UsageError(
            "wr.ready(value, index) was called outside the body of a task; it releases an output of the task that runs"
        )
    releasing.release(index, value)


def releasing_through(
    function: Callable[..., Any], through: Callable[[Callable[[int, Any], None], int, Any], None]
) -> Callable[..., Any]:
    """Make a body of another whose outputs, when they are released, go to ``through``, with what else had been done."""

    @functools.wraps(function)
    def body(*arguments: Any, **keywords: Any) -> Any:
        releasing = _releasing.get()
        if releasing is not None and releasing._release is not None:
            releasing._release = functools.partial(through, releasing._release)
        return function(*arguments, **keywords)

    return body


class _Releasing:
    """Outputs of one run of a body."""

    __slots__ = ("_forks", "_release", "made", "name", "needs", "outputs", "released")

    def __init__(self, name: str, outputs: int | str, release: Callable[[int, Any], None] | None, needs: Needs) -> None:
        self.name = name
        self.needs = needs
        self.outputs = outputs
        self.made: dict[int, Any] = {}  #: those that were not passed on at once
        self.released: set[int] = set()
        self._release = release
        self._forks = _forks

    def end_fork(self) -> None:
        """End a child that the body forked and did not end, if this is one: the call is its parent's, in a worker."""
        if self._release is not None and _forks != self._forks:
            os._exit(1)

    def release(self, index: int, value: Any) -> None:
        self.end_fork()
        if type(index) is not int or index < 0:
            raise UsageError(f"task {self.name!r}: an output is known by its number, got {index!r}")
        if self.outputs != STREAM and index >= int(self.outputs):
            raise TaskOutputError(
                f"task {self.name!r} made output {index}, but it declares outputs={self.outputs}: they are numbered from "
                f'0; declare more, or outputs="stream" where their number is not known'
            )
        if index in self.released:
            raise TaskOutputError(f"task {self.name!r} made output {index} twice; a released output is final")
        self.released.add(index)
        if self._release is None:
            self.made[index] = value
        else:
            self._release(index, value)


def run_body(
    name: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    outputs: int | str,
    release: Callable[[int, Any], None] | None = None,
    needs: Needs = ONE_CORE,
) -> dict[int, Any]:
    """Run a body; return the outputs that were not passed to ``release``, by number."""
    releasing = _Releasing(name, outputs, release, needs)
    token = _releasing.set(releasing)
    try:
        result = function(*arguments, **keywords)
        if type(result) is GeneratorType and is_generator(function):
            _drain(releasing, result)
        elif outputs == 1 and not releasing.released:
            return {0: result}
        else:
            _returned(releasing, result)
    except Exception as error:
        if release is not None:  # of many calls, which one it was
            given = [_brief(one) for one in arguments] + [f"{key}={_brief(one)}" for key, one in keywords.items()]
            error.add_note(f"called as {name}({', '.join(given)})")
        raise
    finally:
        releasing.end_fork()
        _releasing.reset(token)
    return releasing.made


def _brief(given: Any) -> str:
    """Short text of an argument: plain values as they are, of all else the type."""
    if given is not None and not isinstance(given, (str, Number, os.PathLike)):
        return type(given).__name__
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:38]}...{text[-38:]}"


def _drain(releasing: _Releasing, generator: Any) -> None:
    number = 0
    for value in generator:
        releasing.release(number, value)
        number += 1
    wanted = releasing.outputs
    if wanted != STREAM and number + len(releasing.released - set(range(number))) != wanted:
        raise TaskOutputError(
            f"task {releasing.name!r} yielded {number} outputs, but it declares outputs={wanted}; yield as many, or "
            'declare outputs="stream" where their number is not known'
        )


def _returned(releasing: _Releasing, result: Any) -> None:
    """Divide what was returned among the outputs that were not released yet."""
    wanted = releasing.outputs
    if wanted == STREAM:
        for number, value in enumerate(result, start=len(releasing.released)):
            releasing.release(number, value)
        return
    left = [number for number in range(int(wanted)) if number not in releasing.released]
    if wanted == 1 or len(left) == 1:
        values: list[Any] = [result] * len(left)
    elif not left:
        values = []
    else:
        if not isinstance(result, (tuple, list)) or len(result) != len(left):
            what = f"{len(result)} of them" if isinstance(result, (tuple, list)) else repr(type(result))
            raise TaskOutputError(
                f"task {releasing.name!r} returns a tuple of {len(left)} outputs (outputs={wanted}); it returned {what}"
            )
        values = list(result)
    for number, value in zip(left, values, strict=True):
        releasing.made[number] = value
