"""Steps that are the same: whoever runs first answers for the others too.

Two steps of a kind are the same if they call the same function with the same parameters on the same columns, or on
columns made by steps that are the same. Functions are the same if they are one code with one surrounding, or if their
fingerprints say so. What cannot be looked into is the same as itself alone: to compute something twice costs time, to
take one thing for another costs the result.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.blocks.program import Argument, BoundStep

__all__ = ["mark_twins", "same_function", "same_value"]

#: Digests of functions by their ids, while somebody holds them; None where something cannot be looked into.
Digests = dict[int, str | None]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def mark_twins(steps: Mapping[str, BoundStep]) -> dict[str, BoundStep]:
    """Tell steps that are the same, in written order, which of them is the first."""
    first: dict[str, str] = {}  #: step -> the first that is the same
    groups: dict[Any, list[BoundStep]] = {}  #: by what is quick to compare
    twins: set[str] = set()
    digests: Digests = {}
    for name, step in steps.items():
        key = (step.kind, step.kernel is None, step.wants_rng, _sources(step.arguments, first))
        group = groups.setdefault(key, [])
        other = next((one for one in group if _same(one, step, digests)), None)
        first[name] = name if other is None else other.name
        if other is None:
            group.append(step)
        else:
            twins |= {name, other.name}
    return {name: replace(step, same_as=first[name]) if name in twins else step for name, step in steps.items()}


def _sources(arguments: tuple[Argument, ...], first: Mapping[str, str]) -> tuple[Any, ...]:
    """Say where arguments come from; columns made by steps that are the same are the same."""
    return tuple(
        (a.kind, first.get(a.source, a.source) if a.kind == "made" else a.source, a.members) for a in arguments
    )


def _same(one: BoundStep, other: BoundStep, digests: Digests) -> bool:
    defaults = zip(one.arguments, other.arguments, strict=True)
    return (
        same_value(dict(one.keywords), dict(other.keywords))
        and all(same_value(a.default, b.default) for a, b in defaults)
        and (same_function(one.function, other.function) or _same_digest(one.function, other.function, digests))
    )


def _same_digest(one: Any, other: Any, digests: Digests) -> bool:
    from windrow.store.fingerprints import fingerprint

    for function in (one, other):
        if id(function) not in digests:
            found = fingerprint(function)
            digests[id(function)] = None if found.opaque else found.digest
    return digests[id(one)] is not None and digests[id(one)] == digests[id(other)]


def same_function(one: Any, other: Any) -> bool:
    """Say whether two functions are one and the same code with the very same things around it.

    Defaults are not looked at: a step is always called with all its arguments.
    """
    if one is other:
        return True
    one, other = (getattr(function, "py_func", function) for function in (one, other))
    if isinstance(one, functools.partial) and isinstance(other, functools.partial):
        return same_function(one.func, other.func) and same_value(
            [one.args, one.keywords], [other.args, other.keywords]
        )
    if isinstance(one, MethodType) and isinstance(other, MethodType):
        return one.__self__ is other.__self__ and same_function(one.__func__, other.__func__)
    if not isinstance(one, FunctionType) or not isinstance(other, FunctionType):
        return False
    return (
        one.__code__ is other.__code__
        and one.__globals__ is other.__globals__
        and one.__dict__ == other.__dict__ == {}
        and _same_cells(one, other)
    )


def _same_cells(one: FunctionType, other: FunctionType) -> bool:
    cells = zip(one.__closure__ or (), other.__closure__ or (), strict=True)
    for mine, theirs in cells:
        if mine is theirs:
            continue
        try:
            if not same_value(mine.cell_contents, theirs.cell_contents):
                return False
        except ValueError:
            return False  # one of them is not bound yet
    return True


def same_value(one: Any, other: Any) -> bool:
    """Say whether two parameters are the same: one object, or plain values of one type that look the same."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, _PLAIN):
        return repr(one) == repr(other)  # tells 0.0 from -0.0, and not NaN from NaN
    if type(one) in (list, tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if type(one) is dict:
        return list(one) == list(other) and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, FunctionType):
        return same_function(one, other) and same_value(
            [one.__defaults__, one.__kwdefaults__], [other.__defaults__, other.__kwdefaults__]
        )
    return False
