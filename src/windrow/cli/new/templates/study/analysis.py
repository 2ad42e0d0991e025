"""FILL_name: one workflow, many parameters, begun by "windrow new --kind study".

This version of Windrow has no studies: wr.Study is planned, not there. So this is a plain program that runs the workflow once for every
set of parameters; SPACE says what is varied.

    python FILL_name/FILL_name.py
"""

from __future__ import annotations

from itertools import product

import numpy as np

#: What is varied, and the values to try.
SPACE = {"width": (1, 3, 9), "level": (0.3, 0.5, 0.7)}


def workflow(signal: np.ndarray, *, width: int, level: float) -> np.ndarray:
    """Smooth the signal and find where it is above a level: put your own stages here."""
    smooth = np.convolve(signal, np.ones(width) / width, mode="same")
    return smooth > level


def run() -> list[tuple[float, dict[str, float]]]:
    """Try every set of parameters; return how much is found right, and by which: the best one first."""
    truth = np.abs(np.arange(1000) - 500) < 200
    signal = truth + np.random.default_rng(1).normal(0, 0.4, truth.shape)
    tried = []
    for values in product(*SPACE.values()):
        parameters = dict(zip(SPACE, values, strict=True))
        tried.append((float(np.mean(workflow(signal, **parameters) == truth)), parameters))
    return sorted(tried, key=lambda one: one[0], reverse=True)


def main() -> int:
    for score, parameters in run():
        print(f"{score:.3f}", parameters)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
