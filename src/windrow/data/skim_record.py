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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.data.base import FileInfo
    from windrow.data.skim_plan import Plan


PARQUET_KEY = b"windrow"
ROOT_KEY = "windrow_skim"

_VERSION = 1

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


# -- what a dataset says when its files are skims -------------------------------------------------


def users_own(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataset's metadata without what opening its skims added.

    A skim made from skims keeps this: sums that were put in with the last files must not be taken
    for something that the user said.
    """
    skim = _added(metadata)
    ours = () if skim is None else ("skim", *skim["keys"])
    return {key: value for key, value in metadata.items() if key not in ours}


def original_sums(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return rows, sumw and sumw2 of what the skims of a dataset were made from; None: no skims.

    A sum is None where one of the files does not know it.
    """
    skim = _added(metadata)
    return None if skim is None else {key: skim.get(key) for key in ("rows", "sumw", "sumw2")}


def _added(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what ``skim_recall`` added; ``skim`` may also be a word of the user's own."""
    skim = metadata.get("skim")
    return skim if isinstance(skim, Mapping) and {"keys", "rows"} <= skim.keys() else None


# -- is it worth looking? -------------------------------------------------------------------------


def _is_named_in_footer(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 8, 0))
        length, magic = struct.unpack("<I4s", file.read(8))
        if magic != b"PAR1":
            return False
        file.seek(size - 8 - min(length, size - 8, _FOOTER_END))
        # From the end: it is close to it, and the search is several times as fast that way.
        return file.read().rfind(PARQUET_KEY) >= 0


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
