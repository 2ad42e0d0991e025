"""An analysis whose memory grows with its rows: some 20 KB for each, noisy, and ten times as much for one in a hundred."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import psutil
from protocol import serve

import windrow as wr
import windrow.errors

#: Doubles of a row: 20 KB.
DOUBLES = 2_500


def heavy_rows(x: np.ndarray) -> np.ndarray:
    """Fill as many doubles for each row as its number asks for, half to one and a half times 2,500, and add them up."""
    digits = (np.abs(x) * 1e6).astype(np.int64)
    counts = DOUBLES // 2 + digits % DOUBLES
    counts[digits % 100 == 0] *= 10
    borders = np.concatenate([[0], np.cumsum(counts)])
    doubles = np.ones(borders[-1])
    np.sqrt(doubles, out=doubles)
    return np.add.reduceat(doubles, borders[:-1]) if len(x) else np.zeros(0)


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("memory")

    @made.column
    def heavy(x):
        return heavy_rows(x)

    @made.cut
    def some(heavy):
        return heavy > DOUBLES

    made.region("some", "some")

    @made.output
    def total(heavy):
        return float(heavy.sum())

    @made.output
    def count(heavy):
        return len(heavy)

    return made


def first_cut(x: np.ndarray) -> np.ndarray:
    """Decide row by row, in Python: dear, and nearly all rows pass."""
    return np.array([sum(value > -step for step in range(3, 43)) == 40 for value in x.tolist()], dtype=bool)


def in_order(rows: int, seed: int, memory: float) -> dict[str, Any]:
    """Run two cuts that are best swapped, but the second takes 400 MB for rows that the first one rejects: one in 1,500."""
    made = wr.Pipeline("order")

    @made.cut
    def first(x):
        return first_cut(x)

    @made.cut
    def second(x, y):
        doubles = np.ones(50_000_000 if (x <= -3).any() else 1)
        return (y > doubles[0]) & (doubles[-1] > 0)

    made.region("some", "first", "second")

    @made.output
    def total(y):
        return float(y.sum())

    @made.output
    def count(y):
        return len(y)

    x, y = np.random.default_rng(seed).normal(size=(2, rows))
    x[: rows // 4] = np.abs(x[: rows // 4])  # what tasks meet before the order changes
    kept = y[(x > -3) & (y > 1)]
    result = made.run({"x": x, "y": y}, engine="processes", workers=2, memory=int(2 * memory), progress=False)
    return {
        "right": bool(
            result["count", "some"] == len(kept) and np.isclose(result["total", "some"], kept.sum(), rtol=1e-12)
        ),
        "why": [told.get("fixed", "no order was held against anything") for told in result.ordering.values()],
        "said": [one for one in result.decisions if one.startswith("memory")],
    }


def idle() -> float:
    """The memory of a worker that does nothing, in bytes."""
    made = wr.Pipeline("idle")

    @made.output
    def resident(x):  # noqa: ARG001 - it has to read something
        return {"bytes": float(psutil.Process(os.getpid()).memory_info().rss)}

    result = made.run({"x": np.zeros(1)}, memory="8 GB", workers=1, progress=False)
    return result["resident"]["bytes"]


def do(what: str, rows: int = 0, seed: int = 0, memory: float = 0.0, options: dict[str, Any] | None = None) -> Any:
    if what == "idle":
        return idle()
    x = np.random.default_rng(seed).normal(size=rows)
    if what == "order":
        return in_order(rows, seed, memory)
    if what == "plain":
        heavy = np.concatenate([heavy_rows(x[start : start + 1_000]) for start in range(0, rows, 1_000)])
        kept = heavy[heavy > DOUBLES]
        return [len(kept), float(kept.sum())]
    try:
        result = analysis().run(
            {"x": x}, engine="processes", workers=2, memory=int(2 * memory), progress=False, **(options or {})
        )
    except wr.errors.WindrowError as error:
        return {"error": str(error)}
    return {
        "seconds": result.seconds,
        "answer": [result["count", "some"], result["total", "some"]],
        "lost": result.account["attempts that came to nothing"] / (2 * result.seconds),
        "said": [one for one in result.decisions if one.startswith("memory")],
    }


if __name__ == "__main__":
    serve(do, "numpy", "psutil")
