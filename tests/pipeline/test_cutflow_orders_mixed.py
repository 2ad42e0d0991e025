"""Yields of a run whose order changes all the time: the same bits as those of the written order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from ordering import eager, fickle

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.pipeline.cutflow.table import Cutflow, Line
    from windrow.pipeline.results.result import Result

ROWS, GRID = 3000, 50
REGIONS = ("SR", "CR", "loose")


def weighted() -> wr.Pipeline:
    """Cuts with weights above, between and below them."""
    made = wr.Pipeline("mixed")
    made.weight(lambda w: np.pi * w, name="gen")
    made.cut(lambda x: x > 0.3, name="a")
    made.weight(lambda x: np.sqrt(2.0 + x), name="sf")
    made.cut(lambda y: y > 0.4, name="b")
    made.cut(lambda z: z > 0.5, name="c")
    made.weight(lambda y: np.exp(-y), name="below")
    made.region("SR", "a", "b", "c")
    made.region("CR", "a", "!c")
    made.region("loose", "b")
    made.output(lambda x: len(x), name="rows")
    return made


def data() -> Any:
    made = {}
    for number, name in enumerate(("one", "two")):
        rng = np.random.default_rng(number)
        made[name] = {column: rng.random(ROWS) for column in "xyzw"}
    return wr.data.open(made, grid=GRID)


def run(**options: Any) -> Result:
    return weighted().run(data(), engine="inline", progress=False, **options)


def bits(line: Line) -> tuple[int, str, str]:
    return line.passed, line.sumw.hex(), line.sumw2.hex()


def check(found: Cutflow, expected: Cutflow) -> int:
    """Compare the ends of all tables; returns how many of them have an exact initial line."""
    compared = 0
    for region in REGIONS:
        for key in (region, (region, "one"), (region, "two")):
            table, should = found[key], expected[key]
            assert should.written is not None
            assert bits(table.selected) == bits(should.selected)
            assert bits(should.selected) == bits(should.written[-1])
            assert table.passed == should.passed
            written = table.written
            assert written is not None
            assert bits(written[-1]) == bits(should.selected)
            if table.orders > 1:
                assert bits(table.executed[-1]) == bits(should.selected)
            if written[0].kind == "exact":
                compared += 1
                assert bits(written[0]) == bits(should.written[0])
                assert bits(table.executed[0]) == bits(should.written[0])
    return compared


@pytest.mark.parametrize(
    ("seed", "chunk"),
    [
        (0, GRID),
        *(pytest.param(seed, n * GRID, marks=pytest.mark.slow) for seed in range(3) for n in (1, 3) if seed or n > 1),
    ],
)
def test_first_and_last_lines_have_the_bits_of_the_written_order(seed: int, chunk: int, tmp_path: Path) -> None:
    expected = run(order="written").cutflow
    with eager():
        result = run(order=fickle(seed), chunk=chunk, rundir=tmp_path)
    assert chunk > GRID or max(result.cutflow[region].orders for region in REGIONS) > 1
    assert check(result.cutflow, expected) == 9
    assert check(wr.load(tmp_path).cutflow, expected) == 9
    assert check(result.cutflow.complete(), expected) == 9
    again = run(order="written", rundir=tmp_path, resume=True).cutflow
    assert check(again, expected) == 9
    grouped = {"all": ["one", "two"]}
    by = np.sqrt(3.0)
    both = result.scale(by).group(grouped).cutflow["SR", "all"]
    should = run(order="written", chunk=chunk).scale(by).group(grouped).cutflow["SR", "all"]
    assert bits(both.selected) == bits(should.selected)


@pytest.mark.slow
def test_sums_without_the_bits_would_differ() -> None:
    """The comparison can fail: added up by order, sums end in other digits for some of these runs."""
    expected = run(order="written").cutflow["SR", "one"].executed[0]
    found = set()
    for seed in range(3):
        with eager():
            table = run(order=fickle(seed), chunk=GRID).cutflow["SR", "one"]
        counts = table.members[0].counts
        found.add(sum(float(counts[order][0, 4]) for order in table.ran))
    assert found != {expected.sumw}


def test_the_text_says_that_several_orders_ran() -> None:
    with eager():
        table = run(order=fickle(1), chunk=GRID).cutflow["SR"]
    assert table.orders > 1
    text = str(table).splitlines()
    said = f"  {table.orders} orders ran, exact: rows that reached and passed each cut"
    place = text.index(said)
    assert text[place + 1].split()[:3] == ["cut", "entered", "passed"]
    for line, row in zip(table.executed, text[place + 2 :], strict=True):
        assert row.split()[:3] == [line.label, f"{line.entered:,}", f"{line.passed:,}"]
