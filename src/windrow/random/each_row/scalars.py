"""The generator and its transforms for one number, compiled: the bits of the NumPy forms.

Everything here repeats an operation of ``philox``, ``arrays.numpy`` or ``windrow._portable``
in the same order; LLVM neither reassociates nor contracts without being asked to. All is inlined into
the loops that call it, without which LLVM would not vectorise them. Importing this imports Numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from windrow import _portable as portable
from windrow.random.arrays.numpy import NOTHING_LEFT, SMALL_MEAN
from windrow.random.philox import MULTIPLIERS, ROUNDS, WEYL

#: Nothing is divided by zero here, so no check may stand in the way of vectors.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into each of its callers."""
    return numba.njit(inline="always", **_OPTIONS)(function)


def compiled(function: Callable[..., Any]) -> Any:
    return numba.njit(**_OPTIONS)(function)


def kept(function: Callable[..., Any]) -> Any:
    """Compile a function and keep it beside its file, so that the next process just loads it."""
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # there is no place where it could be kept
        return numba.njit(**_OPTIONS)(function)


# NumPy's integers keep Numba from making floats of mixed signs.
_TOP = np.uint64(0xFFFFFFFF00000000)
_LOW = np.uint64(0xFFFFFFFF)
_FIRST_FACTOR, _SECOND_FACTOR = MULTIPLIERS
_FIRST_WEYL, _SECOND_WEYL = np.uint64(WEYL[0] << 32), np.uint64(WEYL[1] << 32)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_ONE, _MIX_TWO = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S11, _S27, _S30, _S31, _S32 = (np.uint64(n) for n in (11, 27, 30, 31, 32))
_MANTISSA, _HALF, _BIAS, _S52 = (np.int64(n) for n in (2**52 - 1, 1022 << 52, 1022, 52))
_CENTRE_SQUARE = portable.CENTRE * portable.CENTRE
_STIRLING_TABLE = np.array(portable.STIRLING_ERRORS)


@inlined
def block(key: Any, first: Any, second: Any) -> Any:
    """Philox4x32-10 of one counter."""
    key0 = key & _TOP
    key1 = key << _S32
    for _ in range(ROUNDS):
        left = (first >> _S32) * _FIRST_FACTOR
        right = (second >> _S32) * _SECOND_FACTOR
        first = (first << _S32) ^ right ^ key0
        second = (second << _S32) ^ left ^ key1
        key0 += _FIRST_WEYL
        key1 += _SECOND_WEYL
    return first, second


@compiled
def blocks(key: Any, first: Any, second: Any, n: Any) -> None:
    """Philox4x32-10 of n counters, in place.

    Round by round over all of them: LLVM then works on several vectors at once, which is twice as
    fast as one counter after the other (2.3 against 4.0 ms for a million).
    """
    key0 = key & _TOP
    key1 = key << _S32
    for _ in range(ROUNDS):
        for j in range(n):
            one, other = first[j], second[j]
            first[j] = (one << _S32) ^ ((other >> _S32) * _SECOND_FACTOR) ^ key0
            second[j] = (other << _S32) ^ ((one >> _S32) * _FIRST_FACTOR) ^ key1
        key0 += _FIRST_WEYL
        key1 += _SECOND_WEYL


@inlined
def mixed(value: Any) -> Any:
    """The finaliser of SplitMix64."""
    value = (value ^ (value >> _S30)) * _MIX_ONE
    value = (value ^ (value >> _S27)) * _MIX_TWO
    return value ^ (value >> _S31)


@inlined
def unit(word: Any) -> Any:
    """53 bits as a number in [0, 1)."""
    return np.float64(np.int64(word >> _S11)) * 2.0**-53


@inlined
def above_zero(word: Any) -> Any:
    """53 bits as a number in (0, 1]."""
    return (np.float64(np.int64(word >> _S11)) + 1.0) * 2.0**-53


@inlined
def centred(word: Any) -> Any:
    """53 bits as the centre of a cell of (-1/2, 1/2)."""
    return (np.float64(np.int64(word >> _S11)) - (2.0**52 - 0.5)) * 2.0**-53


@inlined
def high_word(word: Any, span: Any) -> Any:
    """The high 64 bits of a product; a span of 0 stands for 2**64."""
    if span == np.uint64(0):
        return word
    low, high = span & _LOW, span >> _S32
    word_low, word_high = word & _LOW, word >> _S32
    middle = word_high * low + (word_low * low >> _S32)
    cross = (middle & _LOW) + word_low * high
    return word_high * high + (middle >> _S32) + (cross >> _S32)


# -- elementary functions ----------------------------------------------------------------------

# Polynomials by Horner's rule, written out for each length: the same operations in the same order as in ``_portable``.


@inlined
def _three(c: Any, x: Any) -> Any:
    return (x * c[0] + c[1]) * x + c[2]


@inlined
def _four(c: Any, x: Any) -> Any:
    return _three(c, x) * x + c[3]


@inlined
def _five(c: Any, x: Any) -> Any:
    return _four(c, x) * x + c[4]


