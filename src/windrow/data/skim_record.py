"""What a skim remembers: its dataset, the sums over the rows it left out, who its rows are.

The record is JSON inside the file: in the metadata of a Parquet schema, or as a string beside the
tree of a ROOT file. It is all that tells a skim from other files, so it is looked for often and must
cost next to nothing where it is not: the bytes that would name it are searched before any library
is loaded.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.data.paths import is_remote
from windrow.errors import SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.data.base import FileInfo, Input
    from windrow.data.skim_plan import Plan
    from windrow.data.spec import Parsed

__all__ = [
    "PARQUET_KEY",
    "ROOT_KEY",
    "complete_record",
    "counters_in",
    "encoded",
    "hidden_in",
    "made_in",
    "public",
    "read_record",
    "recall",
    "record_of_parquet",
    "record_of_root",
]

PARQUET_KEY = b"windrow"
ROOT_KEY = "windrow_skim"

_VERSION = 1
_NOTHING = object()

#: The record is at the end of a Parquet footer, which can be tens of megabytes before it.
_FOOTER_END = 4 << 20


def encoded(record: Mapping[str, Any]) -> str:
    """Return the record as text; what has no place in JSON is refused by name."""
    try:
        return json.dumps(record, default=_plain)
    except (TypeError, ValueError) as exc:
        raise UsageError(
            f"the metadata of dataset {record.get('dataset')!r} cannot be kept in a skim: {exc}; "
            "use numbers, texts, lists and mappings"
        ) from exc


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return value.tolist()
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r:.60} is a {type(value).__name__}")


def complete_record(record: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """Add what the writer knows: the version, and which column counts which lists."""
    counters: dict[str, list[str]] = {}
    for one in plan.collections:
        if one.counter is not None:
            counters.setdefault(one.counter, []).extend(one.members)
    return {"version": _VERSION, **record, "counters": counters}


def read_record(path: str | os.PathLike[str], format: str) -> dict[str, Any] | None:  # noqa: A002 - as everywhere
    """Return the record of a local file, None if it is no skim or cannot be read."""
    place = Path(path)
    try:
        if format == "parquet":
            if not _is_named_in_footer(place):
                return None
            import pyarrow.parquet as pq

            return record_of_parquet(pq.read_metadata(place).metadata)
        if not _is_named_in_keys(place):
            return None
        import uproot

        with uproot.open({str(place): None}, handler=uproot.MemmapSource) as handle:
            return record_of_root(handle)
    except (OSError, ValueError, KeyError, struct.error):
        return None  # what is wrong with the file is said where its rows are read


def record_of_parquet(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    """Return the record in the metadata of a Parquet schema."""
    return _decoded((metadata or {}).get(PARQUET_KEY))


def record_of_root(handle: Any) -> dict[str, Any] | None:
    """Return the record in an open ROOT file."""
    if ROOT_KEY not in handle.keys(recursive=False, cycle=False):
        return None
    return _decoded(str(handle[ROOT_KEY]))


def _decoded(text: str | bytes | None) -> dict[str, Any] | None:
    with suppress(ValueError):
        record = json.loads(text or "null")
        if isinstance(record, dict) and record.get("version") == _VERSION:
            return record
    return None


# -- what readers do with it ----------------------------------------------------------------------


def hidden_in(record: Mapping[str, Any] | None, columns: Iterable[str]) -> str | None:
    """Return the column of identities, if the record says there is one and it is there."""
    name = (record or {}).get("hidden")
    return name if isinstance(name, str) and name in columns else None


def made_in(record: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the columns that steps made when the file was written."""
    return frozenset((record or {}).get("made") or ())


def counters_in(record: Mapping[str, Any] | None) -> dict[str, str]:
    """Return column -> the column that counts its lists, as the record says."""
    counters: Mapping[str, Sequence[str]] = (record or {}).get("counters") or {}
    return {name: counter for counter, names in counters.items() for name in names}


