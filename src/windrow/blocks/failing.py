"""Rows on which a step or an output raises: found, named in errors, and left out where that is asked for.

They are found by asking again about halves, on the columns that are there, within a budget: a function that fails
everywhere is not asked row by row. What raises only for several rows together, or is no matter of rows at all (no memory,
an unreadable block, an answer of the wrong length), is left to those who leave out whole units.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from windrow.core.records import Failure, FailureKind, Rows
from windrow.errors import DataError, StepError, WindrowError, error_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundOutput, BoundStep
    from windrow.blocks.selection import Selection

    #: What a function raises on the rows at these positions; None: nothing.
    Ask = Callable[[NDArray[np.int64]], Exception | None]

#: Calls to find one row: a million rows need twenty halvings; what fails only on many rows together ends sooner.
NAMING_CALLS = 40
#: Failing rows of a chunk that are left out. Beyond it the chunk fails, and then its units one by one: what counts in the
#: end is that a unit has no more, whatever the chunks.
MOST_ROWS = 64
#: Calls to find them: two for each halving, so that they are enough for so many rows of any unit (a quarter of a
#: million rows at most), one by one.
MOST_CALLS = 2_500
#: Exceptions of a chunk that are kept whole; of further ones only the message.
KEPT_EXCEPTIONS = 3


def failing_rows(
    ask: Ask, index: NDArray[np.int64], most: int, calls: int, error: Exception | None = None
) -> tuple[dict[int, Exception], bool]:
    """Return rows of ``index`` on which a function raises by itself, and whether these are all of them.

    At most ``most`` rows are looked for, in ``calls`` calls. ``error`` is what it raised on all rows, if that is known.
    """
    found: dict[int, Exception] = {}
    complete = True
    # (rows, what they raise if it is known, whether they must raise because all other rows do not)
    parts: list[tuple[NDArray[np.int64], Exception | None, bool]] = [(index, error, False)]
    while parts:
        part, raised, must = parts.pop()
        if len(found) == most:
            return found, False
        if raised is None and (len(part) == 1 or not must):
            if not calls:
                return found, False
            calls -= 1
            raised = ask(part)
            if raised is None:
                complete = complete and not must  # it takes several rows, of which nothing can be said
                continue
        if len(part) == 1 and raised is not None:
            found[int(part[0])] = raised
            continue
        left, right = np.array_split(part, 2)
        if not calls:
            return found, False
        calls -= 1
        raised = ask(left)
        parts.append((right, None, raised is None))
        if raised is not None:
            parts.append((left, raised, False))
    return found, complete


def is_about_rows(error: BaseException | None) -> bool:
    """Say whether an exception of a user's function may be the fault of some of its rows."""
    return isinstance(error, Exception) and not isinstance(error, WindrowError | MemoryError)


def quiet(moved: bool = True) -> AbstractContextManager[Any]:
    """Print no floating-point warnings where steps see rows that a cut written above them removes.

    A user who asked for exceptions or set a handler gets them, also by a filter like ``python -W error``.
    """
    if not moved or _warnings_may_raise():
        return nullcontext()
    silenced: dict[str, Any] = {kind: "ignore" for kind, how in np.geterr().items() if how == "warn"}
    return np.errstate(**silenced)


def _warnings_may_raise() -> bool:
    """Say whether a filter makes exceptions of NumPy's warnings.

    The first filter that matches decides; of one that asks for a text or a module that is not known beforehand.
    """
    for action, text, category, module, line in warnings.filters:
        if issubclass(RuntimeWarning, category):
            if action == "error":
                return True
            if text is None and module is None and line == 0:
                return False
    return False


# -- errors that name step, file, rows and region -----------------------------------------------------


def named_error(run: ChunkRun, step: BoundStep | BoundOutput, rows: Selection, error: Exception) -> Exception:
    """Return the error to raise in place of ``error``."""
    if run.store.read_error is not None:
        return data_error(run, run.store.read_error)
    if isinstance(error, WindrowError) and not isinstance(error, StepError):
        error.facts.setdefault("step", step.name)
        return error
    positions = rows.positions() if rows.count else np.zeros(1, dtype=np.int64)
    first, last = run.start + int(positions[0]), run.start + int(positions[-1]) + min(rows.count, 1)
    culprit = None
    kind = getattr(step, "kind", "output")
    if kind != "output" and rows.count and not isinstance(error, WindrowError):
        found, _ = failing_rows(run.asking(step), positions, 1, NAMING_CALLS, error)  # type: ignore[arg-type]
        culprit = next(iter(found), None)
    if culprit is not None:
        first, last = run.start + culprit, run.start + culprit + 1
    region = run.regions_with(getattr(step, "lanes", None) or (getattr(step, "lane", 0),), culprit)
    facts = {"step": step.name, "file": run.chunk.label, "start": first, "stop": last, "region": region}
    where = f"{run.chunk.label}, {_place(first, last)}"
    if isinstance(error, StepError):
        return type(error)(f"{error.message} [{where}]", **{**error.facts, **facts})
    return StepError(f"{described(step, error)} [{where}; region {region}]", **facts)


