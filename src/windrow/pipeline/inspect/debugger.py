"""Stopping where a step raises: the debugger opens in the user's own lines, on the smallest input that fails."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.blocks.kernels import EachKernel
from windrow.blocks.selection import Selection, union
from windrow.pipeline.inspect.rows import short

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep
    from windrow.errors import StepError


#: Where Windrow's own files are: their frames are not what a user wants to see.
OURS = str(Path(__file__).resolve().parents[2])


def stop_where_it_raised(run: ChunkRun, step: BoundStep, failure: StepError) -> None:
    """Show file, row and arguments of a failed call, and open the debugger in the step's function."""
    import pdb

    first, last = int(failure.facts["start"]), int(failure.facts["stop"])
    rows, where = union([run.selections[lane] for lane in step.lanes]), f"rows {first} to {last - 1} together"
    if last == first + 1:
        rows, where = Selection(rows.length, np.array([first - run.start])), f"row {first}"
    arguments = run.caller.gather(step.arguments, rows, step.lanes)
    lines = [f"{failure}", f"  file {run.chunk.label}, {where}"]
    lines += [f"  {one.name} = {short(values, 72)}" for one, values in zip(step.arguments, arguments, strict=True)]
    sys.stdout.write("\n".join(lines) + "\n")
    frames = _user_frames(lambda: _call(run, step, arguments, rows), step.function)
    if frames is None:
        sys.stdout.write("  The function itself does not raise, so there is nothing to step into.\n")
        return
    pdb.post_mortem(frames)


def _user_frames(call: Callable[[], Any], function: Callable[..., Any]) -> TracebackType | None:
    """Return the traceback of a call, from the user's function to the deepest line of its file; None without."""
    frames: list[TracebackType] = []
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its traceback is what is asked for
        part = error.__traceback__
        while part is not None:
            frames.append(part)
            part = part.tb_next
    codes = [frame.tb_frame.f_code for frame in frames]
    wanted = getattr(function, "__code__", None)
    if wanted is None:  # an object that is called: the first code that is not ours
        wanted = next((code for code in codes if not code.co_filename.startswith(OURS)), None)
    if wanted not in codes:
        return None
    last = max(number for number, code in enumerate(codes) if code.co_filename == wanted.co_filename)
    chain: TracebackType | None = None
    for part in reversed(frames[codes.index(wanted) : last + 1]):
        chain = TracebackType(chain, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return chain


def _call(run: ChunkRun, step: BoundStep, arguments: list[Any], rows: Selection) -> Any:
    if step.kernel is None:
        return run.caller.call(step, arguments, rows)
    # Compiled code has no frames: the plain function is called, with the numbers it would see.
    kernel = step.kernel
    plain = EachKernel(kernel.function, kernel.parameters, name=kernel.name, kind=kernel.kind, use_numba=False)
    return run.caller.each(replace(step, kernel=plain), rows)
