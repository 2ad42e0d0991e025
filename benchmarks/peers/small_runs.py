"""A small run in a program that has imported everything: once as the first, then again; Windrow or the plain program."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from protocol import serve
from small_common import build, fileset, plain


def do(what: str, directory: str) -> Any:
    """Return the seconds of two runs, and how many events each region of each dataset has."""
    files = fileset(Path(directory))
    seconds = []
    analysis = build()
    for _ in range(2):
        begin = time.perf_counter()
        if what == "plain":
            found: Any = plain(files)
        else:
            found = analysis.run(files, progress=False)
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "events": counts(found, what)}


def counts(found: Any, what: str) -> dict[str, int]:
    if what == "plain":
        pairs = {
            f"{d} {k[1]}": v["events"]
            for d, one in found.items()
            for k, v in one.items()
            if k[0] == "selected" and k[2] == "nominal"
        }
    else:
        pairs = {
            f"{d} {r}": found["selected", r, "nominal", d]["events"] for d in found.datasets for r in found.regions
        }
    return dict(sorted(pairs.items()))


if __name__ == "__main__":
    serve(do, "numpy", "awkward", "uproot", "hist")
