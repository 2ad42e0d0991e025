"""Makes NanoAOD-like events: Z bosons, top pairs, single leptons and soft collisions, as a detector would write them down.

Names, types and counters are those of NanoAOD; lists are hardest first, numbers are float32 with a shortened mantissa. Data has no
``genWeight`` and no ``Pileup_nTrueInt``. Nothing here knows of Windrow.

    python generate.py PATH.root|PATH.parquet [--events N] [--seed N] [--data]
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Numbers = NDArray[Any]

__all__ = ["BLOCK", "events", "write"]

#: Events made at a time, each block from a seed of its own: clusters and row groups of files have this size.
BLOCK = 100_000
#: kind of event -> share of all events
MIXTURE = {"soft": 0.25, "single": 0.30, "Z": 0.25, "top": 0.20}
#: kind of event -> mean number of jets besides those of tops
JETS = {"soft": 3.0, "single": 3.5, "Z": 3.2, "top": 3.0}
COLLECTIONS = ("Muon", "Electron", "Jet")


def stored(values: Numbers, bits: int = 10) -> Numbers:
    """As float32 with a shortened mantissa, which is how such files keep most of their numbers."""
    raw = np.asarray(values).astype(np.float32).view(np.uint32)
    drop = 23 - bits
    kept = (raw + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF ^ ((1 << drop) - 1))
    return kept.view(np.float32)


def z_pairs(rng: np.random.Generator, rows: int) -> tuple[Numbers, Numbers]:
    """(pt, eta, phi) of both leptons of Z bosons: isotropic at rest, then boosted."""
    mass = np.clip(91.19 + 1.25 * np.tan(np.pi * (rng.random(rows) - 0.5)), 30, 200)
    pt, rapidity = rng.gamma(1.5, 14.0, rows), rng.normal(0, 1.2, rows)
    phi = rng.uniform(-np.pi, np.pi, rows)
    across = np.hypot(mass, pt)
    boson = np.stack([pt * np.cos(phi), pt * np.sin(phi), across * np.sinh(rapidity)])
    energy = across * np.cosh(rapidity)
    cosine, angle = rng.uniform(-1, 1, rows), rng.uniform(-np.pi, np.pi, rows)
    sine = np.sqrt(1 - cosine**2)
    rest = mass / 2 * np.stack([sine * np.cos(angle), sine * np.sin(angle), cosine])
    along = (boson * rest).sum(axis=0) / (mass * (energy + mass))
    first, second = (sign * rest + boson * (sign * along + 0.5) for sign in (1, -1))
    return cylindrical(first), cylindrical(second)


def cylindrical(p: Numbers) -> Numbers:
    pt = np.maximum(np.hypot(p[0], p[1]), 1e-3)
    return np.stack([pt, np.arcsinh(p[2] / pt), np.arctan2(p[1], p[0])])


def anywhere(rng: np.random.Generator, pt: Numbers, spread: float) -> Numbers:
    """(pt, eta, phi) of particles that fly anywhere."""
    rows = len(pt)
    return np.stack([pt, rng.normal(0, spread, rows), rng.uniform(-np.pi, np.pi, rows)])


def lepton_table(rng: np.random.Generator, kind: Numbers) -> dict[str, Numbers]:
    """All leptons in one table: the event, the kinematics, the charge, the flavour, and whether they are prompt."""
    z, top, single = (np.flatnonzero(kind == name) for name in ("Z", "top", "single"))
    dilepton = top[rng.random(len(top)) < 0.45]
    soft = np.repeat(np.arange(len(kind)), rng.poisson(0.35, len(kind)))
    first, second = z_pairs(rng, len(z))
    parts = [
        first,
        second,
        *(anywhere(rng, 12 + rng.gamma(2.0, 22.0, len(w)), 1.1) for w in (top, dilepton, single)),
        anywhere(rng, 4 + rng.exponential(6.0, len(soft)), 1.4),
    ]
    charge = rng.choice([-1, 1], len(kind))
    flavour = rng.choice([11, 13], len(kind))
    where = [z, z, top, dilepton, single, soft]
    signs = [charge[z], -charge[z], charge[top], -charge[dilepton], charge[single], rng.choice([-1, 1], len(soft))]  # fmt: skip
    same = [flavour[z], flavour[z], flavour[top], rng.choice([11, 13], len(dilepton)), flavour[single], rng.choice([11, 13], len(soft))]  # fmt: skip
    pt, eta, phi = np.concatenate(parts, axis=1)
    prompt = np.arange(len(pt)) < len(pt) - len(soft)
    table = {
        "event": np.concatenate(where),
        "pt": pt * rng.normal(1, 0.015, len(pt)).clip(0.9, 1.1),
        "eta": eta,
        "phi": phi,
        "charge": np.concatenate(signs),
        "flavour": np.concatenate(same),
        "prompt": prompt,
    }
    seen = (table["pt"] > 4) & (np.abs(eta) < 2.5) & (rng.random(len(pt)) < 0.95)
    return {name: values[seen] for name, values in table.items()}


def lists(rows: int, event: Numbers, pt: Numbers, fields: dict[str, Numbers]) -> dict[str, Any]:
    """One jagged array per field, hardest first."""
    order = np.lexsort((-pt, event))
    counts = np.bincount(event, minlength=rows)
    return {name: ak.unflatten(values[order], counts) for name, values in fields.items()}


def leptons(rng: np.random.Generator, kind: Numbers) -> tuple[dict[str, Any], dict[str, Any]]:
    """Muons and electrons."""
    table = lepton_table(rng, kind)
    made = []
    for flavour, mass in ((13, 0.10566), (11, 0.000511)):
        own = {name: values[table["flavour"] == flavour] for name, values in table.items()}
        count, prompt = len(own["pt"]), own["prompt"]
        fields = {
            "pt": stored(own["pt"]),
            "eta": stored(own["eta"]),
            "phi": stored(own["phi"]),
            "mass": np.full(count, mass, dtype=np.float32),
            "charge": own["charge"].astype(np.int32),
        }
        isolation = stored(rng.exponential(np.where(prompt, 0.05, 0.5)))
        if flavour == 13:
            fields["pfRelIso04_all"] = isolation
            fields["mediumId"] = rng.random(count) < np.where(prompt, 0.97, 0.6)
        else:
            fields["pfRelIso03_all"] = isolation
            quality = np.where(rng.random(count) < np.where(prompt, 0.9, 0.25), 2, 0)
            fields["cutBased"] = (quality + rng.integers(0, 3, count)).astype(np.int32)
        made.append(lists(len(kind), own["event"], own["pt"], fields))
    return made[0], made[1]


def jets(rng: np.random.Generator, kind: Numbers) -> dict[str, Any]:
    """Jets of a falling spectrum, and two of b-quarks for every top pair."""
    rows = len(kind)
    mean = np.select([kind == name for name in JETS], list(JETS.values()))
    light = np.repeat(np.arange(rows), rng.poisson(mean))
    bottom = np.repeat(np.flatnonzero(kind == "top"), 2)
    event = np.concatenate([light, bottom])
    count = len(event)
    is_bottom = np.arange(count) >= len(light)
    pt = np.where(is_bottom, 20 + rng.gamma(2.0, 28.0, count), 18 * (1 - rng.random(count)) ** (-1 / 2.3))
    pt = np.minimum(pt, 2000)
    heavy = is_bottom | (rng.random(count) < 0.04)
    fields = {
        "pt": stored(pt),
        "eta": stored(rng.normal(0, np.where(is_bottom, 1.1, 1.9))),
        "phi": stored(rng.uniform(-np.pi, np.pi, count)),
        "mass": stored(0.12 * pt * rng.random(count)),
        "btagDeepB": stored(np.where(heavy, rng.beta(1.7, 1.2, count), rng.beta(0.8, 6, count))),
        "jetId": np.where(rng.random(count) < 0.97, 6, 0).astype(np.int32),
    }  # fmt: skip
    return lists(rows, event, pt, fields)


def hardest(collection: dict[str, Any], number: int = 1) -> Numbers:
    """The pt of the hardest object of each event, or of the next; 0 without one."""
    padded = ak.pad_none(collection["pt"], number, clip=True)[:, number - 1]
    return ak.to_numpy(ak.fill_none(padded, 0.0)).astype(np.float64)


def triggers(rng: np.random.Generator, muon: Any, electron: Any) -> dict[str, Numbers]:
    """Turn-on curves on the hardest leptons."""

    def fires(efficiency: float, *legs: tuple[Numbers, float]) -> Numbers:
        chance = efficiency * np.prod([1 / (1 + np.exp((t - pt) / 0.8)) for pt, t in legs], axis=0)
        return rng.random(len(chance)) < chance

    mu, mu2, e, e2 = hardest(muon), hardest(muon, 2), hardest(electron), hardest(electron, 2)
    with np.errstate(over="ignore"):
        return {
            "HLT_IsoMu24": fires(0.9, (mu, 24)),
            "HLT_Ele32_WPTight_Gsf": fires(0.85, (e, 32)),
            "HLT_Mu17_TrkIsoVVL_Mu8_TrkIsoVVL_DZ_Mass8": fires(0.95, (mu, 17), (mu2, 8)),
            "HLT_Ele23_Ele12_CaloIdL_TrackIdL_IsoVL": fires(0.95, (e, 23), (e2, 12)),
            "HLT_Mu23_TrkIsoVVL_Ele12_CaloIdL_TrackIdL_IsoVL": fires(0.95, (mu, 23), (e, 12)),
        }


def block(rows: int, seed: int, number: int, is_mc: bool) -> dict[str, Any]:
    """Return the events of one block."""
    rng = np.random.default_rng([seed, number, int(is_mc)])
    kind = rng.choice(list(MIXTURE), size=rows, p=list(MIXTURE.values()))
    muon, electron = leptons(rng, kind)
    jet = jets(rng, kind)
    first = number * BLOCK
    true_interactions = rng.gamma(12.0, 34.0 / 12 if is_mc else 37.0 / 12, rows)
    neutrinos = np.select([kind == "single", kind == "top"], [35.0, 45.0], 0.0)
    columns: dict[str, Any] = {
        "run": np.full(rows, 1 if is_mc else 315_252, dtype=np.uint32),
        "luminosityBlock": (1 + (first + np.arange(rows)) // 1_000).astype(np.uint32),
        "event": (first + np.arange(rows)).astype(np.uint64),
        **triggers(rng, muon, electron),
        "Flag_METFilters": rng.random(rows) < 0.97,
        "PV_npvsGood": rng.poisson(0.75 * true_interactions).astype(np.int32),
        "MET_pt": stored(rng.rayleigh(17, rows) + rng.exponential(1.0, rows) * neutrinos),
        "MET_phi": stored(rng.uniform(-np.pi, np.pi, rows)),
    }
    for name, fields in zip(COLLECTIONS, (muon, electron, jet), strict=True):
        columns |= {f"{name}_{field}": values for field, values in fields.items()}
    if is_mc:
        columns["genWeight"] = np.where(rng.random(rows) < 0.05, -1.0, 1.0).astype(np.float32)
        columns["Pileup_nTrueInt"] = stored(true_interactions)
    return columns


def blocks(n: int, seed: int, is_mc: bool) -> Iterator[dict[str, Any]]:
    for number, start in enumerate(range(0, max(n, 1), BLOCK)):
        yield block(min(BLOCK, n - start), seed, number, is_mc)


def events(n: int, seed: int = 1, *, is_mc: bool = True) -> dict[str, Any]:
    """Return ``n`` events as one array per column, flat or jagged."""
    parts = list(blocks(n, seed, is_mc))
    join = {True: ak.concatenate, False: np.concatenate}
    return {
        name: join[isinstance(values, ak.Array)]([part[name] for part in parts]) for name, values in parts[0].items()
    }


def write(path: str | Path, n: int, seed: int = 1, *, is_mc: bool = True) -> Path:
    """Write the same events to a ROOT (TTree) or Parquet file; it appears under its name only when complete."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    if path.suffix == ".root":
        _write_root(partial, blocks(n, seed, is_mc))
    else:
        _write_parquet(partial, blocks(n, seed, is_mc))
    return partial.replace(path)


