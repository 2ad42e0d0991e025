"""A skim: fragments become one file, written by one writer, complete or not there at all.

Rows are put together to large pieces (row groups, clusters, baskets), because files of 1,500
columns pay for every piece. The file grows under a hidden name of its own and is renamed when it is
complete and on the disk, so that runs which save to one target at the same time do no harm.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from windrow.data.formats.parquet import number_type
from windrow.data.skim.fragments import Fragment, read_fragment, read_shape, shape_of
from windrow.data.skim.record import PARQUET_KEY, complete_record, encoded
from windrow.errors import UsageError, nearest

if TYPE_CHECKING:
    from windrow.data.skim.fragments import Shape


Format = Literal["parquet", "rntuple", "ttree"]

#: Format -> the function that writes it, imported when it is asked for.
FORMATS: Mapping[str, str] = {
    "parquet": "windrow.data.skim.write:write_parquet",
    "rntuple": "windrow.data.skim.root:write_rntuple",
    "ttree": "windrow.data.skim.root:write_ttree",
}

#: Rows of a piece where memory allows: what a reader takes as one unit.
PIECE_ROWS = 131_072
#: Bytes of a piece in memory.
PIECE_BYTES = 128 << 20


def write_skim(
    target: Path,
    fragments: Sequence[Fragment],
    *,
    format: Format,  # noqa: A002 - it is what users call it
    tree: str = "Events",
    record: Mapping[str, Any],
    empty: Mapping[str, Any] | None = None,
    staging: Path | None = None,
) -> tuple[int, int]:
    """Write the rows of the fragments, in their order, to one file; return how many rows and bytes it has.

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
        shape_of(empty) if empty is not None else read_shape(fragments[0]) if fragments else None,
        pieces=-(-rows // piece),
        tree=tree,
    )
    write = resolve_name(FORMATS[format])
    with _appearing(target, staging or target.parent) as part:
        write(part, plan, _pieces(filled, plan.schema, piece), record)
        size = part.stat().st_size
    return rows, size


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
    seen: dict[str, Fragment] = {}
    for fragment in fragments:
        seen.setdefault(fragment.shape, fragment)
    return {fragment.origin or fragment.path: read_shape(fragment) for fragment in seen.values()}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Columns of lists whose lengths are equal in every row."""

    prefix: str | None  #: they are called ``prefix_field``; None: a column that stands alone
    counter: str | None  #: the column that holds their lengths
    members: tuple[str, ...]

    def field(self, member: str) -> str:
        return member[len(self.prefix or "") + 1 :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The columns of a skim, how many pieces it is written in, and its name in a ROOT file."""

    schema: Any  #: pyarrow's
    collections: tuple[Collection, ...]  #: all columns of lists of numbers
    pieces: int
    tree: str


def plan_skim(shapes: Mapping[str, Shape], empty: Shape | None, *, pieces: int, tree: str) -> Plan:
    """Decide columns, types and collections from the shapes of the fragments, by file.

    ``empty`` is used where there are no rows at all, and for types that no row shows.
    """
    known = list(shapes.items()) or ([("the columns of no rows", empty)] if empty else [])
    if not known:
        raise UsageError("a skim without rows needs `empty`: columns of no rows, for their types")
    _refuse_missing(known)
    fields = []
    for name in known[0][1].fields:
        field = _common_field(name, [(file, shape.fields[name]) for file, shape in known])
        if empty is not None and name in empty.fields:
            field = field.with_type(_filled_in(field.type, empty.fields[name].type))
        fields.append(field.with_type(_filled_in(field.type, pa.float64())))
    return Plan(
        schema=pa.schema(fields), collections=_find_collections([shape for _, shape in known]), pieces=pieces, tree=tree
    )