@inlined
def _eight(c: Any, x: Any) -> Any:
    return ((_five(c, x) * x + c[5]) * x + c[6]) * x + c[7]


@inlined
def log(x: Any) -> Any:
    """The natural logarithm of a positive normal number."""
    bits = np.float64(x).view(np.int64)
    mantissa = np.int64((bits & _MANTISSA) | _HALF).view(np.float64)
    power = np.float64((bits >> _S52) - _BIAS)
    small = mantissa < portable.SQRT_HALF
    mantissa = mantissa * 2.0 if small else mantissa
    power = power - 1.0 if small else power
    f = mantissa - 1.0
    s = f / (f + 2.0)
    z = s * s
    w = z * z
    half_square = 0.5 * f * f
    series = z * _four(portable.LOG_ODD, w) + w * _three(portable.LOG_EVEN, w) + half_square
    return power * portable.LN2_HIGH - ((half_square - (s * series + power * portable.LN2_LOW)) - f)


@compiled
def _log(x: Any) -> Any:
    # Where one number is made at a time, inlining only makes compiling slow.
    return log(x)


@compiled
def _exp(x: Any) -> Any:
    power = np.floor(x * portable.INVERSE_LN2 + 0.5)
    high = x - power * portable.LN2_HIGH
    low = power * portable.LN2_LOW
    r = high - low
    square = r * r
    c = r - square * _five(portable.EXP_EVEN, square)
    return math.ldexp(1.0 - ((low - r * c / (2.0 - c)) - high), int(power))


@inlined
def central_quantile(q: Any) -> Any:
    """The normal quantile for |q| up to ``CENTRE``; some finite number beyond."""
    r = _CENTRE_SQUARE - q * q
    r = r if r > 0.0 else 0.0
    return q * _eight(portable.CENTRAL[0], r) / _eight(portable.CENTRAL[1], r)


@inlined
def near_quantile(tail: Any) -> Any:
    """The size of the quantile for tails up to 5; some finite number beyond."""
    near = (tail if tail < 5.0 else 5.0) - 1.6
    return _eight(portable.TAIL[0], near) / _eight(portable.TAIL[1], near)


@inlined
def far_quantile(tail: Any) -> Any:
    """The size of the quantile for tails above 5."""
    beyond = tail - 5.0
    return _eight(portable.FAR_TAIL[0], beyond) / _eight(portable.FAR_TAIL[1], beyond)


@compiled
def quantile(q: Any) -> Any:
    """The normal quantile of probability q + 0.5."""
    if abs(q) <= portable.CENTRE:
        return central_quantile(q)
    tail = math.sqrt(0.0 - _log(0.5 - abs(q)))
    return math.copysign(far_quantile(tail) if tail > 5.0 else near_quantile(tail), q)


# -- Poisson -----------------------------------------------------------------------------------


@compiled
def _log_probability(n: Any, mean: Any) -> Any:
    if n < 1.0:
        return 0.0 - mean
    inverse = 1.0 / n
    if n > 15.0:
        error = inverse * _four(portable.STIRLING_SERIES, inverse * inverse)
    else:
        error = _STIRLING_TABLE[int(n)]
    distance = n - mean
    v = distance / (n + mean)
    square = v * v
    if abs(v) < portable.FAR_FROM_MEAN:
        deviance = distance * v + n * v * (
            square * (_eight(portable.ATANH_SERIES, square) * square + portable.ATANH_SERIES[8])
        )
    else:
        deviance = n * _log(n / mean) + mean - n
    return 0.0 - error - deviance - 0.5 * _log(n * portable.TWO_PI)


@compiled
def _another_key(key: Any, attempt: Any) -> Any:
    return mixed(key + np.uint64(attempt) * GOLDEN)


@inlined
def poisson_terms(mean: Any) -> Any:
    """What depends on the mean alone: the probability of 0, or the hat of the rejection."""
    if mean < SMALL_MEAN:
        return _exp(0.0 - mean), 0.0, 0.0
    b = 0.931 + 2.53 * math.sqrt(mean)
    return b, 0.02483 * b - 0.059, 0.9277 - 3.6224 / (b - 2.0)


@compiled
def poisson_of(key: Any, first: Any, second: Any, one: Any, other: Any, mean: Any, terms: Any) -> Any:
    """The Poisson number of one counter, of which the generator's first words are known."""
    if mean < SMALL_MEAN:
        u = above_zero(one)
        count = 0.0
        p = terms[0]
        going = u > p
        while going:
            u -= p
            count += 1.0
            p *= mean / count
            going = u > p and p > NOTHING_LEFT
        return np.int64(count)
    b, a, certain = terms
    attempt = 0
    while True:
        u = centred(one)
        v = above_zero(other)
        edge = 0.5 - abs(u)
        count = np.floor((2.0 * a / edge + b) * u + mean + 0.43)
        if edge >= 0.07 and v <= certain:
            return np.int64(count)
        if count >= 0.0 and (edge >= 0.013 or v <= edge):
            height = v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (edge * edge) + b)
            if _log(height) <= _log_probability(count, mean):
                return np.int64(count)
        attempt += 1
        one, other = block(_another_key(key, attempt), first, second)
