"""Situations for tests of the order decision: windows from patterns, and random ones of every kind."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED, Window
from windrow.order.model import Column, Lane, Situation, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERDICTS = {"p": PASSED, "f": FAILED, "u": UNDEFINED, "n": NOT_ASKED}


def window_of(
    cuts: Sequence[str], said: Sequence[Sequence[int]], rows: Sequence[int], *, unit: int = 0, unit_rows: int = 0
) -> Window:
    """A window from what cuts say: one sequence of verdicts for so many rows each."""
    size = sum(rows)
    return Window(
        input=0,
        start=unit * 1000,
        stop=unit * 1000 + size,
        unit=unit,
        unit_rows=unit_rows or size,
        cuts=tuple(cuts),
        verdicts=np.array(said, np.int8).reshape(len(rows), len(cuts)),
        rows=np.array(rows, np.int64),
    )


def make_window(
    cuts: Sequence[str], patterns: Mapping[str, int] | Sequence[tuple[str, int]], *, unit: int = 0, unit_rows: int = 0
) -> Window:
    """A window from patterns such as {"pf": 3}: three rows pass the first cut and fail the second."""
    pairs = list(patterns.items() if isinstance(patterns, Mapping) else patterns)
    said = [[VERDICTS[v] for v in word] for word, _ in pairs]
    return window_of(cuts, said, [count for _, count in pairs], unit=unit, unit_rows=unit_rows)


def independent_window(cuts: Sequence[str], passes: Sequence[float], rows: int) -> Window:
    """A window in which the cuts pass shares of the rows independently of each other."""
    patterns = []
    for word in itertools.product("pf", repeat=len(cuts)):
        share = np.prod([s if v == "p" else 1 - s for v, s in zip(word, passes, strict=True)])
        patterns.append(("".join(word), round(rows * float(share))))
    return make_window(cuts, patterns)


def make_situation(
    steps: Sequence[Step],
    *,
    needs: Mapping[str, tuple[str, ...]] | None = None,
    lanes: Sequence[Lane] | None = None,
    windows: Sequence[Window] = (),
    columns: Sequence[Column] = (),
    chunk_rows: float = 1.0,
    unit_rows: float = 0.0,
    current: tuple[str, ...] | None = None,
    guards: tuple[tuple[str, str], ...] = (),
) -> Situation:
    """A situation with defaults; one lane of all cuts unless told otherwise."""
    written = tuple(step.name for step in steps)
    before = {name: dict.fromkeys((needs or {}).get(name, ())) for name in written}
    for step, cut in guards:
        before[step][cut] = None
    if lanes is None:
        lanes = [Lane(tuple((step.name, False) for step in steps if step.kind == "cut"))]
    return Situation(
        written=written,
        current=current or written,
        steps={step.name: step for step in steps},
        needs={name: tuple(names) for name, names in before.items()},
        lanes=tuple(lanes),
        windows=tuple(windows),
        columns={column.name: column for column in columns},
        chunk_rows=chunk_rows,
        unit_rows=unit_rows,
        guards=guards,
    )


def cuts_of(costs: Sequence[float], *, lanes: tuple[int, ...] = (0,), prefix: str = "c") -> list[Step]:
    """Cuts c0, c1, ... that cost seconds per row."""
    return [Step(f"{prefix}{n}", "cut", lanes, row_s=cost) for n, cost in enumerate(costs)]


def is_legal(situation: Situation, order: Sequence[str]) -> bool:
    """Every step once, and after all that it needs."""
    place = {name: number for number, name in enumerate(order)}
    return sorted(order) == sorted(situation.written) and all(
        place[need] < place[name] for name in situation.written for need in situation.needs[name]
    )


def lazy_orders(situation: Situation) -> Iterator[tuple[str, ...]]:
    """Every legal order of the cuts, each other step just before the first cut that needs it."""
    for cuts in itertools.permutations(situation.cuts):
        order: list[str] = []
        for name in (*cuts, *situation.written):
            _put(name, situation, order)
        if tuple(name for name in order if name in cuts) == cuts:
            yield tuple(order)


def _put(name: str, situation: Situation, order: list[str]) -> None:
    if name not in order:
        for need in sorted(situation.needs[name], key=situation.written.index):
            _put(need, situation, order)
        order.append(name)


seconds = st.sampled_from([0.0, 1e-9, 1e-8, 3e-8, 1e-7, 1e-6])
fixed = st.sampled_from([0.0, 1e-6, 1e-4, 1e-2])


@st.composite
def situations(draw: st.DrawFn, *, most_cuts: int = 5, most_lanes: int = 4, most_others: int = 4) -> Situation:
    """Random steps, needs, lanes (inverted cuts too), shared columns and windows of different files."""
    cuts = [f"c{n}" for n in range(draw(st.integers(0, most_cuts)))]
    others = [f"m{n}" for n in range(draw(st.integers(0, most_others)))]
    written = tuple(draw(st.permutations(cuts + others)))
    lane_count = draw(st.integers(1, most_lanes))
    lanes = [
        Lane(tuple((cut, draw(st.booleans())) for cut in cuts if draw(st.integers(0, 3)))) for _ in range(lane_count)
    ]
    columns = [Column(f"x{n}", draw(seconds), 4.0) for n in range(draw(st.integers(0, 4)))]
    steps, needs = [], {}
    for number, name in enumerate(written):
        mine = tuple(
            lane
            for lane in range(lane_count)
            if (any(cut == name for cut, _ in lanes[lane].cuts) if name in cuts else True) and draw(st.integers(0, 5))
        )
        reads = tuple(column.name for column in columns if draw(st.integers(0, 2)) == 0)
        kind = "cut" if name in cuts else draw(st.sampled_from(["column", "weight"]))
        block = draw(st.sampled_from([0, 0, 100]))
        steps.append(Step(name, kind, mine, draw(fixed), draw(seconds), block, reads))
        needs[name] = tuple(n for n in written[:number] if draw(st.integers(0, 5)) == 0)
    return make_situation(
        steps,
        needs=needs,
        lanes=lanes,
        windows=[_window(draw, cuts, n) for n in range(draw(st.integers(0, 4)))],
        columns=columns,
        chunk_rows=draw(st.sampled_from([50.0, 1000.0, 250_000.0])),
        unit_rows=draw(st.sampled_from([0.0, 100.0, 1000.0])),
        current=draw_legal(draw, written, needs),
    )


def draw_legal(draw: Any, written: tuple[str, ...], needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Any legal order."""
    order: list[str] = []
    while len(order) < len(written):
        ready = [n for n in written if n not in order and set(needs[n]) <= set(order)]
        order.append(draw(st.sampled_from(ready)))
    return tuple(order)


def _window(draw: st.DrawFn, cuts: Sequence[str], unit: int) -> Window:
    here = [cut for cut in cuts if draw(st.integers(0, 5))]
    patterns = [
        ("".join(draw(st.sampled_from("ppppffffun")) for _ in here), draw(st.integers(0, 9)))
        for _ in range(draw(st.integers(1, 6)))
    ]
    size = sum(count for _, count in patterns)
    rest = draw(st.sampled_from([0, 0, 5, 500]))
    return make_window(here, patterns, unit=unit, unit_rows=size + rest)
