"""Skeletons for task graphs, and for parameter studies, which this version cannot run: a plain program that runs today.

That is arranged as the front door will want it, and says so; nothing in it pretends to be parallel.
"""

from __future__ import annotations

__all__ = ["KINDS", "plain_texts"]

#: Kinds of skeleton that look at no file.
KINDS = ("task", "study")


def plain_texts(kind: str, name: str) -> dict[str, str]:
    """Return the files of a skeleton by name."""
    program, checks, about = {"task": _TASK, "study": _STUDY}[kind]
    readme = _README.replace("ABOUT", about)
    files = {f"{name}.py": program, f"test_{name}.py": checks, "README.md": readme}
    return {file: text.replace("NAME", name).lstrip("\n") for file, text in files.items()}


_README = """
# NAME

ABOUT

| command | does |
| --- | --- |
| `python NAME.py` | runs it |
| `pytest` | tests every step, and the whole |
"""

_TASK_PROGRAM = '''
"""NAME: steps that pass files and arrays to each other, begun by "windrow new --kind task".

A step is a function: all that it needs comes in as arguments, all that it makes is returned or is the file it is told to write. Called
inside the session in run() it is a task, which runs as soon as what it reads is there; called anywhere else it just runs.

    python NAME/NAME.py [DIRECTORY]
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
'''

_TASK_CHECKS = '''
"""Tests of NAME: each step alone, and all of them together."""

from __future__ import annotations

import numpy as np
import pytest

from NAME import (
    BLOCKS,
    combine,
    run,
    smooth,
    split,
    write,
)


def test_blocks_are_the_whole_input(tmp_path):
    values = np.arange(10.0)
    np.save(tmp_path / "in.npy", values)
    blocks = split(tmp_path / "in.npy")
    assert len(blocks) == BLOCKS
    assert np.concatenate(blocks).tolist() == values.tolist()


def test_smoothing_leaves_a_constant_alone():
    inner = smooth(np.ones(50), width=5)[2:-2]
    assert inner == pytest.approx(np.ones(46))


def test_parts_are_put_together(tmp_path):
    low, high = tmp_path / "low.npy", tmp_path / "high.npy"
    write(np.full(4, -1.0), low)
    write(np.full(4, 1.0), high)
    assert combine([low, high]) == pytest.approx(1.0)


def test_the_whole(tmp_path):
    # A sine of height 1 has a standard deviation of 0.707; the noise is averaged away.
    assert run(tmp_path / "out") == pytest.approx(np.sqrt(0.5), abs=0.05)
    assert len(list((tmp_path / "out").glob("part-*.npy"))) == BLOCKS
'''

_STUDY_PROGRAM = '''
"""NAME: one workflow, many parameters, begun by "windrow new --kind study".

This version of Windrow has no studies: wr.Study and wr.stage are planned, not there. So this is a plain program that runs the workflow
once for every set of parameters. It is arranged as a study wants to be: a stage is a function of data and of just the parameters it
needs, workflow() calls the stages in order, and SPACE says what is varied. Once there are studies, wr.stage goes where the comment says,
and run() becomes wr.Study(workflow, SPACE, metric=overlap), which runs stages that several sets of parameters share only once.

    python NAME/NAME.py
"""

from __future__ import annotations

from itertools import product

import numpy as np

#: What is varied, and the values to try.
SPACE = {"width": (1, 3, 5, 9), "level": (0.3, 0.5, 0.7)}


def picture(size: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """Make a noisy picture of a disc, and the truth: put your own images here."""
    y, x = np.mgrid[:size, :size]
    truth = (x - size / 2) ** 2 + (y - size / 2) ** 2 < (size / 4) ** 2
    noise = np.random.default_rng(1).normal(0, 0.4, truth.shape)
    return truth + noise, truth


def smooth(image: np.ndarray, width: int) -> np.ndarray:
    """Average over a square of neighbours; depends on the width only."""
    kernel = np.ones(width) / width
    rows = np.apply_along_axis(np.convolve, 1, image, kernel, mode="same")
    return np.apply_along_axis(np.convolve, 0, rows, kernel, mode="same")


def foreground(image: np.ndarray, level: float) -> np.ndarray:
    """Return what is brighter than a level."""
    return image > level


# a stage
def workflow(image: np.ndarray, *, width: int, level: float) -> np.ndarray:
    """Find the disc."""
    return foreground(smooth(image, width), level)


def overlap(found: np.ndarray, truth: np.ndarray) -> float:
    """Return the Dice coefficient: 1 where both are the same, 0 where nothing is."""
    return float(2 * np.sum(found & truth) / max(np.sum(found) + np.sum(truth), 1))


def run() -> list[tuple[dict[str, float], float]]:
    """Try every set of parameters; the best one first."""
    image, truth = picture()
    tried = []
    for values in product(*SPACE.values()):
        parameters = dict(zip(SPACE, values, strict=True))
        tried.append((parameters, overlap(workflow(image, **parameters), truth)))
    return sorted(tried, key=lambda one: one[1], reverse=True)


def main() -> int:
    print(*(f"{name:>8}" for name in SPACE), f"{'overlap':>8}")
    for parameters, score in run():
        print(*(f"{value:>8g}" for value in parameters.values()), f"{score:>8.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
'''

_STUDY_CHECKS = '''
"""Tests of NAME: each stage alone, and the whole study."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from NAME import (
    SPACE,
    foreground,
    overlap,
    run,
    smooth,
)


def test_smoothing_leaves_a_constant_alone():
    inner = smooth(np.ones((9, 9)), 3)[1:-1, 1:-1]
    assert inner == pytest.approx(np.ones((7, 7)))


def test_foreground_is_brighter_than_the_level():
    assert foreground(np.array([[0.2, 0.8]]), 0.5).tolist() == [[False, True]]


def test_overlap_of_the_same_and_of_nothing():
    disc = np.array([True, True, False])
    assert overlap(disc, disc) == 1.0
    assert overlap(disc, ~disc) == 0.0


def test_every_set_of_parameters_is_tried_and_smoothing_helps():
    tried = run()
    assert len(tried) == prod(len(values) for values in SPACE.values())
    best, score = tried[0]
    assert score > 0.9
    assert best["width"] > 1
'''

_TASK_ABOUT = """Steps that pass files and arrays to each other, begun by `windrow new NAME --kind task`. They run as soon as what they read is
there, on all cores. A second run does what is missing or has changed; what it needs to know for that is in `.windrow`."""

_STUDY_ABOUT = """One workflow, many parameters, begun by `windrow new NAME --kind study`. This version of Windrow has no studies yet, so it is a
plain program; its first lines say what changes when there are."""

_TASK = (_TASK_PROGRAM, _TASK_CHECKS, _TASK_ABOUT)
_STUDY = (_STUDY_PROGRAM, _STUDY_CHECKS, _STUDY_ABOUT)
