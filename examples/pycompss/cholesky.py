"""The Cholesky factor of a matrix in blocks: what is left of the matrix is changed in place, step by step.

Written for PyCOMPSs; only the imports differ. Run it with ``python cholesky.py [blocks] [size of a block]``.
"""

import sys

import numpy as np

from windrow.compat.pycompss.api.api import compss_wait_on
from windrow.compat.pycompss.api.parameter import COLLECTION_INOUT, INOUT, Depth, Type
from windrow.compat.pycompss.api.task import task


@task(block=INOUT)
def factorise(block):
    block[:] = np.linalg.cholesky(block)


@task(block=INOUT)
def solve(diagonal, block):
    block[:] = np.linalg.solve(diagonal, block.T).T


@task(block=INOUT)
def subtract(left, right, block):
    block -= left @ right.T


@task(rows={Type: COLLECTION_INOUT, Depth: 2})
def clear_above(rows):
    for i, row in enumerate(rows):
        for j in range(i + 1, len(row)):
            row[j] = np.zeros_like(row[j])


def make_matrix(size):
    draw = np.random.default_rng(5).normal(size=(size, size))
    return draw @ draw.T + size * np.eye(size)


def main(blocks, size):
    whole = make_matrix(blocks * size)
    cut = [slice(i * size, (i + 1) * size) for i in range(blocks)]
    a = [[whole[i, j].copy() for j in cut] for i in cut]
    for k in range(blocks):
        factorise(a[k][k])
        for i in range(k + 1, blocks):
            solve(a[k][k], a[i][k])
        for i in range(k + 1, blocks):
            for j in range(k + 1, i + 1):
                subtract(a[i][k], a[j][k], a[i][j])
    clear_above(a)
    factor = np.block(compss_wait_on(a))
    print("right:", np.allclose(factor @ factor.T, whole))
    print("corner:", float(factor[-1, 0]).hex(), float(factor[-1, -1]).hex())
    print("sum:", float(factor.sum()).hex())


if __name__ == "__main__":
    main(*[int(one) for one in sys.argv[1:3]] or (4, 32))
