"""Skims as Parquet: a row group for each piece, lists of numbers that are never missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from windrow.data.skim.record import PARQUET_KEY, complete_record, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windrow.data.skim.write import Plan


def write(path: Path, plan: Plan, pieces: Iterator[Any], record: Mapping[str, Any]) -> None:
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
