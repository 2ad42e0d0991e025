"""Random numbers that nobody has chosen: whether a function draws from a state that all share, or begins anywhere.

Known by what the code reaches, not by what it is called there. In doubt it draws: that costs time, and no answers.
"""

from __future__ import annotations

import os
import random
import secrets
import sys
import uuid
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.store.fingerprint_code import plain, read_code
from windrow.store.fingerprint_libraries import library_of_class, library_of_names, names_in
from windrow.store.fingerprint_names import absolute, content_of
from windrow.store.fingerprint_values import mro_of
from windrow.tasks.captured import called_by, members_of, used_by
from windrow.tasks.captured import names_in as names_in_code
from windrow.tasks.lineage_sites import is_always_run, sites_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from windrow.tasks.lineage_sites import Site


#: Things in a container that is searched for generators.
_SEARCHED = 1000


def draws_from(function: Any) -> str:
    """Say how a function, or one it calls, takes random numbers without a seed of its own; nothing if it does not."""
    return _Search(function).found()


class _Kind(NamedTuple):
    """What something has to do with random numbers."""

    kind: str  #: shared, seeds, makes, module, drawn; empty if nothing
    said: str = ""  #: the module whose state it is; how a generator is made; or what is done


_NOTHING = _Kind("")


class _Search:
    """Goes through all that a function uses, each with the states that are seeded when it is used."""

    def __init__(self, function: Any) -> None:
        self._drawn: set[str] = set()
        self._names: set[str] = set()  #: all that the code uses
        self._members: list[tuple[str, Any, frozenset[str]]] = []  #: of classes, by name
        self._seen: set[tuple[int, frozenset[str]]] = set()
        self._waiting: list[tuple[Any, frozenset[str]]] = []
        self._add(function, frozenset())

    def found(self) -> str:
        """Say what was found first."""
        while self._waiting and not self._drawn:
            one, seeded = self._waiting.pop()
            if (id(one), seeded) not in self._seen:
                self._seen.add((id(one), seeded))
                if type(one) is not FunctionType:
                    for inside in _inside(one):
                        self._add(inside, seeded)
                    self._members += [(name, value, seeded) for name, value in members_of(one)]
                elif library_of_names(one.__globals__) is None:
                    self._look_at(one, seeded)
            if not self._waiting:
                for name, value, covered in self._members:
                    if (name in self._names or name[:2] == "__") and (id(value), covered) not in self._seen:  # fmt: skip
                        self._add(value, covered)
        return next(iter(sorted(self._drawn)), "")

    def _add(self, value: Any, seeded: frozenset[str]) -> None:
        """Something may be used, nobody knows how."""
        kind, said = kind_of(value)
        if kind == "drawn":
            self._drawn.add(said)
        elif kind == "shared" and said not in seeded:
            self._drawn.add(_of_all(said))
        elif kind == "makes":
            self._drawn.add(_anywhere(said))
        elif kind == "module":
            self._drawn.add(_of_all(said))
        elif not kind and plain(value) is None:
            self._waiting.append((value, seeded))

    def _look_at(self, function: FunctionType, seeded: frozenset[str]) -> None:
        self._names.update(names_in_code(function.__code__))
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._add(default, seeded)
        reached = list(_followed(function, function.__code__))
        kinds = [kind_of(value) for value in reached]
        sites: list[Site] = []
        # An import that a function inside uses is reached as a whole.
        if any(one.kind in _DEPENDS for one in kinds) or any(value is np for value in reached):
            sites = sites_of(function, lambda value: bool(kind_of(value).kind))
        seeds = _seeds(function, sites)
        for site in sites:
            self._look_at_site(site, seeded, seeds)
        early = {state: _before(function, place) for state, place in seeds.items()}
        taken = {id(site.value) for site in sites}
        for value, (kind, said) in zip(reached, kinds, strict=True):
            if kind == "shared":
                if said not in seeded and id(value) in early.get(said, {id(value)}):
                    self._drawn.add(_of_all(said))
            elif kind == "drawn" or (kind and id(value) not in taken and not _is_imported(function, value)):  # fmt: skip
                self._add(value, seeded)  # by a way that is not seen
        for value in (*used_by(function), *reached):
            if plain(value) is None and not kind_of(value).kind:
                now = {state for state, before in early.items() if id(value) not in before}
                self._waiting.append((value, seeded | now))

    def _look_at_site(self, site: Site, seeded: frozenset[str], seeds: dict[str, int]) -> None:
        kind, said = kind_of(site.value)
        if kind == "makes" and (site.given or site.tested):
            return
        if kind != "shared" or site.place < seeds.get(said, sys.maxsize):
            self._add(site.value, seeded)


#: Whether these draw depends on what is done with them.
_DEPENDS = ("seeds", "makes", "module")


def _of_all(state: str) -> str:
    return f"draws from the global state of {state}"


def _anywhere(name: str) -> str:
    return f"makes a generator of random numbers without a seed ({name}())"


