"""FILL_name: steps that pass files and arrays to each other, begun by "windrow new --kind task".

A step is a function: all that it needs comes in as arguments, all that it makes is returned or is the file it is told to write. Called
inside the session in run() it is a task, which runs as soon as what it reads is there; called anywhere else it just runs.

    python FILL_name/FILL_name.py [DIRECTORY]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCKS = 4


@wr.task
def measure(path: wr.OutFile, size: int = 40_000) -> None:
    """Write a signal with noise: put your own input here."""
    times = np.linspace(0, 1, size)
    noise = np.random.default_rng(1).normal(0, 0.5, size)
    np.save(path, np.sin(2 * np.pi * 5 * times) + noise)


@wr.task(outputs=BLOCKS)
def split(path: wr.InFile) -> Iterator[np.ndarray]:
    """Cut the input into parts: each goes on as soon as it is yielded."""
    yield from np.array_split(np.load(path), BLOCKS)


@wr.task
def smooth(block: np.ndarray, width: int = 101) -> np.ndarray:
    """Average over neighbours: the step that takes long."""
    return np.convolve(block, np.ones(width) / width, mode="same")


@wr.task
def write(block: np.ndarray, path: wr.OutFile) -> None:
    """Keep a part that is done."""
    np.save(path, block)


@wr.task
def combine(parts: wr.InFile) -> float:
    """Return the one number this is about: the size of the signal without its noise."""
    return float(np.std(np.concatenate([np.load(part) for part in parts])))


def run(directory: Path) -> float:
    """Do all steps; they wait for each other where they must."""
    directory.mkdir(parents=True, exist_ok=True)
    signal = directory / "signal.npy"
    parts = [directory / f"part-{number}.npy" for number in range(BLOCKS)]
    with wr.Session():
        measure(signal)
        for block, part in zip(split(signal), parts, strict=True):
            write(smooth(block), part)
        return combine(parts).result()


def main() -> int:
    parser = argparse.ArgumentParser(description="Smooth a signal block by block.")
    default = Path(__file__).resolve().parent / "output"
    parser.add_argument("directory", nargs="?", type=Path, default=default)
    directory = parser.parse_args().directory
    print(f"standard deviation of the signal: {run(directory):.3f}")
    print(f"parts in {directory}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
