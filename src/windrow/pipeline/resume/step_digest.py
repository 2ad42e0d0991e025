"""What a step is, as a digest: only results of the same steps may be added up.

Compiled code of another Python is another one, so a digest says which Python it is of, and digests of different ones say
nothing about each other. Versions of libraries are not in it: jobs on different machines still add up. What cannot be
looked into is taken to be the same.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.store.fingerprint import api

if TYPE_CHECKING:
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.steps import StepDefinition


#: Compiled code differs between versions of Python; the number is raised when equal steps get another digest than before.
_PYTHON = f"{sys.implementation.cache_tag or sys.version} 3"

#: How deep values lie in each other that are written out.
_DEPTH = 4

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...))


def fingerprint(step: StepDefinition) -> str:
    """Return a digest of a step's function with all that it uses, its parameters and its options."""
    when = step.when.text if step.when is not None else None
    return f"{_PYTHON}:{_own((_facts(step), when, step.after, step.regions))}"


def step_fingerprints(definition: Definition) -> dict[str, api.Fingerprint]:
    """Look into every step, libraries included; the user's ``version=`` counts for what cannot be looked into."""
    found = {}
    for name, step in definition.steps.items():
        mine = api.fingerprint(_facts(step), name=name)
        found[name] = mine if step.version is None else replace(mine, opaque=())
    return found


def _facts(step: StepDefinition) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "function": step.function,
        "parameters": dict(step.parameters),
        "reads": [(r.argument, r.column, r.optional, r.default) for r in step.reads],
        "reserved": step.reserved,
        "each": step.each,
        "weights": step.weights,
        "takes_weight": step.takes_weight,
        "merge": step.merge,
        "version": step.version,
    }


def contents_used(step: StepDefinition) -> dict[str, str]:
    """Return the digests of the things a step names that know their content: files, luminosity masks."""
    named = {type(step.function).__name__: step.function, **step.parameters}
    if inspect.isfunction(step.function):
        with suppress(ValueError):  # a variable of its closure has no value yet
            outside = inspect.getclosurevars(step.function)
            named |= {**outside.globals, **outside.nonlocals}
    return {
        name: value.fingerprint
        for name, value in named.items()
        if isinstance(getattr(type(value), "fingerprint", None), property)
    }


def parameters_said(step: StepDefinition) -> dict[str, str]:
    """Return the parameters of a step in words, to say which ones are not the same in two results."""
    return {name: _said(value) for name, value in step.parameters.items()}


def different_steps(
    first: Mapping[str, str],
    second: Mapping[str, str],
    parameters: tuple[Mapping[str, Mapping[str, str]], Mapping[str, Mapping[str, str]]],
) -> list[str]:
    """Say which steps of one name are not the same; steps that only one has are not looked at."""
    found = []
    for name in first:
        if name not in second:
            continue
        mine, theirs = (both.get(name, {}) for both in parameters)
        changed = [
            f"{key}={_short(mine.get(key))} and {key}={_short(theirs.get(key))}"
            for key in dict.fromkeys([*mine, *theirs])
            if mine.get(key) != theirs.get(key)
        ]
        if changed:
            found.append(f"{name!r} has {', '.join(changed)}")
        elif first[name].partition(":")[0] == second[name].partition(":")[0] and first[name] != second[name]:
            found.append(f"{name!r}, or something that it uses, is written in another way")
    return found


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _own(value: Any) -> str:
    """Return a digest of what the user wrote; how far a run has come is not in it."""
    return api.fingerprint(value, exact=False).own


def _said(value: Any, depth: int = 0) -> str:
    """Return a text that is the same for the same value in every process: as it is written, if it is plain."""
    if type(value) in _PLAIN:
        return repr(value)
    if depth < _DEPTH:
        if type(value) in (list, tuple):
            brackets = "[]" if type(value) is list else "()"
            return ", ".join(_said(item, depth + 1) for item in value).join(brackets)
        if type(value) is dict:
            items = sorted(f"{_said(k, depth + 1)}: {_said(v, depth + 1)}" for k, v in value.items())
            return ", ".join(items).join("{}")
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"{value.dtype} {value.item()!r}"
    return f"{type(value).__name__} {_own(value)[:8]}"
