"""Numbers made in the background: the same ones, within their bounds, and off where no core is left over."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.blocks import calls
from windrow.random import Rng, RowIds, ahead, identity_hash
from windrow.random.arrays.numpy import DrawRequest, make

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIFORM = DrawRequest(5, "uniform", 0, (0.0, 1.0))


def row_ids(rows: Any) -> RowIds:
    return RowIds(identity_hash([rows]))


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[ahead._Spare]:
    fresh = ahead._Spare()
    monkeypatch.setattr(ahead, "_SPARE", fresh)
    fresh.grant(1)
    yield fresh
    pool = fresh._pool
    fresh.grant(0)
    if pool is not None:
        pool.shutdown()  # what it is still at would be counted by the next test


class Seen:
    """Which thread made how many numbers; this one waits until the other has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, wait: bool = False) -> None:
        self.here = self.there = 0
        me, begun = threading.get_ident(), threading.Event()

        def counted(*arguments: Any, **more: Any) -> Any:
            if threading.get_ident() != me:
                begun.set()
            elif wait:
                assert begun.wait(60)
            values = make(*arguments, **more)
            if threading.get_ident() == me:
                self.here += len(values)
            else:
                self.there += len(values)
            return values

        monkeypatch.setattr(ahead, "make", counted)


def numbers_in_blocks(request: DrawRequest, counts: int, rows: int, size: int, *, patient: bool = False) -> Any:
    identity = row_ids(np.arange(rows))
    one = ahead.Ahead()
    parts = []
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        parts.append(one.numbers(request, counts, identity, start, stop))
        if patient:
            for _, _, future in one._made.values():
                future.result()
    return np.concatenate(parts) if parts else np.empty(0)


@pytest.mark.parametrize("cores", [0, 1, 3])
@given(rows=st.integers(0, 400), size=st.integers(1, 150), counts=st.integers(0, 4))
@settings(max_examples=examples(20))
def test_blocks_have_the_numbers_of_the_whole(cores: int, rows: int, size: int, counts: int) -> None:
    whole = make(UNIFORM, row_ids(np.arange(rows)), counts)
    ahead.grant(cores)
    try:
        got = numbers_in_blocks(UNIFORM, counts, rows, size)
    finally:
        ahead.grant(0)
    assert got.tobytes() == whole.tobytes()


