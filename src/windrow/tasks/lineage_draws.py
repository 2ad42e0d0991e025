"""Random numbers that nobody has chosen: whether a function draws from a state that all share, or begins anywhere."""

from __future__ import annotations

import dis
import random
import sys
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from windrow.store.fingerprint_code import read_code
from windrow.store.fingerprint_libraries import library_of_names
from windrow.store.fingerprint_names import content_of
from windrow.tasks.outside import called_by, members_of, names_in, used_by

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["draws_from"]


def draws_from(function: Any) -> str:
    """Say how a function, or one it calls, takes random numbers without a seed of its own; nothing if it does not."""
    drawn: set[str] = set()
    seeded: set[str] = set()
    seen: set[int] = set()
    names: set[str] = set()  #: all that the code uses
    members: list[tuple[str, Any]] = []  #: of classes, by name
    waiting = [function]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            if type(one) is not FunctionType:
                waiting += called_by(one)
                members += members_of(one)
            elif library_of_names(one.__globals__) is None:
                taken = list(_followed(one))
                waiting += [*used_by(one), *taken]
                names.update(names_in(one.__code__))
                _note_draws(one.__code__, taken, drawn, seeded)
        if not waiting:
            called = [value for name, value in members if name in names or name[:2] == "__"]
            waiting = [value for value in called if id(value) not in seen]
    return next(iter(sorted(drawn - seeded)), "")


#: Functions that say where random numbers begin.
_SEEDING = ("seed", "set_state", "setstate")


def _note_draws(code: CodeType, taken: list[Any], drawn: set[str], seeded: set[str]) -> None:
    bare = set(_called_bare(code))
    for value in taken:
        module = _random_state(value)
        if module:
            shared = f"draws from the global state of {module}"
            (seeded if value.__name__ in _SEEDING else drawn).add(shared)
        elif _is_generator(value) and value.__name__ in bare:
            drawn.add(f"makes a generator of random numbers without a seed ({value.__name__}())")


def _called_bare(code: CodeType) -> Iterator[str]:
    """Name what code calls with nothing."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in ("PRECALL", "PUSH_NULL")]  # fmt: skip
    for one, after in pairwise(steps):
        if after.opname == "CALL" and after.arg == 0:
            yield str(one.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _called_bare(constant)


def _random_state(value: Any) -> str:
    """Name the module whose state, which everybody shares, a function uses; nothing if it does not."""
    owner = getattr(value, "__self__", None)
    if owner is not None and owner is getattr(sys.modules.get("random"), "_inst", None):
        return "random"
    numbers = sys.modules.get("numpy.random.mtrand")
    if numbers is None or not callable(value):
        return ""
    # Some are functions of the module, and most are methods of its state.
    functions = (numbers.seed, numbers.sample, numbers.ranf)
    if owner is numbers._rand or any(value is one for one in functions):
        return "numpy.random"
    return ""


def _is_generator(value: Any) -> bool:
    """Whether something makes random numbers from a seed, or from nothing."""
    numbers = sys.modules.get("numpy.random")
    own = () if numbers is None else (numbers.default_rng, numbers.RandomState)
    return any(value is one for one in (random.Random, *own))


def _followed(function: FunctionType) -> Iterator[Any]:
    """Give what a function takes from modules, and its globals and closure variables themselves."""
    for origin in read_code(function.__code__).reads:
        value = function.__globals__.get(origin.name) if origin.kind == "global" else None
        if origin.kind == "import":
            value = sys.modules.get(origin.name)
        elif origin.kind == "free":
            place = function.__code__.co_freevars.index(origin.name)
            value = content_of((function.__closure__ or ())[place])
        for name in origin.attributes:
            if not isinstance(value, ModuleType):
                break
            value = vars(value).get(name)
        yield value
