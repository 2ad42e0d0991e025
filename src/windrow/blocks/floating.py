"""Floating-point warnings of steps that run earlier than written: counted, not printed.

A cut that runs early sees rows that another cut would have removed, and may divide by zero in them. Nothing comes of
it, since the other cut still removes them; a warning about such rows would only frighten. Only what NumPy would print
is counted: a user who asked for exceptions, silence or a handler of his own gets these.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


@lru_cache(maxsize=64)
def early_steps(order: tuple[str, ...], written: tuple[str, ...], cuts: frozenset[str]) -> frozenset[str]:
    """Return the steps that run before a cut that is written above them."""
    above: dict[str, set[str]] = {}
    seen: set[str] = set()
    for name in written:
        above[name] = set(seen)
        if name in cuts:
            seen.add(name)
    early: set[str] = set()
    ran: set[str] = set()
    for name in order:
        if not above[name] <= ran:
            early.add(name)
        ran.add(name)
    return frozenset(early)


@contextmanager
def counting(warned: dict[str, int], step: str) -> Iterator[None]:
    """Count floating-point warnings for a step instead of printing them."""

    def count(_kind: str, _flag: int) -> None:
        warned[step] = warned.get(step, 0) + 1

    settings = np.geterr()
    if any(how in ("call", "log") for how in settings.values()) or _may_raise():
        yield  # they go to the user's own handler, and there is only one; or they are exceptions
        return
    changed = {kind: "call" for kind, how in settings.items() if how == "warn"}
    with np.errstate(call=count, **changed):  # type: ignore[arg-type]
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Print no floating-point warnings."""
    if _may_raise():
        yield
        return
    changed = {kind: "ignore" for kind, how in np.geterr().items() if how == "warn"}
    with np.errstate(**changed):  # type: ignore[arg-type]
        yield


def _may_raise() -> bool:
    """Say whether a filter makes exceptions of NumPy's warnings, as ``python -W error`` does.

    The first filter that matches decides. Of one that asks for a text or a module it is not known beforehand whether it
    will: if it raises, something may raise; if not, the next may be asked.
    """
    for action, text, category, module, line in warnings.filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return True
            if text is None and module is None and line == 0:
                return False
    return False
