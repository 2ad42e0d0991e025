"""Makes the events of the ttH example: top pairs with a Higgs boson, or with two jets in its place.

Every lepton, neutrino and jet comes from two-body decays in its parent's rest frame, so that masses peak where they should and
the neutrinos add up to the missing momentum. Sensors then blur what they see, and each object has the quality variables that
such files are full of: 111 columns, of which an analysis reads about half. Nothing here knows of Windrow.

    python events.py PATH.parquet|PATH.root [--events N] [--seed N]
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Columns = dict[str, NDArray[Any]]

__all__ = ["BLOCK", "JETS", "events", "write"]

#: Events made at a time, each block from a seed of its own: row groups and clusters of files have this size.
BLOCK = 50_000
#: Jets that an event can hold; where there are fewer, the rest is zero.
JETS = 6
#: Share of events with a Higgs boson; the others have a pair of jets of any mass.
SIGNAL = 0.6


def decay(rng: np.random.Generator, parent: Numbers, first_mass: Any, second_mass: Any) -> tuple[Numbers, Numbers]:
    """Split four-momenta (E, x, y, z) in two: isotropic at rest, then boosted."""
    rows = parent.shape[1]
    mass = np.sqrt(np.maximum(parent[0] ** 2 - (parent[1:] ** 2).sum(axis=0), 1.0))
    first_energy = (mass**2 + first_mass**2 - second_mass**2) / (2 * mass)
    momentum = np.sqrt(np.maximum(first_energy**2 - first_mass**2, 0.0))
    cos_theta = rng.uniform(-1, 1, rows)
    sin_theta = np.sqrt(1 - cos_theta**2)
    phi = rng.uniform(-np.pi, np.pi, rows)
    rest = momentum * np.stack([sin_theta * np.cos(phi), sin_theta * np.sin(phi), cos_theta])
    along = (parent[1:] * rest).sum(axis=0) / mass
    energy = (parent[0] * first_energy) / mass + along
    moved = rest + parent[1:] * (along / (parent[0] + mass) + first_energy / mass)
    first = np.concatenate([energy[None], moved])
    return first, parent - first


def particle(pt: Numbers, rapidity: Numbers, phi: Numbers, mass: Any) -> Numbers:
    """A four-momentum (E, x, y, z)."""
    transverse = np.hypot(mass, pt)
    return np.stack(
        [transverse * np.cosh(rapidity), pt * np.cos(phi), pt * np.sin(phi), transverse * np.sinh(rapidity)]
    )


def resonance(rng: np.random.Generator, rows: int, mass: float, width: float) -> Numbers:
    """Breit-Wigner masses, without the far tails."""
    return mass + np.clip(width / 2 * np.tan(np.pi * (rng.random(rows) - 0.5)), -20, 20)


def cylindrical(p: Numbers) -> dict[str, Numbers]:
    pt = np.maximum(np.hypot(p[1], p[2]), 1e-3)
    return {"pt": pt, "eta": np.arcsinh(p[3] / pt), "phi": np.arctan2(p[2], p[1]), "e": p[0]}


def collision(rng: np.random.Generator, rows: int) -> tuple[list[Numbers], list[Numbers], Numbers]:
    """The two leptons, the four jets (of the tops first) and the neutrinos' sum of every event."""

    def around() -> Numbers:
        return rng.uniform(-np.pi, np.pi, rows)

    signal = rng.random(rows) < SIGNAL
    pair_mass = np.where(signal, 125.0, 20.0 + rng.exponential(90.0, rows))
    pair = particle(rng.gamma(2.0, 45.0, rows), rng.normal(0, 1.0, rows), around(), pair_mass)
    top = particle(
        rng.gamma(2.0, 55.0, rows), rng.normal(0, 0.9, rows), around(), resonance(rng, rows, 172.5, 1.4)
    )  # fmt: skip
    # The other top takes the recoil of both, and what the beams radiated.
    recoil = -(top[1:3] + pair[1:3]) + rng.normal(0, 15.0, (2, rows))
    other = particle(
        np.hypot(*recoil), rng.normal(0, 0.9, rows), np.arctan2(recoil[1], recoil[0]),
        resonance(rng, rows, 172.5, 1.4),
    )  # fmt: skip
    leptons, jets, missing = [], [], np.zeros((2, rows))
    for parent in (top, other):
        boson, bottom = decay(rng, parent, resonance(rng, rows, 80.4, 2.1), 4.8)
        lepton, neutrino = decay(rng, boson, 0.0, 0.0)
        leptons.append(lepton)
        jets.append(bottom)
        missing += neutrino[1:3]
    jets.extend(decay(rng, pair, 4.8, 4.8))
    return leptons, jets, missing