def test_the_next_block_is_made_in_the_background(spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    numbers_in_blocks(UNIFORM, 1, 1_000, 100, patient=True)
    assert (seen.here, seen.there) == (100, 900)
    assert spare._busy == 0


def test_nothing_is_made_ahead_that_nobody_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    numbers_in_blocks(UNIFORM, 1, 1_000, 100)
    making_all = ahead.make_shared(UNIFORM, row_ids(np.arange(200_000)), 1)
    assert len(making_all) == 200_000
    assert seen.there == 0


def test_no_more_at_once_than_cores(spare: ahead._Spare) -> None:
    hold = threading.Event()
    running = spare.submit(hold.wait)
    assert running is not None
    assert spare.submit(hold.wait) is None
    hold.set()
    running.result()


def test_what_is_held_is_bounded(spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = row_ids(np.arange(1_000))
    one = ahead.Ahead()
    for draw in range(100):
        one.numbers(UNIFORM._replace(draw=draw), 1, identity, 0, 100)
        for _, _, future in one._made.values():
            future.result()
        assert len(one._made) <= ahead._MOST_DRAWS
    monkeypatch.setattr(ahead, "_MOST_BYTES", 100)
    small = ahead.Ahead()
    small.numbers(UNIFORM, 1, identity, 0, 100)
    assert small._made == {}


def all_made(one: ahead.Ahead) -> None:
    for _, _, future in one._made.values():
        future.result()


@pytest.mark.parametrize("draws", [3, ahead._MOST_DRAWS, ahead._MOST_DRAWS + 1, 40])
def test_what_is_held_is_used(spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch, draws: int) -> None:
    identity = row_ids(np.arange(1_000))
    seen, one, blocks = Seen(monkeypatch), ahead.Ahead(), 10
    for number in range(blocks):
        for draw in range(draws):
            request = UNIFORM._replace(draw=draw)
            one.numbers(request, 1, identity, number * 100, (number + 1) * 100)
            all_made(one)
    assert one._made == {}
    # Nothing is made twice; of as many draws as are held only those of the first block are made here.
    held = min(draws, ahead._MOST_DRAWS)
    assert seen.there == held * (blocks - 1) * 100
    assert seen.here == (draws * blocks - held * (blocks - 1)) * 100


def test_blocks_that_become_smaller_use_what_was_made(spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = row_ids(np.arange(1_000))
    whole = make(UNIFORM, identity, 2)
    seen, one, start, parts = Seen(monkeypatch), ahead.Ahead(), 0, []
    for size in (100, 90, 90, 5):
        parts.append(one.numbers(UNIFORM, 2, identity, start, start + size))
        start += size
        all_made(one)
    assert np.concatenate(parts).tobytes() == whole[: 2 * start].tobytes()
    assert seen.here == 2 * 100


def test_what_a_step_did_not_draw_makes_room(spare: ahead._Spare) -> None:
    identity = row_ids(np.arange(1_000))
    one = ahead.Ahead()
    for draw in range(ahead._MOST_DRAWS):
        one.numbers(UNIFORM._replace(draw=draw), 1, identity, 0, 100)
        all_made(one)
    one.numbers(UNIFORM._replace(draw=99), 1, identity, 500, 600)
    assert [request.draw for request, _ in one._made] == [99]
    one.clear()
    assert one._made == {}


def test_numbers_made_for_some_rows_are_not_given_to_others(spare: ahead._Spare) -> None:
    some, others = row_ids(np.arange(0, 300)), row_ids(np.arange(50, 350))
    one = ahead.Ahead()
    one.numbers(UNIFORM, 1, some, 0, 100)
    all_made(one)
    got = one.numbers(UNIFORM, 1, others, 100, 200)
    assert got.tobytes() == make(UNIFORM, others[100:200]).tobytes()


def test_steps_of_two_selections_that_draw_in_some_blocks_only(spare: ahead._Spare) -> None:
    rows = {"x": np.arange(400.0)}

    def answer(block: int | None) -> Any:
        pipeline = wr.Pipeline("some blocks")

        @pipeline.column
        def early(x: Any, *, rng: Any) -> Any:
            mask = x < 100
            if mask.any():
                return np.where(mask, rng("same").normal(), 0.0)
            while spare._busy:  # what was begun for this block is complete
                time.sleep(0.001)
            return np.zeros(len(x))

        @pipeline.cut
        def odd(x: Any, early: Any) -> Any:
            return (x % 4 != 0) & (early < 99)

        @pipeline.column
        def late(x: Any, *, rng: Any) -> Any:
            mask = (x >= 134) & (x < 260)
            return np.where(mask, rng("same").normal(), 0.0) if mask.any() else np.zeros(len(x))

        @pipeline.output
        def total(late: Any) -> Any:
            return late.tolist()

        how: Any = {"engine": "inline", "progress": False, "order": "written"}
        return pipeline.run(rows, seed=3, _block_rows=block, **how)["total"]

    whole = answer(None)
    assert sum(value != 0 for value in whole) > 90
    assert answer(100) == whole


def test_a_chunk_that_is_done_holds_no_numbers(spare: ahead._Spare) -> None:
    pipeline = wr.Pipeline("left over")
    pipeline.output(lambda y: y.sum(), name="total")
    callers: list[Any] = []
    held: list[int] = []

    @pipeline.column
    def y(x: Any, *, rng: Any) -> Any:
        mask = x < 100
        return np.where(mask, rng("a").normal(), 0.0) if mask.any() else np.zeros(len(x))

    class Noted(calls.Caller):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            callers.append(self)

        def clear(self) -> None:
            held.append(len(self._numbers._made))
            super().clear()

    with mock.patch("windrow.blocks.chunk.Caller", Noted):
        pipeline.run({"x": np.arange(300.0)}, engine="inline", progress=False, _block_rows=100)
    assert 1 in held
    assert all(caller._numbers._made == {} for caller in callers)


@pytest.mark.parametrize("counts", [1, 30, np.arange(90_000) % 4])
def test_a_large_draw_is_shared(spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch, counts: Any) -> None:
    identity = row_ids(np.arange(90_000))
    whole = make(UNIFORM, identity, counts)
    seen = Seen(monkeypatch, wait=True)
    assert ahead.make_shared(UNIFORM, identity, counts).tobytes() == whole.tobytes()
    assert seen.there >= len(whole) // 2


def test_a_pipeline_gives_the_same_with_and_without(spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"x": np.arange(20_000.0)}
    # Every run says itself how many cores it leaves over; here it is the test that says it.
    monkeypatch.setattr(ahead, "grant", lambda _: None)
    given = []
    submit = spare.submit

    def noted(work: Any) -> Any:
        future = submit(work)
        given.append(future is not None)
        return future

    monkeypatch.setattr(spare, "submit", noted)

    def answer(block: int | None) -> Any:
        pipeline = wr.Pipeline("noise")

        @pipeline.column
        def noisy(x: Any, *, rng: Any) -> Any:
            smear = rng("a").normal() + rng("b").uniform(size=5).sum(axis=1)
            return x + smear + rng("a").poisson(x / 100) + rng("a").poisson(3.0, draw=2)

        @pipeline.output
        def total(noisy: Any) -> Any:
            return list(noisy)

        return pipeline.run(rows, seed=3, workers=1, engine="threads", _block_rows=block)["total"]

    with_buffers = answer(700)
    assert sum(given) > 0
    spare.grant(0)
    given.clear()
    assert answer(700) == with_buffers == answer(None)
    assert sum(given) == 0


def test_rows_of_an_rng_without_blocks_are_untouched(spare: ahead._Spare) -> None:
    identity = row_ids(np.arange(70_000))
    got = Rng(1, identity, 70_000)("a").normal()
    spare.grant(0)
    assert got.tobytes() == Rng(1, identity, 70_000)("a").normal().tobytes()
