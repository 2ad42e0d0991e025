"""Chunk sizes of coffea: the numbers that its own functions give."""

from __future__ import annotations

from typing import Any

import pytest

from loading import load

load("benchmarks/harness.py", known=True)  # which it imports
PAPER: Any = load("benchmarks/paper_shape.py")
Targets, TaskReport, next_chunk_size = PAPER.Targets, PAPER.TaskReport, PAPER.next_chunk_size

STEADY = [TaskReport(e, 5 + e / 1000, 300 + 0.0137 * e) for e in (8000, 16000, 24000, 32000, 64000)]
ALIKE = [TaskReport(16384, 20, 500)] * 3
FALLING = [TaskReport(1000, 10, 800), TaskReport(2000, 9, 700), TaskReport(4000, 8, 600), TaskReport(8000, 7, 500)]
NOISY = [
    TaskReport(10000, 12.1, 450),
    TaskReport(20000, 22.3, 590),
    TaskReport(40000, 44, 840),
    TaskReport(30000, 90, 700),
    TaskReport(50000, 52.5, 1010),
    TaskReport(15000, 17.2, 505),
]


@pytest.mark.parametrize(
    ("reports", "by_memory", "by_both", "by_time"),
    [
        (STEADY, 65536, 32768, 32768),
        (ALIKE, 65536, 32768, 32768),
        (FALLING, 8192, 8192, 16384),
        (NOISY, 65536, 32768, 32768),
        (STEADY[:1], 65536, 65536, 65536),
    ],
    ids=["steady", "one size", "less for more", "noisy", "one report"],
)
def test_sizes_are_those_of_coffea(reports: list[Any], by_memory: int, by_both: int, by_time: int) -> None:
    assert next_chunk_size(100_000, Targets(None, 2000), reports) == by_memory
    assert next_chunk_size(100_000, Targets(60, 2000), reports) == by_both
    assert next_chunk_size(100_000, Targets(60, None), reports) == by_time


def test_no_report_leaves_the_size_as_it_is() -> None:
    assert next_chunk_size(100_000, Targets(60, 2000), []) == 100_000
