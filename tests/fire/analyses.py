"""The analysis that is set on fire: its sums depend on the order of additions, so that a wrong one shows.

Trouble is a function that is called with the row numbers of every block. It is looked up by name, so that a driver in
another process can be told of it too. Imported by worker processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BAD", "PACE", "TROUBLES", "UNIT", "analysis", "data", "opened", "said", "write_file"]

#: Rows of a unit, which is also a chunk of most tests here.
UNIT = 20
#: The row at which trouble waits, wherever it waits at a row.
BAD = 333
#: Seconds that a unit takes where somebody is to be killed meanwhile.
PACE = 0.03
MB = 1_000_000


def data(units: int) -> dict[str, Any]:
    """Make rows whose sums come out differently when they are added in another order."""
    rng = np.random.default_rng(7)
    rows = units * UNIT
    return {
        "row": np.arange(rows),
        "x": rng.random(rows),
        "y": rng.random(rows) * 10.0 ** rng.integers(-8, 8, rows),
        "g": rng.normal(1.0, 0.2, rows),
    }


def opened(units: int, file: str = "") -> Any:
    """Open them with units of their own, from memory or from a file."""
    return wr.data.open({"data": [file]} if file else data(units), grid=UNIT)


def write_file(path: Path, units: int) -> str:
    """Write them to a file whose row groups are the units."""
    pq.write_table(pa.table(data(units)), path, row_group_size=UNIT)
    return str(path)


def analysis(trouble: str = "none", pace: float = 0.0, place: str = "") -> wr.Pipeline:
    """Make the analysis; ``pace`` is what a unit takes, ``place`` a directory for trouble to use."""
    made = wr.Pipeline("under fire")
    happens = TROUBLES[trouble]

    @made.weight
    def w(g: Any) -> Any:
        return g

    @made.cut
    def some(x: Any) -> Any:
        return x > 0.2

    @made.cut
    def more(y: Any) -> Any:
        return y > 0.3

    made.region("A", "some")
    made.region("B", "some", "more")

    @made.column
    def hard(row: Any, x: Any) -> Any:
        if pace:
            time.sleep(pace * len(row) / UNIT)
        happens(row, place)
        return np.sqrt(x)

    @made.output
    def count(x: Any) -> Any:
        return len(x)

    @made.output
    def weighted(x: Any, weight: Any) -> Any:
        return np.histogram(x, bins=20, range=(0.0, 1.0), weights=weight)[0]

    @made.output
    def total(y: Any, hard: Any) -> Any:
        return (y * hard).sum()

    @made.output(region=None)
    def everything(row: Any, hard: Any) -> Any:
        return np.array([len(row), row.sum(), hard.sum()])

    return made


def said(result: Any) -> dict[str, Any]:
    """Everything of a result that must not depend on how it came about, bit by bit."""
    outputs = {
        (dataset, *key): np.asarray(value).tobytes()
        for dataset, values in result.outputs.items()
        for key, value in values.items()
    }
    kept = {
        (region, number): result.kept.rows(region, number).tolist()
        for region in result.regions
        for number in range(len(result.kept.files))
    }
    return {"outputs": outputs, "cutflow": result.cutflow.as_dict(), "kept": kept}


# -- trouble -----------------------------------------------------------------------------------------


def hold(megabytes: int) -> list[bytearray]:
    """Take memory that is really there, page by page."""
    held = []
    for _ in range(megabytes):
        held.append(bytearray(MB))
        held[-1][::4096] = b"x" * len(held[-1][::4096])
    return held


def hog(row: Any, place: str) -> None:
    if BAD in row:
        hold(4000)
        raise AssertionError("nobody stopped it")


def hog_in_a_child(row: Any, place: str) -> None:
    if BAD in row:
        code = f"import sys; sys.path[:] = {sys.path!r}; from fire.analyses import hold; hold(4000)"
        subprocess.run([sys.executable, "-c", code], check=False)
        raise AssertionError("nobody stopped it")


def hog_together(row: Any, place: str) -> None:
    """More than fits for several units at once, and little for one."""
    if len(row) > UNIT:
        hold(4000)


def leave(row: Any, place: str) -> None:
    if BAD in row:
        os._exit(3)


def leave_once(row: Any, place: str) -> None:
    """A few rows that end their worker the first time only."""
    for number in (BAD, 2 * BAD, 3 * BAD):
        if number in row:
            with contextlib.suppress(FileExistsError):
                Path(place, f"left {number}").touch(exist_ok=False)
                os._exit(3)


def segfault(row: Any, place: str) -> None:
    if BAD in row:
        ctypes.string_at(0)


def hang(row: Any, place: str) -> None:
    if BAD in row:
        time.sleep(3600)


def kill_once(row: Any, place: str) -> None:
    """Somebody kills a worker in the middle of a task."""
    if BAD in row and _is_first(place, "killed"):
        os.kill(os.getpid(), signal.SIGKILL)


def kill_node_once(row: Any, place: str) -> None:
    """Somebody kills the process that has the workers of this node of a cluster."""
    if BAD in row and _is_first(place, "node killed"):
        os.kill(_node(), signal.SIGKILL)


def _node() -> int:
    """The process of Dask that has the workers of this node of a cluster."""
    server = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(server.rpartition(")")[2].split()[1])


def _is_first(place: str, name: str) -> bool:
    with contextlib.suppress(FileExistsError):
        Path(place, name).touch(exist_ok=False)
        return True
    return False


def stop_once(row: Any, place: str) -> None:
    """Somebody stops a worker in the middle of a task and forgets about it."""
    if BAD in row:
        with contextlib.suppress(FileExistsError):
            Path(place, "stopped").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGSTOP)


def interrupt_once(row: Any, place: str) -> None:
    """Somebody types Ctrl-C when this row is reached; the driver's number is in a file."""
    if BAD in row:
        with contextlib.suppress(FileExistsError):
            Path(place, "interrupted").touch(exist_ok=False)
            os.kill(int(Path(place, "driver").read_text()), signal.SIGINT)


