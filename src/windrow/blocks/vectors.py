"""vector's behaviours for collections, with plain fields: ``muons.pt`` is the field where there is one.

vector works such properties out anew each time, seven times as slowly. The classes live in this module under their own
names, so that arrays which carry them can be pickled. Import it late: it imports vector.
"""

from __future__ import annotations

from typing import Any

from vector.backends.awkward import behavior as _vector


def _with_plain_fields(kind: type) -> type:
    def plain(field: str) -> property:
        computed = getattr(kind, field)

        def get(self: Any) -> Any:
            return self[field] if field in self.fields else computed.fget(self)

        return property(get, doc=computed.__doc__)

    fields = [f for f in ("pt", "eta", "phi", "mass", "px", "py", "pz") if hasattr(kind, f)]
    members: dict[str, Any] = {field: plain(field) for field in fields}
    return type(kind.__name__, (kind,), {**members, "__module__": __name__})


MomentumArray2D = _with_plain_fields(_vector["*", "Momentum2D"])
MomentumArray3D = _with_plain_fields(_vector["*", "Momentum3D"])
MomentumArray4D = _with_plain_fields(_vector["*", "Momentum4D"])


class _Behavior(dict[Any, Any]):
    """Pickles as a reference to this module: vector's own has functions that do not pickle."""

    def __reduce__(self) -> Any:
        return _behavior, ()


def _behavior() -> dict[Any, Any]:
    return BEHAVIOR


#: Given to the arrays themselves rather than registered for the whole program: a library should not change
#: what other people's arrays mean.
BEHAVIOR = _Behavior(
    {
        **_vector,
        ("*", "Momentum2D"): MomentumArray2D,
        ("*", "Momentum3D"): MomentumArray3D,
        ("*", "Momentum4D"): MomentumArray4D,
    }
)
