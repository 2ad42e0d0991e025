"""rng inside each=True: the numbers of the array form, compiled and plain, in any order and selection."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.blocks.kernels import EachKernel
from windrow.blocks.scalars import Jagged
from windrow.errors import InternalError, UsageError
from windrow.random import Rng, identity_hash

if TYPE_CHECKING:
    from collections.abc import Callable

Array = np.ndarray[Any, Any]
NAME = "outside"


def make(rows: Array, seed: int = 7) -> Rng:
    return Rng(seed, identity_hash([rows]), len(rows))


def uniform(x: float, *, rng: Any) -> Any:
    return rng("a").uniform(-1.0, x, object=3, draw=2)


def standard(x: float, *, rng: Any) -> Any:
    return rng("a").uniform() + x * 0.0


def normal(x: float, *, width: float = 0.5, rng: Any, shift: float = 0.25) -> Any:
    return rng("a").normal(x, width) + shift


def exponential(x: float, *, rng: Any) -> Any:
    return rng(NAME).exponential(x, draw=1)


def integers(x: float, *, rng: Any) -> Any:
    return rng("a").integers(-50, 1000, object=1) + 2000 * rng("a").integers(7)


def poisson(x: float, *, rng: Any) -> Any:
    return rng("a").poisson(x, object=2)


EXPECTED: dict[Any, Callable[[Rng, Array], Array]] = {
    standard: lambda rng, x: rng("a").uniform(),
    uniform: lambda rng, x: np.array(
        [make_one(rng, row)("a").uniform(-1.0, v, size=4, draw=2)[0, 3] for row, v in enumerate(x.tolist())]
    ),
    normal: lambda rng, x: np.array(
        [make_one(rng, row)("a").normal(v, 0.5)[0] + 0.25 for row, v in enumerate(x.tolist())]
    ),
    exponential: lambda rng, x: rng("outside").exponential(draw=1) * x,
    integers: lambda rng, x: rng("a").integers(-50, 1000, size=2)[:, 1] + 2000 * rng("a").integers(7),
    poisson: lambda rng, x: rng("a").poisson(x, size=3)[:, 2],
}


def make_one(rng: Rng, row: int) -> Rng:
    return Rng(rng.seed, rng.identity[row : row + 1], 1)


@functools.cache
def kernels(function: Callable[..., Any]) -> tuple[EachKernel, EachKernel]:
    # Kept over the examples, so that each function is compiled once.
    return EachKernel(function, {}), EachKernel(function, {}, use_numba=False)


def both(function: Callable[..., Any], args: list[Any], rows: Any, length: int, rng: Rng) -> Array:
    compiled, plain = kernels(function)
    fast = compiled(args, rows, length, rng)
    assert compiled.compiled is True, compiled.reason
    slow = plain(args, rows, length, rng)
    assert len(fast) == len(slow)
    if len(fast):
        assert fast.dtype == slow.dtype
        assert fast.tobytes() == slow.tobytes()
    return fast


@pytest.mark.parametrize("function", EXPECTED)
@given(rows=st.lists(st.integers(0, 10**6), max_size=12), x=st.floats(0.0, 60.0), seed=st.integers(0, 2**40))
@settings(max_examples=examples(15))
def test_numbers_are_those_of_the_array_form(
    function: Callable[..., Any], rows: list[int], x: float, seed: int
) -> None:
    rng = make(np.array(rows, np.int64), seed)
    column = np.linspace(0.0, x, len(rows))
    got = both(function, [column], None, len(rows), rng)
    assert got.tolist() == EXPECTED[function](rng, column).tolist()


def smeared(pt: Array, *, rng: Any) -> float:
    stream = rng("jer")
    total = 0.0
    for i in range(len(pt)):
        total += pt[i] * stream.normal(1.0, 0.1, object=i)
    return total


@pytest.mark.slow
@given(st.lists(st.lists(st.floats(0, 100), max_size=5), min_size=1, max_size=12), st.data())
@settings(max_examples=examples(25))
def test_objects_have_the_numbers_that_like_gives_them(lists: list[list[float]], data: st.DataObject) -> None:
    identity = np.arange(len(lists))
    jets = ak.values_astype(ak.Array([[0.0], *lists])[1:], np.float64)
    factors = make(identity)("jer").normal(1.0, 0.1, like=jets)
    expected = np.array([sum_of(row) for row in (jets * factors).tolist()])
    offsets = np.cumsum([0, *map(len, lists)])
    columns = [Jagged(offsets, np.array([x for part in lists for x in part], np.float64))]
    chosen = np.array(data.draw(st.lists(st.sampled_from(range(len(lists))))), np.int64)
    got = both(smeared, columns, chosen, len(lists), make(identity[chosen]))
    assert got.tolist() == expected[chosen].tolist()


def sum_of(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def test_rows_that_do_not_draw_and_many_blocks() -> None:
    def sometimes(n: int, *, rng: Any) -> Any:
        if n % 3 == 0:
            return rng("a").normal(draw=n % 5)
        return -1.0

    n = np.arange(5_000)
    rng = make(n)
    got = both(sometimes, [n], None, len(n), rng)
    draws = np.array([rng("a").normal(draw=k) for k in range(5)])
    expected = np.where(n % 3 == 0, draws[n % 5, n], -1.0)
    assert got.tolist() == expected.tolist()


def test_one_kernel_serves_every_seed() -> None:
    x = np.ones(20)
    got = [both(normal, [x], None, 20, make(np.arange(20), seed)).tolist() for seed in (1, 2, 1)]
    assert got[0] == got[2] != got[1]


@pytest.mark.slow
def test_a_name_that_is_no_constant_runs_in_plain_python() -> None:
    def named(n: int, *, rng: Any) -> Any:
        return rng("draw" + str(n % 2)).uniform()

    n = np.arange(10)
    kernel = EachKernel(named, {})
    got = kernel([n], None, 10, make(n))
    assert kernel.compiled is False
    streams = [make(n)(f"draw{k}").uniform() for k in (0, 1)]
    assert got.tolist() == [streams[k % 2][k] for k in range(10)]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, *, rng: rng("a").uniform(x, x), "low < high"),
        (lambda x, *, rng: rng("a").normal(0.0, -x), "scale"),
        (lambda x, *, rng: rng("a").poisson(-x), "lam"),
        (lambda x, *, rng: rng("a").normal(object=-1), "object and draw"),
        pytest.param(lambda x, *, rng: rng("a").exponential(-x), "scale", marks=pytest.mark.slow),
        pytest.param(lambda x, *, rng: rng("a").integers(0), "low < high", marks=pytest.mark.slow),
        pytest.param(lambda x, *, rng: rng("a").normal(draw=2**32), "object and draw", marks=pytest.mark.slow),
    ],
)
def test_wrong_arguments_are_named(function: Callable[..., Any], words: str) -> None:
    x = np.ones(3)
    for kernel in kernels(function):
        with pytest.raises(UsageError, match=words):
            kernel([x], None, 3, make(np.arange(3)))


def test_numbers_of_other_rows_are_refused() -> None:
    compiled, _ = kernels(standard)
    with pytest.raises(InternalError, match="4 rows"):
        compiled([np.ones(4)], None, 4, make(np.arange(3)))


# -- in pipelines --------------------------------------------------------------------------------


def smear(energy: Any, *, width: float = 0.2, rng: Any) -> Any:
    return energy * (1.0 + width * rng("jer").normal()) + rng("noise").poisson(energy, draw=1)


def analysis(*, each: bool, early: bool) -> wr.Pipeline:
    pipeline = wr.Pipeline("smearing", identity=["event"])

    def odd(event: Any) -> Any:
        return event % 2 == 1

    if early:
        pipeline.cut(odd)
    pipeline.column(smear, each=each)
    if not early:
        pipeline.cut(odd)

    @pipeline.output
    def numbers(event: Any, smear: Any) -> Any:
        return dict(zip(event.tolist(), smear.tolist(), strict=True))

    return pipeline


def test_a_step_with_each_gives_what_the_array_form_gives_in_any_way() -> None:
    events = {"event": np.arange(3_000), "energy": np.linspace(0.0, 40.0, 3_000)}
    order = np.random.default_rng(1).permutation(3_000)
    mixed = {name: column[order] for name, column in events.items()}
    rng = Rng(5, identity_hash([events["event"]]), 3_000)
    value = smear(events["energy"], rng=rng)
    expected = {int(n): float(value[n]) for n in range(1, 3_000, 2)}
    ways = [(True, True, events), (True, False, mixed), (False, True, mixed), (False, False, events)]
    for each, early, source in ways:
        result = analysis(each=each, early=early).run(source, seed=5, engine="threads", workers=2)
        assert result["numbers"] == expected
