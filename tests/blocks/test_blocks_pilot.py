"""The first rows of a run: how many are shown to all steps, that nothing is evaluated twice, and what is found too long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.blocks import pilot
from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.pilot import FIRST_ROWS, MOST_ROWS, MOST_S, Pilot, _next_size, take_pilot
from windrow.pipeline.binding.bind import bind

ROWS = 5000


def analysis(asked: dict[str, list[int]]) -> wr.Pipeline:
    made = wr.Pipeline("first rows")

    @made.column
    def twice(x: Any) -> Any:
        asked.setdefault("twice", []).append(len(x))
        return 2 * x

    @made.cut
    def half(twice: Any) -> Any:
        asked.setdefault("half", []).append(len(twice))
        return twice > 1

    @made.cut
    def third(y: Any) -> Any:
        asked.setdefault("third", []).append(len(y))
        return y > 2 / 3

    made.output(lambda twice: float(np.sum(twice)), name="sum")
    return made


def opened(rows: int, asked: dict[str, list[int]]) -> ChunkRun:
    random = np.random.default_rng(1)
    data = {"x": random.random(ROWS), "y": random.random(ROWS)}
    reader = wr.data.open(data).open(0)
    definition = analysis(asked).definition(0)
    program = bind(definition, "data", {}, reader.info, "data")
    chunk = Chunk(0, "data", 0, (0, rows), (0, rows))
    return ChunkRun(program, reader, chunk, definition.written, {})


def test_what_first_rows_were_asked_is_not_asked_again_and_gives_the_same_bits() -> None:
    asked: dict[str, list[int]] = {}
    found = take_pilot(opened(ROWS, asked), (), ROWS)
    assert found is not None
    assert len(found.look.rows) == MOST_ROWS
    assert {name: max(sizes) for name, sizes in asked.items()} == dict.fromkeys(asked, MOST_ROWS)
    asked.clear()
    few = opened(len(found.look.rows), asked)
    found.hand_over(few)
    few.run_steps()
    assert asked == {}
    plain = opened(len(found.look.rows), {})
    plain.run_steps()
    assert few.selections[0].positions().tolist() == plain.selections[0].positions().tolist()
    assert few.store.made_for("twice")[1].tobytes() == plain.store.made_for("twice")[1].tobytes()
    rows = {name: (meter.rows_in, meter.rows_out) for name, meter in plain.meters.items()}
    assert {name: (meter.rows_in, meter.rows_out) for name, meter in few.meters.items()} == rows


def test_where_no_order_is_decided_steps_see_the_rows_that_the_cuts_above_leave() -> None:
    asked: dict[str, list[int]] = {}
    above = (("third", "half"), ("twice", "none"))
    found = take_pilot(opened(ROWS, asked), above, ROWS)
    assert found is not None
    assert asked["third"][-1] < 0.7 * asked["half"][-1]


def test_of_few_rows_none_is_shown_first() -> None:
    assert take_pilot(opened(4 * FIRST_ROWS - 1, {}), (), ROWS) is None


def test_rows_that_take_long_are_few_and_cheap_steps_see_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[int]] = {}
    monkeypatch.setattr(pilot, "_next_size", lambda *_: FIRST_ROWS)
    monkeypatch.setattr(pilot, "_row_s", lambda _: 0.01)
    monkeypatch.setattr(pilot, "_cheap", lambda *_: {"third"})
    found = take_pilot(opened(ROWS, asked), (), ROWS)
    assert found is not None
    assert asked == {"twice": [1, FIRST_ROWS], "half": [1, FIRST_ROWS], "third": [1, FIRST_ROWS, MOST_ROWS]}
    assert next(iter(found.seen.windows.values())).size == len(found.look.rows) == FIRST_ROWS


@given(st.floats(0, 9), st.floats(0, 0.1), st.integers(FIRST_ROWS, MOST_ROWS))
def test_no_more_rows_are_shown_than_their_time_allows(fixed_s: float, row_s: float, most: int) -> None:
    times: list[tuple[int, float]] = [(1, fixed_s + row_s)]
    while (size := _next_size(times, most)) != times[-1][0]:
        assert times[-1][0] < size <= most
        times.append((size, fixed_s + size * row_s))
        assert len(times) <= 4
    rows, _ = times[-1]
    first_s = pilot.MORE_S if fixed_s + row_s <= pilot.HEAVY_S else pilot.HEAVY_S
    assert rows * row_s <= max(first_s + FIRST_ROWS * row_s, 64 * row_s + MOST_S) + 1e-9
    assert rows >= FIRST_ROWS  # whatever a call takes by itself
    if row_s < 5e-5:
        assert 2 * rows > most


@pytest.mark.parametrize(("seconds", "rows"), [((0.9, 7.2), 8), ((1.5, 3.0), 2), ((20.0,), 1), ((5.0, 0.02, 0.5), 64)])
def test_rows_that_take_long_are_few_and_a_first_call_is_not_all(seconds: tuple[float, ...], rows: int) -> None:
    times: list[tuple[int, float]] = [(1, seconds[0])]
    for took in seconds[1:]:
        times.append((_next_size(times, MOST_ROWS), took))
    assert times[-1][0] == _next_size(times, MOST_ROWS) == rows


@given(st.floats(1e-9, 10), st.floats(1e-6, 1), st.integers(1000, 200_000), st.floats(0.01, 0.5))
def test_a_unit_is_long_above_half_a_second_or_many_times_what_looking_took(
    row_s: float, looked_s: float, rows: int, short_s: float
) -> None:
    found = Pilot(None, None, None, row_s, looked_s, {})  # type: ignore[arg-type]
    unit_s = row_s * rows
    long = found.is_long(rows, short_s, 0.5)
    assert long or unit_s <= max(0.5, short_s)
    assert not (long and unit_s <= short_s)
    assert not (long and unit_s <= 0.5 and unit_s <= pilot.WORTH * looked_s)


def shown(rows: int, **steps: tuple[int, float]) -> pilot.Shown:
    return pilot.Shown(rows, steps)


def test_what_a_row_of_a_step_takes_is_by_the_rows_that_it_was_asked_about() -> None:
    assert pilot._row_s([(1, 0.010), (6, 0.012), (200, 0.400)]) == pytest.approx(0.388 / 194)
    assert pilot._row_s([(1, 0.010), (0, 0.0), (0, 0.0)]) == 0.010  # no cut has left it a row
    assert pilot._row_s([(1, 0.010), (1, 0.004)]) == 0.004
    assert pilot._row_s([(0, 0.0)]) == 0.0


def test_rows_that_cuts_keep_from_a_slow_step_do_not_hide_it() -> None:
    run = opened(ROWS, {})
    first = shown(1, cut=(1, 1e-6), slow=(1, 0.050))
    none_left = shown(32, cut=(32, 1e-6), slow=(0, 0.0))
    assert pilot._not_slow([first, none_left], MOST_ROWS, run) == 64  # as if one row in 32 were left: 0.1 s
    few_left = shown(32, cut=(32, 1e-6), slow=(4, 0.200))
    assert pilot._not_slow([first, few_left], MOST_ROWS, run) == 32  # clear enough
    quick = shown(32, cut=(32, 1e-6), slow=(32, 1e-5))
    assert pilot._not_slow([shown(1, cut=(1, 1e-6), slow=(1, 1e-5)), quick], MOST_ROWS, run) == MOST_ROWS


@pytest.mark.parametrize("rows_s", [1e-6, 0.004])
def test_calls_that_take_long_are_rows_unless_lists_are_read(rows_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(ROWS, {})
    looks = [shown(1, twice=(1, 32 * rows_s)), shown(32, twice=(32, 32 * rows_s))]
    most = MOST_ROWS if rows_s < 1e-4 else int(MOST_S / rows_s)
    assert pilot._not_slow(looks, MOST_ROWS, run) == most
    monkeypatch.setattr(pilot, "_is_jagged", lambda _: True)
    assert pilot._not_slow(looks, MOST_ROWS, run) == MOST_ROWS
