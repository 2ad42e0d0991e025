"""vector's behaviours for collections, with plain fields: ``muons.pt`` is the field where there is one.

vector works such properties out anew each time, seven times as slowly. It also refuses records with redundant kinematics,
which files have (pt, eta, phi, mass beside the x, y, z of a vertex; both energy and mass): here the first complete set of
coordinates counts, and the rest are plain fields. The classes live in this module under their own names, so that arrays
which carry them can be pickled. Import it late: it imports vector.
"""

from __future__ import annotations

from typing import Any

from vector.backends import awkward as backend

#: Sets of coordinates, those of momenta before those of places; the first that a record has whole counts.
AZIMUTHAL = (
    (backend.AzimuthalAwkwardRhoPhi, ("pt", "phi")),
    (backend.AzimuthalAwkwardXY, ("px", "py")),
    (backend.AzimuthalAwkwardRhoPhi, ("rho", "phi")),
    (backend.AzimuthalAwkwardXY, ("x", "y")),
)
LONGITUDINAL = (
    (backend.LongitudinalAwkwardEta, ("eta",)),
    (backend.LongitudinalAwkwardZ, ("pz",)),
    (backend.LongitudinalAwkwardTheta, ("theta",)),
    (backend.LongitudinalAwkwardZ, ("z",)),
)
TEMPORAL = (
    *((backend.TemporalAwkwardTau, (name,)) for name in ("mass", "m", "M")),
    *((backend.TemporalAwkwardT, (name,)) for name in ("energy", "E", "e")),
    (backend.TemporalAwkwardTau, ("tau",)),
    (backend.TemporalAwkwardT, ("t",)),
)
#: Properties of vector's that are a field where the record has one, with the coordinate that they are: vector's own go
#: through that, which may be a field of another meaning.
PLAIN = {
    "pt": "rho",
    "px": "x",
    "py": "y",
    "pz": "z",
    "mass": "tau",
    "m": "tau",
    "M": "tau",
    "energy": "t",
    "E": "t",
    "e": "t",
    **{name: name for name in ("phi", "eta", "theta", "x", "y", "z", "rho", "t", "tau")},
}


def _first_set(sets: Any, otherwise: Any) -> property:
    def get(self: Any) -> Any:
        fields = self.fields
        for kind, names in sets:
            if all(name in fields for name in names):
                return kind(*(self[name] for name in names))
        return otherwise.fget(self)

    return property(get, doc=otherwise.__doc__)


def _plain(field: str, computed: Any) -> property:
    def get(self: Any) -> Any:
        return self[field] if field in self.fields else computed.fget(self)

    return property(get, doc=computed.__doc__)


def _accept(self: Any) -> None:
    """Take any set of fields: vector would refuse redundant ones."""


def _with_plain_fields(kind: type) -> type:
    members: dict[str, Any] = {
        field: _plain(field, getattr(kind, coordinate)) for field, coordinate in PLAIN.items() if hasattr(kind, field)
    }
    for name, sets in (("azimuthal", AZIMUTHAL), ("longitudinal", LONGITUDINAL), ("temporal", TEMPORAL)):
        if hasattr(kind, name):
            members[name] = _first_set(sets, getattr(kind, name))
    members["__awkward_validation__"] = _accept
    return type(kind.__name__, (kind,), {**members, "__module__": __name__})


_vector = backend.behavior
MomentumArray2D = _with_plain_fields(_vector["*", "Momentum2D"])
MomentumArray3D = _with_plain_fields(_vector["*", "Momentum3D"])
MomentumArray4D = _with_plain_fields(_vector["*", "Momentum4D"])
MomentumRecord2D = _with_plain_fields(_vector["Momentum2D"])
MomentumRecord3D = _with_plain_fields(_vector["Momentum3D"])
MomentumRecord4D = _with_plain_fields(_vector["Momentum4D"])


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
        "Momentum2D": MomentumRecord2D,
        "Momentum3D": MomentumRecord3D,
        "Momentum4D": MomentumRecord4D,
    }
)