def public(columns: Sequence[str], info: FileInfo) -> list[str]:
    """Return the columns of a request that users can see, too."""
    return [name for name in columns if name != info.identity_column]


# -- what a source does with it -------------------------------------------------------------------


def recall(parsed: Parsed) -> None:
    """Give the skims among the inputs their datasets and metadata back.

    Of each directory the first file is looked at, and the others only if that one is a skim.
    Datasets that the user named keep their names; what the user says about one goes first.
    """
    records = _records(parsed.inputs)
    if not records:
        return
    datasets: dict[str, list[Input]] = {}
    for one in parsed.inputs:
        record = records.get(one.index)
        name = one.dataset if parsed.named or record is None else str(record["dataset"])
        datasets.setdefault(name, []).append(one)
    said = parsed.datasets
    parsed.inputs, parsed.datasets = [], {}
    for name, inputs in datasets.items():
        known = [records[one.index] for one in inputs if one.index in records]
        own = {**said[inputs[0].dataset], "dataset": name}
        parsed.datasets[name] = _merged(name, own, known) if known else own
        for one in inputs:
            parsed.inputs.append(replace(one, index=len(parsed.inputs), dataset=name))


def _records(inputs: Sequence[Input]) -> dict[int, dict[str, Any]]:
    directories: dict[str, list[Input]] = {}
    for one in inputs:
        if one.format != "arrays" and not is_remote(one.location):
            directories.setdefault(os.path.dirname(one.location), []).append(one)  # noqa: PTH120 - thousands of texts
    found: dict[int, dict[str, Any]] = {}
    for files in directories.values():
        for one in files:
            record = read_record(one.location, one.format)
            if record is not None:
                found[one.index] = record
            elif one is files[0]:
                break
    return found


def _merged(
    name: str, said: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what the files of a dataset agree on, under what the user says, and their sums."""
    regions = dict.fromkeys(record.get("region") for record in records)
    if len(regions) > 1:
        raise SpecError(
            f"dataset {name!r} has skims of the regions {' and '.join(map(repr, regions))}: rows "
            "in both would count twice; open them under names of their own, as in "
            f"{{'{name}_a': FILES, '{name}_b': FILES}}"
        )
    first: Mapping[str, Any] = records[0].get("metadata") or {}
    agreed = {
        key: value
        for key, value in first.items()
        if all((r.get("metadata") or {}).get(key, _NOTHING) == value for r in records[1:])
    }
    skim: dict[str, Any] = {"region": next(iter(regions))}
    for key in ("rows", "selected", "sumw", "sumw2"):
        values = [record.get(key) for record in records]
        skim[key] = None if None in values else sum(values)
    merged = {**agreed, **said, "skim": skim}
    if skim["sumw"] is not None:
        merged.setdefault("sumw", skim["sumw"])
    return merged


# -- is it worth looking? -------------------------------------------------------------------------


def _is_named_in_footer(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length, magic = struct.unpack("<I4s", file.read(8))
        if magic != b"PAR1":
            return False
        file.seek(size - 8 - min(length, size - 8, _FOOTER_END))
        return PARQUET_KEY in file.read()


def _is_named_in_keys(path: Path) -> bool:
    """Search the list of keys of a ROOT file; where it is the header says, through the directory."""
    with path.open("rb") as file:
        magic, version, begin = struct.unpack(">4sii", file.read(12))
        if magic != b"root":
            return False
        # Files of more than 2 GB have two positions of 64 bits before the length of the name.
        file.seek(36 if version >= 1_000_000 else 28)
        (name_length,) = struct.unpack(">i", file.read(4))
        file.seek(begin + name_length)
        kind, _, _, length, _ = struct.unpack(">hIIii", file.read(18))
        wide = kind > 1000
        places = struct.unpack(">qqq" if wide else ">iii", file.read(24 if wide else 12))
        file.seek(places[2])
        return ROOT_KEY.encode() in file.read(length)
