"""A small statistical battery over everything numbers are keyed by, and generators it must reject.

Every test gives z-scores, which are standard normal for a good generator; the seed is fixed, so the
outcome never changes. A generator passes if none of the 900 scores is beyond ``LIMIT``: a good one
fails for one seed in 2,000. The last tests break the generator on purpose (fewer rounds, a short
key, a counter that is left out): each has to be rejected.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from searching import few_by_day
from windrow.random import Rng, philox
from windrow.random import rng as rng_module
from windrow.random.arrays import compile_later
from windrow.random.arrays import numpy as arrays

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
LIMIT = 5.0
ROWS = 1 << 16


@pytest.fixture(autouse=True)
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is broken below is NumPy's form; compiled ones would not notice.
    monkeypatch.setattr(compile_later, "loops", compile_later.Compiler())
    monkeypatch.setattr(compile_later, "_PAYS", 1 << 60)
    monkeypatch.setattr(compile_later, "_PAYS_WITH_NUMBA", 1 << 60)


def rng(rows: Array | None = None, seed: int = 2024) -> Rng:
    # Identities in sequence, not hashed: the generator gets no help from the hash.
    identity = np.arange(ROWS, dtype=np.uint64) if rows is None else rows.astype(np.uint64)
    return Rng(seed, identity, len(identity))


def words(rows: Array | None = None, name: str = "w", seed: int = 2024, **more: Any) -> Array:
    """All 64 bits."""
    drawn = rng(rows, seed)(name).integers(-(2**63), 2**63, **more)
    return np.asarray(drawn).view(np.uint64)


def chi_square(found: Array, expected: Array | float) -> float:
    """Return the z-score of counts, by Wilson and Hilferty's cube root."""
    if not np.all(expected):
        return math.inf  # there was nothing to count
    freedom = found.size - 1
    value = float(np.sum((found - expected) ** 2 / expected))
    spread = 2 / (9 * freedom)
    return float((value / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def correlation(a: Array, b: Array) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(np.sum(a * a) * np.sum(b * b))
    return float(np.sum(a * b) / size * math.sqrt(a.size)) if size else math.inf


def kolmogorov(values: Array, cdf: Callable[[Array], Array]) -> float:
    """Return a z-score of the distance: the normal quantile of its asymptotic probability."""
    ordered = cdf(np.sort(values))
    steps = np.arange(values.size + 1) / values.size
    distance = max(np.max(ordered - steps[:-1]), np.max(steps[1:] - ordered))
    k = distance * math.sqrt(values.size)
    tail = 2 * sum((-1) ** (j - 1) * math.exp(-2 * (j * k) ** 2) for j in range(1, 20))
    tail = min(max(tail, 1e-300), 1 - 1e-12) if k > 0.3 else 1 - 1e-12
    from statistics import NormalDist

    return -NormalDist().inv_cdf(tail) if tail > 1e-16 else math.inf


# -- the battery ---------------------------------------------------------------------------------


def bits() -> list[float]:
    """Each of the 64 bits is set half of the time, over rows, objects and draws."""
    scores = []
    shapes = [words(), words(np.arange(2048), size=32).ravel()]
    shapes.append(np.concatenate([words(np.arange(2048), draw=k) for k in range(32)]))
    for values in shapes:
        ones = np.unpackbits(values.view(np.uint8)).reshape(-1, 64).sum(axis=0)
        scores += ((ones - values.size / 2) / math.sqrt(values.size / 4)).tolist()
    return scores


def equal_cells() -> list[float]:
    """High and low ends of the words fall into all cells alike; so do pairs of neighbours."""
    values = words()
    scores = []
    for shift in (0, 20, 52):
        cells = (values >> np.uint64(shift)) & np.uint64(0xFFF)
        scores.append(chi_square(np.bincount(cells.astype(int), minlength=4096), ROWS / 4096))
    for lag in (1, 2, 256):
        high = (values >> np.uint64(58)).astype(int)
        pairs = high[:-lag] * 64 + high[lag:]
        scores.append(chi_square(np.bincount(pairs, minlength=4096), pairs.size / 4096))
    return scores


def serial() -> list[float]:
    """Neighbouring rows, objects, draws, seeds, names and methods do not know of each other."""
    base = rng()("u").uniform()
    scores = [correlation(base[:-lag], base[lag:]) for lag in (1, 2, 3, 7, 64, 256, 4096)]
    objects = rng(np.arange(8192))("u").uniform(size=8)
    scores += [correlation(objects[:, k], objects[:, k + 1]) for k in range(7)]
    scores += [correlation(base, rng()("u").uniform(draw=k)) for k in (1, 2, 255)]
    scores += [correlation(base, rng(seed=2024 + k)("u").uniform()) for k in (1, 2, 1 << 40)]
    scores += [correlation(base, rng()(name).uniform()) for name in ("v", "u ", "U", "uu")]
    scores.append(correlation(base, rng()("u").normal()))
    scores.append(correlation(base, rng()("u").exponential()))
    scores.append(correlation(base, rng()("u").poisson(5.0).astype(float)))
    scores.append(correlation(rng()("u").poisson(50.0)[:-1], rng()("u").poisson(50.0)[1:]))
    squares = (base - 0.5) ** 2
    scores += [correlation(squares[:-lag], squares[lag:]) for lag in (1, 2, 64)]
    return scores


def runs() -> list[float]:
    """As many runs above and below a half as there should be."""
    scores = []
    for values in (rng()("u").uniform(), rng(np.arange(64))("u").uniform(size=1024).ravel()):
        changes = int(np.count_nonzero((values[1:] < 0.5) != (values[:-1] < 0.5)))
        scores.append((changes - (values.size - 1) / 2) / math.sqrt((values.size - 1) / 4))
    return scores


def gaps() -> list[float]:
    """Distances between visits to an eighth of the interval are geometric."""
    inside = np.flatnonzero(rng()("g").uniform() < 0.125)
    lengths = np.minimum(np.diff(inside) - 1, 40)
    expected = 0.125 * 0.875 ** np.arange(41)
    expected[40] = 0.875**40
    return [chi_square(np.bincount(lengths, minlength=41), expected * lengths.size)]


def birthdays() -> list[float]:
    """Repeated spacings of 512 birthdays in a year of 2**24 days are Poisson, of mean 2."""
    total, repeats = 64, 0
    for bit in (0, 20, 40):
        for k in range(total):
            days = (words(np.arange(512), draw=k) >> np.uint64(bit)) & np.uint64(2**24 - 1)
            spacings = np.sort(np.diff(np.sort(days)))
            repeats += int(np.count_nonzero(spacings[1:] == spacings[:-1]))
    mean = 3 * total * 512**3 / 2**26
    return [(repeats - mean) / math.sqrt(mean)]


def avalanche() -> list[float]:
    """One bit more in identity, object, draw or seed changes half of the bits, each of them."""
    rows = np.arange(2048)
    scores = []

    def changed(one: Array, other: Array) -> None:
        flips = np.unpackbits((one ^ other).view(np.uint8)).reshape(-1, 64)
        scores.append((int(flips.sum()) - flips.size / 2) / math.sqrt(flips.size / 4))
        column = (flips.sum(axis=0) - len(flips) / 2) / math.sqrt(len(flips) / 4)
        # The largest of 64; a score of its own would be beyond the limit only if it is far off.
        scores.append(float(np.max(np.abs(column)) - 1.0))

    base = words(rows)
    for bit in range(64):
        identity = rows.astype(np.uint64) ^ np.uint64(1 << bit)
        changed(base, words(identity))
    for bit in (0, 1, 8, 16, 31):
        changed(base, words(rows, draw=1 << bit))
    wide = words(rows[:4], size=1 << 12)
    for bit in (0, 1, 6, 11):
        other = wide[:, np.arange(1 << 12) ^ (1 << bit)]
        changed(wide[:, : 1 << 12].ravel(), np.ascontiguousarray(other).ravel())
    for bit in (0, 1, 20):
        changed(base, words(rows, seed=2024 ^ (1 << bit)))
    return scores


def distributions() -> list[float]:
    normal_cdf = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), otypes=[float])
    small = rng(np.arange(20_000))
    return [
        kolmogorov(rng()("k").uniform(), lambda x: x),
        kolmogorov(rng(np.arange(64))("k").uniform(size=1024).ravel(), lambda x: x),
        kolmogorov(small("k").normal(), normal_cdf),
        kolmogorov(small("k").exponential(), lambda x: -np.expm1(-x)),
        kolmogorov(small("k").normal() ** 2, lambda x: 2 * normal_cdf(np.sqrt(x)) - 1),
    ]


