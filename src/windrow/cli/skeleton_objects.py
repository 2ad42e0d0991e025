"""Which collection of a file an analysis should begin with, how to select from it, and its trigger.

The choice is a physicist's first guess: muons before electrons before other leptons before jets; two
of them; opposite charge. Ranges come from the files' first rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.cli.contents import grouped
from windrow.cli.skeleton_sample import Axis, axis_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.cli.contents import Group, Together
    from windrow.cli.skeleton_sample import Sample


@dataclass(frozen=True, slots=True)
class Species:
    """A kind of object: how its collections are called, and what is usual for it."""

    names: str  #: pattern of the collection's name
    singular: str
    plural: str
    pt_above: float  #: GeV
    eta_below: float
    isolation: str | None  #: the field of NanoAOD that is cut on where it is there
    triggers: tuple[str, ...]  #: typical ones, the most usual first
    trigger_words: str  #: pattern of other triggers that fit


SPECIES = (
    Species(
        r"(?i)(good|selected|slimmed)?_?mu(on)?s?", "muon", "muons", 10, 2.4, "pfRelIso04_all",
        (
            "HLT_IsoMu24", "HLT_IsoMu27", "HLT_IsoTkMu24", "HLT_IsoMu24_eta2p1", "HLT_Mu50",
            "HLT_Mu17_TrkIsoVVL_Mu8_TrkIsoVVL_DZ_Mass3p8",
            "HLT_Mu17_TrkIsoVVL_Mu8_TrkIsoVVL_DZ_Mass8", "HLT_Mu17_TrkIsoVVL_Mu8_TrkIsoVVL_DZ",
            "HLT_IsoMu17_eta2p1_LooseIsoPFTau20",
        ),
        r"(?i)(hlt|trig).*mu?",
    ),
    Species(
        r"(?i)(good|selected|slimmed)?_?el(e|ec|ectron)?s?", "electron", "electrons", 15, 2.5,
        "pfRelIso03_all",
        (
            "HLT_Ele27_WPTight_Gsf", "HLT_Ele32_WPTight_Gsf", "HLT_Ele35_WPTight_Gsf",
            "HLT_Ele23_Ele12_CaloIdL_TrackIdL_IsoVL", "HLT_Ele23_Ele12_CaloIdL_TrackIdL_IsoVL_DZ",
        ),
        r"(?i)(hlt|trig).*e(le|lectron|$)",
    ),
    Species(
        r"(?i)lep(ton)?s?", "lepton", "leptons", 10, 2.5, None,
        ("HLT_IsoMu24", "HLT_Ele27_WPTight_Gsf"), r"(?i)(hlt|trig).*(mu|el|lep|m$|e$)",
    ),
    Species(
        r"(?i)(good|selected|ak4|antikt4)?_?jets?", "jet", "jets", 30, 2.5, None,
        (
            # Events with jets are as often found by a lepton beside them.
            "HLT_PFHT1050", "HLT_PFJet500", "HLT_IsoMu24", "HLT_Ele27_WPTight_Gsf",
            "HLT_Ele32_WPTight_Gsf", "HLT_PFMET120_PFMHT120_IDTight",
        ),
        r"(?i)(hlt|trig).*jet",
    ),
    Species(
        r"(?i)(photon|gamma|ph)s?", "photon", "photons", 20, 2.5, None,
        ("HLT_Photon200", "HLT_Diphoton30_22_R9Id_OR_IsoCaloId_AND_HE_R9Id_Mass90"),
        r"(?i)(hlt|trig).*photon",
    ),
    # Generated and auxiliary objects are what one wants last.
    Species(r"(?!Gen|LHE|Sub|Trig|MC|mc).*", "object", "objects", 20, 2.5, None, (), r"(?!)"),
)  # fmt: skip

#: What vector calls a momentum's parts, and what files call them.
TRANSVERSE = {"pt": ("pt",), "eta": ("eta",), "phi": ("phi",)}
CARTESIAN = {"px": ("px",), "py": ("py",), "pz": ("pz",)}
FOURTH = {"mass": ("mass", "m"), "E": ("e", "energy")}
CHARGE = ("charge", "q")
#: A trigger or two is what one begins with.
TRIGGERS = 2
#: Hundreds of flags may fit by name; reading them all is not worth the guess.
SIMILAR = 20
#: Momenta of thousands are in MeV.
MEV_FROM = 1000
#: This part of the rows makes a species the subject of the analysis.
MANY = 0.05
#: The usual loose working point of relative isolation.
ISOLATED = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The objects an analysis selects."""

    collection: str
    singular: str
    plural: str
    columns: Mapping[str, str]  #: field -> column
    momentum: Mapping[str, str]  #: vector's name of a part -> the field
    charge: str | None
    isolation: str | None
    pt_above: float
    eta_below: float
    unit: str = "GeV"
    ordered: bool = True  #: by falling pt, in the rows looked at
    mass: Axis | None = None  #: of two of them
    leading: Axis | None = None  #: pt of the first
    triggers: tuple[str, ...] = ()

    @property
    def as_they_are(self) -> bool:
        """Whether the collection itself has four-vector behaviour: nothing has to be built."""
        return all(name == field for name, field in self.momentum.items()) and (len(self.momentum) == 4)

    @property
    def region(self) -> str:
        """What to call a selection of two of them."""
        return f"di{self.singular}" if self.singular != "object" else "selected"

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields the selection touches."""
        extra = (self.charge, self.isolation)
        return (*self.momentum.values(), *(name for name in extra if name is not None))


def find_objects(files: Together, sample: Sample) -> Objects | None:
    """Return the first species of which many rows have two, else the one of which most rows do."""
    common = set(files.common)
    groups = [group for group in grouped(files.columns, files.info)[0] if group.lists]
    best: tuple[Objects, Species] | None = None
    most = -1.0
    for species in SPECIES:
        for group in groups:
            if not (re.fullmatch(species.names, group.prefix) and group.prefix.isidentifier()):
                continue
            objects = _objects(species, group, common)
            if objects is None:
                continue
            objects, share = _measured(objects, sample)
            if share > most:
                best, most = (objects, species), share
        if most >= MANY:
            break
    if best is None:
        return None
    return replace(best[0], triggers=_triggers(best[1], files, sample))


def _objects(species: Species, group: Group, common: set[str]) -> Objects | None:
    there = [f for f, m in zip(group.fields, group.members, strict=True) if m.name in common]
    # Collections of nested names (Aux.Muon.pt) are for the reader to write.
    there = [name for name in there if name.isidentifier()]
    lowered = {name.lower(): name for name in reversed(there)}
    momentum = _parts(TRANSVERSE, lowered) or _parts(CARTESIAN, lowered)
    if momentum is None:
        return None
    for name, spellings in FOURTH.items():
        field = next((lowered[s] for s in spellings if s in lowered), None)
        if field is not None:
            momentum[field if field in ("E", "mass") else name] = field
            break
    else:
        if "px" in momentum:
            return None  # without energy or mass there is nothing to add up
    leptons = species.plural in ("muons", "electrons", "leptons")
    charge = next((lowered[name] for name in CHARGE if name in lowered), None)
    return Objects(
        collection=group.prefix,
        columns=dict(zip(group.fields, (member.name for member in group.members), strict=True)),
        singular=species.singular,
        plural=species.plural,
        momentum=momentum,
        charge=charge if leptons else None,
        isolation=species.isolation if species.isolation in there else None,
        pt_above=species.pt_above,
        eta_below=species.eta_below,
    )


def _parts(parts: Mapping[str, tuple[str, ...]], lowered: Mapping[str, str]) -> dict[str, str] | None:
    found = {part: lowered[s] for part, names in parts.items() for s in names if s in lowered}
    return found if len(found) == len(parts) else None


def four_vectors(objects: Objects, fields: Mapping[str, Any]) -> Any:
    """Build what the skeleton's own step builds, from the columns of a file."""
    import vector

    parts = {name: fields[field] for name, field in objects.momentum.items()}
    if len(parts) == 3:
        parts["mass"] = 0 * parts["pt"]
    extra = {f: fields[f] for f in (objects.charge, objects.isolation) if f is not None}
    return vector.zip(parts | extra)


