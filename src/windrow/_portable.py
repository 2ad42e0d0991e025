"""Functions made of +, -, *, /, sqrt, floor, frexp and ldexp only, and one of integers.

IEEE 754 rounds those operations in one way, and NumPy does one of them per call, so that the bits
are the same in any array length, on any machine and with any vector unit. NumPy's own log, exp and
cos promise none of this and must not be used here. ``windrow.random.each_row.scalars`` has the same
functions of one number, compiled: same constants, same operations in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]


# log(x) after fdlibm's e_log.c (Sun Microsystems, 1993): ln 2 in two parts, and the series in
# s = f / (2 + f), highest power first.
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
LOG_ODD = (1.479819860511658591e-01, 1.818357216161805012e-01, 2.857142874366239149e-01, 6.666666666666735130e-01)
LOG_EVEN = (1.531383769920937332e-01, 2.222219843214978396e-01, 3.999999999940941908e-01)
SQRT_HALF = math.sqrt(0.5)

# exp(x) after fdlibm's e_exp.c: the even function x (exp(x) + 1) / (exp(x) - 1), highest power of
# its argument x * x first.
INVERSE_LN2 = 1.44269504088896338700e00
EXP_EVEN = (
    4.13813679705723846039e-08,
    -1.65339022054652515390e-06,
    6.61375632143793436117e-05,
    -2.77777777770155933842e-03,
    1.66666666666666019037e-01,
)

# The normal quantile: algorithm AS 241, PPND16 (Wichura 1988, doi:10.2307/2347330), highest power
# first: numerator and denominator for the centre, the tails and the far tails.
CENTRE = 0.425
# fmt: off
CENTRAL = (
    (
        2.5090809287301226727e3, 3.3430575583588128105e4,
        6.7265770927008700853e4, 4.5921953931549871457e4,
        1.3731693765509461125e4, 1.9715909503065514427e3,
        1.3314166789178437745e2, 3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3, 2.8729085735721942674e4,
        3.9307895800092710610e4, 2.1213794301586595867e4,
        5.3941960214247511077e3, 6.8718700749205790830e2,
        4.2313330701600911252e1, 1.0,
    ),
)
TAIL = (
    (
        7.74545014278341407640e-4, 2.27238449892691845833e-2,
        2.41780725177450611770e-1, 1.27045825245236838258e0,
        3.64784832476320460504e0, 5.76949722146069140550e0,
        4.63033784615654529590e0, 1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9, 5.47593808499534494600e-4,
        1.51986665636164571966e-2, 1.48103976427480074590e-1,
        6.89767334985100004550e-1, 1.67638483018380384940e0,
        2.05319162663775882187e0, 1.0,
    ),
)
FAR_TAIL = (
    (
        2.01033439929228813265e-7, 2.71155556874348757815e-5,
        1.24266094738807843860e-3, 2.65321895265761230930e-2,
        2.96560571828504891230e-1, 1.78482653991729133580e0,
        5.46378491116411436990e0, 6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15, 1.42151175831644588870e-7,
        1.84631831751005468180e-5, 7.86869131145613259100e-4,
        1.48753612908506148525e-2, 1.36929880922735805310e-1,
        5.99832206555887937690e-1, 1.0,
    ),
)
# fmt: on

# The Poisson probability in Loader's form ("Fast and accurate computation of binomial
# probabilities", 2000): no large numbers that cancel. What Stirling's formula lacks of log(n!) for
# n = 0 to 15 (0 is never asked), its series in 1 / n**2 for more, and twice the series of atanh.
TWO_PI = 6.283185307179586477
# fmt: off
STIRLING_ERRORS = (
    0.0,
    0.08106146679532725822, 0.04134069595540929409, 0.02767792568499833915,
    0.02079067210376509311, 0.01664469118982119216, 0.01387612882307074800,
    0.01189670994589177010, 0.01041126526197209650, 0.00925546218271273292,
    0.00833056343336287126, 0.00757367548795184079, 0.00694284010720952987,
    0.00640899418800420707, 0.00595137011275884774, 0.00555473355196280137,
)
# fmt: on
STIRLING_SERIES = (-1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
ATANH_SERIES = tuple(2 / n for n in range(19, 1, -2))
#: From this relative distance on, nothing cancels in the plain form.
FAR_FROM_MEAN = 0.1


def _horner(coefficients: Sequence[float], x: Floats) -> Floats:
    total = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= x
    total += coefficients[-1]
    return total


def log(x: Floats) -> Floats:
    """Return the natural logarithm of positive normal numbers, good to a unit in the last place."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < SQRT_HALF
    mantissa[small] *= 2.0
    power = exponent.astype(np.float64)
    power[small] -= 1.0
    f = mantissa - 1.0
    s = f / (f + 2.0)
    z = s * s
    w = z * z
    half_square = 0.5 * f * f
    series = z * _horner(LOG_ODD, w) + w * _horner(LOG_EVEN, w) + half_square
    result: Floats = power * LN2_HIGH - ((half_square - (s * series + power * LN2_LOW)) - f)
    return result


