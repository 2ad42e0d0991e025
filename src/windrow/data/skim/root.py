"""Skims in ROOT files, written with uproot: as an RNTuple, or as a TTree for programs that read nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import uproot

from windrow.data.formats.parquet import number_type
from windrow.data.skim.record import ROOT_KEY, complete_record, encoded
from windrow.data.skim.write import is_plain_list, zipped_columns
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.data.skim.write import Plan


def write_ttree(path: Path, plan: Plan, pieces: Iterator[Any], record: Mapping[str, Any]) -> None:
    counters = _counters(plan)
    counted = set(counters.values())
    branches = _branches(plan, counted)
    text = encoded(complete_record(record, plan))
    with path.open("w+b") as raw, uproot.recreate(raw, compression=uproot.ZSTD(1)) as file:
        file[ROOT_KEY] = text
        tree = file.mktree(
            plan.tree,
            branches,
            counter_name=lambda name: counters.get(name, f"n{name}"),
            field_name=lambda prefix, field: f"{prefix}_{field}",
            # Room for all baskets: a tree of 1,500 branches takes seconds to be moved.
            initial_basket_capacity=plan.pieces + 2,
        )
        for table in pieces:
            layouts = {n: layout for n, layout in zipped_columns(plan, table).items() if n not in counted}
            lists = {n for n, layout in layouts.items() if layout.is_list and not layout.is_regular}
            tree.extend({n: ak.Array(one) if n in lists else ak.to_numpy(one) for n, one in layouts.items()})


def _counters(plan: Plan) -> dict[str, str]:
    """Return the counter of every list branch; a name that is taken by other numbers is avoided."""
    out: dict[str, str] = {}
    for one in plan.collections:
        name = one.prefix or one.members[0]
        counter = one.counter or f"n{name}"
        while one.counter is None and counter in plan.schema.names:
            counter += "_saved"
        out[name] = counter
    return out


def _branches(plan: Plan, counted: set[str]) -> dict[str, Any]:
    zipped = {name: one for one in plan.collections for name in one.members if one.prefix}
    branches: dict[str, Any] = {}
    for field in plan.schema:
        one = zipped.get(field.name)
        if field.name in counted:
            continue  # uproot counts the lists itself
        if one is None:
            branches[field.name] = _branch_type(field)
        elif one.prefix not in branches:
            kinds = [_number(plan.schema.field(name)) for name in one.members]
            fields = [one.field(name) for name in one.members]
            branches[str(one.prefix)] = ak.types.ListType(ak.types.RecordType(kinds, fields))
    return branches


def _branch_type(field: Any) -> Any:
    if is_plain_list(field.type) and not field.nullable:
        return ak.types.ListType(_number(field))
    if pa.types.is_string(field.type) and not field.nullable:
        character = ak.types.NumpyType("uint8", parameters={"__array__": "char"})
        return ak.types.ListType(character, parameters={"__array__": "string"})
    kind, shape = field.type, []
    while pa.types.is_fixed_size_list(kind) and not kind.value_field.nullable:
        shape.append(kind.list_size)
        kind = kind.value_type
    number = number_type(kind)
    if number is None or field.nullable or number == np.float16:
        raise _unsavable(field)
    return np.dtype((number, tuple(shape))) if shape else number


def _number(field: Any) -> Any:
    number = number_type(field.type.value_type)
    if number is None or number == np.float16:
        raise _unsavable(field)
    return ak.types.NumpyType(number.name)


def _unsavable(field: Any) -> UsageError:
    kind = f"{field.type}, values may be missing" if field.nullable else str(field.type)
    return UsageError(
        f"column {field.name!r} cannot be saved in a TTree: its type is {kind}; "
        f'save as Parquet or RNTuple, or leave it out with "-{field.name}"',
        column=field.name,
    )


def write_rntuple(path: Path, plan: Plan, pieces: Iterator[Any], record: Mapping[str, Any]) -> None:
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
    layouts = zipped_columns(plan, table)
    return ak.contents.RecordArray(list(layouts.values()), list(layouts), length=table.num_rows)
