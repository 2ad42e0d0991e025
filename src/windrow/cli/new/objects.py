"""The collection of some files that an analysis should begin with, how to select from it, and its trigger.

The choice is a physicist's first guess from the names and the first rows: muons before electrons before other leptons before
jets; two of them; opposite charge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.cli.contents import grouped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from windrow.cli.contents import Together
    from windrow.data.base import Source


class Species(NamedTuple):
    """A kind of object: how its collections are called, and what is usual for it."""

    plural: str
    collections: str  #: pattern of their names
    pt_above: float  #: in GeV
    eta_below: float
    isolation: str = ""  #: the field of NanoAOD that is cut on where it is there
    triggers: str = r"(?!)"  #: pattern of the usual ones


SPECIES = (
    Species("muons", r"mu(on)?s?", 10, 2.4, "pfRelIso04_all", r"HLT_(Iso(Tk)?Mu(24|27)|Mu50)$|trig.*m(u|$)"),
    Species(
        "electrons", r"el(e|ec|ectron)?s?", 15, 2.5, "pfRelIso03_all", r"HLT_Ele(27|32|35)_WPTight_Gsf$|trig.*e(l|$)"
    ),
    Species("leptons", r"lep(ton)?s?", 10, 2.5, "", r"HLT_(IsoMu24|Ele27_WPTight_Gsf)$|trig.*(m(u|$)|e(l|$)|lep)"),
    # Events with jets are as often found by a lepton beside them.
    Species("jets", r"jets?", 30, 2.5, "", r"HLT_(PFHT1050|PFJet500|IsoMu24|Ele(27|32)_WPTight_Gsf)$|trig.*jet"),
    Species("photons", r"(photon|gamma|ph)s?", 20, 2.5, "", r"HLT_Photon200$|trig.*photon"),
    # Generated and auxiliary objects are what one wants last.
    Species("objects", r"(?!Gen|LHE|Sub|Trig|MC).*", 20, 2.5),
)

#: What may stand before the name of a collection.
PREFIX = r"(?i:(good|selected|slimmed|ak4|antikt4)?_?)"
#: Fields, in any capitals, that make a momentum; without the last ones objects have no mass.
DIRECTIONS = ({"pt", "eta", "phi"}, {"px", "py", "pz"})
TEMPORAL = {"mass", "m", "e", "energy"}
#: A trigger or two is what one begins with.
TRIGGERS = 2
#: This part of the rows makes a species the subject of the analysis.
MANY = 0.05
#: The usual loose working point of relative isolation.
ISOLATED = 0.25
#: Rows of each file that are looked at: enough for quantiles, and read in a moment.
SAMPLE_ROWS = 50_000


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects an analysis selects, and what two of them look like in the first rows."""

    species: Species
    collection: str
    fields: Mapping[str, str]  #: those it needs -> their columns
    has_mass: bool
    charge: str | None
    isolation: str | None
    pair_masses: list[float] = field(default_factory=list)
    leading_pts: list[float] = field(default_factory=list)


def read_sample(source: Source, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    for one in source.inputs:
        reader = source.open(one.index)
        try:
            if reader.info.rows:
                yield dict(reader.read(list(columns), 0, min(reader.info.borders[1], SAMPLE_ROWS)))
        finally:
            reader.close()


def find_objects(files: Together, source: Source, reserved: Collection[str]) -> Objects | None:
    """Return the first species of which many rows have two, else the one of which most rows do."""
    groups = [group for group in grouped(files.columns, files.info)[0] if group.lists]
    groups = [group for group in groups if group.prefix.isidentifier() and group.prefix not in reserved]
    common = set(files.common)
    best, most = None, -1.0
    for species in SPECIES:
        for group in groups:
            if not re.fullmatch(f"{PREFIX}(?i:{species.collections})", group.prefix):
                continue
            columns = dict(zip(group.fields, (member.name for member in group.members), strict=True))
            columns = {name: column for name, column in columns.items() if column in common}
            objects = _objects(species, group.prefix, columns)
            share = -1.0 if objects is None else _look_at_pairs(objects, source)
            best, most = (objects, share) if share > most else (best, most)
        if most >= MANY:
            break
    return best


def _objects(species: Species, collection: str, columns: Mapping[str, str]) -> Objects | None:
    lowered = {name.lower(): name for name in columns}
    direction = next((parts for parts in DIRECTIONS if parts <= lowered.keys()), None)
    if direction is None:
        return None
    charge = None
    if species.plural in ("muons", "electrons", "leptons"):
        charge = next((lowered[name] for name in ("charge", "q") if name in lowered), None)
    isolation = species.isolation if species.isolation in columns else None
    needed = [lowered[name] for name in lowered if name in direction | TEMPORAL]
    needed += [name for name in (charge, isolation) if name is not None]
    has_mass = not TEMPORAL.isdisjoint(lowered)
    return Objects(species, collection, {name: columns[name] for name in needed}, has_mass, charge, isolation)


def _look_at_pairs(objects: Objects, source: Source) -> float:
    """Do what the analysis will do to the first rows; return the part of them that has a pair."""
    import awkward as ak

    from windrow.hep import momenta

    rows = 0
    for part in read_sample(source, list(objects.fields.values())):
        records = ak.zip({name: part[column] for name, column in objects.fields.items()})
        every = momenta(records) if objects.has_mass else momenta(records, mass=0.0)
        good = every[(every.pt > objects.species.pt_above) & (abs(every.eta) < objects.species.eta_below)]
        if objects.isolation is not None:
            good = good[good[objects.isolation] < ISOLATED]
        good = good[ak.argsort(good.pt, axis=1, ascending=False)]
        good = good[ak.num(good) >= 2]
        if objects.charge is not None:
            good = good[good[objects.charge][:, 0] != good[objects.charge][:, 1]]
        rows += len(every)
        objects.leading_pts.extend(ak.to_numpy(good.pt[:, 0]))
        objects.pair_masses.extend(ak.to_numpy((good[:, 0] + good[:, 1]).mass))
    return len(objects.pair_masses) / max(rows, 1)


def find_triggers(species: Species, flags: Sequence[str]) -> list[str]:
    """Return the first usual flags of this species, by their names alone."""
    return [name for name in flags if re.match(f"(?i:{species.triggers})", name)][:TRIGGERS]
