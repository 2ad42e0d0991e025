"""The ttH analysis of the HEP-Frame paper: 18 propositions, 33 dependencies, three variants.

A proposition is a task and a test. Here the task is a column where others need its result, and the test is a cut; what belongs
to which proposition is in ``PROPOSITIONS``. The README says what is from the paper and what is not.

    build("as")      sensors are exact: one reconstruction per event, everything is cheap
    build("sci")     sensors have a confidence interval: 13 and 18 sample it 1024 times, with 30 random numbers per sample
    build("scinp")   another 13 (heavy) and another 16 (which drops most), 128 samples
"""

from __future__ import annotations

from itertools import permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from hist import Hist

import windrow as wr
from windrow.pipeline.definition.definition import dependencies

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

__all__ = ["PASS", "PASS_SCINP", "PROPOSITIONS", "SAMPLES", "VARIANTS", "build", "depend"]

VARIANTS = ("as", "sci", "scinp")
#: Samples of a reconstruction in full.
SAMPLES = {"as": 0, "sci": 1024, "scinp": 128}
#: proposition -> its steps: columns that others read, then the cut
PROPOSITIONS = {
    1: ("fired", "trigger"),
    2: ("origin", "vertex"),
    3: ("leptons", "two_leptons"),
    4: ("jets", "four_jets"),
    5: ("opposite_charge",),
    6: ("hard_lepton",),
    7: ("dilepton_mass", "low_mass"),
    8: ("z_veto",),
    9: ("ranked", "b_tags"),
    10: ("apart",),
    11: ("missing", "missing_energy"),
    12: ("ht", "activity"),
    13: ("tops", "top_pair"),
    14: ("top_pair_mass",),
    15: ("spin",),
    16: ("higgs", "higgs_candidate"),
    17: ("shape",),
    18: ("tth", "tth_system"),
}
#: Which share of the events that reach a proposition passes it, in the written order. The paper has 63 % and 50 % for two of
#: them, over 90 % for the others, 99 % for the 16th, and 30 % for the 16th of scinp; which two, and the rest, is ours.
PASS = dict(enumerate(
    (0.956, 0.973, 0.63, 0.50, 0.988, 0.956, 0.99, 0.931, 0.945, 0.921, 0.92, 0.985, 0.93, 0.986, 0.983, 0.99, 0.978, 0.978),
    start=1,
))  # fmt: skip
#: What is different in scinp: two propositions were replaced, and one of them feeds 18.
PASS_SCINP = PASS | {13: 0.998, 16: 0.30, 18: 0.997}

#: Four-momenta are (E, x, y, z).
E, X, Y, Z = range(4)
#: What a reconstruction says of an event.
CHI2, TT_MASS, LB_MASS, OPENING, BB_MASS = range(5)
#: Sensors are right to 1 % with a confidence of 99 %, which is 2.58 standard deviations.
ACCURACY = 0.01 / 2.58
#: Random numbers per sample: 6 objects x 4, missing momentum 2, directions of both neutrinos 2, masses of top and W.
DRAWS = 30
#: Samples whose numbers are drawn together: 15 kB per event.
DRAWN = 64
#: Samples of events that are reconstructed together: their arrays stay in the cache.
TOGETHER = 256


# -- light propositions ------------------------------------------------------------------------


def stacked(columns: dict[str, Any]) -> Numbers:
    """(object, row) from a mapping of columns, in the order of their names."""
    return np.stack([np.asarray(columns[name], dtype=np.float64) for name in sorted(columns)])


def momenta(pt: Numbers, eta: Numbers, phi: Numbers, energy: Numbers, good: Any) -> Numbers:
    """(row, object, component); zero where an object is not good."""
    every = np.stack([energy, pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)])
    return np.ascontiguousarray(np.where(good, every, 0.0).T)


def mass(p: Numbers) -> Numbers:
    """Of (component, ...)."""
    return np.sqrt(np.maximum(p[E] ** 2 - p[X] ** 2 - p[Y] ** 2 - p[Z] ** 2, 0.0))


def transverse(p: Numbers) -> Numbers:
    return np.sqrt(p[..., X] ** 2 + p[..., Y] ** 2)


def fired(trigger_e, trigger_mu):
    return np.where(trigger_mu > 0, 13.0, np.where(trigger_e > 0, 11.0, 0.0))


