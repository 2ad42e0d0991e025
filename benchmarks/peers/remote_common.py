"""The analysis of the remote benchmark in plain NumPy, and the file it is of.

Ten selections and quantities on 36 of 60 columns. In some clusters no event is in a good run, as
where a detector was off; the rest is cut step by step. Needs NumPy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Rows of a cluster; Windrow joins them to units.
CLUSTER_ROWS = 20_000
#: Rows of a chunk for uproot: a unit of Windrow's.
CHUNK_ROWS = 140_000
#: Of so many clusters in turn, so many have good runs: where they follow each other, one request
#: of a column is one range of it, which is best for those that fetch column by column.
TURN, ALIVE = 7, 2
BINS = 40

FLAGS = ("good_run", "trigger_mu", "trigger_e")
NUMBERS = (
    "lep_pt", "lep_eta", "lep_phi", "lep_iso", "met_pt", "met_phi", "met_sig",
    "j1_pt", "j1_eta", "j1_phi", "j1_mass", "j2_pt", "j2_eta", "j2_phi", "j2_mass",
    "j1_btag", "j2_btag", "tau_pt", "tau_eta", "pu", "pu_up", "pu_down", "sf", "sf_up", "sf_down",
    "bsf", "bsf_up", "bsf_down", "ht", "n_jets", "aplanarity", "sphericity", "gen_weight",
)  # fmt: skip
UNUSED = tuple(f"unused_{number}" for number in range(24))
COLUMNS = (*FLAGS, *NUMBERS)


def on_trigger(trigger_mu: Any, trigger_e: Any) -> Any:
    return (trigger_mu > 0) | (trigger_e > 0)


def good_lepton(lep_pt: Any, lep_eta: Any, lep_iso: Any) -> Any:
    return (lep_pt > 0.25) & (np.abs(lep_eta) < 0.9) & (lep_iso < 0.7)


def transverse_mass(lep_pt: Any, lep_phi: Any, met_pt: Any, met_phi: Any) -> Any:
    return np.sqrt(lep_pt * met_pt * (1 - np.cos(6.0 * (lep_phi - met_phi))))


def large_met(met_pt: Any, met_sig: Any) -> Any:
    return (met_pt > 0.2) & (met_sig > 0.1)


def dijet_mass(
    j1_pt: Any, j1_eta: Any, j1_phi: Any, j1_mass: Any,
    j2_pt: Any, j2_eta: Any, j2_phi: Any, j2_mass: Any,
) -> Any:  # fmt: skip
    angle = np.cosh(j1_eta - j2_eta) - np.cos(6.0 * (j1_phi - j2_phi))
    return np.sqrt(2 * j1_pt * j2_pt * angle + j1_mass**2 + j2_mass**2)


def two_tags(j1_btag: Any, j2_btag: Any) -> Any:
    return (j1_btag > 0.4) & (j2_btag > 0.5)


def with_tau(tau_pt: Any, tau_eta: Any) -> Any:
    return (tau_pt > 0.3) & (np.abs(tau_eta) < 0.8)


def counted(values: Any) -> Any:
    """Integer counts, so that all programs agree to the last bit."""
    edges = np.linspace(0.0, 4.0, BINS + 1)
    return np.histogram(np.asarray(values, dtype=np.float64), edges)[0]


def shape(ht: Any, n_jets: Any, aplanarity: Any, sphericity: Any) -> Any:
    return ht * n_jets + aplanarity - sphericity


def write(path: Any, rows: int) -> None:
    """Write the file; numbers keep 10 bits, as NanoAOD's do."""
    import uproot  # only the one who writes needs it

    random = np.random.default_rng(7)
    types = {**dict.fromkeys(FLAGS, np.int8), **dict.fromkeys((*NUMBERS, *UNUSED), np.float32)}
    # Used and unused columns alternate on disk, as in a file made for everybody.
    names = sorted(types, key=lambda name: hash_of(name))
    with uproot.recreate(path, compression=uproot.ZSTD(3)) as file:
        tree = file.mktree("Events", {name: types[name] for name in names})
        for number, start in enumerate(range(0, rows, CLUSTER_ROWS)):
            count = min(CLUSTER_ROWS, rows - start)
            data: dict[str, Any] = {}
            for name in names:
                if name in FLAGS:
                    data[name] = (random.random(count) < 0.3).astype(np.int8)
                else:
                    data[name] = (random.integers(0, 1024, count) / 1024).astype(np.float32)
            data["good_run"][:] = number % TURN < ALIVE
            tree.extend(data)


def hash_of(name: str) -> int:
    """Mix the columns in an order that is always the same."""
    value = 0
    for letter in name:
        value = (value * 131 + ord(letter)) % 1_000_003
    return value
