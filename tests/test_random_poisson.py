"""Poisson numbers: the right distribution, and each a function of its own key and mean."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow._portable import exp, poisson_log_probability
from windrow.errors import UsageError
from windrow.random import Rng, identity_hash

MEANS = [0.01, 0.3, 1.0, 4.5, 9.99, 10.0, 10.5, 14.0, 40.0, 333.3, 1e4]


def make(rows: np.ndarray[Any, Any], seed: int = 7) -> Rng:
    return Rng(seed, identity_hash([rows]), len(rows))


def probabilities(mean: float, first: int, last: int) -> np.ndarray[Any, Any]:
    counts = range(first, last)
    return np.array([math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in counts])


@pytest.mark.parametrize("mean", MEANS)
def test_the_distribution_is_right(mean: float) -> None:
    counts = make(np.arange(60_000), seed=3)("n").poisson(mean)
    spread = int(9 * math.sqrt(mean)) + 12
    first, last = max(int(mean) - spread, 0), int(mean) + spread
    assert first <= counts.min() <= counts.max() < last
    expected = probabilities(mean, first, last) * len(counts)
    found = np.bincount(counts - first, minlength=last - first).astype(float)
    # Neighbouring counts are joined until each cell expects enough of them.
    borders, total = [0], 0.0
    for place, value in enumerate(expected):
        total += value
        if total >= 50:
            borders.append(place + 1)
            total = 0.0
    borders = borders[:-1] if len(borders) > 2 else borders
    cells = np.add.reduceat(expected, borders), np.add.reduceat(found, borders)
    chi_square = float(np.sum((cells[1] - cells[0]) ** 2 / cells[0]))
    freedom = max(len(borders) - 1, 1)
    # Five standard deviations of a chi-square; a shift of the mean by 2 % would be twenty and more.
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom) + 5


@pytest.mark.parametrize("mean", [1e6, 1e12, 2.0**50])
def test_large_means(mean: float) -> None:
    pull = (make(np.arange(40_000))("n").poisson(mean) - mean) / math.sqrt(mean)
    assert abs(pull.mean()) < 0.02
    assert abs(pull.std() - 1) < 0.02
    assert abs((pull**3).mean()) < 0.06


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 100)), min_size=1, max_size=60),
    st.randoms(use_true_random=False),
)
@settings(max_examples=examples(40))
def test_a_number_depends_on_its_own_row_and_mean(rows: list[tuple[int, float]], random: Any) -> None:
    numbers, means = (np.array(column) for column in zip(*rows, strict=True))
    together = make(numbers)("n").poisson(means)
    alone = [make(numbers[i : i + 1])("n").poisson(means[i])[0] for i in range(len(rows))]
    assert together.tolist() == alone
    order = list(range(len(rows)))
    random.shuffle(order)
    assert make(numbers[order])("n").poisson(means[order]).tolist() == together[order].tolist()


def test_means_of_rows_and_objects() -> None:
    rng = make(np.arange(4))
    per_row = np.array([0.5, 3.0, 20.0, 0.0])
    flat = rng("n").poisson(per_row)
    assert flat.dtype == np.int64
    assert flat[3] == 0
    wide = rng("n").poisson(per_row, size=3)
    assert wide.shape == (4, 3)
    assert wide[:, 0].tolist() == flat.tolist()
    assert rng("n").poisson(np.repeat(per_row, 3).reshape(4, 3)).tolist() == wide.tolist()
    lists = ak.Array([[0.5, 0.5], [], [20.0], [0.0, 0.0, 0.0]])
    got = rng("n").poisson(lists)
    assert got.tolist() == [wide[0, :2].tolist(), [], wide[2, :1].tolist(), [0, 0, 0]]
    assert rng("n").poisson(lists, like=lists).tolist() == got.tolist()
    assert rng("n").poisson(per_row, like=lists).tolist() == got.tolist()
    assert rng("n").poisson(ak.Array(per_row)).tolist() == flat.tolist()
    holes = rng("n").poisson(ak.Array([[0.5, 0.5], None, [20.0], []]))
    assert holes.tolist() == [wide[0, :2].tolist(), None, wide[2, :1].tolist(), []]


def test_small_means_grow_together() -> None:
    # By inversion: a larger mean never gives a smaller count, so that shifts of a mean correlate.
    stream = make(np.arange(5_000))("n")
    counts = [stream.poisson(mean) for mean in (0.2, 1.0, 1.1, 5.0, 9.0)]
    for less, more in pairwise(counts):
        assert (less <= more).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s: s.poisson(-1.0), ["lam", "negative"]),
        (lambda s: s.poisson(math.nan), ["lam", "nan"]),
        (lambda s: s.poisson(2.0**51), ["lam", "at most"]),
        (lambda s: s.poisson(np.array([1.0, -1.0, 0.0])), ["lam", "-1.0 somewhere"]),
        (lambda s: s.poisson(np.array([1.0, math.nan, 0.0])), ["lam", "nan somewhere"]),
        (lambda s: s.poisson(np.ones(4)), ["lam", "4 rows", "given 3"]),
        (lambda s: s.poisson(ak.Array([1.0, None, 2.0])), ["lam", "missing"]),
        (lambda s: s.poisson(np.ones((3, 2)), size=3), ["lam", "as many objects"]),
        (lambda s: s.poisson("many"), ["lam", "'many'"]),
    ],
)
def test_wrong_means_are_named(call: Any, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        call(make(np.arange(3))("jer"))
    assert [word for word in words if word not in str(caught.value)] == []


@given(st.lists(st.floats(-700, 700), min_size=1, max_size=50))
def test_exp_is_right_to_two_units(values: list[float]) -> None:
    for got, x in zip(exp(np.array(values)).tolist(), values, strict=True):
        assert abs(got - math.exp(x)) <= 2 * math.ulp(math.exp(x))


@given(st.floats(1.5, 1e5), st.integers(0, 10**6))
def test_the_logarithm_of_the_probability_is_right(mean: float, count: int) -> None:
    got = poisson_log_probability(np.array([float(count)]), np.array([mean]))[0]
    terms = [count * math.log(mean), mean, math.lgamma(count + 1)]
    assert abs(got - (terms[0] - terms[1] - terms[2])) <= 1e-14 * sum(map(abs, terms)) + 1e-12
