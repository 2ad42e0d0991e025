"""Filling arrays with numbers, compiled: blocks of counters, the generator over them, a transform.

Loops over a block do one thing each, so that LLVM vectorises them: a million uniform numbers take a
seventh of what NumPy takes, and less than numpy.random's own Philox. The lock is released.
Importing this imports Numba; only ``compile_later`` does so, when enough was drawn.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from windrow._portable import CENTRE
from windrow.random.each_row import scalars
from windrow.random.row_ids import NEGATIVE

#: Numbers at a time: five arrays of this length stay in the first-level cache.
_BLOCK = 512
_SHIFT32 = np.uint64(32)


@scalars.inlined
def _counters(
    identity: Any, counts: Any, step: Any, draw: Any, start: Any, place: Any, first: Any, second: Any, n: Any
) -> None:
    """Write the next n counters; ``place`` is the row and the object that come next."""
    if step == 0 and counts[0] == 1:
        some = identity[start : start + n]  # a slice, because LLVM has no vectors for ``identity[start + j]``
        for j in range(n):
            first[j] = some[j]
            second[j] = draw
        return
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


@scalars.inlined
def _room() -> Any:
    return np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint64), np.zeros(2, np.int64)


@scalars.inlined
def _fill(
    key: Any, identity: Any, counts: Any, step: Any, draw: Any, out: Any, transform: Any, parameters: Any
) -> None:
    """Fill an array; ``transform`` makes numbers of the random words of a block and may use ``room``."""
    first, second, place = _room()
    room = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK, np.int64)
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _counters(identity, counts, step, draw, start, place, first, second, n)
        scalars.blocks(key, first, second, n)
        transform(first, out[start : start + n], parameters, room)


@scalars.compiled
def _to_uniform(words: Any, out: Any, parameters: Any, _: Any) -> None:
    low, span, highest = parameters
    for j in range(out.size):
        value = scalars.unit(words[j]) * span + low
        out[j] = value if value < highest else highest


@scalars.compiled
def _to_exponential(words: Any, out: Any, parameters: Any, _: Any) -> None:
    for j in range(out.size):
        out[j] = (0.0 - scalars.log(scalars.above_zero(words[j]))) * parameters[0]


@scalars.compiled
def _to_normal(words: Any, out: Any, parameters: Any, room: Any) -> None:
    q, tail, where = room
    for j in range(out.size):
        q[j] = scalars.centred(words[j])
        out[j] = scalars.central_quantile(q[j])
    # One in seven is outside the centre: they are brought together, for vectors again.
    outside = 0
    for j in range(out.size):
        where[outside] = j
        outside += 1 if abs(q[j]) > CENTRE else 0
    for t in range(outside):
        tail[t] = 0.5 - abs(q[where[t]])
    for t in range(outside):
        tail[t] = math.sqrt(0.0 - scalars.log(tail[t]))
    for t in range(outside):
        q[t] = scalars.near_quantile(tail[t])
    for t in range(outside):
        size = scalars.far_quantile(tail[t]) if tail[t] > 5.0 else q[t]
        out[where[t]] = math.copysign(size, out[where[t]])
    loc, scale = parameters
    if loc != 0.0 or scale != 1.0:
        for j in range(out.size):
            out[j] = out[j] * scale + loc


@scalars.compiled
def _to_integers(words: Any, out: Any, parameters: Any, _: Any) -> None:
    span, offset = parameters
    for j in range(out.size):
        out[j] = np.int64(scalars.high_word(words[j], span) + offset)


# -- what is compiled and kept ----------------------------------------------------------------------


def uniform(key: Any, identity: Any, counts: Any, step: Any, draw: Any, out: Any, parameters: Any) -> None:
    """Parameters: low, high - low, the highest number below high."""
    _fill(key, identity, counts, step, draw, out, _to_uniform, parameters)


def normal(key: Any, identity: Any, counts: Any, step: Any, draw: Any, out: Any, parameters: Any) -> None:
    """Parameters: loc, scale."""
    _fill(key, identity, counts, step, draw, out, _to_normal, parameters)


def exponential(key: Any, identity: Any, counts: Any, step: Any, draw: Any, out: Any, parameters: Any) -> None:
    """Parameters: scale."""
    _fill(key, identity, counts, step, draw, out, _to_exponential, parameters)


def integers(key: Any, identity: Any, counts: Any, step: Any, draw: Any, out: Any, parameters: Any) -> None:
    """Parameters: high - low, low; both modulo 2**64."""
    _fill(key, identity, counts, step, draw, out, _to_integers, parameters)


def poisson(key: Any, identity: Any, counts: Any, step: Any, draw: Any, out: Any, parameters: Any) -> None:
    """Parameters: means, 1; or one mean, 0."""
    mean, mean_step = parameters
    first, second, place = _room()
    one, other, _ = _room()
    known, terms = -1.0, (0.0, 0.0, 0.0)
    for start in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - start)
        _counters(identity, counts, step, draw, start, place, first, second, n)
        one[:n], other[:n] = first[:n], second[:n]
        scalars.blocks(key, one, other, n)
        for j in range(n):
            here = mean[(start + j) * mean_step]
            if here != known:
                known, terms = here, scalars.poisson_terms(here)
            out[start + j] = scalars.poisson_of(key, first[j], second[j], one[j], other[j], here, terms)


def identity(state: Any, bits: Any, signed: Any) -> None:
    """Mix 64 bits of each row into the state, as ``row_ids.absorb_bits`` does."""
    for j in range(state.size):
        value = scalars.mixed(bits[j] + scalars.GOLDEN)
        if signed and np.int64(bits[j]) < 0:
            value ^= NEGATIVE
        state[j] = scalars.mixed(state[j] ^ value)


def kernel(name: str) -> Any:
    """Return the compiled loop of a method, or that of identities; it is compiled when it is first called."""
    return scalars.kept(globals()[name])
