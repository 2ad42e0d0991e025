"""What a function does, or a value is, as a digest: the same digest, the same result; another one, compute again.

In it: the code, what it takes from outside - globals, closures, defaults, attributes of modules - and the code of the
user's own functions and classes that it uses, wherever they are. Libraries are in it by version. What cannot be looked
into is *opaque*: it is named, and who reuses results must not take such a digest for an equal one. No code of the
user's runs, but for a property ``fingerprint`` that a class offers for this.

Code that looks names up by itself (``globals()``, ``eval``) or reads the environment is opaque as well, and so is what has
frozen earlier values: compiled functions and caches. Not found: names that are made up when the code runs in other ways
(``getattr(module, name)``, ``importlib``), and what was registered with a library or changed inside one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windrow.store.fingerprint.walk import Walk

_WHOLE = "all of it"
_LIBRARY = "library "

#: Letters of the digest of a part: enough to tell two versions of one thing apart.
_SHORT = 16


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What was found of a function or value, as it is now."""

    digest: str  #: the same in every process and on every machine with the same Python and libraries
    own: str  #: the same, without the versions of libraries
    opaque: tuple[str, ...]  #: what could not be looked into, and where it is; with any, no two are known to be equal
    libraries: tuple[tuple[str, str], ...]  #: whose code is used, and their versions
    parts: Mapping[str, str]  #: what went in, by name: for ``difference``
    #: What is written to that other threads see too; a hint, as much as can be seen from code.
    stores_globals: tuple[str, ...]
    draws: tuple[str, ...]  #: how it takes random numbers that nobody has chosen


def fingerprint(thing: Any, *, name: str = "", exact: bool = True) -> Fingerprint:
    """Look at a function, any other callable, or a value.

    Parameters
    ----------
    thing
        What to look at. It is not changed, called or kept.
    name
        What to call it in words; by default its own name.
    exact
        Whether what is equal gives equal results. Without it, two things are left out: the order of mappings, which may
        change the order of what comes out and the last digit of a sum; and the content of globals that the code writes
        to, such as a cache, which says how far a program has come rather than what it is.
    """
    return summarise(Walk(thing, name, exact=exact))


def summarise(walk: Walk) -> Fingerprint:
    libraries = tuple(sorted(walk.libraries))
    parts = {
        **{part: content.hex()[:_SHORT] for part, content in walk.parts().items()},
        **{f"{_LIBRARY}{library}": version for library, version in libraries},
        _WHOLE: walk.digest.hex()[:_SHORT],
    }
    return Fingerprint(
        digest=walk.digest.hex(),
        own=walk.own.hex(),
        opaque=tuple(sorted(walk.opaque)),
        libraries=libraries,
        parts=parts,
        stores_globals=tuple(sorted(walk.stores)),
        draws=tuple(sorted(walk.draws)),
    )


def difference(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Say in words what is not the same in the parts of two fingerprints; nothing if all is the same."""
    found = []
    for part in sorted({*old, *new} - {_WHOLE}):
        if part not in old:
            found.append(f"{part} is new")
        elif part not in new:
            found.append(f"{part} is gone")
        elif old[part] != new[part] and part.startswith(_LIBRARY):
            found.append(f"{part} changed from {old[part]} to {new[part]}")
        elif old[part] != new[part]:
            found.append(f"{part} changed")
    if not found and old.get(_WHOLE) != new.get(_WHOLE):
        found.append("the way its parts belong together changed")
    return found
