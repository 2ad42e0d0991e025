"""Every invariant of the scheduler, recomputed from scratch; run after each batch in tests."""

from __future__ import annotations

from typing import Any


def validate(scheduler: Any) -> None:
    pass
