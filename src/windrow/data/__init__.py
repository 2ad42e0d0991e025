"""Sources of rows: ROOT, Parquet and arrays, named in any of the forms physicists use."""

from __future__ import annotations

from windrow.data.base import MAX_UNIT_ROWS, ColumnInfo, FileInfo, Input, Reader, Source, units_within
from windrow.data.join.join import JoinedSource, join
from windrow.data.source import FileSource, open, table  # noqa: A004 - data.open(...) is how it is used
from windrow.data.stream.stream import Stream, stream

__all__ = [
    "MAX_UNIT_ROWS",
    "ColumnInfo",
    "FileInfo",
    "FileSource",
    "Input",
    "JoinedSource",
    "Reader",
    "Source",
    "Stream",
    "join",
    "open",
    "stream",
    "table",
    "units_within",
]