def crossed_streams() -> list[float]:
    """32 streams side by side: no linear relation among any two of them."""
    table = np.array([rng(np.arange(4096))(f"stream {k}").uniform() for k in range(32)]) - 0.5
    products = (table @ table.T)[np.triu_indices(32, 1)] / math.sqrt(4096) * 12
    scores: list[float] = products.tolist()
    return scores


BATTERY = [
    bits, equal_cells, serial, runs, gaps, birthdays, avalanche, distributions, crossed_streams,
]  # fmt: skip


@pytest.mark.parametrize("test", BATTERY)
def test_the_generator_passes(test: Callable[[], list[float]]) -> None:
    scores = test()
    assert max(map(abs, scores)) < LIMIT


# -- generators that must not pass ---------------------------------------------------------------


def rejected_by() -> list[str]:
    return [test.__name__ for test in BATTERY if not max(map(abs, test())) < LIMIT]


def philox_with(change: str) -> Callable[..., None]:
    right = philox.philox

    @functools.wraps(right)
    def wrong(key: int, first: Array, second: Array, scratch: Array | None = None) -> None:
        if change == "short key":
            key &= 0xFF
        elif change == "no object":
            second &= np.uint64(0xFFFFFFFF)
        elif change == "no draw":
            second &= np.uint64(0xFFFFFFFF << 32)
        elif change == "half an identity":
            first &= np.uint64(0xFFFFFFFF)
        right(key, first, second, scratch)
        if change == "a bit that sticks":
            first |= np.uint64(1 << 20)
        elif change == "a bias of 2 %":
            # The highest bit is cleared for one in fifty of those that have it.
            first[second % np.uint64(50) == 0] &= np.uint64(2**63 - 1)

    return wrong


@pytest.mark.parametrize(
    "change",
    few_by_day(["short key", "no object", "a bias of 2 %", "no draw", "half an identity", "a bit that sticks"], 3),
)
def test_a_broken_generator_is_rejected(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "philox", philox_with(change))
    assert rejected_by() != []


@pytest.mark.parametrize("rounds", [1, 2, 4, 6])
def test_too_few_rounds_are_rejected(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Seven are enough for every battery known; the generator has ten.
    monkeypatch.setattr(philox, "ROUNDS", rounds)
    assert len(rejected_by()) >= 3


def test_names_that_share_a_key_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = philox.stream_key

    def short(seed: int, name: str, method: str) -> int:
        return right(seed, name[:1], "")

    monkeypatch.setattr(rng_module, "stream_key", short)
    assert "serial" in rejected_by()
