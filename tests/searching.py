"""How long tests search, and how widely: ``WINDROW_PROFILE`` is ``day`` (the default), ``slow`` or ``nightly``.

By day every run looks at the same examples, and nothing is remembered from run to run: the verdict is the same every time.
``make test-slow`` and ``make nightly`` look at other examples each time. What they find becomes a fixed example, with
Hypothesis' ``@example``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterable

PROFILE = os.environ.get("WINDROW_PROFILE", "day")

#: Half of Hypothesis' own number: the same examples every day teach little more when there are more of them.
USUAL = 50

#: How many examples are looked at for each one by day.
SLOW, NIGHTLY = 4, 50


def examples(day: int) -> int:
    """Return how many examples to look at, where ``day`` are looked at by day."""
    return day * {"day": 1, "slow": SLOW, "nightly": NIGHTLY}[PROFILE]


def load_profile() -> None:
    """Tell Hypothesis. Examples open files, and machines are shared: how long one takes is no test result."""
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(USUAL))
    settings.register_profile("day", usual, derandomize=True, database=None)
    # What failed is remembered: a second run of the same tests looks at it first.
    settings.register_profile("slow", usual, print_blob=True)
    settings.register_profile("nightly", settings.get_profile("slow"))
    settings.load_profile(PROFILE)


def few_by_day(values: Iterable[Any], by_day: int = 1) -> list[Any]:
    """Return parameters of a test of which the first run by day; the others are marked slow."""
    return [value if n < by_day else pytest.param(value, marks=pytest.mark.slow) for n, value in enumerate(values)]
