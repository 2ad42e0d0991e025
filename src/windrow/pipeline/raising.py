"""What is raised for the failure that stopped a run, with advice where that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.records import FailureKind
from windrow.core.retry import OUT_OF_TIME, lost_too_often
from windrow.errors import EngineError

if TYPE_CHECKING:
    from windrow.core.records import Failure
    from windrow.pipeline.options import Options


#: A worker with no rows takes 60 to 150 MB, by the libraries it has loaded.
EMPTY_WORKER = 150_000_000


def raised(failure: Failure, options: Options) -> BaseException:
    """What to raise for the failure that stopped a run; one without an exception ended its worker."""
    if failure.exception is not None:
        return failure.exception
    where = "" if failure.place in failure.message else f"{failure.place}: "
    if failure.type == OUT_OF_TIME:
        advice = '; allow more (timeout= is for one chunk), or leave such rows out with on_error="skip"'
    elif failure.kind is FailureKind.EXHAUSTED:
        advice = '; allow more (memory= is for all workers together), or leave such rows out with on_error="skip"'
        if options.memory is not None and options.memory < EMPTY_WORKER * options.workers:
            advice = (
                "; that may be none of the rows' fault: the interpreter and libraries alone take about 60 MB in each "
                f"worker, and memory= is for all {options.workers} together; allow more, or take fewer workers"
            )
    elif failure.kind in (FailureKind.CRASHED, FailureKind.LOST):
        if failure.kind is FailureKind.LOST:
            failure = lost_too_often(failure)
        advice = '; look at these rows, or leave them out with on_error="skip"'
    else:
        advice = ""
    return EngineError(f"{where}{failure.message}{advice}")
