"""What a new analysis should do with the files it is for: the values that fill its template."""

from __future__ import annotations

import builtins
import json
import keyword
import math
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.cli.new.objects import ISOLATED, find_objects, find_triggers, read_sample
from windrow.cli.new.template import GAP, fill

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
    weight = next((name for name in WEIGHTS if _is_weight(files, name)), None)
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
        values |= _select_objects(objects, find_triggers(objects.species, flags))
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


def _is_weight(files: Together, column: str) -> bool:
    """Say whether it is a real number wherever it is; some files may lack it."""
    return _is_flat(files, column, "f") and WEIGHT_TYPES.issuperset(files.types.get(column, ()))


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
