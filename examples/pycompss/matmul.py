"""Multiplies matrices that are cut into blocks: each block of the result is changed in place, product by product.

Written for PyCOMPSs; only the imports differ. Run it with ``python matmul.py [blocks] [size of a block]``.
"""

import sys

import numpy as np

from windrow.compat.pycompss.api.api import compss_wait_on
from windrow.compat.pycompss.api.constraint import constraint
from windrow.compat.pycompss.api.parameter import IN, INOUT
from windrow.compat.pycompss.api.task import task


@task(returns=np.ndarray)
def random_block(size, seed):
    return np.random.default_rng(seed).integers(-9, 10, (size, size))


@constraint(computing_units="1")
@task(a=IN, b=IN, c=INOUT)
def multiply_add(a, b, c):
    c += a @ b


def main(blocks, size):
    every = range(blocks)
    a = [[random_block(size, (0, i, j)) for j in every] for i in every]
    b = [[random_block(size, (1, i, j)) for j in every] for i in every]
    c = [[np.zeros((size, size), dtype=int) for _ in every] for _ in every]
    for i in every:
        for j in every:
            for k in every:
                multiply_add(a[i][k], b[k][j], c[i][j])
    a, b, c = compss_wait_on(a), compss_wait_on(b), compss_wait_on(c)
    print("right:", np.array_equal(np.block(c), np.block(a) @ np.block(b)))
    print("trace:", int(np.trace(np.block(c))))
    print("sum:", int(np.block(c).sum()))


if __name__ == "__main__":
    main(*[int(one) for one in sys.argv[1:3]] or (4, 64))
