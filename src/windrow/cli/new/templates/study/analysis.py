"""FILL_name: one workflow, many parameters, begun by "windrow new --kind study".

This version of Windrow has no studies: wr.Study and wr.stage are planned, not there. So this is a plain program that runs the workflow
once for every set of parameters. It is arranged as a study wants to be: a stage is a function of data and of just the parameters it
needs, workflow() calls the stages in order, and SPACE says what is varied. Once there are studies, wr.stage goes where the comment says,
and run() becomes wr.Study(workflow, SPACE, metric=overlap), which runs stages that several sets of parameters share only once.

    python FILL_name/FILL_name.py
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