def trigger(fired):
    return fired > 0


def origin(vertex_z, vertex_tracks, noise):
    return np.where((vertex_tracks >= 17) & (noise < 5), np.abs(vertex_z), 1e3)


def vertex(origin):
    return origin < 120


def leptons(fired, pt, eta, phi, e, identified, track, flavour, match):
    pt, eta, phi, e = (stacked(c) for c in (pt, eta, phi, e))
    good = (pt > 15) & (np.abs(eta) < 2.5) & (stacked(identified) > 0.64) & (stacked(track) < 0.18)
    matched = (stacked(match) > 0) & (stacked(flavour) == fired)
    return momenta(pt, eta, phi, e, good & matched.any(axis=0))


def two_leptons(leptons):
    return (leptons[..., E] > 0).all(axis=1)


def jets(origin, pt, eta, phi, e, jvt):
    pt, eta, phi, e = (stacked(c) for c in (pt, eta, phi, e))
    # Tracks of a vertex far from the centre miss part of the detector.
    good = (pt > 31) & (np.abs(eta) < 2.5) & (stacked(jvt) > np.where(origin < 80, 0.59, 0.5))
    return momenta(pt, eta, phi, e, good)


def four_jets(jets):
    return (jets[..., E] > 0).sum(axis=1) >= 4


def opposite_charge(lep1_charge, lep2_charge):
    return lep1_charge * lep2_charge < 0


def hard_lepton(leptons):
    return transverse(leptons).max(axis=1) > 32


def dilepton_mass(leptons):
    return mass((leptons[:, 0] + leptons[:, 1]).T)


def low_mass(dilepton_mass):
    return dilepton_mass > 15


def z_veto(dilepton_mass, lep1_flavour, lep2_flavour):
    return (lep1_flavour != lep2_flavour) | (np.abs(dilepton_mass - 91.2) > 10)


def ranked(jets, btag):
    """Jets in the order of their b-tags, (row, rank): the number of the jet, and those that are not good at the end."""
    return np.argsort(np.where(jets[..., E] > 0, -stacked(btag).T, 1.0), axis=1, kind="stable")


def b_tags(jets, ranked, btag):
    third = np.take_along_axis(stacked(btag).T, ranked[:, 2:3], axis=1)[:, 0]
    return (third > 0.5) & (jets[..., E] > 0).any(axis=1)


def apart(leptons, jets):
    """No jet along a lepton: the cosine of the angle between them."""
    length = [np.maximum(np.sqrt((p[..., X:] ** 2).sum(axis=2)), 1e-9) for p in (leptons, jets)]
    closest = np.full(len(leptons), -1.0)
    for lepton in range(2):
        for jet in range(jets.shape[1]):
            dot = (leptons[:, lepton, X:] * jets[:, jet, X:]).sum(axis=1)
            closest = np.maximum(closest, dot / (length[0][:, lepton] * length[1][:, jet]))
    return closest < 0.98


def missing(met_x, met_y, leptons, jets):
    """Missing momentum, with 2 % of what was seen given back: (row, 2)."""
    seen = leptons[..., X:Z].sum(axis=1) + jets[..., X:Z].sum(axis=1)
    return np.stack([met_x, met_y], axis=1).astype(np.float64) - 0.02 * seen


def missing_energy(missing):
    return np.sqrt((missing**2).sum(axis=1)) > 22


def ht(leptons, jets):
    return transverse(leptons).sum(axis=1) + transverse(jets).sum(axis=1)


def activity(ht):
    return ht > 280


def top_pair(tops):
    return tops[:, LB_MASS] < 270


def top_pair_mass(tops):
    return tops[:, TT_MASS] < 1000


def spin(tops, leptons):
    """Leptons of tops that fly apart are not parallel."""
    length = np.maximum(np.sqrt((leptons[..., X:] ** 2).sum(axis=2)), 1e-9)
    dot = (leptons[:, 0, X:] * leptons[:, 1, X:]).sum(axis=1)
    return (dot / (length[:, 0] * length[:, 1]) < 0.9) | (tops[:, OPENING] < 0.1)


def higgs(jets, ranked):
    """Mass of the pair nearest to the boson's among the four jets that look most like b-jets."""
    best = np.zeros(len(jets))
    leading = np.take_along_axis(jets, ranked[:, :4, None], axis=1)
    for first in range(3):
        for second in range(first + 1, 4):
            found = mass((leading[:, first] + leading[:, second]).T)
            best = np.where(np.abs(found - 125) < np.abs(best - 125), found, best)
    return best


