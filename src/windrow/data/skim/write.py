"""A skim: fragments become one file, written by one writer, complete or not there at all.

Rows are put together to large pieces (row groups, clusters, baskets), because files of 1,500
columns pay for every piece. The file grows under a hidden name of its own and is renamed when it is
complete and on the disk, so that runs which save to one target at the same time do no harm.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from windrow.data.skim.fragments import Fragment, read_fragment, read_shape, shape_of
from windrow.data.skim.plan import plan_skim
from windrow.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


Format = Literal["parquet", "rntuple", "ttree"]

#: Format -> the function that writes it, imported when it is asked for.
FORMATS: Mapping[str, str] = {
    "parquet": "windrow.data.skim.parquet:write",
    "rntuple": "windrow.data.skim.root:write_rntuple",
    "ttree": "windrow.data.skim.root:write_ttree",
}

#: Rows of a piece where memory allows: what a reader takes as one unit.
PIECE_ROWS = 131_072
#: Bytes of a piece in memory.
PIECE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SkimFile:
    """A file that was written."""

    path: str
    rows: int
    bytes: int
    format: str


def write_skim(
    target: Path,
    fragments: Sequence[Fragment],
    *,
    format: Format,  # noqa: A002 - it is what users call it
    tree: str = "Events",
    record: Mapping[str, Any],
    empty: Mapping[str, Any] | None = None,
    staging: Path | None = None,
) -> SkimFile:
    """Write the rows of the fragments, in their order, to one file.

    ``record`` is kept in the file, see ``record.py``. ``empty`` has the columns of no rows: of a skim that selected
    nothing they are all there is to see. The file grows in ``staging``, which is on the target's file system and
    cleared by the caller after a kill; without it beside the target.
    """
    if format not in FORMATS:
        raise UsageError(f"a skim is written as {', '.join(FORMATS)}, not as {format!r}{nearest(format, FORMATS)}")
    filled = [fragment for fragment in fragments if fragment.rows]
    rows = sum(fragment.rows for fragment in filled)
    piece = piece_rows(rows, sum(fragment.memory for fragment in filled))
    plan = plan_skim(
        _shapes(filled),
        shape_of(empty) if empty is not None else _shape_of_nothing(fragments),
        pieces=-(-rows // piece),
        tree=tree,
    )
    write = resolve_name(FORMATS[format])
    with _appearing(target, staging or target.parent) as part:
        write(part, plan, _pieces(filled, plan.schema, piece), record)
        size = part.stat().st_size
    return SkimFile(path=str(target), rows=rows, bytes=size, format=format)


def piece_rows(rows: int, memory: int) -> int:
    """Return how many rows are written at once.

    A power of two, so that it does not change with the last digits of ``memory``: units of the
    skim, and with them the rounding of sums over it, rest on it.
    """
    if not rows or memory * PIECE_ROWS <= PIECE_BYTES * rows:
        return PIECE_ROWS
    affordable = max(PIECE_BYTES * rows // memory, 1)
    return 1 << (affordable.bit_length() - 1)


def _shapes(fragments: Sequence[Fragment]) -> dict[str, Any]:
    """Return the distinct shapes, each under a fragment that has it."""
    seen: dict[str, Fragment] = {}
    for fragment in fragments:
        seen.setdefault(fragment.shape, fragment)
    return {fragment.origin or fragment.path: read_shape(fragment) for fragment in seen.values()}


def _shape_of_nothing(fragments: Sequence[Fragment]) -> Any:
    return read_shape(fragments[0]) if fragments else None


# -- rows -----------------------------------------------------------------------------------------


def _pieces(fragments: Sequence[Fragment], schema: Any, rows: int) -> Iterator[Any]:
    """Yield tables of ``rows`` rows, the last of the rest; they map the fragments' memory."""
    waiting: list[Any] = []
    count = 0
    for fragment in fragments:
        for batch in read_fragment(fragment):
            rest = _fitted(batch, schema)
            while count + rest.num_rows >= rows:
                head = rows - count
                yield pa.Table.from_batches([*waiting, rest.slice(0, head)], schema)
                waiting, count, rest = [], 0, rest.slice(head)
            if rest.num_rows:
                waiting.append(rest)
                count += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _fitted(batch: Any, schema: Any) -> Any:
    if batch.schema.equals(schema):
        return batch
    place = {field.name: number for number, field in enumerate(batch.schema)}
    columns = []
    for field in schema:
        array = batch.column(place[field.name])
        columns.append(array if array.type.equals(field.type) else array.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# -- files ----------------------------------------------------------------------------------------


@contextmanager
def _appearing(target: Path, place: Path) -> Iterator[Path]:
    """Give a hidden file in ``place`` that becomes ``target`` once it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = place / f".{target.name}.part-{secrets.token_hex(8)}"
    part.touch(exist_ok=False)
    try:
        yield part
        _reach_disk(part)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _reach_disk(target.parent)


def _reach_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
