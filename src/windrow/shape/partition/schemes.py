"""Names of partitioners, of ours, DAPHNE's, the literature's and of those that users register."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from windrow.errors import UnknownNameError, UsageError, alternatives
from windrow.shape.partition import adaptive, daphne, literature
from windrow.shape.partition.auto import Auto

if TYPE_CHECKING:
    from windrow.shape.partition.state import LoopState, Scheme

FLAVOURS = ("daphne", "literature")
#: Ours; the name in capitals is DAPHNE's.
AUTO = "auto"
#: Each worker begins with as many rows as the others, and steals from those that have most left: chunks of the grain.
STATIC_STEAL = "STATIC-STEAL"

_registered: dict[str, Callable[..., Any]] = {}


def names() -> list[str]:
    """Give all names, in the order in which one would look for them."""
    known = dict.fromkeys([AUTO, *daphne.SCHEMES, *literature.SCHEMES, *adaptive.SCHEMES, STATIC_STEAL, *_registered])
    return list(known)


def register(name: str, scheme: Callable[[LoopState], Any]) -> None:
    """Make a function of a loop's state, which answers with the rows of the next chunk, known by a name.

    The state has ``rows``, ``workers``, ``grain``, ``left``, ``step``, ``worker``, ``now`` and what chunks took (``times``, ``costs()``).
    """
    if not name or type(name) is not str:
        raise UsageError(f"a partitioner is registered by its name, a string that is not empty; got {name!r}")
    if not callable(scheme):
        raise UsageError(
            f"the partitioner {name!r} has to be a function (state) -> rows, got {type(scheme).__name__}: {scheme!r}"
        )
    if name in names() and name not in _registered:
        raise UsageError(f"there is a partitioner {name!r} already; register yours by another name")
    _registered[name] = scheme


def is_adaptive(name: str) -> bool:
    """Say whether a scheme measures, so that its chunks cannot be cut before the loop begins."""
    return name == AUTO or name in adaptive.SCHEMES or name in _registered


def known_as(scheme: Any) -> str:
    """Give the name by which a scheme is known, however it is written."""
    if scheme == AUTO:
        return AUTO
    if callable(scheme):
        return getattr(scheme, "__name__", "the function")
    name = str(scheme)
    for written in (name, name.upper()):
        if written in names():
            return written
    raise UnknownNameError(f"there is no partitioner {scheme!r}{alternatives('partitioners', name, names())}")


def find(scheme: Any, flavour: str = "daphne") -> Scheme:
    """Find a scheme by its name, or take a user's function as one.

    Names that only one flavour has are that one's.
    """
    if flavour not in FLAVOURS:
        raise UnknownNameError(f"flavour= is one of {FLAVOURS}, got {flavour!r}")
    name = known_as(scheme)
    if callable(scheme) or name in _registered:
        function = scheme if callable(scheme) else _registered[name]
        return lambda loop: _ask(name, function, loop)
    if name == AUTO:
        return Auto()
    tables = (daphne.SCHEMES, literature.SCHEMES) if flavour == "daphne" else (literature.SCHEMES, daphne.SCHEMES)
    found = (table[name] for table in (*tables, adaptive.SCHEMES) if name in table)
    return next(found, daphne.SCHEMES["SS"])  # of STATIC_STEAL as of SS


def _ask(name: str, function: Callable[[LoopState], Any], loop: LoopState) -> int:
    """Call a user's function, whose answer has to be a number of rows."""
    try:
        rows = function(loop)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UsageError(f"the partitioner {name!r} raised for chunk {loop.step}: {what}") from error
    if not hasattr(rows, "__index__"):
        raise UsageError(
            f"the partitioner {name!r} has to answer with a whole number of rows, and gave {rows!r} for chunk {loop.step}"
        )
    whole = int(rows.__index__())
    if not 1 <= whole <= loop.left:
        raise UsageError(
            f"the partitioner {name!r} gave {whole} rows for chunk {loop.step}; it has to be 1 to the {loop.left} that are left"
        )
    return whole
