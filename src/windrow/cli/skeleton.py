"""What a new analysis should do with the files it is for: decided by looking at their columns and first rows.

Makes no text: that is ``skeleton_pipeline`` and ``skeleton_checks``.
"""

from __future__ import annotations

import builtins
import keyword
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.cli.skeleton_layout import as_name, is_name
from windrow.cli.skeleton_objects import find_objects
from windrow.cli.skeleton_sample import Axis, axis_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.cli.contents import Together
    from windrow.cli.skeleton_objects import Objects
    from windrow.cli.skeleton_sample import Sample


#: Columns that say which row it is, in the ways experiments call them; the first complete set wins.
IDENTITIES = (
    ("run", "luminosityBlock", "event"),
    ("run", "lumi", "event"),
    ("runNumber", "eventNumber"),
    ("run", "event"),
    ("Run", "Event"),
)
#: Columns that only simulation has and that weigh its rows.
WEIGHTS = ("genWeight", "mcWeight", "mc_weight", "EventWeight", "eventWeight", "event_weight")
#: Types of a weight: files may differ in its precision.
REAL = {"float32", "float64"}
#: Names that an argument cannot have, or that linters rightly dislike.
AWKWARD = {*keyword.kwlist, *dir(builtins), "l", "O", "I"}
#: Names the skeleton uses itself, and those that steps and axes get from elsewhere.
USED = {
    "ak", "np", "wr", "vector", "pytest", "analysis", "fileset", "main", "draw", "Hist", "Path",
    "dataset", "region", "variation", "rng", "weight", "sample", "threads", "low", "high",
    "HERE", "REGION", "SPECTRA",
}  # fmt: skip
#: Characters of a column's name that fit into an expression, and of a name made from it.
LONGEST = 60
LONGEST_WORD = 40
#: As many plain columns as one looks at first.
FLAT_SPECTRA = 3


@dataclass(frozen=True, slots=True)
class Argument:
    """A column as an argument of a step: under its own name where Python can write it."""

    column: str
    default: str = ""  #: in Python's words; what has one may be missing in a file
    called: str = ""  #: another name, where its own would not do

    @property
    def name(self) -> str:
        """The name in the signature."""
        plain = is_name(self.column) and self.column not in AWKWARD | USED
        own = self.column if plain and len(self.column) <= LONGEST else word(self.column)
        return self.called or own


@dataclass(frozen=True, slots=True)
class Dataset:
    """Files that are analysed alike."""

    name: str
    files: tuple[str, ...]
    is_mc: bool | None = None  #: None where no file has a weight of simulation


@dataclass(frozen=True, slots=True)
class FlatCut:
    """A cut on one number per row."""

    column: Argument
    name: str
    above: float


@dataclass(frozen=True, slots=True)
class Spectrum:
    """A histogram of one value per row: of a step, of the leading object, or of a column."""

    name: str
    reads: Argument
    expression: str
    axis: Axis
    quantity: str  #: what the axis is called
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Everything the text of an analysis needs to know."""

    name: str
    sources: tuple[str, ...]  #: the files as their user named them
    datasets: tuple[Dataset, ...]
    identity: tuple[str, ...]
    weight: Argument | None
    trigger: tuple[Argument, ...]
    objects: Objects | None
    flat_cut: FlatCut | None
    spectra: tuple[Spectrum, ...]
    steps: Mapping[str, str]  #: what a step is usually called -> a name that is free
    region: str
    skim: tuple[str, ...]  #: columns worth keeping

    @property
    def cuts(self) -> tuple[str, ...]:
        """The cuts of the region, as they are written."""
        names = [self.steps["trigger"]] if self.trigger else []
        if self.objects is not None:
            names.append(self.steps["number"])
            if self.objects.charge is not None:
                names.append(self.steps["opposite_charge"])
        if self.flat_cut is not None:
            names.append(self.flat_cut.name)
        return tuple(names)


def word(text: str) -> str:
    """Return a lower-case Python name that reads like ``text`` and is nobody else's."""
    plain = as_name(text.lower())[:LONGEST_WORD].strip("_") or "column"
    plain = f"x_{plain}" if plain[0].isdigit() else plain
    return f"{plain}_column" if plain in {name.lower() for name in AWKWARD | USED} else plain


