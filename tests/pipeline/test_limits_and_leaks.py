"""A memory limit blames rows only if a worker that had run nothing before failed on them too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import windrow as wr

#: Rows of a unit: arrays are cut there.
UNIT = 262_144
LEAKED: list[Any] = []


@pytest.mark.slow
def test_a_worker_that_leaks_costs_no_rows() -> None:
    analysis = wr.Pipeline("leaks")

    @analysis.cut
    def leaking(x: Any) -> Any:
        if len(x) > 2000 and x[0] % UNIT == 0:  # once for every unit, not for rows that are tried: 100 MB that stay
            LEAKED.append(np.ones(12_500_000))
        return x >= 0

    @analysis.output
    def count(x: Any) -> float:
        return float(len(x))

    rows = 16 * UNIT
    result = analysis.run(
        {"x": np.arange(float(rows))}, engine="processes", workers=2, memory="1 GB", on_error="skip", progress=False,
        chunk=UNIT,
    )  # fmt: skip
    assert result.complete
    assert result["count"] == rows
