"""What a new analysis should do with the files it is for, and the template files that this fills.

They have ``FILL_name`` where a value goes, and stay Python that a linter can read.
"""

from __future__ import annotations

import builtins
import json
import keyword
import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.cli.show import grouped

if TYPE_CHECKING:
    from windrow.cli.show import Together
    from windrow.data.base import Source


TEMPLATES = Path(__file__).parent / "templates"
#: What stands between functions; what stands between two of these is a paragraph.
GAP = "\n\n\n"
#: Imports that only some paragraphs need, and the name that shows it.
IMPORTS = {
    "import awkward as ak\n": "ak",
    "import numpy as np\n": "np",
    "import windrow as wr\n": "wr",
    "from hist import Hist\n": "Hist",
}


class _Fill(Template):
    delimiter = "FILL_"


def fill(file: str, values: Mapping[str, str | None]) -> str:
    """Fill a template; a paragraph is left out if one of its values is None or missing."""
    text = (TEMPLATES / file).read_text(encoding="utf-8")
    paragraphs = [_Fill(part) for part in text.split(GAP)]
    given = [part for part in paragraphs if all(values.get(name) is not None for name in part.get_identifiers())]
    text = GAP.join(part.substitute(values) for part in given)
    for line, name in IMPORTS.items():
        if not re.search(rf"\b{name}\.", text):
            text = text.replace(line, "")
    return text


def fill_directory(kind: str, name: str, values: Mapping[str, str | None]) -> dict[str, str]:
    files = sorted(path.name for path in (TEMPLATES / kind).iterdir() if path.is_file())
    return {file.replace("analysis", name): fill(f"{kind}/{file}", {"name": name, **values}) for file in files}


# -- the objects that an analysis should begin with
#
# A physicist's first guess from the names and the first rows: muons before electrons before other leptons before jets; two
# of them; opposite charge.


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
        with closing(source.open(one.index)) as reader:
            if reader.info.rows:
                yield dict(reader.read(list(columns), 0, min(reader.info.borders[1], SAMPLE_ROWS)))


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


# -- the analysis


#: Columns that say which row it is, in the ways experiments call them; the first complete set wins.
IDENTITIES = (
    ("run", "luminosityBlock", "event"),
    ("run", "lumi", "event"),
    ("runNumber", "eventNumber"),
    ("run", "event"),
    ("Run", "Event"),
)
#: Columns that only simulation has and that weigh its rows; files may differ in their precision.
WEIGHTS = ("genWeight", "mcWeight", "mc_weight", "EventWeight", "eventWeight", "event_weight")
WEIGHT_TYPES = {"float32", "float64"}
#: Names that an argument of a step cannot have, that linters rightly dislike, or that the template uses itself.
RESERVED = {
    *keyword.kwlist, *dir(builtins), "l", "O", "I",
    "ak", "np", "wr", "pytest", "analysis", "fileset", "main", "Hist", "Path", "HERE", "REGION",
    "SPECTRA", "axis", "dataset", "region", "variation", "rng", "weight", "low", "at_least",
}  # fmt: skip
#: As many plain columns as one looks at first.
FLAT_SPECTRA = 3
#: Fewer values say nothing about a range.
FEWEST_VALUES = 5
#: The part of the values an axis should hold, without the tails.
QUANTILES = (0.01, 0.99)


