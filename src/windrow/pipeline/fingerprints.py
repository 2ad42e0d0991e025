"""What a step is, as a digest: only results of the same steps may be added up.

The compiled code is looked at, not the source: a file may have been edited since it was imported, and a run may take
hours. Names of local variables, comments and line numbers are not in it. Compiled code of another Python is another one,
so a digest says which Python it is of, and digests of different ones say nothing about each other.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Mapping
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from windrow.pipeline.steps import StepDefinition

__all__ = ["different_steps", "fingerprint", "parameters_said"]

#: Compiled code differs between versions of Python.
_PYTHON = sys.implementation.cache_tag or sys.version

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...))

#: Numbers of an array that are written out.
SHORT = 100

#: In a repr: where an object is, which is another place in every process.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def fingerprint(step: StepDefinition) -> str:
    """Return a digest of a step's function, parameters and options.

    What the function reads from outside is in it only as far as it is in its closure: plain values, things that know
    their content, such as files, and other functions.
    """
    seen: set[int] = set()
    parts = [
        step.kind,
        *_function(step.function, seen),
        _said(step.parameters, seen),
        _said([(r.argument, r.column, r.optional, r.default) for r in step.reads], seen),
        _said(step.when.text if step.when is not None else None, seen),
        _said((step.after, step.each, step.regions, step.weights, step.reserved), seen),
        *([] if step.merge is None else _function(step.merge, seen)),
    ]
    return f"{_PYTHON}:{_digest(chr(31).join(parts).encode('utf-8', 'surrogatepass'))}"


def parameters_said(step: StepDefinition) -> dict[str, str]:
    """Return the parameters of a step in words, to say which ones are not the same in two results."""
    return {name: _said(value, set()) for name, value in step.parameters.items()}


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
        elif _python(first[name]) == _python(second[name]) and first[name] != second[name]:
            found.append(f"{name!r} is written in another way")
    return found


def _python(digest: str) -> str:
    return digest.partition(":")[0]


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- functions ---------------------------------------------------------------------------------


def _function(function: Callable[..., Any], seen: set[int]) -> Iterator[str]:
    """Yield what a function consists of; what is not a Python function goes by its name and its plain attributes."""
    if id(function) in seen:
        return
    seen.add(id(function))
    if isinstance(function, functools.partial):
        yield from _function(function.func, seen)
        yield _said((function.args, function.keywords), seen)
        return
    written = getattr(function, "py_func", function)  # what numba compiled
    code = getattr(written, "__code__", None)
    if isinstance(code, CodeType):
        yield from _code(code, written.__doc__)
        yield from (_said(value, seen) for value in _from_outside(written))
        return
    yield f"{type(function).__module__}.{type(function).__qualname__}"
    yield str(getattr(function, "__qualname__", getattr(function, "__name__", "")))
    call = getattr(type(function).__call__, "__code__", None)
    if isinstance(call, CodeType):
        yield from _code(call, None)
        own = getattr(function, "__dict__", {})
        yield _said({name: value for name, value in own.items() if isinstance(value, _PLAIN)}, seen)


def _code(code: CodeType, doc: str | None) -> Iterator[str]:
    yield code.co_code.hex()
    yield getattr(code, "co_exceptiontable", b"").hex()
    yield " ".join(code.co_names)
    yield f"{code.co_argcount} {code.co_kwonlyargcount}"
    for number, constant in enumerate(code.co_consts):
        if isinstance(constant, CodeType):
            yield from _code(constant, None)
        else:
            # The first one may be the docstring, in whose place is None if there is none.
            yield "None" if number == 0 and constant == doc else _said(constant, set())


def _from_outside(function: Any) -> Iterator[Any]:
    """Yield what a function has in its closure, as defaults, or is bound to."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue  # not bound yet
    yield function.__defaults__
    yield function.__kwdefaults__
    yield getattr(function, "__self__", None)


# -- values ------------------------------------------------------------------------------------


def _said(value: Any, seen: set[int]) -> str:
    """Return a text that is the same for the same value in every process."""
    if isinstance(value, _PLAIN):
        return repr(value)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if id(value) in seen:
        return kind  # inside itself
    try:
        # First of all, as a file can be called too.
        if isinstance(getattr(type(value), "fingerprint", None), property):
            return f"{kind} {value.fingerprint}"
        if callable(value) and not isinstance(value, type):
            return " ".join(_function(value, seen))
        seen.add(id(value))
        try:
            return _content(value, seen)
        finally:
            seen.discard(id(value))
    except Exception:  # noqa: BLE001 - an object that cannot be looked at is no reason for a run to fail
        return kind


def _content(value: Any, seen: set[int]) -> str:
    if isinstance(value, Mapping):
        items = sorted(f"{_said(key, seen)}: {_said(item, seen)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        brackets = "[]" if isinstance(value, list) else "()"
        return ", ".join(_said(item, seen) for item in value).join(brackets)
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(_said(item, seen) for item in value))}}}"
    if isinstance(value, np.generic | np.ndarray):
        if value.size <= SHORT or value.dtype.hasobject:
            return f"{value.dtype} {_said(value.tolist(), seen)}"
        return f"{value.dtype} {value.shape} {_digest(value.tobytes())}"
    if isinstance(value, ModuleType):
        return value.__name__  # its repr says where it is
    return _ADDRESS.sub("", repr(value))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