def write_parquet(path: Path, plan: Plan, pieces: Iterator[Any], record: Mapping[str, Any]) -> None:
    text = encoded(complete_record(record, plan))
    schema = plan.schema.with_metadata({PARQUET_KEY: text})
    # Dictionaries of floats cost a third of the time and make files larger.
    repeated = [name for field in schema if (name := _repeated(field)) is not None]
    with (
        pa.OSFile(str(path), "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=repeated) as writer,
    ):
        for table in pieces:
            writer.write_table(table.replace_schema_metadata(schema.metadata), table.num_rows)


def _repeated(field: Any) -> str | None:
    """Return what Parquet calls a stored column whose values are likely to be few: integers and texts, but not flags."""
    kind, name = field.type, field.name
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind, name = kind.value_type, name + ".list.element"
    return name if pa.types.is_integer(kind) or pa.types.is_string(kind) else None


# -- types ----------------------------------------------------------------------------------------


def _refuse_missing(known: Sequence[tuple[str, Shape]]) -> None:
    first_file, first = known[0]
    for file, shape in known[1:]:
        for name in first.fields.keys() ^ shape.fields.keys():
            here, there = (first_file, file) if name in first.fields else (file, first_file)
            raise UsageError(
                f"column {name!r} is in {here} but not in {there}: a skim cannot invent its "
                f'values; leave it out with "-{name}"',
                column=name,
            )


def _common_field(name: str, fields: Sequence[tuple[str, Any]]) -> Any:
    first_file, common = fields[0]
    for file, field in fields[1:]:
        kind = _common_type(common.type, field.type)
        if kind is None:
            raise UsageError(
                f"column {name!r} is {_words(common.type)} in {first_file} and "
                f"{_words(field.type)} in {file}, and no type holds both exactly; "
                f'leave it out with "-{name}"',
                column=name,
            )
        common = pa.field(name, kind, nullable=common.nullable or field.nullable)
    return common


def _common_type(one: Any, other: Any) -> Any:
    """Return a type that holds the values of both exactly, None if there is none."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = _common_type(one.value_type, other.value_type)
        nullable = _may_miss(one.value_field) or _may_miss(other.value_field)
        return None if item is None else _list_of(item, nullable=nullable)
    left, right = number_type(one), number_type(other)
    if left is None or right is None or "b" in (left.kind, right.kind):
        return None  # a flag is no number
    wide = np.result_type(left, right)
    # NumPy turns integers of 64 bits into floats, which have 53 for them.
    exact = wide.kind != "f" or all(t.kind == "f" or t.itemsize < 8 for t in (left, right))
    return pa.from_numpy_dtype(wide) if exact else None


def is_plain_list(kind: Any) -> bool:
    """Say whether a type is lists of numbers of which none can be missing."""
    if not pa.types.is_list(kind) or kind.value_field.nullable:
        return False
    return number_type(kind.value_type) is not None


def _filled_in(kind: Any, known: Any) -> Any:
    """Return the type with what no value showed (``null``) taken from ``known``."""
    if pa.types.is_null(kind):
        return known
    if pa.types.is_list(kind):
        inner, nullable = known, _may_miss(kind.value_field)
        if pa.types.is_list(known):
            inner = known.value_type
            nullable = nullable or _may_miss(known.value_field)
        return _list_of(_filled_in(kind.value_type, inner), nullable=nullable)
    return kind


def _list_of(item: Any, *, nullable: bool) -> Any:
    return pa.list_(pa.field("item", item, nullable=nullable or pa.types.is_null(item)))


def _may_miss(field: Any) -> bool:
    """Say whether values of a field can be missing; Arrow has no other word for "no values"."""
    return bool(field.nullable and not pa.types.is_null(field.type))


def _words(kind: Any) -> str:
    return str(kind).replace(" not null", "")


# -- collections ----------------------------------------------------------------------------------


def _find_collections(shapes: Sequence[Shape]) -> tuple[Collection, ...]:
    """Group the columns of lists that have equal lengths in every fragment."""
    groups: dict[tuple[int, ...], list[str]] = {}
    where = [{name: number for number, members in enumerate(shape.lists) for name in members} for shape in shapes]
    for name in shapes[0].fields:
        if all(name in place for place in where):
            groups.setdefault(tuple(place[name] for place in where), []).append(name)
    found: dict[tuple[str | None, str | None, str], list[str]] = {}
    for key, members in groups.items():
        counters = set.intersection(*(set(shape.counts[number]) for shape, number in zip(shapes, key, strict=True)))
        for name in members:
            prefix, counter = _prefix(name, counters, shapes[0].fields)
            alone = name if prefix is None else str(key)
            found.setdefault((prefix, counter, alone), []).append(name)
    return _of_one_length(
        Collection(prefix=prefix, counter=counter, members=tuple(members))
        for (prefix, counter, _), members in found.items()
    )


def _prefix(name: str, counters: Iterable[str], columns: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the collection a column belongs to and its counter: by the counter, else by name."""
    ends = [place for place, mark in enumerate(name) if mark == "_" and place]
    parts = [(name[:end], name[end + 1 :]) for end in ends]
    # A collection and its fields must be names in any format.
    parts = [(stem, field) for stem, field in parts if stem.isidentifier() and field.isidentifier()]
    usable = [stem for stem, field in parts if stem not in columns and not field.startswith("_")]
    for stem in (name, *reversed(usable)):
        for counter in (f"n{stem}", f"N{stem}"):
            if counter in counters:
                return (None if stem == name else stem), counter
    first = name[: ends[0]] if ends else None
    return (first if first in usable else None), None


def _of_one_length(collections: Iterable[Collection]) -> tuple[Collection, ...]:
    """Give each prefix to one collection only: the one that is counted, else the largest."""
    every = list(collections)
    best: dict[str | None, Collection] = {}
    for one in sorted(every, key=lambda one: (one.counter is not None, len(one.members)), reverse=True):
        best.setdefault(one.prefix, one)
    out: list[Collection] = []
    for one in every:
        if one.prefix is None or best[one.prefix] is one:
            out.append(one)
        else:
            out += [Collection(prefix=None, counter=None, members=(name,)) for name in one.members]
    return tuple(out)


# -- values ---------------------------------------------------------------------------------------


def _as_layout(array: Any, *, nullable: bool) -> Any:
    """Return an Arrow array as an awkward layout whose form depends on its type alone."""
    kind = array.type
    if not nullable and number_type(kind) is not None:
        return ak.contents.NumpyArray(array.to_numpy(zero_copy_only=False))
    if not nullable and is_plain_list(kind):
        borders = np.asarray(array.offsets).astype(np.int64)
        values = array.values.slice(int(borders[0]), int(borders[-1] - borders[0]))
        content = ak.contents.NumpyArray(values.to_numpy(zero_copy_only=False))
        return ak.contents.ListOffsetArray(ak.index.Index64(borders - borders[0]), content)
    layout = ak.from_arrow(array, highlevel=False)
    if nullable and not layout.is_option:
        layout = ak.contents.UnmaskedArray(layout)
    return _settled(layout)


def zipped_columns(plan: Plan, table: Any) -> dict[str, Any]:
    """Return the rows of a table as layouts: collections as lists of records, all else by name."""
    whole = table.combine_chunks()
    layouts: dict[str, Any] = {}
    for field in whole.schema:
        column = whole.column(field.name)
        array = column.chunk(0) if column.num_chunks else pa.array([], field.type)
        layouts[field.name] = _as_layout(array, nullable=field.nullable)
    zipped = {name: one for one in plan.collections if one.prefix for name in one.members}
    out: dict[str, Any] = {}
    for name, layout in layouts.items():
        one = zipped.get(name)
        if one is None:
            out[name] = layout
        elif one.prefix not in out:
            lists = ak.contents.RecordArray(
                [layouts[member].content for member in one.members], [one.field(member) for member in one.members]
            )
            out[str(one.prefix)] = ak.contents.ListOffsetArray(layout.offsets, lists)
    return out


def _settled(layout: Any) -> Any:
    """Return a layout with one way to say "missing" and one to say "list".

    Arrow leaves the mask out where nothing happens to be missing.
    """
    if layout.is_option:
        option = layout.to_IndexedOptionArray64()
        return ak.contents.IndexedOptionArray(option.index, _settled(option.content))
    if layout.is_regular and not layout.is_numpy:
        return layout.copy(content=_settled(layout.content))
    if layout.is_list:
        lists = layout.to_ListOffsetArray64(True)
        return lists.copy(content=_settled(lists.content[: lists.offsets[-1]]))
    return layout
