"""Options of tasks and sessions: what is no amount, count or name of one is refused where it is written."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Self

from windrow.errors import UsageError, nearest
from windrow.tasks.body import STREAM
from windrow.units import format_bytes, parse_bytes

#: Bytes; nothing runs in less. Numbers below it are megabytes or gigabytes whose unit was forgotten.
LEAST_MEMORY = 10**6
#: What may become of other tasks when one fails for good.
ON_FAILURE = ("stop", "ignore", "cancel_successors", "retry")


class NamedOptions:
    """A class whose options are named; a name that is none is answered with the nearest."""

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        # All of them have a default, and are in __init__ alone for those who read it and for type checkers.
        known = list(getattr(cls.__init__, "__kwdefaults__", None) or {})
        name = cls.__name__
        if arguments:
            raise UsageError(
                f"options of wr.{name} are named, got {arguments[0]!r} without a name; it has {', '.join(known)}"
            )
        check_names(f"wr.{name}", options, known)
        return super().__new__(cls)


def check_names(whose: str, options: Mapping[str, Any], known: list[str]) -> None:
    for one in options:
        if one not in known:
            raise UsageError(f"{whose} has no option {one!r}{nearest(one, known)}; it has {', '.join(known)}")


def _is_amount(value: Any) -> bool:
    """Whether it is a number that can be counted with, from 0 on; True and False are none here."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value) and float(value) >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


#: By option: what it may be, and the same in words.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "cores": (_is_amount, "is a number from 0 on; 0 is for tasks that only wait, as for files or the network"),
    "gpus": (_is_amount, "is a number from 0 on"),
    "resources": (lambda one: one is None or isinstance(one, Mapping), 'are amounts by name, such as {"licence": 1}'),
    "priority": (_is_count, "is a whole number, of which higher ones run first"),
    "retries": (
        lambda one: one is None or (_is_count(one) and one >= 0),
        "is how often it is tried again, a whole number from 0 on",
    ),
    "deadline": (
        lambda one: one is None or (_is_amount(one) and one > 0),
        "is the seconds from its call in which it must be done, a number above 0",
    ),
    "on_failure": (lambda one: one is None or one in ON_FAILURE, f"is one of {', '.join(map(repr, ON_FAILURE))}"),
    "reuse": (
        lambda one: one in (None, True, False, "content"),
        "is True, False or 'content' (which looks into arrays too)",
    ),
    "outputs": (
        lambda one: one is None or one == STREAM or (isinstance(one, int) and one > 0),
        'is a number from 1 on, or "stream" where that is not known',
    ),
    "workers": (
        lambda one: one is None or (_is_count(one) and one > 0),
        "is how many tasks run at a time, a whole number from 1 on, or None for as many as there are cores",
    ),
}


def check_options(whose: str, **options: Any) -> None:
    for name, value in options.items():
        is_right, words = _RULES.get(name, (None, ""))
        if is_right is not None and not is_right(value):
            near = nearest(value, ON_FAILURE) if name == "on_failure" and isinstance(value, str) else ""
            raise UsageError(f"{whose}: {name}= {words}; got {value!r}{near}")
    for name, amount in (options.get("resources") or {}).items():
        if not _is_amount(amount):
            raise UsageError(f"{whose}: resources= of {name!r} is a number from 0 on; got {amount!r}")


def task_needs(task: str, options: Mapping[str, Any]) -> dict[str, float]:
    needs = {"cores": options.get("cores", 1), "gpu": options.get("gpus", 0), **(options.get("resources") or {})}
    memory = options.get("memory")
    if memory is None:
        return needs
    try:
        amount = parse_bytes(memory)
    except UsageError as error:
        raise UsageError(f"task {task!r}: memory=: {error}") from None
    has_unit = isinstance(memory, str) and memory.rstrip()[-1].isalpha()
    if amount == 0 or (amount < LEAST_MEMORY and not has_unit):
        raise UsageError(
            f"task {task!r}: memory={memory!r} is {format_bytes(amount)}, in which nothing runs; say it with its unit, "
            f"memory='200 MB'"
        )
    return {**needs, "memory": amount}
