"""Skims as an RNTuple: collections are lists of records, which store the lengths once.

Written with uproot. Compared with a vector for each column this takes half the time and four fifths
of the space; readers get the columns' own names back from the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import uproot

from windrow.data.skim_plan import number_type, zipped_columns
from windrow.data.skim_record import ROOT_KEY, complete_record, encoded
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from windrow.data.skim_plan import Plan


def write(path: Path, plan: Plan, pieces: Iterator[Any], record: Mapping[str, Any]) -> None:
    """Write the pieces to a new file, each as one cluster."""
    for field in plan.schema:
        if not _fits(field.type):
            raise UsageError(
                f"column {field.name!r} cannot be saved in an RNTuple, which uproot writes without "
                f'the type {field.type}; save as Parquet, or leave it out with "-{field.name}"',
                column=field.name,
            )
    zipped = [one.prefix for one in plan.collections if one.prefix is not None]
    text = encoded({**complete_record(record, plan), "zipped": zipped})
    with path.open("w+b") as raw, uproot.recreate(raw, compression=uproot.ZSTD(1)) as file:
        file[ROOT_KEY] = text
        ntuple = file.mkrntuple(plan.tree, _records(plan, plan.schema.empty_table()).form)
        for table in pieces:
            ntuple.extend(ak.Array(_records(plan, table)))


def _fits(kind: Any) -> bool:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _fits(kind.value_type)
    number = number_type(kind)
    return bool(pa.types.is_string(kind)) or (number is not None and number != np.float16)


def _records(plan: Plan, table: Any) -> Any:
    """Return the rows of a table as records with a field for each collection and other column."""
    layouts = zipped_columns(plan, table)
    return ak.contents.RecordArray(list(layouts.values()), list(layouts), length=table.num_rows)
