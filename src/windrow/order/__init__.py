"""Decision: the order of steps. Pure: measurements in, an order out.

For ``run(order=...)``: the published policies that have parameters; their names as strings are the defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from windrow.order.published.agreedy import AGreedy
    from windrow.order.published.hepframe import HepFrame

__all__ = ["AGreedy", "HepFrame"]


def __getattr__(name: str) -> Any:
    # Runs that ask for none of them do not load them.
    if name not in __all__:
        raise AttributeError(f"module 'windrow.order' has no attribute {name!r}")
    from windrow.order.published import agreedy, hepframe

    return {"AGreedy": agreedy.AGreedy, "HepFrame": hepframe.HepFrame}[name]