def lepton_columns(rng: np.random.Generator, momenta: list[Numbers]) -> Columns:
    """Both leptons as the detector sees them: 13 columns each."""
    rows = momenta[0].shape[1]
    charge = rng.choice([-1.0, 1.0], rows)
    columns: Columns = {}
    for number, p in enumerate(momenta, start=1):
        seen = cylindrical(p * (1 + rng.normal(0, 0.01, rows)))
        fake = rng.random(rows) < 0.08
        flip = rng.random(rows) < 0.012
        quality = {
            "charge": np.where(flip, charge, -charge) if number == 2 else charge,
            "flavour": rng.choice([11.0, 13.0], rows),
            "id": np.where(fake, rng.beta(2, 4, rows), rng.beta(9, 1.5, rows)),
            "iso_track": rng.exponential(np.where(fake, 0.35, 0.03)),
            "iso_calo": rng.exponential(np.where(fake, 0.40, 0.04)),
            "d0": rng.normal(0, np.where(fake, 4.0, 1.0)),
            "z0": rng.normal(0, 0.2, rows),
            "match": (rng.random(rows) < 0.97 / (1 + np.exp((20 - seen["pt"]) / 2))).astype(float),
            "tracks": 6.0 + rng.poisson(6, rows),
        }
        named = {**seen, **quality}
        columns |= {f"lep{number}_{name}": v.astype(np.float32) for name, v in named.items()}
    return columns


def jet_columns(rng: np.random.Generator, momenta: list[Numbers]) -> Columns:
    """The hardest jets, those of the decays among others: 12 columns each."""
    rows = momenta[0].shape[1]
    extra = [
        particle(
            rng.exponential(28.0, rows) * (rng.random(rows) < share),
            rng.normal(0, 1.9, rows),
            rng.uniform(-np.pi, np.pi, rows),
            4.0,
        )
        for share in (0.7, 0.3)
    ]
    every = np.stack([*momenta, *extra])  # jet, component, row
    every = every * (1 + rng.normal(0, 0.06, (JETS, 1, rows)))
    pt = np.hypot(every[:, 1], every[:, 2])
    ranked = np.argsort(np.where(pt > 15.0, -pt, 0.0), axis=0, kind="stable")
    bottom = np.take_along_axis(np.repeat([1.0, 1.0, 1.0, 1.0, 0.0, 0.0], rows).reshape(JETS, rows), ranked, 0)
    prompt = np.take_along_axis(np.repeat([1.0] * 4 + [0.4] * 2, rows).reshape(JETS, rows), ranked, 0)
    columns: Columns = {}
    for number in range(JETS):
        p = np.take_along_axis(every, ranked[number][None, None], axis=0)[0]
        seen = cylindrical(p)
        is_bottom = bottom[number] > 0
        hard = rng.random(rows) < prompt[number]
        quality = {
            "btag": np.where(is_bottom, rng.beta(4, 1.2, rows), rng.beta(1.2, 4, rows)),
            "jvt": np.where(hard, rng.beta(12, 1, rows), rng.beta(1, 3, rows)),
            "charge": rng.normal(0, 0.4, rows),
            "em": rng.beta(3, 4, rows),
            "width": rng.exponential(0.08, rows),
            "time": rng.normal(0, 1.5, rows),
            "tracks": 1.0 + rng.poisson(2 + seen["pt"] / 12),
            "flavour": np.where(is_bottom, 5.0, 0.0),
        }
        there = seen["pt"] > 15.0
        for name, values in {**seen, **quality}.items():
            columns[f"jet{number + 1}_{name}"] = np.where(there, values, 0.0).astype(np.float32)
    return columns