def _measured(objects: Objects, sample: Sample) -> tuple[Objects, float]:
    """Look at the first rows: units, order, what part of them has two, and where the spectra are."""
    import awkward as ak

    wanted = {field: objects.columns[field] for field in objects.fields}
    parts = [
        four_vectors(objects, {field: columns[column] for field, column in wanted.items()})
        for columns in sample.parts(list(wanted.values()))
    ]
    pts = [ak.to_numpy(ak.flatten(part.pt)) for part in parts]
    every = np.concatenate(pts) if pts else np.empty(0)
    if len(every) and np.median(every) > MEV_FROM:
        objects = replace(objects, unit="MeV", pt_above=1000 * objects.pt_above)
    masses, leading, ordered = [], [], True
    for part in parts:
        good = part[(part.pt > objects.pt_above) & (abs(part.eta) < objects.eta_below)]
        if objects.isolation is not None:
            good = good[good[objects.isolation] < ISOLATED]
        ordered = ordered and bool(ak.all(good.pt[:, :-1] >= good.pt[:, 1:], axis=None))
        if not ordered:
            good = good[ak.argsort(good.pt, axis=1, ascending=False)]
        good = good[ak.num(good) >= 2]
        if objects.charge is not None:
            good = good[good[objects.charge][:, 0] != good[objects.charge][:, 1]]
        leading.append(ak.to_numpy(good.pt[:, 0]))
        masses.append(ak.to_numpy((good[:, 0] + good[:, 1]).mass))
    scale = 1000.0 if objects.unit == "MeV" else 1.0
    mass = np.concatenate(masses) if masses else np.empty(0)
    pt = np.concatenate(leading) if leading else np.empty(0)
    return replace(
        objects,
        ordered=ordered,
        mass=axis_of(mass, otherwise=(0, 150 * scale)),
        leading=axis_of(pt, otherwise=(0, 150 * scale)),
    ), len(mass) / max(sum(map(len, parts)), 1)


