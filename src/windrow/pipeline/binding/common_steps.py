"""Steps that are the same: whoever runs first answers for the others too.

Two steps of a kind are the same if they call the same function with the same parameters on the same columns, or on
columns made by steps that are the same. Functions and parameters are the same if they are one object, or if their
fingerprints say so. What cannot be looked into is the same as itself alone: to compute something twice costs time, to
take one thing for another costs the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.blocks.program import Argument, BoundStep


#: Digests of functions and parameters by their ids, while the steps hold them; None where something cannot be looked into.
Digests = dict[int, str | None]


def mark_twins(steps: Mapping[str, BoundStep]) -> dict[str, BoundStep]:
    """Tell steps that are the same, in written order, which of them is the first."""
    first: dict[str, str] = {}  #: step -> the first that is the same
    groups: dict[Any, list[BoundStep]] = {}  #: by what is quick to compare
    digests: Digests = {}
    for name, step in steps.items():
        key = (step.kind, step.kernel is None, step.wants_rng, _sources(step.arguments, first))
        group = groups.setdefault(key, [])
        same = next((one for one in group if _same(one, step, digests)), step)
        first[name] = same.name
        if same is step:
            group.append(step)
    shared = {one for name, one in first.items() if one != name}
    return {name: replace(step, same_as=first[name]) if first[name] in shared else step for name, step in steps.items()}


def _sources(arguments: tuple[Argument, ...], first: Mapping[str, str]) -> tuple[Any, ...]:
    """Say where arguments come from; columns made by steps that are the same are the same."""
    return tuple(
        (a.kind, first.get(a.source, a.source) if a.kind == "made" else a.source, a.members) for a in arguments
    )


def _same(one: BoundStep, other: BoundStep, digests: Digests) -> bool:
    mine, theirs = _things(one), _things(other)
    return mine.keys() == theirs.keys() and all(
        mine[name] is theirs[name]
        or (_digest(mine[name], digests) is not None and _digest(mine[name], digests) == _digest(theirs[name], digests))
        for name in mine
    )


def _things(step: BoundStep) -> dict[str, Any]:
    """All that decides what a step answers, beside the columns it is given."""
    defaults = {f"default {number}": argument.default for number, argument in enumerate(step.arguments)}
    return {"function": step.function, **dict(step.keywords), **defaults}


def _digest(thing: Any, digests: Digests) -> str | None:
    from windrow.store.fingerprint.api import fingerprint

    if id(thing) not in digests:
        found = fingerprint(thing)
        digests[id(thing)] = None if found.opaque else found.digest
    return digests[id(thing)]
