"""Makes the events of the dimuon example: NanoAOD-like ROOT files and the fileset that names them.

J/psi, Upsilon and Z decays over a falling background, as a detector would write them down: every
muon comes from a real two-body decay, so the invariant mass of the two leading muons peaks where it
should. Nothing here knows of Windrow.

    python generate.py [DIRECTORY] [--rows-per-file N] [--seed N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import uproot

MUON_MASS = 0.1056583755

#: kind of event -> share of all events
MIXTURE = {"jpsi": 0.10, "upsilon": 0.10, "Z": 0.18, "continuum": 0.32, "W": 0.20, "none": 0.10}

#: Upsilon(1S), (2S), (3S)
UPSILON_MASSES = np.array([9.4603, 10.0233, 10.3552])

#: mean number of collisions per crossing: (data, simulation); what the pileup weight corrects
PILEUP = {2016: (27.0, 25.0), 2018: (37.0, 34.0)}

#: pb; what the simulated events are normalised to
CROSS_SECTION = 6077.22

#: Every branch has a basket of this many rows, so that the borders of all branches coincide.
BASKET_ROWS = 100_000


def masses(rng: np.random.Generator, kind: np.ndarray) -> np.ndarray:
    """The mass of the pair of each event, detector resolution included."""
    rows = len(kind)
    smear = rng.standard_normal(rows)
    uniform = rng.random(rows)
    # A falling power law between 1.5 and 250 GeV.
    mass = (1.5**-1.2 - uniform * (1.5**-1.2 - 250**-1.2)) ** (-1 / 1.2)
    jpsi, upsilon, z = kind == "jpsi", kind == "upsilon", kind == "Z"
    mass[jpsi] = 3.0969 + 0.035 * smear[jpsi]
    state = rng.choice(3, size=rows, p=(0.6, 0.25, 0.15))
    mass[upsilon] = UPSILON_MASSES[state[upsilon]] + 0.09 * smear[upsilon]
    width = 2.4952 / 2 * np.tan(np.pi * (uniform[z] - 0.5))  # Breit-Wigner
    mass[z] = np.clip(91.1876 + width, 15, 250) + 1.3 * smear[z]
    return np.maximum(mass, 0.25)


def decay(rng: np.random.Generator, kind: np.ndarray, mass: np.ndarray) -> list[np.ndarray]:
    """Momenta (px, py, pz) of both muons of each pair: isotropic at rest, then boosted."""
    rows = len(mass)
    low = np.isin(kind, ("jpsi", "upsilon", "continuum"))
    # Light pairs need a boost, otherwise no muon of theirs would fire the trigger.
    pair_pt = rng.gamma(2.0, np.where(low, 14.0, 8.0))
    pair_phi = rng.uniform(-np.pi, np.pi, rows)
    pair_y = rng.normal(0.0, 1.1, rows)
    pair_mt = np.hypot(mass, pair_pt)
    pair = np.stack([pair_pt * np.cos(pair_phi), pair_pt * np.sin(pair_phi), pair_mt * np.sinh(pair_y)])
    pair_energy = pair_mt * np.cosh(pair_y)

    momentum = np.sqrt(mass**2 / 4 - MUON_MASS**2)
    cos_theta = rng.uniform(-1, 1, rows)
    sin_theta = np.sqrt(1 - cos_theta**2)
    phi = rng.uniform(-np.pi, np.pi, rows)
    rest = momentum * np.stack([sin_theta * np.cos(phi), sin_theta * np.sin(phi), cos_theta])
    along = (pair * rest).sum(axis=0) / (mass * (pair_energy + mass))
    # Lorentz boost of (m/2, +-rest) by the velocity pair / pair_energy.
    return [sign * rest + pair * (sign * along + 0.5) for sign in (1, -1)]


def cylindrical(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(pt, eta, phi) of momenta (px, py, pz)."""
    pt = np.hypot(p[0], p[1])
    return pt, np.arcsinh(p[2] / pt), np.arctan2(p[1], p[0])