class CannotBePickledError(Exception):
    """Holds what no other process can have."""

    def __init__(self, number: int) -> None:
        super().__init__(f"row {number} is bad")
        self.thing = (number for _ in range(3))


class CannotBeMadeAgainError(Exception):
    """Is pickled without complaint; making it again needs an argument that pickle does not know of."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"row {number} is bad: {why}")


class BecomesAnotherError(Exception):
    """Is pickled as something that is no exception."""

    def __reduce__(self) -> Any:
        return int, (3,)


def raise_unpicklable(row: Any, place: str) -> None:
    if BAD in row:
        raise CannotBePickledError(BAD)


def raise_unmakable(row: Any, place: str) -> None:
    if BAD in row:
        raise CannotBeMadeAgainError(BAD, "so it is")


def raise_another(row: Any, place: str) -> None:
    if BAD in row:
        raise BecomesAnotherError(f"row {BAD} is bad")


def raise_in_unit(row: Any, place: str) -> None:
    """Every row of the unit raises: in this thread that leaves out what ending a worker leaves out in another."""
    if (row // UNIT == BAD // UNIT).any():
        raise ValueError("this unit is bad")


def note_unit(row: Any, place: str) -> None:
    """Write down which units run on which node."""
    if len(row) == UNIT:
        with Path(place, "units").open("a") as notes:
            notes.write(f"{_node()} {row[0] // UNIT}\n")


def nothing(row: Any, place: str) -> None:
    pass


TROUBLES: dict[str, Callable[[Any, str], None]] = {
    "none": nothing,
    "notes": note_unit,
    "a hog": hog,
    "a hog in a child": hog_in_a_child,
    "a hog of large chunks": hog_together,
    "an exit": leave,
    "exits that do not come again": leave_once,
    "a segfault": segfault,
    "a hang": hang,
    "a worker that is stopped": stop_once,
    "a worker that is killed": kill_once,
    "a node that is killed": kill_node_once,
    "an interrupt": interrupt_once,
    "an exception of every row of a unit": raise_in_unit,
    "an exception that cannot be pickled": raise_unpicklable,
    "an exception that cannot be made again": raise_unmakable,
    "an exception that becomes something else": raise_another,
}