def design(name: str, sources: Sequence[str], datasets: Sequence[Dataset], files: Together, sample: Sample) -> Design:
    """Decide what an analysis of these files should do."""
    common = set(files.common)
    objects = find_objects(files, sample)
    weight = next((c for c in WEIGHTS if _is_weight(files, c)), None)
    steps = _names(files, objects)
    identity = next((ids for ids in IDENTITIES if common.issuperset(ids)), ())
    whole = all(_is_flat(files, column, "iu") for column in identity)
    identity = identity if whole else ()
    plain = [c for c in _flat_columns(files) if c not in {*identity, weight}]
    spectra = [*_object_spectra(objects, steps)]
    flat_cut = None
    if objects is None:
        flat_cut = _flat_cut(plain, sample, steps)
        spectra += _flat_spectra(plain[:FLAT_SPECTRA], sample, steps)
    elif "MET_pt" in plain:
        spectra += _flat_spectra(["MET_pt"], sample, steps)
    return Design(
        name=name,
        sources=tuple(sources),
        datasets=tuple(datasets),
        identity=identity,
        # Data have none, and files named on a command line carry no metadata that could tell.
        weight=None if weight is None else Argument(weight, default="1.0"),
        trigger=_trigger(files, objects, common),
        objects=objects,
        flat_cut=flat_cut,
        spectra=tuple(spectra),
        steps=steps,
        region="selected" if objects is None else objects.region,
        # Hundreds of flags are what makes files of selected rows large.
        skim=("*", "-HLT_*") if any(name.startswith("HLT_") for name in common) else ("*",),
    )


def _trigger(files: Together, objects: Objects | None, common: set[str]) -> tuple[Argument, ...]:
    chosen = () if objects is None else objects.triggers
    if any(set(chosen) <= set(missing) for missing in files.missing.values()):
        return ()  # a cut that no row of some file can pass
    # Required ones first: Python wants arguments with defaults at the end.
    flags = [
        Argument(name, default="" if name in common else "False")
        for name in sorted(chosen, key=lambda name: name not in common)
    ]
    if len({flag.name for flag in flags if len(flag.column) <= LONGEST}) < len(flags):
        flags = [replace(flag, called=f"flag_{n}") for n, flag in enumerate(flags, start=1)]
    return tuple(flags)


def _is_flat(files: Together, column: str, kinds: str) -> bool:
    info = files.info.columns.get(column)
    return bool(info and info.kind == "flat" and info.dtype is not None and info.dtype.kind in kinds)


def _is_weight(files: Together, column: str) -> bool:
    """Say whether it is a real number wherever it is; some files may lack it, precisions may differ."""
    return _is_flat(files, column, "f") and REAL.issuperset(files.types.get(column, ()))


def _flat_columns(files: Together) -> list[str]:
    """Return the plain numbers all files have: real ones first, as they make better spectra."""
    real = [name for name in files.common if _is_flat(files, name, "f")]
    return [*real, *(name for name in files.common if _is_flat(files, name, "iu"))]


def _names(files: Together, objects: Objects | None) -> dict[str, str]:
    """Name the steps so that no column of the files is called the same."""
    wanted = {
        "generator": "generator",
        "trigger": "trigger",
        "opposite_charge": "opposite_charge",
        "mass": "mass",
        "mass_spectrum": "mass_spectrum",
        "leading_pt": "leading_pt",
    }
    if objects is not None:
        wanted |= {"objects": objects.plural, "number": f"two_{objects.plural}"}
    return {usual: f"my_{name}" if name in files.columns or name in USED else name for usual, name in wanted.items()}


def _object_spectra(objects: Objects | None, steps: Mapping[str, str]) -> list[Spectrum]:
    if objects is None:
        return []
    spectra = []
    if objects.mass is not None:
        label = f"mass of two {objects.plural} [{objects.unit}]"
        mass = Argument(steps["mass"])
        spectra.append(Spectrum(steps["mass_spectrum"], mass, mass.name, objects.mass, "mass", label))
    if objects.leading is not None:
        label = f"leading {objects.singular} pt [{objects.unit}]"
        made = Argument(steps["objects"])
        pt = f"{made.name}[:, 0].pt"
        spectra.append(Spectrum(steps["leading_pt"], made, pt, objects.leading, "pt", label))
    return spectra


def _flat_cut(plain: Sequence[str], sample: Sample, steps: Mapping[str, str]) -> FlatCut | None:
    """Cut where a quarter of the rows is lost: something to see, and something left."""
    import numpy as np

    for column in plain:
        values = sample.values(column)
        values = values[np.isfinite(values)]
        if len(values) == 0 or values.min() < values.max():
            quarter = float(np.quantile(values, 0.25)) if len(values) else 0.0
            name = f"{word(column)}_above"
            return FlatCut(Argument(column), _free(name, plain, steps), float(f"{quarter:.2g}"))
    return None


def _flat_spectra(columns: Sequence[str], sample: Sample, steps: Mapping[str, str]) -> list[Spectrum]:
    spectra: list[Spectrum] = []
    for column in columns:
        argument = Argument(column)
        taken = [*columns, *(other.name for other in spectra)]
        name = _free(f"{word(column)}_spectrum", taken, steps)
        axis = axis_of(sample.values(column))
        spectra.append(Spectrum(name, argument, argument.name, axis, word(column), column))
    return spectra


def _free(name: str, columns: Sequence[str], steps: Mapping[str, str]) -> str:
    taken = {*columns, *steps.values()}
    while name in taken:
        name = f"my_{name}"
    return name