def stored(values: np.ndarray, bits: int = 12) -> np.ndarray:
    """As float32 with a shortened mantissa, which is how such files keep most of their numbers."""
    raw = values.astype(np.float32).view(np.uint32)
    drop = 23 - bits
    return ((raw + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF ^ ((1 << drop) - 1))).view(np.float32)


def jagged(event: np.ndarray, fields: dict[str, np.ndarray], rows: int) -> ak.Array:
    """Lists of records per event, hardest first, from flat arrays and the event of each entry."""
    order = np.lexsort((-fields["pt"], event))
    counts = np.bincount(event, minlength=rows)
    records = ak.zip({name: values[order] for name, values in fields.items()})
    return ak.unflatten(records, counts)


def muons(rng: np.random.Generator, kind: np.ndarray) -> ak.Array:
    """The reconstructed muons: pairs, single muons of W decays, and a few soft ones from jets."""
    rows = len(kind)
    pairs = np.flatnonzero(~np.isin(kind, ("W", "none")))
    singles = np.flatnonzero(kind == "W")
    soft = rng.integers(0, rows, int(0.25 * rows))
    first, second = decay(rng, kind[pairs], masses(rng, kind[pairs]))
    charge = rng.choice(np.array([-1, 1], dtype=np.int32), len(pairs))
    # Part of the background is two unrelated muons: equal charges happen.
    flip = np.where((kind[pairs] == "continuum") & (rng.random(len(pairs)) < 0.3), 1, -1)
    kinematics = [cylindrical(first), cylindrical(second)]
    kinematics.append(
        (
            np.abs(rng.normal(38, 10, len(singles))) + 3,
            rng.uniform(-2.5, 2.5, len(singles)),
            rng.uniform(-np.pi, np.pi, len(singles)),
        )
    )
    kinematics.append(
        (3 + rng.exponential(5, len(soft)), rng.uniform(-2.5, 2.5, len(soft)), rng.uniform(-np.pi, np.pi, len(soft)))
    )
    pt, eta, phi = (np.concatenate(parts) for parts in zip(*kinematics, strict=True))
    event = np.concatenate([pairs, pairs, singles, soft])
    signs = [charge, charge * flip, *(rng.choice([-1, 1], len(x)) for x in (singles, soft))]
    prompt = np.arange(len(event)) < 2 * len(pairs) + len(singles)
    seen = (pt > 3) & (np.abs(eta) < 2.5) & (rng.random(len(event)) < 0.96)
    fields = {
        "pt": pt.astype(np.float32),
        "eta": stored(eta),
        "phi": stored(phi),
        "mass": np.full(len(event), MUON_MASS, dtype=np.float32),
        "charge": np.concatenate(signs).astype(np.int32),
        "pfRelIso04_all": stored(rng.exponential(np.where(prompt, 0.05, 0.6)), 10),
    }
    return jagged(event[seen], {name: values[seen] for name, values in fields.items()}, rows)


def jets(rng: np.random.Generator, rows: int) -> ak.Array:
    """A falling spectrum of jets."""
    event = np.repeat(np.arange(rows), rng.poisson(2.2, rows))
    count = len(event)
    pt = 15 * (1 - rng.random(count)) ** (-1 / 2.5)
    fields = {
        "pt": stored(np.minimum(pt, 2000), 10),
        "eta": stored(rng.normal(0, 1.9, count), 10),
        "phi": stored(rng.uniform(-np.pi, np.pi, count), 10),
        "mass": stored(0.12 * pt * rng.random(count), 10),
    }
    return jagged(event, fields, rows)


def fired(rng: np.random.Generator, muon: ak.Array, efficiency: float) -> np.ndarray:
    """Did a single-muon path of 24 GeV fire? A turn-on curve on the hardest muon."""
    pt = ak.to_numpy(ak.fill_none(ak.firsts(muon.pt), 0.0)).astype(np.float64)
    return rng.random(len(pt)) < efficiency / (1 + np.exp(-(pt - 24) / 0.6))


