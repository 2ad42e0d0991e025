"""Poisson numbers in NumPy: inversion for small means, transformed rejection for others.

Transformed rejection is PTRS of Hoermann (1993, doi:10.1016/0167-6687(93)90997-4), with the exact
probability in Loader's form. An attempt at a number takes one block of the generator; attempts have
keys of their own, so that a number still depends on nothing but its own key and counter.
``windrow.random.each_row.scalars`` has the same algorithm for one number, compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from windrow._portable import exp, log, poisson_log_probability
from windrow.random.philox import another_key, philox

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.uint64]
    Floats: TypeAlias = NDArray[np.float64]


#: Below it inversion takes fewer steps; rejection needs at least 10.
SMALL_MEAN = 10.0
#: Up to here a count and its half are exact floating-point numbers.
LARGEST_MEAN = 2.0**50
#: A probability with which nothing ever comes: only rounding is left to be searched.
NOTHING_LEFT = 2.0**-70


def fill_poisson(key: int, first: Words, second: Words, mean: Floats, out: NDArray[np.int64]) -> None:
    left = np.arange(len(out))
    attempt = 0
    while len(left):
        one, other = first[left], second[left]
        philox(another_key(key, attempt), one, other)
        here = mean[left]
        small = here < SMALL_MEAN  # none after the first attempt: inversion always succeeds
        values = np.empty(len(left))
        accepted = small.copy()
        values[small] = _invert(_above_zero(one[small]), here[small])
        large = np.flatnonzero(~small)
        values[large], accepted[large] = _try(one[large], other[large], here[large])
        out[left[accepted]] = values[accepted]
        left = left[~accepted]
        attempt += 1


def _above_zero(words: Words) -> Floats:
    result: Floats = ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    return result


def _invert(u: Floats, mean: Floats) -> Floats:
    """Add up probabilities until they reach u."""
    count = np.zeros(len(u))
    p = exp(0.0 - mean)
    going = np.flatnonzero(u > p)
    u, p = u[going], p[going]
    while len(going):
        u -= p
        count[going] += 1.0
        p *= mean[going] / count[going]
        on = (u > p) & (p > NOTHING_LEFT)
        going, u, p = going[on], u[on], p[on]
    return count


def _try(one: Words, other: Words, mean: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Propose a count for each mean; say which are accepted."""
    b = 0.931 + 2.53 * np.sqrt(mean)
    a = 0.02483 * b - 0.059
    u = ((one >> np.uint64(11)).astype(np.float64) - (2.0**52 - 0.5)) * 2.0**-53
    v = _above_zero(other)
    edge = 0.5 - np.abs(u)
    count = np.floor((2.0 * a / edge + b) * u + mean + 0.43)
    accepted = (edge >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
    # Neither certainly in nor certainly out: the exact probability decides.
    asked = np.flatnonzero(~accepted & (count >= 0.0) & ((edge >= 0.013) | (v <= edge)))
    b, edge = b[asked], edge[asked]
    height = v[asked] * (1.1239 + 1.1328 / (b - 3.4)) / (a[asked] / (edge * edge) + b)
    accepted[asked] = log(height) <= poisson_log_probability(count[asked], mean[asked])
    return count, accepted
