"""The selection as a Windrow pipeline, and the time to decompress what it read and nothing else."""

from __future__ import annotations

import os
import struct
import threading
import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

import awkward as ak
import cramjam
import numpy as np
from hist import Hist
from protocol import serve
from selection_common import BINS, WINDOWS

import windrow as wr
from windrow.data.formats import baskets

#: the selection in awkward, as the other Python programs have it
analysis = wr.Pipeline("selection")
#: the selection as one function of a row's numbers, as RDataFrame has it
compiled_analysis = wr.Pipeline("compiled selection")


@compiled_analysis.cut
@analysis.cut
def trigger(HLT_IsoMu24):
    return HLT_IsoMu24


@analysis.column
def muons(Muon):
    good = (Muon.pt > 5) & (abs(Muon.eta) < 2.4) & (Muon.pfRelIso04_all < 0.25)
    return Muon[good]


@analysis.cut
def two_muons(muons):
    return ak.num(muons) >= 2


@analysis.cut
def opposite_charge(muons):
    return muons.charge[:, 0] != muons.charge[:, 1]


@compiled_analysis.column(each=True, name="mass")
def first_pair(Muon_pt, Muon_eta, Muon_phi, Muon_charge, Muon_pfRelIso04_all):
    first = -1
    for i in range(len(Muon_pt)):
        if not (Muon_pt[i] > 5 and abs(Muon_eta[i]) < 2.4 and Muon_pfRelIso04_all[i] < 0.25):
            continue
        if first < 0:
            first = i
            continue
        if Muon_charge[first] == Muon_charge[i]:
            return -1.0
        angle = np.cosh(Muon_eta[first] - Muon_eta[i]) - np.cos(Muon_phi[first] - Muon_phi[i])
        return np.sqrt(2.0 * Muon_pt[first] * Muon_pt[i] * angle)
    return -1.0


@analysis.column
def mass(muons):
    pt, eta, phi = (
        [ak.to_numpy(values[:, i]).astype(np.float64) for i in (0, 1)] for values in (muons.pt, muons.eta, muons.phi)
    )
    return np.sqrt(2 * pt[0] * pt[1] * (np.cosh(eta[0] - eta[1]) - np.cos(phi[0] - phi[1])))


@compiled_analysis.cut
@analysis.cut
def z_window(mass):
    return (mass > 60) & (mass < 120)


@compiled_analysis.cut
@analysis.cut
def upsilon_window(mass):
    return (mass > 8.5) & (mass < 11.5)


@compiled_analysis.cut
@analysis.cut
def jpsi_window(mass):
    return (mass > 2.8) & (mass < 3.4)


for region, window in (("Z", "z_window"), ("upsilon", "upsilon_window"), ("jpsi", "jpsi_window")):
    analysis.region(region, "trigger", "two_muons", "opposite_charge", window)
    compiled_analysis.region(region, "trigger", window)


@compiled_analysis.output(regions="*")
@analysis.output(regions="*")
def spectrum(mass, *, region):
    return Hist.new.Reg(BINS, *WINDOWS[region]).Int64().fill(mass)


@compiled_analysis.output(regions="*")
@analysis.output(regions="*")
def rows(mass):
    return len(mass)


_KEY = struct.Struct(">ihiIh")
_ranges: dict[str, list[tuple[int, int]]] = {}


def unpack(descriptor: int, offset: int, size: int) -> None:
    """Fetch one basket and decompress its blocks; look at nothing in it."""
    packed = os.pread(descriptor, size, offset)
    _, _, length, _, at = _KEY.unpack_from(packed)
    if size - at == length:  # stored as it is
        return
    raw = np.empty(length, np.uint8)
    filled = 0
    while filled < length:
        inside = int.from_bytes(packed[at + 3 : at + 6], "little")
        count = int.from_bytes(packed[at + 6 : at + 9], "little")
        block = memoryview(packed)[at + 9 : at + 9 + inside]
        cramjam.zstd.decompress_into(block, raw[filled : filled + count])
        at, filled = at + 9 + inside, filled + count


def limit(path: str, workers: int) -> dict[str, Any]:
    """Decompress, on as many threads, the byte ranges that a run fetches."""
    if path not in _ranges:
        found: list[tuple[int, int]] = []

        def pread(descriptor: int, size: int, offset: int) -> bytes:
            found.append((offset, size))
            return os.pread(descriptor, size, offset)

        with mock.patch.object(baskets, "os", SimpleNamespace(**{**vars(os), "pread": pread})):
            analysis.run(f"{path}:Events", engine="threads", workers=workers, progress=False)
        _ranges[path] = sorted(found)
    ranges = _ranges[path]
    descriptor = os.open(path, os.O_RDONLY)

    def work(mine: list[tuple[int, int]]) -> None:
        for offset, size in mine:
            unpack(descriptor, offset, size)

    threads = [threading.Thread(target=work, args=(ranges[i::workers],)) for i in range(workers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    os.close(descriptor)
    return {"seconds": seconds, "bytes": sum(size for _, size in ranges), "reads": len(ranges)}


def run(path: str, workers: int, compiled: bool = False, only_limit: bool = False) -> dict[str, Any]:
    if only_limit:
        return limit(path, workers)
    program = compiled_analysis if compiled else analysis
    result = program.run(f"{path}:Events", workers=workers, progress=False)
    return {
        "regions": {
            region: {"rows": int(result["rows", region]), "bins": result["spectrum", region].values().tolist()}
            for region in WINDOWS
        }
    }


if __name__ == "__main__":
    serve(run, "awkward", "numpy", "uproot", "hist")
