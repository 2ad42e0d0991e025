"""Options of tasks and sessions: what is no amount, count or name of one is refused where it is written."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any, Self

from windrow.errors import UsageError, nearest
from windrow.units import format_bytes, parse_bytes

#: Bytes; nothing runs in less. Numbers below it are megabytes or gigabytes whose unit was forgotten.
LEAST_MEMORY = 10**6
#: What may become of other tasks when one fails for good.
ON_FAILURE = ("stop", "ignore", "cancel_successors", "retry")


class NamedOptions:
    """A class whose options are named; a name that is none is answered with the nearest."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Look at the names before they are bound."""
        # All of them have a default, and are in __init__ alone for those who read it and for type checkers.
        known = list(getattr(cls.__init__, "__kwdefaults__", None) or {})
        name = cls.__name__
        if arguments:
            raise UsageError(
                f"options of wr.{name} are named, got {arguments[0]!r} without a name; it has {', '.join(known)}"
            )
        for one in options:
            if one not in known:
                raise UsageError(f"wr.{name} has no option {one!r}{nearest(one, known)}; it has {', '.join(known)}")
        return super().__new__(cls)


def _is_number(value: Any) -> bool:
    """Whether it is a number that can be counted with; True and False are none here."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def checked_session(workers: Any, resources: Any) -> dict[str, float]:
    """Give what a session says that it has; refuse what is no number of workers and no amount."""
    if workers is not None and not (_is_count(workers) and workers > 0):
        raise UsageError(
            "wr.Session: workers= is how many tasks run at a time, a whole number from 1 on, or None for as many as there "
            f"are cores; got {workers!r}"
        )
    has = _resources("wr.Session", resources)
    if isinstance(has.get("memory"), str):
        has["memory"] = parse_bytes(has["memory"])
    for name, amount in has.items():
        _amount("wr.Session", f"resources= of {name!r}", amount)
    return has


def check_on_failure(whose: str, on_failure: Any) -> None:
    """Refuse what is no rule for failures; a misspelt one would be none."""
    if on_failure is not None and on_failure not in ON_FAILURE:
        raise UsageError(
            f"{whose}: on_failure= is one of {', '.join(map(repr, ON_FAILURE))}; got {on_failure!r}"
            f"{nearest(str(on_failure), ON_FAILURE)}"
        )


def checked_needs(task: str, options: Mapping[str, Any]) -> dict[str, float]:
    """Give what a task needs, by name; refuse what is no amount."""
    whose = f"task {task!r}"
    cores, memory, gpus = options.get("cores", 1), options.get("memory"), options.get("gpus", 0)
    said = _resources(whose, options.get("resources"))
    _amount(whose, "cores=", cores, "; 0 is for tasks that only wait, as for files or the network")
    _amount(whose, "gpus=", gpus)
    for name, amount in said.items():
        _amount(whose, f"resources= of {name!r}", amount)
    needs = {"cores": cores, "gpu": gpus, **said}
    if memory is not None:
        needs["memory"] = _memory(task, memory)
    return needs


def _resources(whose: str, resources: Any) -> dict[str, Any]:
    if resources is not None and not isinstance(resources, Mapping):
        raise UsageError(f'{whose}: resources= are amounts by name, such as {{"licence": 1}}; got {resources!r}')
    return dict(resources or {})


def _amount(whose: str, what: str, amount: Any, more: str = "") -> None:
    if not _is_number(amount) or amount < 0:
        raise UsageError(f"{whose}: {what} is a number from 0 on{more}; got {amount!r}")


def _memory(task: str, memory: Any) -> int:
    try:
        amount = parse_bytes(memory)
    except UsageError as error:
        raise UsageError(f"task {task!r}: memory=: {error}") from None
    if amount < LEAST_MEMORY and (_is_number(memory) or _is_bare(memory) or not amount):
        raise UsageError(
            f"task {task!r}: memory={memory!r} is {format_bytes(amount)}, in which nothing runs; say it with its unit, "
            f"memory='200 MB'"
        )
    return amount


def _is_bare(text: str) -> bool:
    """Whether a size has no unit."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_numbers(task: str, options: Mapping[str, Any]) -> None:
    """Refuse what is no priority, number of retries or deadline."""
    priority, retries, deadline = options.get("priority", 0), options.get("retries"), options.get("deadline")
    if not _is_count(priority):
        raise UsageError(
            f"task {task!r}: priority= is a whole number, of which higher ones run first; got {priority!r}"
        )
    if retries is not None and not (_is_count(retries) and retries >= 0):
        raise UsageError(
            f"task {task!r}: retries= is how often it is tried again, a whole number from 0 on; got {retries!r}"
        )
    if deadline is not None and not (_is_number(deadline) and deadline > 0):
        raise UsageError(
            f"task {task!r}: deadline= is the seconds from its call in which it must be done, a number above 0; got "
            f"{deadline!r}"
        )
