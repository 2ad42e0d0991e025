"""Filling arrays with numbers, compiled: blocks of counters, the generator over them, a transform.

Loops over a block do one thing each, so that LLVM vectorises them: a million uniform numbers take a
seventh of what NumPy takes, and less than numpy.random's own Philox. The lock is released.
Importing this imports Numba; only ``windrow.random.compiling`` does so, when enough was drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow._portable import CENTRE
from windrow.random.entries import IDENTITIES, PLACES
from windrow.random.identities import NEGATIVE
from windrow.random.scalars import (
    GOLDEN,
    above_zero,
    blocks,
    central_quantile,
    centred,
    compiled,
    far_quantile,
    high_word,
    inlined,
    kept,
    log,
    mixed,
    near_quantile,
    poisson_of,
    poisson_terms,
    unit,
)

if TYPE_CHECKING:
    from collections.abc import Callable


#: Numbers at a time: five arrays of this length stay in the first-level cache.
_BLOCK = 512
_SHIFT32 = np.uint64(32)


@inlined
def _identities(rows: Any, start: Any, first: Any, n: Any) -> None:
    """Write the identities of n rows; slices, because LLVM has no vectors for ``words[start + j]``."""
    words, kind, file, entry = rows
    some = words[start : start + n]
    if kind == IDENTITIES:
        for j in range(n):
            first[j] = some[j]
    elif kind == PLACES:
        for j in range(n):
            first[j] = mixed(file ^ mixed(entry + some[j] + GOLDEN))
    else:
        begin = entry + np.uint64(start) + GOLDEN
        for j in range(n):
            first[j] = mixed(file ^ mixed(begin + np.uint64(j)))


@inlined
def _counters(
    rows: Any, counts: Any, step: Any, draw: Any, start: Any, place: Any, first: Any,
    second: Any, n: Any,
) -> None:  # fmt: skip
    """Write the next n counters; ``place`` is the row and the object that come next."""
    if step == 0 and counts[0] == 1:
        for j in range(n):
            second[j] = draw
        _identities(rows, start, first, n)
        return
    identity = rows[0]
    done = 0
    row, index = place[0], place[1]
    while done < n:
        some = min(counts[row * step] - index, n - done)
        for j in range(some):
            first[done + j] = identity[row]
            second[done + j] = (np.uint64(index + j) << _SHIFT32) | draw
        done += some
        index += some
        if index >= counts[row * step]:
            row += 1
            index = 0
    place[0], place[1] = row, index


@compiled
def _words(
    key: Any, rows: Any, counts: Any, step: Any, draw: Any, start: Any, place: Any, first: Any,
    second: Any, n: Any,
) -> None:  # fmt: skip
    """Leave the random words of the next n numbers in ``first``."""
    _counters(rows, counts, step, draw, start, place, first, second, n)
    blocks(key, first, second, n)


@inlined
def _room() -> Any:
    return np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64), np.zeros(2, np.int64)


def _uniform(
    key: Any, rows: Any, counts: Any, step: Any, draw: Any, out: Any,
    low: Any, span: Any, highest: Any,
) -> None:  # fmt: skip
    first, second, place = _room()
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _words(key, rows, counts, step, draw, start, place, first, second, n)
        part = out[start : start + n]
        if low == 0.0 and span == 1.0:
            for j in range(n):
                part[j] = unit(first[j])
        else:
            for j in range(n):
                value = unit(first[j]) * span + low
                part[j] = value if value < highest else highest


def _exponential(key: Any, rows: Any, counts: Any, step: Any, draw: Any, out: Any, scale: Any) -> None:
    first, second, place = _room()
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _words(key, rows, counts, step, draw, start, place, first, second, n)
        part = out[start : start + n]
        for j in range(n):
            part[j] = (0.0 - log(above_zero(first[j]))) * scale


def _normal(key: Any, rows: Any, counts: Any, step: Any, draw: Any, out: Any, loc: Any, scale: Any) -> None:
    first, second, place = _room()
    q, tail, where = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK, np.int64)
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _words(key, rows, counts, step, draw, start, place, first, second, n)
        part = out[start : start + n]
        for j in range(n):
            q[j] = centred(first[j])
            part[j] = central_quantile(q[j])
        # One in seven is outside the centre: they are brought together, for vectors again.
        outside = 0
        for j in range(n):
            where[outside] = j
            outside += 1 if abs(q[j]) > CENTRE else 0
        for t in range(outside):
            tail[t] = 0.5 - abs(q[where[t]])
        for t in range(outside):
            tail[t] = math.sqrt(0.0 - log(tail[t]))
        for t in range(outside):
            q[t] = near_quantile(tail[t])
        for t in range(outside):
            size = far_quantile(tail[t]) if tail[t] > 5.0 else q[t]
            part[where[t]] = math.copysign(size, part[where[t]])
        if loc != 0.0 or scale != 1.0:
            for j in range(n):
                part[j] = part[j] * scale + loc


def _integers(key: Any, rows: Any, counts: Any, step: Any, draw: Any, out: Any, span: Any, offset: Any) -> None:
    first, second, place = _room()
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _words(key, rows, counts, step, draw, start, place, first, second, n)
        part = out[start : start + n]
        for j in range(n):
            part[j] = np.int64(high_word(first[j], span) + offset)


def _poisson(key: Any, rows: Any, counts: Any, step: Any, draw: Any, out: Any, mean: Any, mean_step: Any) -> None:
    first, second, place = _room()
    one, other, _ = _room()
    known, terms = -1.0, (0.0, 0.0, 0.0)
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _counters(rows, counts, step, draw, start, place, first, second, n)
        one[:n], other[:n] = first[:n], second[:n]
        blocks(key, one, other, n)
        for j in range(n):
            here = mean[(start + j) * mean_step]
            if here != known:
                known, terms = here, poisson_terms(here)
            out[start + j] = poisson_of(key, first[j], second[j], one[j], other[j], here, terms)


def _identity(state: Any, bits: Any, signed: Any) -> None:
    for j in range(state.size):
        value = mixed(bits[j] + GOLDEN)
        if signed and np.int64(bits[j]) < 0:
            value ^= NEGATIVE
        state[j] = mixed(state[j] ^ value)


_KERNELS: dict[str, Callable[..., None]] = {
    "uniform": _uniform,
    "normal": _normal,
    "exponential": _exponential,
    "integers": _integers,
    "poisson": _poisson,
    "identity": _identity,
}


def kernel(name: str) -> Any:
    """Return the compiled loop of a method, or that of identities; it is compiled when it is first called."""
    return kept(_KERNELS[name])
