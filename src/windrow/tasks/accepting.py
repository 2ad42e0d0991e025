"""Which calls a function accepts: a wrong one fails where it is made, as that of a plain function does, not in a worker."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Accepts", "check_call"]

_IN_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ENDLESS = 1 << 30


class Accepts:
    """Tells in a fraction of a microsecond that a usual call is right; whatever else there is, Python is asked about."""

    __slots__ = ("_by_name", "_needed", "least", "most")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.least, self.most = 0, _ENDLESS  #: arguments of a call that names none
        self._by_name: dict[str, int] = {}  #: where in order a parameter is
        self._needed: list[tuple[int, str]] = []
        try:
            parameters = inspect.signature(function).parameters.values()
        except (ValueError, TypeError):  # some builtins do not tell
            return
        if not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            self.most = sum(one.kind in _IN_ORDER for one in parameters)
        for number, one in enumerate(parameters):
            place = number if one.kind in _IN_ORDER else _ENDLESS
            if one.kind in _BY_NAME:
                self._by_name[one.name] = place
            if one.default is one.empty and one.kind in (*_IN_ORDER, one.KEYWORD_ONLY):
                self._needed.append((place, one.name))
                self.least = place + 1

    def named(self, count: int, keywords: Mapping[str, Any]) -> bool:
        """Whether a call with so many arguments in order, and others by name, is surely right."""
        if count > self.most:
            return False
        for name in keywords:
            if self._by_name.get(name, -1) < count:
                return False
        for place, name in self._needed:  # noqa: SIM110 - a generator takes twice as long, for every call
            if place >= count and name not in keywords:
                return False
        return True


def check_call(
    name: str, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> None:
    """Raise what Python raises for a call that a function does not accept."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{name}() {error}; it is called as {name}{signature}") from None
