"""FILL_name: steps that pass files and arrays to each other, begun by "windrow new --kind task".

A step is a function: all that it needs comes in as arguments, all that it makes is returned or is the file it is told to write. Called
inside the session in run() it is a task, which runs as soon as what it reads is there; called anywhere else it just runs.

    python FILL_name/FILL_name.py [DIRECTORY]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import windrow as wr

BLOCKS = 4


@wr.task
def measure(path: wr.OutFile, seed: int, size: int = 10_000) -> None:
    """Write a signal with noise: put your own input here."""
    noise = np.random.default_rng(seed).normal(0, 0.5, size)
    np.save(path, np.sin(np.linspace(0, 10 * np.pi, size)) + noise)


@wr.task
def smooth(path: wr.InFile, width: int = 101) -> np.ndarray:
    """Average over neighbours: the step that takes long."""
    return np.convolve(np.load(path), np.ones(width) / width, mode="same")


@wr.task
def combine(blocks: list[np.ndarray]) -> float:
    """Return the one number this is about: the size of the signal without its noise."""
    return float(np.std(np.concatenate(blocks)))


def run(directory: Path) -> float:
    """Do all steps; they wait for each other where they must."""
    directory.mkdir(parents=True, exist_ok=True)
    blocks = []
    with wr.Session():
        for number in range(BLOCKS):
            path = directory / f"signal-{number}.npy"
            measure(path, number)
            blocks.append(smooth(path))
        return combine(blocks).result()


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "output"
    print(f"standard deviation of the signal: {run(directory):.3f}; files in {directory}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
