"""What ran, written down beside the directory of a test; imported by worker processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import windrow as wr

__all__ = ["note", "ran", "session"]


def ran() -> list[str]:
    """Give what ran since it was asked last, sorted."""
    log = Path("../log")
    found = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return sorted(found)


def note(name: str) -> None:
    with Path("../log").open("a") as log:
        log.write(name + "\n")


def session(**options: Any) -> wr.Session:
    return wr.Session(**{"engine": "threads", "workers": 2, **options})
