"""A stream of what a Python iterator gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class IteratorTap:
    """Batches of an iterable; an iterator can be gone through once."""

    label = "stream"

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._used = False

    def opened(self) -> IteratorTap:
        """Give what one run reads from."""
        if iter(self._batches) is self._batches:
            if self._used:
                raise UsageError(
                    "this stream was run before, and its iterator gives its batches once: make a new one, or give a "
                    "list or another thing that can be gone through again"
                )
            self._used = True
        return self

    def batches(self) -> Iterator[tuple[str, Any]]:
        """Give batches with what to call them."""
        source = iter(self._batches)
        try:
            for number, batch in enumerate(source):
                yield f"batch {number} of the stream", batch
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    def stop(self) -> bool:
        """Nobody can break into somebody else's iterator: it is left alone after its next batch."""
        return False
