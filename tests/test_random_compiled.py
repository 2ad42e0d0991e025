"""Compiled numbers have the bits of NumPy's, in every shape and at the edges."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow import _portable as portable
from windrow.random import identity_hash, row_ids
from windrow.random.arrays import compile_later
from windrow.random.arrays.numpy import METHODS, DrawRequest, fill, has_the_same_bits, make, new, run_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

scalars = pytest.importorskip("windrow.random.each_row.scalars")
compiled = pytest.importorskip("windrow.random.arrays.numba")

Array = np.ndarray[Any, Any]
PARAMETERS: dict[str, list[tuple[Any, ...]]] = {
    "uniform": [(0.0, 1.0), (-1.5, 7.25), (1.0, math.nextafter(1.0, 2.0))],
    "normal": [(0.0, 1.0), (91.2, 2.5), (0.0, 0.0)],
    "exponential": [(1.0,), (1e-300,)],
    "integers": [(0, 3), (-50, 1000), (-(2**63), 2**63), (2**62, 2**63 - 1)],
    "poisson": [(0.0,), (0.7,), (9.999,), (10.0,), (123.4,), (2.0**50,)],
}


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    return {method: compiled.kernel(method) for method in METHODS}


def both(
    loop: Any, request: DrawRequest, identity: Array, counts: Any, means: Array | None = None
) -> tuple[Array, Array]:
    plain = new(request, len(identity), counts)
    fast = new(request, len(identity), counts)
    fill(request, identity, counts, means, plain)
    run_loop(loop, request, identity, counts, means, fast)
    return plain, fast


@pytest.mark.parametrize("method", METHODS)
def test_many_numbers_have_the_same_bits(method: str, loops: dict[str, Any]) -> None:
    identity = identity_hash([np.arange(200_000 if method != "poisson" else 30_000)])
    for number, parameters in enumerate(PARAMETERS[method]):
        rows = identity if number == 0 else identity[:20_003]
        plain, fast = both(loops[method], DrawRequest(12345 + number, method, number, parameters), rows, 1)
        assert plain.tobytes() == fast.tobytes()


@pytest.mark.parametrize("method", METHODS)
@given(
    counts=st.lists(st.integers(0, 700) | st.integers(0, 5), max_size=40),
    width=st.integers(0, 40),
    key=st.integers(0, 2**64 - 1),
    draw=st.integers(0, 2**32 - 1),
)
@settings(max_examples=examples(8))
def test_every_shape_has_the_same_bits(
    method: str, loops: dict[str, Any], counts: list[int], width: int, key: int, draw: int
) -> None:
    identity = identity_hash([np.arange(len(counts))])
    request = DrawRequest(key, method, draw, PARAMETERS[method][1])
    for numbers in (np.array(counts, np.int64), width, 1):
        plain, fast = both(loops[method], request, identity, numbers)
        assert plain.tobytes() == fast.tobytes()
    if method == "poisson":
        means = np.linspace(0.0, 30.0, sum(counts))
        plain, fast = both(loops[method], request, identity, np.array(counts, np.int64), means)
        assert plain.tobytes() == fast.tobytes()


def neighbours(*values: float) -> list[float]:
    return [y for x in values for y in (math.nextafter(x, -math.inf), x, math.nextafter(x, 9e99))]


def test_the_edges_have_the_same_bits() -> None:
    u = [2.0**-53, 1.0, *neighbours(0.5, math.sqrt(0.5), math.sqrt(2.0), 1e-300, 1e300, 2.0)]
    for x, expected in zip(u, portable.log(np.array(u)).tolist(), strict=True):
        assert scalars.log(x) == expected
    # The far tail begins where sqrt(-log p) is 5, at about 1.4e-11.
    far = [0.5 - math.exp(-25.0) * (1 + k * 1e-5) for k in range(-20, 21)]
    q = [0.5 - 2.0**-54, 0.0, 2.0**-54, *neighbours(portable.CENTRE), *far]
    q += [-x for x in q]
    expected = np.empty(len(q))
    portable.normal_quantile(np.array(q), expected)
    assert np.array([scalars.quantile(x) for x in q]).tobytes() == expected.tobytes()
    words = [0, 1, 2**11 - 1, 2**11, 2**63, 2**64 - 1, 2**64 - 2**11]
    for word in map(np.uint64, words):
        bits = int(word) >> 11
        assert scalars.unit(word) == bits * 2.0**-53
        assert scalars.above_zero(word) == (bits + 1) * 2.0**-53
        assert scalars.centred(word) == (bits - 2.0**52 + 0.5) * 2.0**-53
        for span in (1, 3, 2**32 - 1, 2**32, 2**64 - 1):
            assert scalars.high_word(word, np.uint64(span)) == int(word) * span >> 64


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200),
    st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=200),
)
@settings(max_examples=examples(25))
def test_identities_have_the_same_bits(signed: list[int], unsigned: list[int]) -> None:
    loop = compiled.kernel("identity")
    for bits, has_sign in ((np.array(signed).view(np.uint64), True), (np.array(unsigned, np.uint64), False)):
        plain, fast = bits[::-1].copy(), bits[::-1].copy()
        row_ids.absorb_bits(plain, bits.copy(), has_sign)
        loop(fast, bits.copy(), has_sign)
        assert plain.tobytes() == fast.tobytes()


# -- when loops are compiled ---------------------------------------------------------------------


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[compile_later.Compiler]:
    fresh = compile_later.Compiler()
    monkeypatch.setattr(compile_later, "loops", fresh)
    monkeypatch.setattr(compile_later, "_PAYS", 1_000)
    monkeypatch.setattr(compile_later, "_PAYS_WITH_NUMBA", 1_000)
    yield fresh
    for thread in threading.enumerate():
        if thread.name.startswith("windrow-random-"):
            thread.join()


def wait() -> None:
    for thread in threading.enumerate():
        if thread.name == "windrow-random-uniform":
            thread.join()


def test_numbers_are_the_same_before_and_after_compiling(compiler: compile_later.Compiler) -> None:
    identity = identity_hash([np.arange(600)])
    request = DrawRequest(5, "uniform", 0, (0.0, 1.0))
    first = make(request, identity)
    assert compiler._ready == {}
    make(request, identity)  # the second one passes the threshold
    wait()
    assert "uniform" in compiler._ready
    assert make(request, identity).tobytes() == first.tobytes()


def test_a_loop_with_other_bits_is_not_used(compiler: compile_later.Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    right = compiled.kernel("uniform")

    def wrong(*arguments: Any) -> None:
        right(*arguments)
        out = arguments[5]
        out[-1] = np.nextafter(out[-1], 2.0)

    monkeypatch.setattr(compiled, "kernel", lambda _: wrong)
    compiler.compile("uniform", lambda loop: has_the_same_bits("uniform", loop))
    assert compiler._ready == {}


def test_without_numba_numpy_goes_on(compiler: compile_later.Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "windrow.random.arrays.numba", None)
    identity = identity_hash([np.arange(5_000)])
    request = DrawRequest(5, "uniform", 0, (0.0, 1.0))
    numbers = make(request, identity)
    wait()
    assert compiler._ready == {}
    assert make(request, identity).tobytes() == numbers.tobytes()


def test_small_draws_do_not_import_numba() -> None:
    code = (
        "import sys, numpy as np; from windrow.random import Rng, identity_hash;"
        "rng = Rng(1, identity_hash([np.arange(100_000)]), 100_000);"
        "rng('a').uniform(); rng('a').normal(); rng('a').poisson(3.0); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
