"""Finds clusters of points: a task per fragment sums up the points of each cluster, and a tree of tasks adds the sums.

Written for PyCOMPSs; only the imports differ. Run it with ``python kmeans.py [points] [fragments]``.
"""

import sys
from collections import deque

import numpy as np

from windrow.compat.pycompss.api.api import compss_wait_on
from windrow.compat.pycompss.api.parameter import COLLECTION_IN
from windrow.compat.pycompss.api.task import task

CLUSTERS, DIMENSIONS, ARITY = 5, 2, 4


@task(returns=np.ndarray)
def make_fragment(points, seed):
    draw = np.random.default_rng(seed)
    middles = np.random.default_rng(99).uniform(-10, 10, (CLUSTERS, DIMENSIONS))
    return middles[draw.integers(CLUSTERS, size=points)] + draw.normal(size=(points, DIMENSIONS))


@task(returns=2)
def sum_up(fragment, centers):
    distances = ((fragment[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    sums = np.zeros_like(centers)
    np.add.at(sums, nearest, fragment)
    return sums, np.bincount(nearest, minlength=CLUSTERS)


@task(returns=1, parts=COLLECTION_IN)
def add(parts):
    total = parts[0]
    for one in parts[1:]:
        total = total + one
    return total


def reduce_by(function, parts, arity):
    waiting = deque(parts)
    while len(waiting) > 1:
        few = [waiting.popleft() for _ in range(min(arity, len(waiting)))]
        waiting.append(function(few))
    return waiting[0]


def main(points, fragments):
    data = [make_fragment(points // fragments, seed) for seed in range(fragments)]
    centers = np.random.default_rng(1).uniform(-10, 10, (CLUSTERS, DIMENSIONS))
    iterations, moved = 0, 1.0
    while moved > 1e-6 and iterations < 30:
        parts = [sum_up(fragment, centers) for fragment in data]
        sums = compss_wait_on(reduce_by(add, [part[0] for part in parts], ARITY))
        counts = compss_wait_on(reduce_by(add, [part[1] for part in parts], ARITY))
        before, centers = centers, sums / np.maximum(counts, 1)[:, None]
        iterations, moved = iterations + 1, np.abs(centers - before).max()
    print("iterations:", iterations)
    for center, number in zip(centers.tolist(), counts.tolist(), strict=True):
        print(number, *[one.hex() for one in center])


if __name__ == "__main__":
    main(*[int(one) for one in sys.argv[1:3]] or (8000, 8))