def event_columns(rng: np.random.Generator, missing: Numbers, columns: Columns) -> Columns:
    """What there is once per event."""
    rows = missing.shape[1]
    pileup = rng.gamma(12.0, 33.0 / 12, rows)
    total = sum(columns[f"jet{number + 1}_pt"].astype(np.float64) for number in range(JETS))
    blur = 8.0 + 0.02 * total
    hardest = np.maximum(columns["lep1_pt"], columns["lep2_pt"])
    fired = rng.random(rows) < 0.99 / (1 + np.exp((22.0 - hardest) / 3))
    muon = np.where(columns["lep1_pt"] > columns["lep2_pt"], columns["lep1_flavour"], columns["lep2_flavour"]) == 13
    return {
        "met_x": (missing[0] + rng.normal(0, blur)).astype(np.float32),
        "met_y": (missing[1] + rng.normal(0, blur)).astype(np.float32),
        "met_sum": total.astype(np.float32),
        "met_blur": blur.astype(np.float32),
        "trigger_e": (fired & ~muon).astype(np.float32),
        "trigger_mu": (fired & muon).astype(np.float32),
        "trigger_dilepton": (rng.random(rows) < 0.75).astype(np.float32),
        "vertex_tracks": rng.poisson(38 - 0.3 * pileup.clip(0, 60)).astype(np.float32),
        "vertex_z": rng.normal(0, 35.0, rows).astype(np.float32),
        "noise": rng.exponential(1.0, rows).astype(np.float32),
        "pileup": pileup.astype(np.float32),
        "generator": np.where(rng.random(rows) < 0.05, -1, 1).astype(np.float32),
    }  # fmt: skip


def block(rows: int, seed: int, number: int) -> Columns:
    """Return the events of one block."""
    rng = np.random.default_rng([seed, number])
    leptons, jets, missing = collision(rng, rows)
    columns = {**lepton_columns(rng, leptons), **jet_columns(rng, jets)}
    named = np.arange(number * BLOCK, number * BLOCK + rows, dtype=np.int64)
    return {"event": named, **event_columns(rng, missing, columns), **columns}


def blocks(n: int, seed: int) -> Iterator[Columns]:
    for number, start in enumerate(range(0, max(n, 1), BLOCK)):
        yield block(min(BLOCK, n - start), seed, number)


def events(n: int, seed: int = 1) -> Columns:
    """Return ``n`` events as one array per column: float32, and the number of the event."""
    parts = list(blocks(n, seed))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write(path: str | Path, n: int, seed: int = 1) -> Path:
    """Write the same events to a Parquet or ROOT file; it appears under its name only when complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    if path.suffix == ".root":
        _write_root(partial, n, seed)
    else:
        _write_parquet(partial, n, seed)
    return partial.replace(path)


def _write_parquet(path: Path, n: int, seed: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        writer = None
        for part in blocks(n, seed):
            table = pa.table(part)
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema, compression="zstd"))
            writer.write_table(table, row_group_size=BLOCK)


def _write_root(path: Path, n: int, seed: int) -> None:
    import uproot

    with uproot.recreate(path, compression=uproot.ZSTD(1)) as file:
        tree = None
        for part in blocks(n, seed):
            if tree is None:
                tree = file.mktree("Events", {name: values.dtype for name, values in part.items()})
            tree.extend(part)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the events of the ttH example.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", default=100_000, type=int)
    parser.add_argument("--seed", default=1, type=int)
    options = parser.parse_args()
    path = write(options.path, options.events, options.seed)
    print(f"{options.events:,} events in {path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