def events(rng: np.random.Generator, first: int, rows: int, *, year: int, is_mc: bool) -> dict[str, Any]:
    """All branches of ``rows`` events, numbered from ``first``."""
    kind = rng.choice(list(MIXTURE), size=rows, p=list(MIXTURE.values()))
    muon = muons(rng, kind)
    number = np.arange(first, first + rows)
    true_interactions = rng.gamma(12.0, PILEUP[year][int(is_mc)] / 12.0, rows)
    branches = {
        "run": np.full(rows, 1 if is_mc else (year - 2000) * 17_500, dtype=np.uint32),
        "luminosityBlock": (1 + number // 1_000).astype(np.uint32),
        "event": number.astype(np.uint64),
        "HLT_IsoMu24": fired(rng, muon, 0.90),
        "Muon": muon,
        "Jet": jets(rng, rows),
        "MET_pt": stored(rng.rayleigh(22, rows) + np.where(kind == "W", 25, 0), 10),
        "PV_npvs": rng.poisson(0.75 * true_interactions).astype(np.int32),
    }
    if year == 2016:
        branches["HLT_IsoTkMu24"] = fired(rng, muon, 0.85)
    if is_mc:
        branches["genWeight"] = np.where(rng.random(rows) < 0.08, -1.0, 1.0).astype(np.float32)
        branches["Pileup_nTrueInt"] = true_interactions.astype(np.float32)
    return branches


def write(path: Path, rows: int, *, seed: int, year: int, is_mc: bool, basket_rows: int = BASKET_ROWS) -> None:
    """Write one file with the tree ``Events``; it appears under its name only when complete."""
    rng = np.random.default_rng(seed)
    partial = path.with_name(path.name + ".part")
    with uproot.recreate(partial, compression=uproot.ZSTD(1)) as file:
        tree = None
        for start in range(0, rows, basket_rows):
            block = events(rng, start, min(basket_rows, rows - start), year=year, is_mc=is_mc)
            if tree is None:
                types = {
                    name: values.type.content if isinstance(values, ak.Array) else values.dtype
                    for name, values in block.items()
                }
                tree = file.mktree("Events", types, counter_name=lambda counted: "n" + counted)
                # Tell ROOT's own readers where clusters begin; uproot would let them guess.
                with contextlib.suppress(AttributeError):
                    tree._cascading._metadata["fAutoFlush"] = basket_rows
            tree.extend(block)
    partial.replace(path)


def generate(directory: str | Path, *, rows_per_file: int = 200_000, seed: int = 1) -> dict[str, Any]:
    """Write two years of data and simulation and ``fileset.json``; return the fileset."""
    directory = Path(directory).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    fileset: dict[str, Any] = {}
    for number, (name, year, is_mc, files) in enumerate(
        [
            ("SingleMuon_2016", 2016, False, 2),
            ("SingleMuon_2018", 2018, False, 2),
            ("Dimuon_2016", 2016, True, 1),
            ("Dimuon_2018", 2018, True, 1),
        ]
    ):
        paths = [directory / f"{name}_{part}.root" for part in range(files)]
        for part, path in enumerate(paths):
            write(path, rows_per_file, seed=1_000 * seed + 10 * number + part, year=year, is_mc=is_mc)
        fileset[name] = {
            "files": {str(path): "Events" for path in paths},
            "metadata": {"is_mc": is_mc, "year": year, "xsec": CROSS_SECTION if is_mc else None},
        }
    (directory / "fileset.json").write_text(json.dumps(fileset, indent=2) + "\n")
    return fileset


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the files of the dimuon example.")
    parser.add_argument("directory", nargs="?", default="build/demo", type=Path)
    parser.add_argument("--rows-per-file", default=200_000, type=int)
    parser.add_argument("--seed", default=1, type=int)
    options = parser.parse_args()
    fileset = generate(options.directory, rows_per_file=options.rows_per_file, seed=options.seed)
    for name, dataset in fileset.items():
        print(f"{name}: {len(dataset['files'])} file(s), {dataset['metadata']}")


if __name__ == "__main__":
    main()
