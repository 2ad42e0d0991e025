"""Letting go of inputs whose rows are all done, so that a run over a stream does not grow with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.core.scheduler import Scheduler

__all__ = ["forget"]


def forget(scheduler: Scheduler, input_id: int) -> bool:
    """Drop all that is kept of an input; False if something of it is not done, failed, or still under way.

    The counters forget its rows too, so that they stay those of the books. Whoever forgets has to remember what the user
    will want to know.
    """
    ledger, intake = scheduler.ledger, scheduler.intake
    feed = intake.feeds[input_id]
    books = [ledger.books.get((input_id, output)) for output in ledger.outputs]
    if feed.bundles or any(book is None or book.done != book.everything.total for book in books):
        return False
    for output in ledger.outputs:
        book = ledger.books.pop((input_id, output))
        ledger.known_rows -= book.done
        ledger.done_rows -= book.done
        ledger.closed_inputs -= 1
    del intake.feeds[input_id]
    return True
