"""One number of one counter, compiled and kept: what compiled ``each=True`` steps call.

Importing this imports Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from windrow.random.scalars import (
    above_zero,
    block,
    centred,
    high_word,
    kept,
    log,
    poisson_of,
    poisson_terms,
    quantile,
    unit,
)


@kept
def uniform(key: Any, identity: Any, counter: Any) -> Any:
    """A number in [0, 1)."""
    word, _ = block(key, identity, counter)
    return unit(word)


@kept
def normal(key: Any, identity: Any, counter: Any) -> Any:
    """A standard normal number."""
    word, _ = block(key, identity, counter)
    return quantile(centred(word))


@kept
def exponential(key: Any, identity: Any, counter: Any) -> Any:
    """A number of an exponential distribution of mean 1."""
    word, _ = block(key, identity, counter)
    return 0.0 - log(above_zero(word))


@kept
def integers(key: Any, identity: Any, counter: Any, start: Any, stop: Any) -> Any:
    """An integer from [start, stop)."""
    word, _ = block(key, identity, counter)
    span = np.uint64(stop) - np.uint64(start)
    return np.int64(high_word(word, span) + np.uint64(start))


@kept
def poisson(key: Any, identity: Any, counter: Any, mean: Any) -> Any:
    """A count."""
    one, other = block(key, identity, counter)
    return poisson_of(key, identity, counter, one, other, mean, poisson_terms(mean))