def _write_root(path: Path, parts: Iterator[dict[str, Any]]) -> None:
    import uproot

    with uproot.recreate(path, compression=uproot.ZSTD(1)) as file:
        tree = None
        for part in parts:
            branches = {n: v for n, v in part.items() if not isinstance(v, ak.Array)}
            for name in COLLECTIONS:
                own = {n.partition("_")[2]: v for n, v in part.items() if n.startswith(f"{name}_")}
                branches[name] = ak.zip(own)
            if tree is None:
                types = {
                    name: values.type.content if isinstance(values, ak.Array) else values.dtype
                    for name, values in branches.items()
                }
                tree = file.mktree("Events", types, counter_name=lambda counted: "n" + counted)
                # Tell ROOT's own readers where clusters begin; uproot would let them guess.
                with contextlib.suppress(AttributeError):
                    tree._cascading._metadata["fAutoFlush"] = BLOCK
            tree.extend(branches)


def _write_parquet(path: Path, parts: Iterator[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        writer = None
        for part in parts:
            columns = {
                name: ak.to_arrow(values, extensionarray=False) if isinstance(values, ak.Array) else pa.array(values)
                for name, values in part.items()
            }
            table = pa.table(columns)
            if writer is None:
                opened = pq.ParquetWriter(path, table.schema, compression="zstd")
                writer = stack.enter_context(opened)
            writer.write_table(table, row_group_size=BLOCK)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make NanoAOD-like events.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", default=2_000_000, type=int)
    parser.add_argument("--seed", default=1, type=int)
    parser.add_argument("--data", action="store_true", help="data, not simulation")
    options = parser.parse_args()
    path = write(options.path, options.events, options.seed, is_mc=not options.data)
    print(f"{options.events:,} events in {path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
