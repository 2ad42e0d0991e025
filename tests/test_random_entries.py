"""Rows that are known by file and entry: their identities, and the numbers drawn for them."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import UsageError
from windrow.random import Rng, entry_identities, spare_cores
from windrow.random.arrays import compile_later
from windrow.random.arrays.numpy import METHODS, DrawRequest, make, run_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

compiled = pytest.importorskip("windrow.random.arrays.numba")

Array = np.ndarray[Any, Any]
LOW64 = 2**64 - 1
PARAMETERS: dict[str, tuple[Any, ...]] = {
    "uniform": (-1.5, 7.25),
    "normal": (91.2, 2.5),
    "exponential": (0.7,),
    "integers": (-50, 1000),
    "poisson": (12.3,),
}
UNIFORM = DrawRequest(5, "uniform", 0, (0.0, 1.0))


# -- what identities and numbers are, in Python's integers ---------------------------------------


def finalised(value: int) -> int:
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & LOW64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & LOW64
    return value ^ value >> 31


def identity_of(file: str, entry: int) -> int:
    digest = hashlib.blake2b(file.encode(), digest_size=8, person=b"windrow.file").digest()
    word = finalised((entry + 0x9E3779B97F4A7C15) & LOW64)
    return finalised(int.from_bytes(digest, "big") ^ word)


def uniform_of(seed: int, name: str, identity: int) -> float:
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8, person=b"uniform").digest()
    key = [int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")]
    c = [identity >> 32, identity & 0xFFFFFFFF, 0, 0]
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [right >> 32 ^ c[1] ^ key[0], right & 0xFFFFFFFF, left >> 32 ^ c[3] ^ key[1], left & 0xFFFFFFFF]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return float((c[0] << 32 | c[1]) >> 11) * 2.0**-53


# -- spans ---------------------------------------------------------------------------------------

PLACES = st.none() | st.lists(st.integers(0, 10**6), max_size=60, unique=True).map(sorted)
ROWS = st.tuples(st.integers(0, 2**40), st.integers(0, 60), PLACES)


@given(rows=ROWS, file=st.text(max_size=9))
@settings(deadline=None)
def test_entries_have_their_identities(rows: tuple[int, int, Any], file: str) -> None:
    first, length, places = rows
    chosen = list(range(length)) if places is None else places
    where = None if places is None else np.array(places, np.int64)
    expected = [identity_of(file, first + place) for place in chosen]
    assert entry_identities(file, first, len(chosen), where).tolist() == expected


@pytest.fixture(scope="module")
def loops() -> dict[str, Any]:
    return {method: compiled.kernel(method) for method in METHODS}


def test_arrays_that_cannot_be_written_are_compiled_for_just_once(loops: dict[str, Any]) -> None:
    loop = loops["uniform"]
    out = np.empty(100)
    run_loop(loop, UNIFORM, np.arange(100, dtype=np.uint64), 1, None, out)
    known = list(loop.signatures)
    locked = np.arange(100, dtype=np.uint64)
    locked.flags.writeable = False
    for rows in (locked, locked.repeat(2)[::2]):
        run_loop(loop, UNIFORM, rows, 1, None, out)
    assert loop.signatures == known


# -- which of the two, and that nobody can tell --------------------------------------------------


@pytest.fixture(params=["compiled", "numpy"])
def how(request: Any, monkeypatch: pytest.MonkeyPatch, loops: dict[str, Any]) -> str:
    fresh = compile_later.Compiler()
    monkeypatch.setattr(compile_later, "loops", fresh)
    monkeypatch.setattr(compile_later, "_PAYS", 10**15)
    monkeypatch.setattr(compile_later, "_PAYS_WITH_NUMBA", 10**15)
    if request.param == "compiled":
        fresh._ready.update(loops)
    return str(request.param)


@pytest.mark.parametrize("places", [None, np.array([0, 3, 4, 90, 1_000])])
def test_an_rng_of_entries_draws_as_one_of_identities(how: str, places: Any) -> None:
    length = 300 if places is None else len(places)
    numbers = np.arange(length) if places is None else places
    words = np.array([identity_of("f", 11 + int(n)) for n in numbers], np.uint64)
    means = np.linspace(0.0, 40.0, length)
    draws: list[Callable[[Rng], Any]] = [
        lambda rng: rng("a").uniform(),
        lambda rng: rng("a").normal(3.0, 2.0),
        lambda rng: rng("a").exponential(2.0, draw=4),
        lambda rng: rng("a").integers(-3, 900),
        lambda rng: rng("a").poisson(4.5),
        lambda rng: rng("a").poisson(means),
        lambda rng: rng("a").uniform(size=3),
        lambda rng: rng("b").normal(like=means),
        lambda rng: rng.identity,
    ]
    one = Rng(9, entry_identities("f", 11, length, places), length)
    for draw in draws:
        expected = draw(Rng(9, words, length)).tobytes()
        assert draw(Rng(9, lambda: entry_identities("f", 11, length, places), length)).tobytes() == expected
        assert draw(one).tobytes() == expected


def test_entries_of_another_length_are_named() -> None:
    with pytest.raises(UsageError, match="row identities must be 4 numbers of uint64, but are uint64 of shape"):
        Rng(1, entry_identities("f", 0, 3), 4)("a").uniform()


@pytest.mark.parametrize("places", [False, True])
def test_blocks_have_the_numbers_of_the_whole(how: str, places: bool) -> None:
    where = np.flatnonzero(np.arange(3_000) % 3) if places else None
    rows = 2_000
    expected = {draw: make(UNIFORM._replace(draw=draw), entry_identities("f", 5, rows, where)) for draw in range(3)}
    chunk = entry_identities("f", 5, rows, where)
    parts: dict[int, list[Array]] = {draw: [] for draw in expected}
    for start in range(0, rows, 300):
        for draw in expected:
            parts[draw].append(make(UNIFORM._replace(draw=draw), chunk[start : start + 300]))
    for draw, whole in expected.items():
        assert np.concatenate(parts[draw]).tobytes() == whole.tobytes()


def test_a_large_draw_is_shared(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = make(UNIFORM, entry_identities("f", 5, 150_001)).tobytes()
    me, begun, there = threading.get_ident(), threading.Event(), []

    def noted(*arguments: Any, **more: Any) -> Any:
        values = make(*arguments, **more)
        if threading.get_ident() == me:
            assert begun.wait(60)  # or this thread might do all of it
        else:
            there.append(len(values))
            begun.set()
        return values

    monkeypatch.setattr(spare_cores, "make", noted)
    spare_cores.grant(1)
    try:
        assert spare_cores.make_shared(UNIFORM, entry_identities("f", 5, 150_001), 1).tobytes() == expected
    finally:
        spare_cores.grant(0)
    assert there == [75_001]


# -- in pipelines --------------------------------------------------------------------------------


def noise(streams: int = 1, cut: bool = False, **options: Any) -> wr.Pipeline:
    """Give each row's place ``x`` and its numbers, of the rows of a cut or of all."""
    pipeline = wr.Pipeline("noise", **options)
    if cut:

        @pipeline.cut
        def third(x: Any) -> Any:
            return x % 3 != 1

        pipeline.region("kept", "third")

    @pipeline.output
    def rows(x: Any, *, rng: Any) -> list[Any]:
        drawn = [rng(f"s{number}").uniform().tolist() for number in range(streams)]
        return list(zip(x.tolist(), *drawn, strict=True))

    return pipeline


