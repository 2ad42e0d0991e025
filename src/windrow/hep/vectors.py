"""Momenta made of any columns, with vector's behaviours and Windrow's plain fields.

Collections with ``pt``, ``eta``, ``phi`` have them by themselves; this is for columns that are named otherwise, or
worked out by a step. The behaviours are given to the array, never registered for the whole program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import awkward as ak

from windrow.errors import UsageError

#: The names vector knows, by what they measure.
_AZIMUTHAL = (("px", "py"), ("pt", "phi"))
_LONGITUDINAL = ("pz", "eta", "theta")
_TEMPORAL = ("mass", "m", "M", "energy", "e", "E")
_COORDINATES = {"px", "py", "pt", "phi", *_LONGITUDINAL, *_TEMPORAL}

_EXPECTED = "expected pt and phi, or px and py; with eta, theta or pz; with mass or energy"


def momenta(records: Any = None, /, **components: Any) -> Any:
    """Return an awkward array of momenta, which can be added, and know their ``mass``, ``deltaR`` and so on.

    ``momenta(pt=..., eta=..., phi=..., mass=...)`` and ``momenta(px=..., py=..., pz=..., E=...)`` make it of columns,
    flat or jagged; one number stands for all objects, as in ``mass=0.1057``. Two coordinates make a momentum in the
    transverse plane, three one in space. Components that are no coordinates, such as ``charge=``, become further
    fields.

    ``momenta(Muon)`` gives an array of records the behaviour its fields allow, whatever their capitals (``Px``, ``Eta``):
    no field is read for that. Components are added to it, in place of what said the same: ``momenta(Muon, mass=0.1057)``
    leaves out an energy.
    """
    # Late: vector takes a while to import.
    from windrow.blocks.vectors import BEHAVIOR

    if records is None:
        _refuse_doubles(components)
        name = _record_name(components)
        return ak.zip(components, with_name=name, behavior=BEHAVIOR)
    fields = getattr(records, "fields", None)
    if not isinstance(records, ak.Array) or not fields:
        raise UsageError(f"momenta are made of an awkward array of records or of named components, got {records!r:.60}")
    renamed = _known_names(fields)
    rivals = _rivals(components)
    name = _record_name((*(field for field in renamed if field not in rivals), *components))
    array = ak.Array(_rename(ak.to_layout(records), renamed), behavior=BEHAVIOR)
    array = array[[field for field in renamed if field not in rivals]]
    for component, values in components.items():
        array = ak.with_field(array, values, component)
    return ak.with_name(array, name, behavior=BEHAVIOR)


def _record_name(fields: Collection[str]) -> str:
    have = set(fields)
    if not any(have.issuperset(pair) for pair in _AZIMUTHAL):
        raise UsageError(f"{', '.join(map(str, fields)) or 'nothing'} makes no momentum; {_EXPECTED}")
    if not have.intersection(_LONGITUDINAL):
        if have.intersection(_TEMPORAL):
            raise UsageError(f"{', '.join(fields)} has a mass or energy, but no direction along the beam; {_EXPECTED}")
        return "Momentum2D"
    return "Momentum4D" if have.intersection(_TEMPORAL) else "Momentum3D"


def _refuse_doubles(components: Collection[str]) -> None:
    """Refuse a coordinate that is given twice over: which one counts would be anybody's guess."""
    for group in (_AZIMUTHAL[0] + _AZIMUTHAL[1], _LONGITUDINAL, _TEMPORAL):
        given = [name for name in group if name in components]
        if len(given) > (2 if group[0] == "px" else 1):
            raise UsageError(f"{', '.join(given)} say the same thing twice; {_EXPECTED}")


def _rivals(components: Collection[str]) -> set[str]:
    """Return the coordinates that the given ones make superfluous."""
    rivals: set[str] = set()
    for pair, other in (_AZIMUTHAL, _AZIMUTHAL[::-1]):
        if set(pair).intersection(components):
            rivals.update(other)
    for group in (_LONGITUDINAL, _TEMPORAL):
        if set(group).intersection(components):
            rivals.update(group)
    return rivals.difference(components)


def _known_names(fields: Sequence[str]) -> list[str]:
    """Write coordinates the way vector knows them; all other fields keep their names."""

    def known(field: str) -> str:
        lowered = field.lower()
        if field in _COORDINATES or lowered not in _COORDINATES or lowered in fields:
            return field
        return lowered

    return [known(field) for field in fields]


def _rename(layout: Any, fields: list[str]) -> Any:
    """Rename the fields of the records inside, without looking at any of them."""
    if layout.is_record:
        return layout.copy(fields=fields)
    return layout.copy(content=_rename(layout.content, fields))
