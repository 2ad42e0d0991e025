"""What a new analysis should do with the files it is for: the values that fill its template."""

from __future__ import annotations

import builtins
import json
import keyword
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.cli.new.objects import ISOLATED, find_objects, find_triggers
from windrow.cli.new.sample import choose_axis, read_values
from windrow.cli.new.template import GAP, fill, free_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.cli.contents import Together
    from windrow.cli.new.objects import Objects
    from windrow.data.base import Source


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
    "ak", "np", "wr", "pytest", "analysis", "fileset", "main", "draw", "Hist", "Path", "HERE", "REGION",
    "SPECTRA", "axis", "dataset", "region", "variation", "rng", "weight", "low", "at_least",
}  # fmt: skip
#: As many plain columns as one looks at first.
FLAT_SPECTRA = 3


def is_name(text: str) -> bool:
    """Say whether Python can write it as a name and means the same: some letters it replaces."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.normalize("NFKC", text) == text


def design(pipeline: str, files: Together, source: Source) -> dict[str, str | None]:
    """Return the values of the template for an analysis of these files; what they cannot have is None."""
    usable = {name for name in files.common if is_name(name) and name not in RESERVED}
    weight = next((name for name in WEIGHTS if _is_weight(files, name)), None)
    identity = next((names for names in IDENTITIES if usable.issuperset(names)), ())
    identity = identity if all(_is_flat(files, name, "iu") for name in identity) else ()
    # Real numbers first, as they make better spectra.
    numbers = [name for kinds in ("f", "iu") for name in files.common if _is_flat(files, name, kinds)]
    numbers = [name for name in numbers if name in usable and name not in {*identity, weight}]
    options = [json.dumps(pipeline), *([f"identity=({_quoted(identity)})"] if identity else [])]
    values: dict[str, str | None] = {"pipeline": ", ".join(options), "weight": weight}
    objects = find_objects(files, source, RESERVED)
    if objects is None:
        values |= _cut_on_a_number(numbers, files, source)
        spectra = [_column_spectrum(name, source) for name in numbers[:FLAT_SPECTRA]]
    else:
        flags = [name for name in files.common if name in usable and _is_flat(files, name, "b")]
        values |= _select_objects(objects, find_triggers(objects.species, flags, source), files)
        spectra = _object_spectra(objects, str(values["objects"]), files)
    taken = taken_names(files)
    for spectrum in spectra:
        spectrum["spectrum"] = free_name(spectrum["spectrum"], taken)
        taken.add(spectrum["spectrum"])  # columns may differ in nothing but their capitals
    values["spectrum_names"] = f"[{_quoted([one['spectrum'] for one in spectra])}]"
    values["spectra"] = GAP.join(fill("spectrum.py", one).partition(GAP)[2].strip() for one in spectra) or None
    return values


def taken_names(files: Together) -> set[str]:
    return {*files.columns, *files.info.collections}


def _is_flat(files: Together, column: str, kinds: str) -> bool:
    info = files.info.columns.get(column)
    return bool(info and info.kind == "flat" and info.dtype is not None and info.dtype.kind in kinds)


def _is_weight(files: Together, column: str) -> bool:
    """Say whether it is a real number wherever it is; some files may lack it."""
    return _is_flat(files, column, "f") and WEIGHT_TYPES.issuperset(files.types.get(column, ()))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(json.dumps(name, ensure_ascii=False) for name in names)


def _spectrum(name: str, reads: str, expression: str, observed: Any, quantity: str, label: str) -> dict[str, str]:
    axis = ", ".join(f"{number:g}" for number in choose_axis(observed))
    return {
        "spectrum": name, "reads": reads, "expression": expression, "axis": axis, "quantity": quantity, "label": label
    }  # fmt: skip


# -- an analysis of plain numbers -----------------------------------------------------------------------


def _column_spectrum(column: str, source: Source) -> dict[str, str]:
    return _spectrum(f"{column.lower()}_spectrum", column, column, read_values(source, column), column, column)


def _cut_on_a_number(numbers: Sequence[str], files: Together, source: Source) -> dict[str, str | None]:
    """Cut where a quarter of the rows is lost: something to see, and something left."""
    for column in numbers:
        observed = read_values(source, column)
        if len(observed) == 0 or observed.min() < observed.max():
            cut = free_name(f"{column.lower()}_above", taken_names(files))
            low = float(np.quantile(observed, 0.25)) if len(observed) else 0.0
            region = f"REGION, {_quoted([cut])}"
            values = {"number": column, "number_cut": cut, "low": f"{low:.2g}"}
            return {**values, "region": "selected", "region_and_cuts": region}
    return {"region": "selected", "region_and_cuts": "REGION"}


# -- an analysis of objects -----------------------------------------------------------------------------


def _object_spectra(objects: Objects, made: str, files: Together) -> list[dict[str, str]]:
    plural = objects.species.plural
    mass = free_name("pair_mass", taken_names(files))
    leading = f"leading {plural[:-1]} pt"
    return [
        _spectrum("mass_spectrum", mass, mass, objects.pair_masses, "mass", f"mass of two {plural}"),
        _spectrum("leading_pt", made, f"{made}[:, 0].pt", objects.leading_pts, "pt", leading),
    ]


def _select_objects(objects: Objects, triggers: Sequence[str], files: Together) -> dict[str, str | None]:
    species = objects.species
    taken = taken_names(files)
    made = free_name(f"good_{species.plural}", taken)
    cuts = [*(["trigger"] if triggers else []), f"two_{made}", *(["opposite_charge"] if objects.charge else [])]
    good = [f"momenta.pt > {species.pt_above:g}", f"abs(momenta.eta) < {species.eta_below:g}"]
    good += [f"momenta.{objects.isolation} < {ISOLATED:g}"] if objects.isolation else []
    one = species.plural[:-1]
    return {
        "flags": ", ".join(triggers) or None,
        "fired": " | ".join(triggers),
        "triggers": str(len(triggers)) if triggers else None,
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
        "region_and_cuts": f"REGION, {_quoted([free_name(cut, taken) for cut in cuts])}",
    }
