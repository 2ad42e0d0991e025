"""What steps rely on beside their own code, carried along to another process: behaviours of awkward arrays, settings.

And the proof that they arrived: a step must have the fingerprint there that it has at home. Code and state of the user's own
modules go along by value; a module that is imported anew has what its file says, not what the program made of it since.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

from windrow.errors import EngineError
from windrow.pipeline.resume.step_digest import step_fingerprints
from windrow.store.fingerprint.api import difference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.pipeline.definition.definition import Definition


def ambient() -> dict[str, Any]:
    found: dict[str, Any] = {"recursion": sys.getrecursionlimit()}
    awkward, numpy, decimal = map(sys.modules.get, ("awkward", "numpy", "decimal"))
    if awkward is not None:
        found["behavior"] = dict(awkward.behavior)
    if numpy is not None:
        found["errors"], found["printing"] = numpy.geterr(), numpy.get_printoptions()
    if decimal is not None:
        found["decimal"] = decimal.getcontext()
    return found


def restore(found: Mapping[str, Any]) -> None:
    sys.setrecursionlimit(found["recursion"])
    if found.get("behavior"):
        import awkward

        awkward.behavior.update(found["behavior"])
    if "errors" in found:
        import numpy as np

        np.seterr(**found["errors"])
        np.set_printoptions(**found["printing"])
    if "decimal" in found:
        import decimal

        decimal.setcontext(found["decimal"])


def seal(definition: Definition) -> dict[str, Mapping[str, str]]:
    return {name: found.parts for name, found in step_fingerprints(definition).items()}


def _load_imported(here: Mapping[str, Mapping[str, str]], sealed: Mapping[str, Mapping[str, str]]) -> bool:
    """Load modules that steps import while they run, and that are loaded at home already; say whether there were any."""
    loaded = False
    for name, parts in here.items():
        for part in parts.keys() - sealed[name].keys():
            found = re.match(r"module '([\w.]+)'", part)
            if found is not None and found[1] not in sys.modules:
                with contextlib.suppress(ImportError):
                    importlib.import_module(found[1])
                    loaded = True
    return loaded


def check_arrived(definition: Definition, sealed: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse to run steps that are not here what they are at home: the answer would be another one."""
    here = seal(definition)
    while here != sealed and _load_imported(here, sealed):  # each may import others
        here = seal(definition)
    for name, parts in sealed.items():
        if here[name] != parts:
            changed = "; ".join(difference(parts, here[name])) or "something that it uses"
            raise EngineError(
                f"step {name!r} is not the same in a worker process, and would give another answer there ({changed}): it "
                'relies on something that was changed in this process after it was loaded; use engine="threads"'
            )
