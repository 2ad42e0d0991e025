"""Random numbers without a chosen seed: from a state that all share, a generator without a seed, or the system.

Known by what the code reaches, not by what it is called there. In doubt it draws: that costs time, and no answers.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import uuid
from collections.abc import Iterator
from inspect import getattr_static
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.store.fingerprint.libraries import absolute, base_of, content_of, mro_of, names_in

if TYPE_CHECKING:
    from windrow.store.fingerprint.code import Origin, Reading


_OF_NUMPY: Any = np.random.mtrand
#: States that all share, by the module whose functions use them.
_STATES = ((getattr(random, "_inst", None), "random"), (getattr(_OF_NUMPY, "_rand", None), "numpy.random"))
_OF_STATE = ("seed", "sample", "ranf", "get_bit_generator", "set_bit_generator")
_MODULES = ((random, "random"), (np.random, "numpy.random"), (_OF_NUMPY, "numpy.random"), (secrets, "the system (secrets)"))  # fmt: skip
#: Classes whose objects begin anywhere unless they are given a seed.
_MAKERS = {
    random.Random,
    np.random.RandomState,
    np.random.SeedSequence,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.MT19937,
    np.random.Philox,
    np.random.SFC64,
}
#: Classes whose objects go on from call to call.
_GENERATORS = {random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator}
#: Functions that ask the system, whatever was seeded.
_SYSTEMS = {
    id(value): value.__name__
    for value in (
        *(getattr(secrets, name) for name in secrets.__all__ if name != "compare_digest"),
        uuid.uuid1,
        uuid.uuid4,
        os.urandom,
        getattr(os, "getrandom", os.urandom),
    )
}
#: Types whose objects can be asked what they are bound to without running anything of the user's.
_BOUND = (BuiltinFunctionType, MethodType, type(np.random.normal))
_WITHOUT_SEED = "makes a generator of random numbers without a seed"
#: Functions of PyTorch that draw from the state of a device.
_OF_TORCH = (
    "bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
)  # fmt: skip


def draw_of(value: Any) -> str:
    """Say how something takes random numbers without a chosen seed, if it is used in any way; nothing if it does not."""
    kind = type(value)
    if id(value) in _SYSTEMS:
        return f"asks the system for random numbers ({_SYSTEMS[id(value)]})"
    if type in mro_of(kind) and random.SystemRandom in mro_of(value):
        return "asks the system for random numbers (SystemRandom)"
    if value is np.random.default_rng or (type in mro_of(kind) and not _MAKERS.isdisjoint(mro_of(value))):
        return f"{_WITHOUT_SEED} ({value.__name__}())"
    if not _GENERATORS.isdisjoint(mro_of(kind)):
        return f"draws from a generator that is outside of it ({kind.__name__})"
    module = next((said for one, said in _MODULES if value is one), "")
    if kind in _BOUND:
        owner = getattr(value, "__self__", None)
        module = next((said for state, said in _STATES if owner is state is not None), "")
        if not module and not isinstance(owner, ModuleType):
            return draw_of(owner)
    if any(value is getattr(_OF_NUMPY, name, ...) for name in _OF_STATE):
        module = "numpy.random"
    torch = sys.modules.get("torch")
    if torch is not None and any(value is getattr(torch, name, ...) for name in _OF_TORCH):
        module = "torch"
    return f"draws from the global state of {module}" if module else ""


def draws_of_uses(function: FunctionType, reading: Reading) -> Iterator[tuple[Origin, str]]:
    """Give what a function uses that has to do with random numbers, and how it draws; nothing where that has a seed."""
    for (origin, is_given), names in reading.uses.items():
        value, rest = _reached(origin, function)
        said = draw_of(value)
        if said:
            seeded = is_given and not rest and said.startswith(_WITHOUT_SEED)
            yield origin, "" if seeded and not any(_may_be_none(name, function) for name in names) else said
        elif value is np and "random" in reading.names:
            yield origin, "draws from the global state of numpy.random"  # of which nobody sees what is taken


def _reached(origin: Origin, function: FunctionType) -> tuple[Any, tuple[str, ...]]:
    """Go from a name along the attributes through modules; give what is there, and the attributes that are left."""
    if origin.kind == "import":
        value = sys.modules.get(absolute(origin.name, function.__globals__))
    else:
        value = base_of(origin, function)
    for number, name in enumerate(origin.attributes):
        if not isinstance(value, ModuleType):
            return value, origin.attributes[number:]
        value = names_in(value).get(name, sys.modules.get(f"{value.__name__}.{name}"))
    return value, ()


def _may_be_none(name: str, function: FunctionType) -> bool:
    """Whether a variable that is given as a seed is None, as far as one can see: by default, or outside."""
    first, *attributes = name.split(".")
    code = function.__code__
    defaults = function.__defaults__ or ()
    arguments = code.co_varnames[: code.co_argcount]
    known = dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True))
    known |= function.__kwdefaults__ or {}
    for place, free in enumerate(code.co_freevars):
        known[free] = content_of((function.__closure__ or ())[place])
    if first not in known and first not in code.co_varnames and first not in code.co_cellvars:
        known[first] = function.__globals__.get(first, ...)
    value = known.get(first, ...)
    for attribute in attributes:
        value = getattr_static(value, attribute, ...)
    return value is None
