"""Skims as Parquet: a row group for each piece, lists of numbers that are never missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.data.skim.record import PARQUET_KEY, complete_record, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windrow.data.skim.plan import Plan


def write(path: Path, plan: Plan, pieces: Iterator[Any], record: Mapping[str, Any]) -> None:
    text = encoded(complete_record(record, plan))
    schema = plan.schema.with_metadata({PARQUET_KEY: text})
    # Dictionaries of floats cost a third of the time and make files larger.
    repeated = [name for field in schema for name in _paths(field) if _repeats(field.type)]
    with (
        pa.OSFile(str(path), "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=repeated) as writer,
    ):
        for table in pieces:
            writer.write_table(table.replace_schema_metadata(schema.metadata), table.num_rows)


def _innermost(kind: Any) -> tuple[Any, int]:
    depth = 0
    while pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind, depth = kind.value_type, depth + 1
    return kind, depth


def _paths(field: Any) -> list[str]:
    """Return what Parquet calls the stored column of a field."""
    return [field.name + ".list.element" * _innermost(field.type)[1]]


def _repeats(kind: Any) -> bool:
    """Say whether values of a type are likely to be few: integers and texts, but not flags."""
    inner, _ = _innermost(kind)
    return bool(pa.types.is_integer(inner) or pa.types.is_string(inner))
