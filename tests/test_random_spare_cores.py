"""Numbers made in the background: the same ones, within their bounds, and off where no core is left over."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from windrow.random import Rng, identity_hash, spare_cores
from windrow.random.arrays.numpy import DrawRequest, make

if TYPE_CHECKING:
    from collections.abc import Iterator

UNIFORM = DrawRequest(5, "uniform", 0, (0.0, 1.0))


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[spare_cores._Spare]:
    fresh = spare_cores._Spare()
    monkeypatch.setattr(spare_cores, "_SPARE", fresh)
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

        monkeypatch.setattr(spare_cores, "make", counted)


def test_no_more_at_once_than_cores(spare: spare_cores._Spare) -> None:
    hold = threading.Event()
    running = spare.submit(hold.wait)
    assert running is not None
    assert spare.submit(hold.wait) is None
    hold.set()
    running.result()


def test_nothing_is_made_there_that_nobody_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(monkeypatch)
    assert len(spare_cores.make_shared(UNIFORM, identity_hash([np.arange(200_000)]), 1)) == 200_000
    assert seen.there == 0


@pytest.mark.parametrize("counts", [1, 30, np.arange(90_000) % 4])
def test_a_large_draw_is_shared(spare: spare_cores._Spare, monkeypatch: pytest.MonkeyPatch, counts: Any) -> None:
    identity = identity_hash([np.arange(90_000)])
    whole = make(UNIFORM, identity, counts)
    seen = Seen(monkeypatch, wait=True)
    assert spare_cores.make_shared(UNIFORM, identity, counts).tobytes() == whole.tobytes()
    assert seen.there >= len(whole) // 2


def test_a_pipeline_gives_the_same_with_and_without(spare: spare_cores._Spare, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"x": np.arange(20_000.0)}
    monkeypatch.setattr(spare_cores, "_SHARED", 1_000)
    # Every run says itself how many cores it leaves over; here it is the test that says it.
    monkeypatch.setattr(spare_cores, "grant", lambda _: None)
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

    with_help = answer(700)
    assert sum(given) > 0
    spare.grant(0)
    given.clear()
    assert answer(700) == with_help == answer(None)
    assert sum(given) == 0


def test_rows_of_an_rng_without_blocks_are_untouched(spare: spare_cores._Spare) -> None:
    identity = identity_hash([np.arange(70_000)])
    got = Rng(1, identity, 70_000)("a").normal()
    spare.grant(0)
    assert got.tobytes() == Rng(1, identity, 70_000)("a").normal().tobytes()