def normal_quantile(q: Floats, out: Floats) -> None:
    """Write the normal quantile of probability ``q + 0.5`` for q strictly between -0.5 and 0.5."""
    # Held at the border outside the centre, where the answer is replaced: no poles on the way.
    r = np.maximum(CENTRE * CENTRE - q * q, 0.0)
    np.divide(q * _horner(CENTRAL[0], r), _horner(CENTRAL[1], r), out=out)
    outside = np.flatnonzero(np.abs(q) > CENTRE)
    tail = np.sqrt(0.0 - log(0.5 - np.abs(q[outside])))
    near = np.minimum(tail, 5.0) - 1.6
    value = _horner(TAIL[0], near) / _horner(TAIL[1], near)
    far = np.flatnonzero(tail > 5.0)
    beyond = tail[far] - 5.0
    value[far] = _horner(FAR_TAIL[0], beyond) / _horner(FAR_TAIL[1], beyond)
    out[outside] = np.copysign(value, q[outside])


def high_product(words: NDArray[np.uint64], span: int) -> NDArray[np.uint64]:
    """Return the high 64 bits of words * span, for 1 <= span < 2**64."""
    low, high = np.uint64(span & 0xFFFFFFFF), np.uint64(span >> 32)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    word_low, word_high = words & mask, words >> shift
    middle = word_high * low + (word_low * low >> shift)
    cross = (middle & mask) + word_low * high
    result: NDArray[np.uint64] = word_high * high + (middle >> shift) + (cross >> shift)
    return result


def exp(x: Floats) -> Floats:
    """Return the exponential of numbers from -700 to 700, good to a unit in the last place."""
    power = np.floor(x * INVERSE_LN2 + 0.5)
    high = x - power * LN2_HIGH
    low = power * LN2_LOW
    r = high - low
    square = r * r
    c = r - square * _horner(EXP_EVEN, square)
    result: Floats = np.ldexp(1.0 - ((low - r * c / (2.0 - c)) - high), power.astype(np.int32))
    return result


def poisson_log_probability(n: Floats, mean: Floats) -> Floats:
    """Return the logarithm of the Poisson probability of whole numbers n >= 0, for means above 1."""
    some = np.maximum(n, 1.0)
    inverse = 1.0 / some
    # Above 15 the table's last entry is read and replaced; below 16 the series is.
    small = np.minimum(some, 15.0).astype(np.int64)
    series = inverse * _horner(STIRLING_SERIES, inverse * inverse)
    error = np.where(some > 15.0, series, np.asarray(STIRLING_ERRORS)[small])
    result: Floats = 0.0 - error - _deviance(some, mean) - 0.5 * log(some * TWO_PI)
    return np.where(n < 1.0, 0.0 - mean, result)


def _deviance(n: Floats, mean: Floats) -> Floats:
    """Return n log(n / mean) + mean - n without losing digits where they are near each other."""
    distance = n - mean
    v = distance / (n + mean)
    square = v * v
    near = distance * v + n * v * (square * _horner(ATANH_SERIES, square))
    plain = n * log(n / mean) + mean - n
    return np.where(np.abs(v) < FAR_FROM_MEAN, near, plain)
