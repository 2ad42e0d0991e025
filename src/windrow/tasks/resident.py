"""``wr.resident``: something that each worker makes once and keeps, such as a model that takes long to load.

What travels to a worker is the recipe, as the default value of the function; what was made of it never does. A worker is a
thread: one of the threads engine, or the only one that works in a process. Elsewhere things are kept per process.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from windrow.tasks.worker import RunningCall


def resident(load: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """Give a task something that each worker makes once, when a task there first needs it::

        @wr.task
        def infer(tile, *, model=wr.resident(load_model, "model.pt")):
            return model(tile)

    A caller may pass another ``model=``. If loading raises, the task has failed, and the next one tries again. For results
    that are reused the function and its arguments count; of a file only the name does, unless it is given as ``wr.file``.

    Parameters
    ----------
    load
        Called in the worker, with the arguments that follow.
    """
    if not callable(load):
        raise UsageError(
            f"wr.resident is given a function that makes something, got {load!r}: "
            "write wr.resident(load, path), not wr.resident(load(path))"
        )
    return Resident(load, arguments, keywords, _Identity(uuid4().hex))


class _Identity:
    """Tells recipes apart, also where they were sent; two with the same content make the same thing."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def fingerprint(self) -> str:
        """What it is for makes no difference to any result."""
        return ""


class Resident(NamedTuple):
    """A recipe; ``resident`` makes it."""

    load: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    identity: _Identity

    def __repr__(self) -> str:
        return f"<resident {getattr(self.load, '__qualname__', self.load)!s}>"


class Residents(NamedTuple):
    """Around a body: puts what the worker keeps where the caller gave nothing."""

    parameters: tuple[str, ...]

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:
        going.keywords.update(made_here(going.name, going.function, self.parameters))
        yield


def made_here(name: str, function: Callable[..., Any], parameters: Sequence[str]) -> dict[str, Any]:
    """Give the things that parameters of a task stand for, by parameter; made now if they were not."""
    known = signature(function).parameters
    made = {}
    for parameter in parameters:
        recipe: Resident = known[parameter].default
        try:
            made[parameter] = _keeper().get(recipe)
        except Exception as error:
            error.add_note(
                f"raised by {recipe!r}, which makes {parameter!r} of task {name!r} once per worker; the next task that "
                "needs it tries again"
            )
            raise
    return made


def made_of_others(function: Any) -> str:
    """Name a thing of a function that was made here while its recipe meant something else; nothing if there is none."""
    named = getattr(function, "__kwdefaults__", None) or {}
    for one in (*(getattr(function, "__defaults__", None) or ()), *named.values()):
        if type(one) is Resident and _keeper().made_of.get(one.identity.text) not in (None, _meaning(one)):
            return f"{one!r}"
    return ""


def _meaning(recipe: Resident) -> str:
    from windrow.store.fingerprint.api import fingerprint

    return fingerprint(recipe).digest


class _Keeper:
    """What was made, by recipe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._things: dict[str, Any] = {}
        self._locks: dict[str, threading.RLock] = {}
        self.made_of: dict[str, str] = {}  #: what a recipe meant when it was used

    def get(self, recipe: Resident) -> Any:
        key = recipe.identity.text
        if key in self._things:
            return self._things[key]
        with self._lock:
            lock = self._locks.setdefault(key, threading.RLock())
        with lock:  # of this recipe alone: others may be needed to make it
            if key not in self._things:
                self.made_of[key] = _meaning(recipe)
                self._things[key] = recipe.load(*recipe.arguments, **recipe.keywords)
            return self._things[key]


_of_process = _Keeper()
_of_worker = threading.local()


def _keeper() -> _Keeper:
    return getattr(_of_worker, "keeper", _of_process)


def begin_worker() -> None:
    """From now on this thread is a worker, with things of its own."""
    _of_worker.keeper = _Keeper()


def end_worker() -> None:
    vars(_of_worker).pop("keeper", None)
