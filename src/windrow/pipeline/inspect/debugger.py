"""Stopping where a step raises: the debugger opens in the user's own lines, on the smallest input that fails."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.selection import Selection
from windrow.pipeline.inspect.format_value import short
from windrow.random.each_row.python import RowRng

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep
    from windrow.errors import StepError


#: Where Windrow's own files are: their frames are not what a user wants to see.
OURS = str(Path(__file__).resolve().parents[2])


def stop_where_it_raised(
    run: ChunkRun, step: BoundStep, rows: Selection, lanes: tuple[int, ...], failure: StepError
) -> None:
    """Show file, row and arguments of a failed call, and open the debugger in the step's function."""
    import pdb

    first, last = int(failure.facts["start"]), int(failure.facts["stop"])
    if last == first + 1:
        rows = Selection(rows.length, np.array([first - run.start]))
    where = f"row {first}" if last == first + 1 else f"rows {first} to {last - 1} together"
    arguments = run.caller.gather(step.arguments, rows, lanes)
    lines = [f"{failure}", f"  file {run.chunk.label}, {where}"]
    lines += [
        f"  {argument.name} = {short(values, 72)}" for argument, values in zip(step.arguments, arguments, strict=True)
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    frames = user_frames(lambda: _call(run, step, arguments, rows), step.function)
    if frames is None:
        sys.stdout.write("  The function itself does not raise, so there is nothing to step into.\n")
        return
    pdb.post_mortem(frames)


def user_frames(call: Callable[[], Any], function: Callable[..., Any]) -> TracebackType | None:
    """Call and return the traceback from the user's function down to the deepest line of the same file; None without."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its traceback is what is asked for
        frames = list(_frames(error.__traceback__))
    else:
        return None
    code = getattr(function, "__code__", None)
    first = next(
        (
            number
            for number, part in enumerate(frames)
            if part.tb_frame.f_code is code or (code is None and not part.tb_frame.f_code.co_filename.startswith(OURS))
        ),
        None,
    )
    if first is None:
        return None
    home = frames[first].tb_frame.f_code.co_filename
    mine = [n for n, part in enumerate(frames) if part.tb_frame.f_code.co_filename == home]
    chain: TracebackType | None = None
    for part in reversed(frames[first : mine[-1] + 1]):
        chain = TracebackType(chain, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return chain


def _frames(chain: TracebackType | None) -> Any:
    while chain is not None:
        yield chain
        chain = chain.tb_next


def _call(run: ChunkRun, step: BoundStep, arguments: list[Any], rows: Selection) -> Any:
    if step.kernel is None:
        return run.caller.call(step, arguments, rows)
    # Compiled code has no frames: the plain function is called, with the numbers it would see.
    rng = RowRng(run.caller.rng(rows)) if step.wants_rng else None
    for row in range(rows.count):
        scalars = [_scalar(values, row) for values in arguments]
        drawn = {}
        if rng is not None:
            rng.move(row)
            drawn["rng"] = rng
        step.kernel.function(*scalars, **step.kernel.parameters, **drawn)
    return None


def _scalar(values: Any, row: int) -> Any:
    if values is None:
        return None
    value = values[row]
    if hasattr(value, "layout"):
        value = np.asarray(value)
    dtype = np.asarray(value).dtype
    wide = {"f": np.float64, "i": np.int64, "u": np.uint64 if dtype.itemsize == 8 else np.int64}
    number = np.asarray(value).astype(wide.get(dtype.kind, dtype))
    return number if number.ndim else number[()]