def higgs_candidate(higgs):
    return np.abs(higgs - 125) < 60


def boosted_higgs(jets, ranked):
    """Mass of the pair that is hardest together, of the same four jets."""
    hardest, best = np.full(len(jets), -1.0), np.zeros(len(jets))
    leading = np.take_along_axis(jets, ranked[:, :4, None], axis=1)
    for first in range(3):
        for second in range(first + 1, 4):
            pair = leading[:, first] + leading[:, second]
            pt = transverse(pair)
            best = np.where(pt > hardest, mass(pair.T), best)
            hardest = np.maximum(hardest, pt)
    return best


def boosted_higgs_candidate(higgs):
    return np.abs(higgs - 117) < 24


def shape(leptons, jets, ht):
    """Centrality: how much of the energy is across the beam."""
    return ht > 0.4 * (leptons[..., E].sum(axis=1) + jets[..., E].sum(axis=1))


def tth_system(tth):
    return tth < 400


# -- the reconstruction ------------------------------------------------------------------------


def neutrinos(lepton: Numbers, bottom: Numbers, eta: Numbers, top: Numbers, boson: Numbers) -> Any:
    """Momenta (x, y, z) of a neutrino of direction ``eta`` that makes lepton and jet a W and a top: both roots, and a penalty.

    Both masses are linear in the neutrino's x, y and pt; pt^2 = x^2 + y^2 then gives a quadratic equation.
    """
    cosh, sinh = np.cosh(eta), np.sinh(eta)
    half_w = 0.5 * boson**2
    squared = bottom[E] ** 2 - bottom[X] ** 2 - bottom[Y] ** 2 - bottom[Z] ** 2
    product = (
        bottom[E] * lepton[E] - bottom[X] * lepton[X] - bottom[Y] * lepton[Y] - bottom[Z] * lepton[Z]
    )  # fmt: skip
    half_top = 0.5 * (top**2 - squared) - half_w - product
    along_lepton = lepton[E] * cosh - lepton[Z] * sinh
    along_bottom = bottom[E] * cosh - bottom[Z] * sinh
    determinant = lepton[X] * bottom[Y] - lepton[Y] * bottom[X]
    over = 1.0 / np.where(np.abs(determinant) > 1e-2, determinant, 1e-2)
    # x = slope_x pt + start_x, and y likewise
    slope_x = (along_lepton * bottom[Y] - along_bottom * lepton[Y]) * over
    slope_y = (along_bottom * lepton[X] - along_lepton * bottom[X]) * over
    start_x = (half_top * lepton[Y] - half_w * bottom[Y]) * over
    start_y = (half_w * bottom[X] - half_top * lepton[X]) * over
    curve = slope_x**2 + slope_y**2 - 1.0
    curve = np.where(np.abs(curve) > 1e-6, curve, 1e-6)
    half = slope_x * start_x + slope_y * start_y
    discriminant = half**2 - curve * (start_x**2 + start_y**2)
    root = np.sqrt(np.maximum(discriminant, 0.0))
    pt = np.stack([-half + root, -half - root]) / curve
    penalty = np.where(discriminant < 0, 50.0, 0.0) + np.where(pt < 0, 100.0, 0.0)
    return slope_x * pt + start_x, slope_y * pt + start_y, pt * sinh, penalty


def assignments(candidates: int) -> tuple[NDArray[np.intp], ...]:
    """All ways to take two of the leading jets as those of the tops; the boson's are the two best of those that are left."""
    pairs = list(permutations(range(candidates), 2))
    left = [[jet for jet in range(6) if jet not in pair][:2] for pair in pairs]
    return (*np.array(pairs).T, np.array(left))


