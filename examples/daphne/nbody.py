"""Particles that attract each other: all forces, and a step of time.

python examples/daphne/nbody.py [--particles 5000] [--steps 3] [--scheme auto]
"""

from __future__ import annotations

import argparse

import numba
import numpy as np

import windrow as wr

SOFT, STEP = 1e-3, 1e-4


@numba.njit
def attract(start, stop, places, masses, forces):
    for one in range(start, stop):
        x = y = z = 0.0
        for other in range(len(masses)):
            dx = places[other, 0] - places[one, 0]
            dy = places[other, 1] - places[one, 1]
            dz = places[other, 2] - places[one, 2]
            squared = dx * dx + dy * dy + dz * dz + SOFT
            pull = masses[other] / (squared * np.sqrt(squared))
            x += pull * dx
            y += pull * dy
            z += pull * dz
        forces[one, 0] = x
        forces[one, 1] = y
        forces[one, 2] = z


def particles(count, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)), rng.random(count), np.zeros((count, 3))


def sequential(count, steps):
    places, masses, speeds = particles(count)
    forces = np.empty_like(places)
    for _ in range(steps):
        attract(0, count, places, masses, forces)
        speeds += STEP * forces
        places += STEP * speeds
    return places


def parallel(count, steps, **options):
    places, masses, speeds = particles(count)
    forces = np.empty_like(places)
    for _ in range(steps):
        wr.parallel_for(attract, count, args=(places, masses, forces), **options)
        speeds += STEP * forces
        places += STEP * speeds
    return places


def main() -> None:
    parser = argparse.ArgumentParser(description="Particles that attract each other.")
    parser.add_argument("--particles", type=int, default=5_000)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--scheme", default="auto")
    given = parser.parse_args()
    report = wr.LoopReport()
    places = parallel(given.particles, given.steps, partition=given.scheme, report=report)
    print(report.explain())
    print(f"equal to the plain loop: {(places == sequential(given.particles, given.steps)).all()}")


if __name__ == "__main__":
    main()