def _triggers(species: Species, files: Together, sample: Sample) -> tuple[str, ...]:
    """Return a typical trigger that fires in most files and rows, and the one that adds most to it."""
    flags = [
        name
        for name, info in files.info.columns.items()
        if info.kind == "flat" and info.dtype is not None and info.dtype.kind == "b" and name not in files.types
    ]
    typical = [name for name in species.triggers if name in flags]
    known = typical or [n for n in flags if re.match(species.trigger_words, n)][:SIMILAR]
    fired: dict[str, dict[int, Any]] = {name: {} for name in known}  # by file: in which rows
    for file, part in sample.parts_by_file(known):
        for name, rows in part.items():
            fired[name][file] = np.asarray(rows)
    chosen: list[str] = []
    seen: dict[int, Any] = {}  # file -> rows that fired already
    while len(chosen) < TRIGGERS:
        gains = {name: _gain(fired[name], seen) for name in known if name not in chosen}
        # max takes the first of equals, which is the most usual one.
        best = max(gains, key=lambda name: gains[name], default=None)
        if best is None or (gains[best] == (0, 0) and chosen):
            break
        chosen.append(best)
        for file, rows in fired[best].items():
            seen[file] = seen.get(file, False) | rows
    return tuple(chosen)


def _gain(fired: Mapping[int, Any], seen: Mapping[int, Any]) -> tuple[int, int]:
    """In how many files, and in how many rows, something fires that had not."""
    counts = [int(np.sum(rows & ~np.asarray(seen.get(file, False)))) for file, rows in fired.items()]
    return sum(1 for count in counts if count), sum(counts)