def raise_from(named: Exception, error: Exception) -> NoReturn:
    """Raise an error that names what failed, with ``error`` as its cause unless it is that itself."""
    _end_causes(error)
    if named is error:
        raise named
    raise named from error


def described(step: BoundStep | BoundOutput, error: Exception) -> str:
    kind = getattr(step, "kind", "output")
    return f"{kind} {step.name!r} raised {type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's text: awkward appends a page, which stays with the cause."""
    return next((line for line in error_text(error).splitlines() if line.strip()), "(no message)")


def _end_causes(error: BaseException) -> None:
    """Cut a chain of causes that leads back to itself: printing it would never end."""
    seen = {id(error)}
    while error.__cause__ is not None:
        if id(error.__cause__) in seen:
            error.__cause__ = None
            return
        error = error.__cause__
        seen.add(id(error))


def data_error(run: ChunkRun, error: Exception) -> Exception:
    """Return the error that says that a file could not be read."""
    if isinstance(error, (DataError, OSError)):
        return error
    return DataError(f"{run.chunk.label} could not be read: {type(error).__name__}: {first_line(error)}")


def _place(first: int, last: int) -> str:
    return f"row {first}" if last == first + 1 else f"rows {first}-{last}"


# -- rows that are left out ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is left out, and why."""

    row: int  #: of the file
    step: str
    what: str  #: which function raised what
    region: str
    cause: Exception | None = None


class RowsFailed(Exception):
    """A function fails on these rows of a chunk, each by itself: the chunk is to be run without them."""

    def __init__(self, rows: tuple[LeftOut, ...]) -> None:
        super().__init__(f"{len(rows)} rows fail")
        self.rows = rows


class _NotRows(Exception):
    """The failure cannot be held against a few rows."""


class RowSearch:
    """Looks for all rows on which functions fail; its budget is for all attempts at one chunk."""

    def __init__(self, rows: int = MOST_ROWS, calls: int = MOST_CALLS) -> None:
        self._rows = rows
        self._calls = calls
        self._exceptions = KEPT_EXCEPTIONS

    def find(
        self, run: ChunkRun, step: BoundStep | BoundOutput, index: NDArray[np.int64], ask: Ask, error: Exception | None
    ) -> tuple[LeftOut, ...]:
        """Find the rows among the positions ``index`` on which a function fails; none if it is not for a few rows.

        ``error`` is what it raised on exactly these rows, if that is known.
        """

        def asked(part: NDArray[np.int64]) -> Exception | None:
            self._calls -= 1
            raised = ask(part)
            if raised is not None and not is_about_rows(raised):
                raise _NotRows
            return raised

        try:
            found, complete = failing_rows(asked, index, self._rows + 1, self._calls, error)
        except _NotRows:
            return ()
        if not complete or len(found) > self._rows:
            return ()
        self._rows -= len(found)
        return tuple(self._left_out(run, step, row, raised) for row, raised in found.items())

    def _left_out(self, run: ChunkRun, step: BoundStep | BoundOutput, row: int, error: Exception) -> LeftOut:
        cause = None
        if self._exceptions:
            self._exceptions -= 1
            # Its frames would keep the arrays of the chunk alive until the run ends.
            cause = error.with_traceback(None)
        region = run.regions_with(getattr(step, "lanes", None) or (getattr(step, "lane", 0),), row)
        return LeftOut(run.start + row, step.name, described(step, error), region, cause)


def skipped(
    rows: Iterable[LeftOut],
    input: int,  # noqa: A002 - the word of the house
    label: str,
) -> tuple[tuple[Rows, Failure], ...]:
    """Say why rows of an input were left out; neighbours with the same reason are told together."""
    groups: list[list[LeftOut]] = []
    for row in sorted(rows, key=lambda one: one.row):
        last = groups[-1][-1] if groups else None
        if last is not None and last.row + 1 == row.row and _reason(last) == _reason(row):
            groups[-1].append(row)
        else:
            groups.append([row])
    return tuple((Rows(input, group[0].row, group[-1].row + 1), _failure(group, label)) for group in groups)


def _reason(row: LeftOut) -> tuple[str, str, str]:
    return row.step, row.what, row.region


def _failure(group: list[LeftOut], label: str) -> Failure:
    first = group[0]
    start, stop = first.row, group[-1].row + 1
    message = f"{first.what} [{label}, {_place(start, stop)}; region {first.region}]"
    error = None
    if first.cause is not None:
        error = StepError(message, step=first.step, file=label, start=start, stop=stop, region=first.region)
        error.__cause__ = first.cause
    return Failure(FailureKind.USER, StepError.__name__, message, f"{first.step}, {label}", error)
