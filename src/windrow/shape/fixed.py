"""Tasks of a fixed number of rows, for ``chunk=N``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.shape.guided import Queued

if TYPE_CHECKING:
    from windrow.core.policies import ShapeRequest


class Fixed(Queued):
    """The shape decision of a user who knows better."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def rows(self, request: ShapeRequest) -> int:  # noqa: ARG002 - nothing of it matters here
        return self._rows
