"""``run(partition=...)``: rows cut by a partitioner of loops, with the same answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import UnknownNameError, UsageError
from windrow.pipeline.definition.options import Options
from windrow.watch.readlog import read_log

ROWS, UNIT = 6400, 100


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("by scheme")

    @made.cut
    def half(x: Any) -> Any:
        return x > 0.5

    @made.output
    def total(x: Any) -> float:
        return float(x.sum())

    return made


def source() -> Any:
    return wr.data.open({"x": np.random.default_rng(1).random(ROWS)}, grid=UNIT)


def sizes(result: wr.Result) -> list[int]:
    assert result.log is not None
    attempts = read_log(result.log.splitlines()).attempts
    return [int(rows) for rows in attempts.rows if rows]


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("STATIC", [3200, 3200]), ("FAC2", [1600, 1600, 800, 800, 400, 400, 200, 200]), ("MSTATIC", [800] * 8)],
)
def test_chunks_are_those_of_the_scheme_and_the_answer_is_the_same(scheme: str, expected: list[int]) -> None:
    plain = analysis().run(source(), engine="inline", progress=False)
    found = analysis().run(source(), engine="threads", workers=2, partition=scheme, progress=False)
    assert found["total"] == plain["total"]
    assert found.ledger.done == ROWS
    assert sorted(sizes(found), reverse=True)[: len(expected)] == expected


@pytest.mark.parametrize("scheme", ["GSS", "TSS", "FISS", "AF", "TAP", "auto", lambda state: max(state.left // 4, 1)])
def test_every_row_is_run_once(scheme: Any) -> None:
    found = analysis().run(source(), engine="threads", workers=2, partition=scheme, progress=False)
    assert found.ledger.done == ROWS
    assert sum(sizes(found)) == ROWS


def test_mistakes() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'GSS'"):
        analysis().run(source(), partition="GSSS", progress=False)
    with pytest.raises(UsageError, match="is for loops"):
        analysis().run(source(), partition="AWF-B", progress=False)
    with pytest.raises(UsageError, match="leave one of them out"):
        analysis().run(source(), partition="GSS", chunk=10, progress=False)


@pytest.mark.parametrize("fixed", [{"chunk": 100}, {"partition": "GSS"}])
@pytest.mark.parametrize("guess", [{"first_rows": 10}, {"target_time": "1 s"}])
def test_what_is_about_chunks_cut_by_cost_is_refused_beside_fixed_ones(
    fixed: dict[str, Any], guess: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(guess))}= is about chunks"):
        Options(**fixed, **guess)
