"""Naming what went wrong in a user's function: which step, file, rows and region.

A failing call is narrowed down to one row by asking again about halves; that costs a few calls, once, and saves the
user an afternoon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.blocks.selection import Selection
from windrow.errors import DataError, StepError, WindrowError

if TYPE_CHECKING:
    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundOutput, BoundStep


#: A million rows need twenty halvings; a step that fails only on many rows together ends sooner.
MAX_PROBES = 40


def named_error(run: ChunkRun, step: BoundStep | BoundOutput, rows: Selection, error: Exception) -> Exception:
    """Return the error to raise in place of ``error``."""
    if run.store.read_error is not None:
        return _data_error(run, run.store.read_error)
    kind = getattr(step, "kind", "output")
    lanes = getattr(step, "lanes", None) or (getattr(step, "lane", 0),)
    first = run.start + int(rows.positions()[0]) if rows.count else run.start
    last = run.start + int(rows.positions()[-1]) + 1 if rows.count else run.start
    culprit = None
    if kind in ("cut", "column", "weight") and not isinstance(error, WindrowError):
        culprit = _narrow(run, step, rows)  # type: ignore[arg-type]
    if culprit is not None:
        first, last = run.start + culprit, run.start + culprit + 1
    facts = {
        "step": step.name,
        "file": run.chunk.label,
        "start": first,
        "stop": last,
        "region": regions_with(run, lanes, culprit),
    }
    where = f"{run.chunk.label}, " + (f"row {first}" if last == first + 1 else f"rows {first}-{last}")
    if isinstance(error, StepError):
        found = type(error)(f"{error.message} [{where}]", **{**error.facts, **facts})
        found.__cause__ = error.__cause__
        return found
    if isinstance(error, WindrowError):
        error.facts.setdefault("step", step.name)
        return error
    return StepError(f"{described(step, error)} [{where}; region {facts['region']}]", **facts)


def described(step: BoundStep | BoundOutput, error: Exception) -> str:
    """Say which function raised what."""
    kind = getattr(step, "kind", "output")
    return f"{kind} {step.name!r} raised {type(error).__name__}: {_first_line(error)}"


def regions_with(run: ChunkRun, lanes: tuple[int, ...], row: int | None) -> str:
    """Name the regions of some lanes that still have a row of the chunk; all of them for None."""
    return ", ".join(
        sorted(str(run.program.lanes[lane].region) for lane in lanes if row is None or _has(run.selections[lane], row))
    )


def _data_error(run: ChunkRun, error: Exception) -> Exception:
    if isinstance(error, (DataError, OSError)):
        return error
    return DataError(f"{run.chunk.label} could not be read: {type(error).__name__}: {error}")


def _first_line(error: Exception) -> str:
    # awkward appends a page about the operation; the whole text stays with the cause.
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else "(no message)"


def _has(selection: Selection, row: int) -> bool:
    if selection.index is None:
        return True
    place = selection.index.searchsorted(row)
    return bool(place < len(selection.index) and selection.index[place] == row)


def _narrow(run: ChunkRun, step: BoundStep, rows: Selection) -> int | None:
    """Find one row on which the step fails by itself; None if it takes several."""
    index = rows.positions()
    probes = 0
    while len(index) > 1 and probes < MAX_PROBES:
        middle = len(index) // 2
        for half in (index[:middle], index[middle:]):
            probes += 1
            if exception_of(run, step, Selection(rows.length, half)) is not None:
                index = half
                break
        else:
            return None
    return int(index[0]) if len(index) == 1 else None


def exception_of(run: ChunkRun, step: BoundStep, rows: Selection) -> Exception | None:
    """Call a step on some rows just to see what it raises; None if it does not."""
    from windrow.blocks.calls import Meter

    try:
        if step.kernel is not None:
            run.caller.each(step, rows, Meter())
        else:
            arguments = run.caller.gather(step.arguments, rows, step.lanes)
            run.caller.call(step, arguments, rows)
    except Exception as error:  # noqa: BLE001 - that it fails is the answer
        return error
    return None