def _seeds(function: FunctionType, sites: list[Site]) -> dict[str, int]:
    """Give the states that a function seeds whatever happens, each with the place of that in its code."""
    seeds: dict[str, int] = {}
    for site in sites:
        kind, state = kind_of(site.value)
        if kind == "seeds" and site.call is not None and is_always_run(function.__code__, site.call):  # fmt: skip
            seeds.setdefault(state, site.call)
    return seeds


def _before(function: FunctionType, place: int) -> set[int]:
    """Give the identities of what a function takes from outside before a place in its code."""
    code = function.__code__
    first = code.replace(co_code=code.co_code[:place], co_exceptiontable=b"")
    return {id(value) for value in _followed(function, first)}


def _is_imported(function: FunctionType, module: Any) -> bool:
    """Whether it is an import inside the function through which code takes a module: what it takes of it is seen then."""
    names, free = function.__globals__, map(content_of, function.__closure__ or ())
    taken = [names.get(one.name) for one in read_code(function.__code__).reads if not one.attributes]
    return all(module is not one for one in (*taken, *free))


# -- what has to do with random numbers ------------------------------------------------------------

_OF_NUMPY: Any = np.random.mtrand
#: States that all share, by the module whose functions use them.
_STATES = ((getattr(random, "_inst", None), "random"), (getattr(_OF_NUMPY, "_rand", None), "numpy.random"))  # fmt: skip
_SEEDING = ("seed", "set_state", "setstate")
_FUNCTIONS = ("sample", "ranf", "get_bit_generator", "set_bit_generator")
_MAKERS = (
    random.Random,
    np.random.RandomState,
    np.random.SeedSequence,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.MT19937,
    np.random.Philox,
    np.random.SFC64,
)
#: Whose objects go on from call to call.
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_MODULES = ((random, "random"), (np.random, "numpy.random"), (_OF_NUMPY, "numpy.random"), (secrets, "the system (secrets)"))  # fmt: skip
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


def kind_of(value: Any) -> _Kind:
    """Say what something has to do with random numbers, whatever it is called in the code."""
    kind = type(value)
    if id(value) in _SYSTEMS:
        return _Kind("drawn", f"asks the system for random numbers ({_SYSTEMS[id(value)]})")
    if kind in _BOUND and (owner := getattr(value, "__self__", None)) is not None:
        for state, module in _STATES:
            if owner is state:
                return _Kind("seeds" if value.__name__ in _SEEDING else "shared", module)
        return kind_of(owner) if _is_any(type(owner), _GENERATORS) else _NOTHING
    if isinstance(value, ModuleType):
        return next((_Kind("module", said) for one, said in _MODULES if value is one), _NOTHING)
    if type in mro_of(kind):
        if random.SystemRandom in mro_of(value):
            return _Kind("drawn", "asks the system for random numbers (SystemRandom)")
        return _Kind("makes", value.__name__) if _is_any(value, _MAKERS) else _NOTHING
    if value is np.random.default_rng:
        return _Kind("makes", "default_rng")
    if value is _OF_NUMPY.seed:
        return _Kind("seeds", "numpy.random")
    if any(value is getattr(_OF_NUMPY, name, ...) for name in _FUNCTIONS):
        return _Kind("shared", "numpy.random")
    if _is_any(kind, _GENERATORS):
        return _Kind("drawn", f"draws from a generator that is outside of it ({kind.__name__})")
    return _NOTHING


def _is_any(kind: type, kinds: tuple[type, ...]) -> bool:
    return any(one in kinds for one in mro_of(kind))


# -- what is reached -------------------------------------------------------------------------------


def _inside(thing: Any) -> Iterator[Any]:
    """Give what something runs or holds that is no function."""
    yield from called_by(thing)
    kind = type(thing)
    if kind in (list, tuple, set, frozenset) and len(thing) <= _SEARCHED:
        yield from thing
    elif kind is dict and len(thing) <= _SEARCHED:
        yield from thing.values()
    elif kind is SimpleNamespace:
        yield from vars(thing).values()
    elif not issubclass(kind, (type, ModuleType)) and library_of_class(kind) is None:
        try:
            own = object.__getattribute__(thing, "__dict__")
        except AttributeError:
            return
        yield from own.values() if type(own) is dict else ()


def _followed(function: FunctionType, code: CodeType) -> Iterator[Any]:
    """Give what code of a function takes from modules, and its globals and closure variables themselves."""
    for origin in read_code(code).reads:
        value = function.__globals__.get(origin.name) if origin.kind == "global" else None
        if origin.kind == "import":
            value = _imported(origin.name, function)
        elif origin.kind == "free":
            place = function.__code__.co_freevars.index(origin.name)
            value = content_of((function.__closure__ or ())[place])
        for name in origin.attributes:
            if not isinstance(value, ModuleType):
                break
            inner = sys.modules.get(f"{value.__name__}.{name}")
            value = names_in(value).get(name, inner)
        yield value


def _imported(name: str, function: FunctionType) -> Any:
    try:
        return sys.modules.get(absolute(name, function.__globals__))
    except (ImportError, ValueError):  # relative to nothing
        return None