def reconstruct(leptons, jets, ranked, missing, stream, *, samples, candidates, scans):
    """Neutrino weighting: both neutrinos from the masses of W and top, the best assignment by the missing momentum.

    ``candidates`` jets are tried as those of the tops, in all ways; ``scans`` directions of the neutrinos; ``samples`` values
    that the sensors may have meant, 0: those that they said. Returns (row, quantity) of the best.
    """
    rows = len(leptons)
    ways = assignments(candidates)
    ordered = np.take_along_axis(jets, ranked[..., None], axis=1)
    objects = np.concatenate([leptons, ordered], axis=1)
    objects = np.ascontiguousarray(objects.transpose(2, 1, 0))  # component, object, row
    missing = np.ascontiguousarray(missing.T)
    directions = np.linspace(-1.0, 1.0, scans) if scans > 1 else np.zeros(1)
    best = np.full((5, rows), np.inf)
    # Few events have many samples at a time: a call costs what its events do, not what it takes to begin each sample.
    at_once = max(TOGETHER // max(rows, 1), 1)
    for first in range(0, max(samples, 1), DRAWN):
        count = max(min(samples - first, DRAWN), 1)
        drawn = stream.normal(size=DRAWS * count, draw=first // DRAWN) if samples else np.zeros((rows, DRAWS))
        random = drawn.reshape(rows, count, DRAWS)
        for start, number in product(range(0, rows, TOGETHER), range(0, count, at_once)):
            part = slice(start, start + TOGETHER)
            blur = random[part, number : number + at_once].transpose(2, 1, 0)  # random number, sample, row
            times = blur.shape[1]
            found = sample(
                np.tile(objects[..., part], times), np.tile(missing[:, part], times), blur.reshape(DRAWS, -1), ways, directions
            )  # fmt: skip
            for one in np.split(found, times, axis=1):
                np.copyto(best[:, part], one, where=one[CHI2] < best[CHI2, part])
    return np.ascontiguousarray(best.T)


def sample(objects: Numbers, missing: Numbers, random: Numbers, ways: Any, directions: Any) -> Any:
    """Blur the event by ``random`` and reconstruct it: (quantity, row)."""
    blurred = objects.copy()
    blurred[:, :6] *= 1 + ACCURACY * random[:24].reshape(4, 6, -1)
    missing = missing + 5.0 * random[24:26]
    top, boson = 172.5 + 1.4 * random[28], 80.4 + 2.1 * random[29]
    best = np.full((5, random.shape[1]), np.inf)
    for direction in directions:
        found = assign(blurred, missing, random[26:28] + direction, top, boson, ways)
        np.copyto(best, found, where=found[CHI2] < best[CHI2])
    return best


def assign(objects: Numbers, missing: Numbers, eta: Numbers, top: Any, boson: Any, ways: Any) -> Any:
    """Give the jets to the tops in the best of all ways: (quantity, row)."""
    first, second, left = ways
    lepton, jet = objects[:, :2, None], objects[:, None, 2 : 3 + first.max()]
    # (root, lepton, jet, row)
    x, y, z, penalty = neutrinos(lepton, jet, eta[:, None], top, boson)
    one, two = (slice(None), 0, first), (slice(None), 1, second)
    dx = x[one][:, None] + x[two][None] - missing[0]
    dy = y[one][:, None] + y[two][None] - missing[1]
    chi2 = (dx**2 + dy**2) / 400.0 + penalty[one][:, None] + penalty[two][None]
    chi2 = chi2.reshape(4 * len(first), eta.shape[1])
    best = np.argmin(chi2, axis=0)
    row = np.arange(len(best))
    root, way = np.divmod(best, len(first))
    tops, pairs = [], []
    for roots, side, which in ((root // 2, 0, first[way]), (root % 2, 1, second[way])):
        p = np.stack([component[roots, side, which, row] for component in (x, y, z)])
        neutrino = np.concatenate([np.sqrt((p**2).sum(axis=0))[None], p])
        pairs.append(objects[:, side] + objects[:, 2 + which, row])
        tops.append(pairs[-1] + neutrino)
    bosons = objects[:, 2 + left[way, 0], row] + objects[:, 2 + left[way, 1], row]
    lengths = [np.maximum(np.sqrt((p[X:] ** 2).sum(axis=0)), 1e-9) for p in tops]
    opening = (tops[0][X:] * tops[1][X:]).sum(axis=0) / (lengths[0] * lengths[1])
    heavier = np.maximum(mass(pairs[0]), mass(pairs[1]))
    return np.stack([chi2[best, row], mass(tops[0] + tops[1]), heavier, opening, mass(bosons)])


def top_pairs(**how: int) -> Callable[..., Any]:
    """Return the task of proposition 13."""

    def tops(leptons, jets, ranked, missing, *, rng):
        return reconstruct(leptons, jets, ranked, missing, rng("pair"), **how)

    return tops


def whole_system(**how: int) -> Callable[..., Any]:
    """Return the task of proposition 18: the boson's mass, by all assignments if they explain the event better than 13."""

    def tth(leptons, jets, ranked, missing, tops, higgs, *, rng):
        found = reconstruct(leptons, jets, ranked, missing, rng("system"), **how)
        return np.where(found[:, CHI2] < tops[:, CHI2], found[:, BB_MASS], higgs)

    return tth


# -- the pipeline ------------------------------------------------------------------------------


def build(variant: str, *, samples: int | None = None, scale: float = 1.0) -> wr.Pipeline:
    """Make a variant of the analysis.

    ``samples`` is the number of samples of a reconstruction, in place of 1024 (sci) or 128 (scinp); ``scale`` is a factor of that
    number instead. What 13 and 18 cost is proportional to it, so that their ratio does not depend on it.
    """
    if variant not in VARIANTS:
        raise ValueError(f"there is no variant {variant!r} of ttH; there are {', '.join(VARIANTS)}")
    if samples is None:
        samples = round(SAMPLES[variant] * scale)
    if variant != "as" and samples < 1:
        raise ValueError(f"{variant} needs at least one sample, got {samples}")
    samples = 0 if variant == "as" else samples
    scinp = variant == "scinp"
    analysis = wr.Pipeline(f"tth_{variant}", identity=("event",))
    objects(analysis)
    pairs(analysis)
    tried = {"candidates": 6, "scans": 72} if scinp else {"candidates": 2, "scans": 1}
    analysis.column(top_pairs(samples=samples, **tried))
    for cut in (top_pair, top_pair_mass, spin):
        analysis.cut(cut)
    analysis.column(boosted_higgs if scinp else higgs, name="higgs")
    analysis.cut(boosted_higgs_candidate if scinp else higgs_candidate, name="higgs_candidate")
    analysis.cut(after="apart")(shape)
    # Exact sensors leave nothing to try but the assignments.
    analysis.column(whole_system(samples=samples, candidates=5, scans=7 if samples else 1))
    analysis.cut(tth_system)

    @analysis.output
    def spectrum(tth):
        return Hist.new.Reg(80, 0, 400, name="mass").Int64().fill(tth)

    @analysis.output
    def selected(event, tth, ht):
        return {"events": len(event), "mass": float(np.sum(tth)), "ht": float(np.sum(ht))}

    return analysis


def objects(analysis: wr.Pipeline) -> None:
    """Propositions 1 to 4: what happened, and the objects that all others look at."""
    analysis.column(fired)
    analysis.cut(trigger)
    analysis.column(origin)
    analysis.cut(vertex)
    lepton = {name: f"lep*_{name}" for name in ("pt", "eta", "phi", "e", "flavour", "match")}
    lepton |= {"identified": "lep*_id", "track": "lep*_iso_track"}
    analysis.column(reads=lepton)(leptons)
    analysis.cut(two_leptons)
    jet = {name: f"jet*_{name}" for name in ("pt", "eta", "phi", "e", "jvt")}
    analysis.column(reads=jet)(jets)
    analysis.cut(four_jets)


def pairs(analysis: wr.Pipeline) -> None:
    """Propositions 5 to 12: what the objects are like, alone and together."""
    analysis.cut(after="two_leptons")(opposite_charge)
    analysis.cut(hard_lepton)
    analysis.column(dilepton_mass)
    analysis.cut(low_mass)
    analysis.cut(after="two_leptons")(z_veto)
    analysis.column(reads={"btag": "jet*_btag"})(ranked)
    analysis.cut(reads={"btag": "jet*_btag"})(b_tags)
    analysis.cut(apart)
    analysis.column(missing)
    analysis.cut(missing_energy)
    analysis.column(ht)
    analysis.cut(activity)


def depend(analysis: wr.Pipeline) -> set[tuple[int, int]]:
    """(proposition, another that must come before it), as the steps read each other's columns or come after cuts."""
    home = {step: number for number, steps in PROPOSITIONS.items() for step in steps}
    return {
        (home[step], home[need])
        for step, needs in dependencies(analysis._steps).items()
        for need in needs
        if home[step] != home[need]
    }