def drawn(pipeline: wr.Pipeline, data: Any, **options: Any) -> dict[float, tuple[float, ...]]:
    result = pipeline.run(data, engine="threads", workers=1, progress=False, seed=3, **options)
    return {row[0]: row[1:] for row in result["rows"]}


def expected_of(words: dict[float, int], streams: int) -> dict[float, tuple[float, ...]]:
    return {
        x: tuple(uniform_of(3, f"s{number}", identity) for number in range(streams)) for x, identity in words.items()
    }


@pytest.mark.parametrize("streams", [1, 6])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("grid", [64, 10_000])
def test_rows_of_arrays(how: str, streams: int, cut: bool, grid: int) -> None:
    data = wr.data.open({"tt": {"x": np.arange(400.0)}}, grid=grid)
    kept = [n for n in range(400) if not cut or n % 3 != 1]
    expected = expected_of({float(n): identity_of("tt", n) for n in kept}, streams)
    assert drawn(noise(streams, cut), data) == expected
    assert drawn(noise(streams, cut), data, chunk=100) == expected


def test_blocks_of_a_column(how: str) -> None:
    pipeline = wr.Pipeline("blocks")

    @pipeline.column
    def number(x: Any, *, rng: Any) -> Any:
        return rng("s0").uniform() + 0.0 * x

    @pipeline.output
    def rows(x: Any, number: Any) -> list[Any]:
        return list(zip(x.tolist(), number.tolist(), strict=True))

    data = wr.data.open({"tt": {"x": np.arange(1_000.0)}})
    expected = expected_of({float(n): identity_of("tt", n) for n in range(1_000)}, 1)
    for block in (70, 333, None):
        assert drawn(pipeline, data, _block_rows=block) == expected


def test_rows_of_several_files(how: str, tmp_path: Path) -> None:
    words: dict[float, int] = {}
    for number in range(3):
        path = tmp_path / f"{number}.root"
        x = 1000.0 * number + np.arange(150)
        with uproot.recreate(path) as file:
            file["Events"] = {"x": x}
        with uproot.open(path) as file:
            uuid = str(file.file.uuid)
        words |= {float(v): identity_of(uuid, n) for n, v in enumerate(x)}
    data = f"{tmp_path}/*.root"
    assert drawn(noise(2), data) == expected_of(words, 2)
    kept = {x: identity for x, identity in words.items() if x % 3 != 1}
    assert drawn(noise(2, cut=True), data) == expected_of(kept, 2)


def test_identity_columns_decide_where_they_are_named(how: str) -> None:
    events = np.random.default_rng(1).permutation(500)
    data = {"tt": {"x": np.arange(500.0), "event": events}}
    words = {
        float(n): finalised(0x9E3779B97F4A7C15 ^ finalised((int(e) + 0x9E3779B97F4A7C15) & LOW64))
        for n, e in enumerate(events)
    }
    assert drawn(noise(2, identity="event"), data) == expected_of(words, 2)


def test_a_skim_draws_what_its_source_did(how: str, tmp_path: Path) -> None:
    data = {"tt": {"x": np.arange(600.0)}}
    first = noise(2, cut=True)
    first.save(str(tmp_path / "{dataset}.parquet"), columns=["x"], region="kept")
    before = drawn(first, data)
    kept = {float(n): identity_of("tt", n) for n in range(600) if n % 3 != 1}
    assert before == expected_of(kept, 2)
    after = drawn(noise(2), str(tmp_path / "tt.parquet"))
    assert after == before


def test_some_rows_draw_what_they_draw_among_all(how: str) -> None:
    data = {"tt": {"x": np.arange(900.0)}}
    whole = drawn(noise(), data)
    some = drawn(noise(cut=True), data)
    assert some == {x: values for x, values in whole.items() if x % 3 != 1}
    few = drawn(noise(), data, max_rows=100)
    assert few.items() <= whole.items()
    assert few
