"""Numbers made in the background: the same ones, within their bounds, and off where no core is left over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.random import Rng, ahead, identity_hash, making
from windrow.random.making import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIFORM = Wish(5, "uniform", 0, (0.0, 1.0))


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[ahead._Spare]:
    fresh = ahead._Spare()
    monkeypatch.setattr(ahead, "_SPARE", fresh)
    fresh.grant(1)
    yield fresh
    fresh.grant(0)


class Seen:
    """Which thread made how many numbers; this one waits until the other has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, wait: bool = False) -> None:
        self.here = self.there = 0
        make, me, begun = making.make, threading.get_ident(), threading.Event()

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


def numbers_in_blocks(
    wish: Wish, counts: int, rows: int, size: int, *, patient: bool = False
) -> Any:
    identity = identity_hash([np.arange(rows)])
    one = ahead.Ahead()
    parts = []
    for start in range(0, rows, size):
        stop = min(start + size, rows)
        parts.append(ahead.Block(one, lambda: identity, start, stop).numbers(wish, counts))
        if patient:
            for _, _, future in one._made.values():
                future.result()
    return np.concatenate(parts) if parts else np.empty(0)


@pytest.mark.parametrize("cores", [0, 1, 3])
@given(rows=st.integers(0, 400), size=st.integers(1, 150), counts=st.integers(0, 4))
@settings(max_examples=20, deadline=None)
def test_blocks_have_the_numbers_of_the_whole(
    cores: int, rows: int, size: int, counts: int
) -> None:
    whole = making.make(UNIFORM, identity_hash([np.arange(rows)]), counts)
    ahead.grant(cores)
    try:
        got = numbers_in_blocks(UNIFORM, counts, rows, size)
    finally:
        ahead.grant(0)
    assert got.tobytes() == whole.tobytes()


def test_the_next_block_is_made_in_the_background(
    spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    numbers_in_blocks(UNIFORM, 1, 1_000, 100, patient=True)
    assert (seen.here, seen.there) == (100, 900)
    assert spare._busy == 0


def test_nothing_is_made_ahead_that_nobody_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    numbers_in_blocks(UNIFORM, 1, 1_000, 100)
    making_all = ahead.make_shared(UNIFORM, identity_hash([np.arange(200_000)]), 1)
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
    identity = identity_hash([np.arange(1_000)])
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


@pytest.mark.parametrize("counts", [1, 30, np.arange(90_000) % 4])
def test_a_large_draw_is_shared(
    spare: ahead._Spare, monkeypatch: pytest.MonkeyPatch, counts: Any
) -> None:
    identity = identity_hash([np.arange(90_000)])
    whole = making.make(UNIFORM, identity, counts)
    seen = Seen(monkeypatch, wait=True)
    assert ahead.make_shared(UNIFORM, identity, counts).tobytes() == whole.tobytes()
    assert seen.there >= len(whole) // 2


def test_a_pipeline_gives_the_same_with_and_without(spare: ahead._Spare) -> None:
    rows = {"x": np.arange(20_000.0)}

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
    spare.grant(0)
    assert answer(700) == with_buffers == answer(None)


def test_rows_of_an_rng_without_blocks_are_untouched(spare: ahead._Spare) -> None:
    identity = identity_hash([np.arange(70_000)])
    got = Rng(1, identity, 70_000)("a").normal()
    spare.grant(0)
    assert got.tobytes() == Rng(1, identity, 70_000)("a").normal().tobytes()
