"""The analysis of the remote benchmark as one would write it with uproot: all columns, chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import uproot
from protocol import serve
from remote_common import (
    CHUNK_ROWS,
    COLUMNS,
    counted,
    dijet_mass,
    good_lepton,
    large_met,
    on_trigger,
    shape,
    transverse_mass,
    two_tags,
    with_tau,
)


def run(url: str, parts: bool) -> dict[str, Any]:
    """Read through uproot's default, or through its source that asks for many ranges at once."""
    options = {"handler": uproot.source.http.HTTPSource} if parts else {}
    found: dict[str, Any] = {}
    with uproot.open({url: "Events"}, **options) as tree:
        for data in tree.iterate(list(COLUMNS), step_size=CHUNK_ROWS, library="np"):
            for name, value in analysed(data).items():
                found[name] = found[name] + value if name in found else value
    plain = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in found.items()}
    return {"found": plain}


def analysed(data: Any) -> dict[str, Any]:
    """One chunk's contribution."""

    def of(function: Any, rows: Any) -> Any:
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        return function(*(data[name][rows] for name in names))

    base = data["good_run"] > 0
    base &= of(on_trigger, ...) & of(good_lepton, ...) & of(large_met, ...)
    out: dict[str, Any] = {}
    for region, cut in (("signal", two_tags), ("control", with_tau)):
        rows = np.flatnonzero(base & of(cut, ...))
        masses = counted(of(transverse_mass, rows)) + 1000 * counted(of(dijet_mass, rows))
        out[f"masses {region}"] = masses
        out[f"shapes {region}"] = counted(of(shape, rows))
        for variation in ("nominal", "pu_weight_up", "sf_weight_down", "bsf_weight_up"):
            weight = data["gen_weight"][rows].astype(float) + 0.5
            for name in ("pu", "sf", "bsf"):
                shifted = variation.partition("_weight_")
                column = f"{name}_{shifted[2]}" if shifted[0] == name else name
                weight = weight * (data[column][rows] + 0.5)
            out[f"total {region} {variation}"] = float(np.sum(weight))
    return out


if __name__ == "__main__":
    serve(run, "uproot")