def is_name(text: str) -> bool:
    """Say whether Python can write it as a name and means the same: some letters it replaces."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.normalize("NFKC", text) == text


def design(pipeline: str, files: Together, source: Source) -> dict[str, str | None]:
    """Return the values of the template for an analysis of these files; what they cannot have is None."""
    usable = {name for name in files.common if is_name(name) and name not in RESERVED}
    # A real number wherever it is; some files may lack it.
    real = (name for name in WEIGHTS if _is_flat(files, name, "f"))
    weight = next((name for name in real if WEIGHT_TYPES.issuperset(files.types.get(name, ()))), None)
    identity = next((names for names in IDENTITIES if usable.issuperset(names)), ())
    identity = identity if all(_is_flat(files, name, "iu") for name in identity) else ()
    # Real numbers first, as they make better spectra; names that differ in nothing but capitals give one spectrum.
    numbers = [name for kinds in ("f", "iu") for name in files.common if _is_flat(files, name, kinds)]
    numbers = [name for name in numbers if name in usable and name not in {*identity, weight}]
    numbers = list({name.lower(): name for name in reversed(numbers)}.values())[::-1]
    options = [json.dumps(pipeline), *([f"identity=({_quoted(identity)})"] if identity else [])]
    values: dict[str, str | None] = {"pipeline": ", ".join(options), "weight": weight}
    objects = find_objects(files, source, RESERVED)
    if objects is None:
        values |= _cut_on_a_number(numbers, source)
        spectra = [
            _spectrum(f"{name.lower()}_spectrum", name, name, _read_values(source, name), name, name)
            for name in numbers[:FLAT_SPECTRA]
        ]
    else:
        flags = [name for name in files.common if name in usable and _is_flat(files, name, "b")]
        usual = [name for name in flags if re.match(f"(?i:{objects.species.triggers})", name)]
        values |= _select_objects(objects, usual[:TRIGGERS])
        plural, made = objects.species.plural, str(values["objects"])
        leading = f"leading {plural[:-1]} pt"
        spectra = [
            _spectrum("mass_spectrum", "pair_mass", "pair_mass", objects.pair_masses, "mass", f"mass of two {plural}"),
            _spectrum("leading_pt", made, f"{made}[:, 0].pt", objects.leading_pts, "pt", leading),
        ]
    values["spectrum_names"] = f"[{_quoted([one['spectrum'] for one in spectra])}]"
    values["spectra"] = GAP.join(fill("spectrum.py", one).partition(GAP)[2].strip() for one in spectra) or None
    return values


def _is_flat(files: Together, column: str, kinds: str) -> bool:
    info = files.info.columns.get(column)
    return bool(info and info.kind == "flat" and info.dtype is not None and info.dtype.kind in kinds)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(json.dumps(name, ensure_ascii=False) for name in names)


def _read_values(source: Source, column: str) -> np.ndarray[Any, Any]:
    parts = [np.asarray(part[column]) for part in read_sample(source, [column])]
    values = np.concatenate(parts) if parts else np.empty(0)
    return values[np.isfinite(values)]


def _spectrum(name: str, reads: str, expression: str, observed: Any, quantity: str, label: str) -> dict[str, str]:
    axis = ", ".join(f"{number:g}" for number in choose_axis(observed))
    return {
        "spectrum": name, "reads": reads, "expression": expression, "axis": axis, "quantity": quantity, "label": label
    }  # fmt: skip


def choose_axis(values: Any) -> tuple[int, float, float]:
    """Return bins, low and high of an axis from quantile to quantile, on round numbers."""
    values = np.asarray(values)
    if len(values) < FEWEST_VALUES:
        return 50, 0.0, 150.0  # nothing to go by
    low, high = (float(edge) for edge in np.quantile(values, QUANTILES))
    if values.dtype.kind in "iub" and high - low <= 50:
        # One bin for each number.
        return round(high - low) + 1, round(low) - 0.5, round(high) + 0.5
    if high <= low:
        margin = abs(low) / 2 or 0.5
        low, high = low - margin, high + margin
    if 0 <= low < 0.3 * high:
        low = 0.0  # a spectrum that nearly begins at zero is read best from zero
    step = 10 ** math.floor(math.log10((high - low) / 2))
    return 50, step * math.floor(low / step), step * math.ceil(high / step)


def _cut_on_a_number(numbers: Sequence[str], source: Source) -> dict[str, str | None]:
    """Cut where a quarter of the rows is lost: something to see, and something left."""
    for column in numbers:
        observed = _read_values(source, column)
        if len(observed) == 0 or observed.min() < observed.max():
            cut = f"{column.lower()}_above"
            low = float(np.quantile(observed, 0.25)) if len(observed) else 0.0
            values = {"number": column, "number_cut": cut, "low": f"{low:.2g}"}
            return {**values, "region": "selected", "region_and_cuts": f"REGION, {_quoted([cut])}"}
    return {"region": "selected", "region_and_cuts": "REGION"}


def _select_objects(objects: Objects, triggers: Sequence[str]) -> dict[str, str | None]:
    species = objects.species
    made = f"good_{species.plural}"
    cuts = [*(["trigger"] if triggers else []), f"two_{made}", *(["opposite_charge"] if objects.charge else [])]
    good = [f"momenta.pt > {species.pt_above:g}", f"abs(momenta.eta) < {species.eta_below:g}"]
    good += [f"momenta.{objects.isolation} < {ISOLATED:g}"] if objects.isolation else []
    one = species.plural[:-1]
    return {
        "flags": ", ".join(triggers) or None,
        "fired": " | ".join(triggers),
        "objects": made,
        "records": objects.collection,
        "momenta": f"wr.hep.momenta({objects.collection}{'' if objects.has_mass else ', mass=0.0'})",
        "good": " & ".join(f"({condition})" for condition in good),
        "charge": objects.charge,
        "charge_field": objects.charge or "charge",
        "isolation_field": objects.isolation or "isolation",
        "pt": f"{species.pt_above:g}",
        "eta": f"{species.eta_below:g}",
        "region": "selected" if one == "object" else f"di{one}",
        "region_and_cuts": f"REGION, {_quoted(cuts)}",
    }
