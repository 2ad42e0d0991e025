"""A small analysis with everything a result can hold, for tests of what is done with results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hist
import numpy as np

import windrow as wr

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = ("run", "luminosityBlock", "event")
EDGES = np.linspace(0.0, 1.0, 11)


def columns(seed: int, rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.random(rows),
        "y": rng.random(rows),
        "w": rng.normal(1.0, 0.3, rows),
        "run": np.sort(rng.integers(1, 4, rows)) + 100 * seed,
        "luminosityBlock": rng.integers(1, 30, rows),
        "event": np.arange(rows) + 1000 * seed,
    }


def analysis(*, high: float = 0.5, name: str = "small", identity: Any = IDENTITY) -> wr.Pipeline:
    made = wr.Pipeline(name, identity=identity)

    @made.weight
    def gen(w: Any) -> Any:
        return w

    @made.weight(when="is_mc")
    def pileup(x: Any) -> Any:
        return wr.updown(np.ones(len(x)), 1.0 + x, 1.0 - x)

    @made.cut
    def some(y: Any) -> Any:
        return y > 0.2

    @made.cut
    def many(x: Any) -> Any:
        return x > high

    made.region("SR", "some", "many")
    made.region("CR", "some", "!many")

    @made.output
    def spectrum(x: Any, weight: Any) -> Any:
        axis = hist.axis.Regular(10, 0.0, 1.0, name="x", label="x & <y>")
        return hist.Hist(axis, storage=hist.storage.Weight()).fill(x, weight=weight)

    @made.output
    def count(x: Any) -> int:
        return len(x)

    @made.output(region=None, weights=["gen"])
    def sums(weight: Any) -> dict[str, float]:
        return {"sumw": float(np.sum(weight)), "n": len(weight)}

    return made


METADATA: dict[str, dict[str, Any]] = {
    "tt": {"is_mc": True, "xsec": 10.0},
    "st": {"is_mc": True, "xsec": 2.0},
    "data": {"is_mc": False},
}


def arrays(rows: int = 400) -> dict[str, dict[str, Any]]:
    return {name: columns(seed, rows) for seed, name in enumerate(METADATA)}


def run(made: wr.Pipeline | None = None, data: Any = None, **options: Any) -> wr.Result:
    source = wr.data.open(arrays(), metadata=METADATA) if data is None else data
    return (made or analysis()).run(source, progress=False, engine="inline", workers=1, **options)


def write_root(path: Path, values: dict[str, Any]) -> str:
    import uproot

    with uproot.recreate(path) as file:
        file.mktree("Events", {name: value.dtype for name, value in values.items()})
        file["Events"].extend(values)
    return f"{path}:Events"
