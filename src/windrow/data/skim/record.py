"""What a skim remembers: its dataset, the sums over the rows it left out, who its rows are.

The record is JSON inside the file: in the metadata of a Parquet schema, or as a string beside the tree of a ROOT file.
It is all that tells a skim from other files, so it is looked for often and must cost next to nothing where it is not:
the bytes that would name it are searched before any library is loaded.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.data.paths import is_remote
from windrow.errors import SpecError, UsageError

if TYPE_CHECKING:
    from windrow.data.base import Input
    from windrow.data.skim.write import Plan
    from windrow.data.spec import Parsed


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
    return _decoded((metadata or {}).get(PARQUET_KEY))


def record_of_root(handle: Any) -> dict[str, Any] | None:
    if ROOT_KEY not in handle.keys(recursive=False, cycle=False):
        return None
    return _decoded(str(handle[ROOT_KEY]))


def _decoded(text: str | bytes | None) -> dict[str, Any] | None:
    with suppress(ValueError):
        record = json.loads(text or "null")
        if isinstance(record, dict) and record.get("version") == _VERSION:
            return record
    return None


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
    """Return what ``merge_records`` added; ``skim`` may also be a word of the user's own."""
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


#: Files that are all looked at, which takes some 20 microseconds each and rarely as much as half a
#: millisecond. Of more, one for each directory and dataset, and the others if that one is a skim.
LOOKED_AT = 4000

#: What is added up over the files of a dataset.
_SUMS = ("rows", "selected", "failed", "sumw", "sumw2")

_NOTHING = object()


def find_skims(parsed: Parsed) -> dict[str, list[dict[str, Any]]]:
    """Put the skims among the inputs into their datasets; return the records of each dataset.

    Datasets that the user named keep their names.
    """
    records = _records(parsed.inputs)
    if not records:
        return {}
    datasets: dict[str, list[Input]] = {}
    for one in parsed.inputs:
        record = records.get(one.index)
        name = one.dataset if parsed.named or record is None else str(record["dataset"])
        datasets.setdefault(name, []).append(one)
    said = parsed.datasets
    parsed.inputs, parsed.datasets = [], {}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, inputs in datasets.items():
        own = said[inputs[0].dataset]
        parsed.datasets[name] = dict(own) if parsed.named else {**own, "dataset": name}
        known = [(one, records[one.index]) for one in inputs if one.index in records]
        if known:
            _refuse_mixture(name, known[0][0], (one for one in inputs if one.index not in records))
            _refuse_overlap(name, known)
            found[name] = [record for _, record in known]
        for one in inputs:
            parsed.inputs.append(replace(one, index=len(parsed.inputs), dataset=name))
    return found


def merge_records(said: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the skims of a dataset agree on, under what the user says, and their sums.

    What is added is all under ``skim``, but for ``sumw`` where the user has none; ``skim["keys"]``
    names such keys, so that ``users_own`` can take them away again.
    """
    first: Mapping[str, Any] = records[0].get("metadata") or {}
    agreed = {
        key: value
        for key, value in first.items()
        if all((r.get("metadata") or {}).get(key, _NOTHING) == value for r in records[1:])
    }
    skim: dict[str, Any] = {key: records[0].get(key) for key in ("region", "cut")}
    for key in _SUMS:
        values = [record.get(key) for record in records]
        skim[key] = None if None in values else sum(values)
    sections = [record.get("lumis") for record in records]
    if None not in sections:
        skim["lumis"] = _union(sections)
    # Metadata may be that of another source of skims, whose sums are not those of these files.
    merged = {**agreed, **users_own(said)}
    skim["keys"] = []
    if skim["sumw"] is not None and "sumw" not in merged:
        skim["keys"] = ["sumw"]
        merged["sumw"] = skim["sumw"]
    return {**merged, "skim": skim}


def _union(sections: Iterable[Any]) -> dict[str, list[list[int]]]:
    ranges: dict[str, list[list[int]]] = {}
    for one in sections:
        for run, pairs in one.items():
            ranges.setdefault(run, []).extend(pairs)
    union: dict[str, list[list[int]]] = {}
    for run in sorted(ranges, key=int):
        joined = union.setdefault(run, [])
        for first, last in sorted(ranges[run]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
    return union


# -- which files are skims? -----------------------------------------------------------------------


def _records(inputs: Sequence[Input]) -> dict[int, dict[str, Any]]:
    local = [one for one in inputs if one.format != "arrays" and not is_remote(one.location)]
    groups: dict[Any, list[Input]] = {}
    for one in local:
        directory = os.path.dirname(one.location)  # noqa: PTH120 - thousands of texts
        group = one.index if len(local) <= LOOKED_AT else (directory, one.dataset)
        groups.setdefault(group, []).append(one)
    found: dict[int, dict[str, Any]] = {}
    for files in groups.values():
        for one in files:
            record = read_record(one.location, one.format)
            if record is not None:
                found[one.index] = record
            elif one is files[0]:
                break
    return found


# -- which do not add up? -------------------------------------------------------------------------


def _refuse_mixture(name: str, skim: Input, others: Iterable[Input]) -> None:
    for other in others:
        remote = is_remote(other.location)
        raise SpecError(
            f"dataset {name!r} has skims and other files, so sums of weights cannot be known: "
            f"{skim.label} is a skim, {other.label} is "
            + ("remote, where nobody looks for one" if remote else "not (or cannot be read)")
            + f"; {_apart(name, 'skim', 'other')}"
        )


def _refuse_overlap(name: str, known: Sequence[tuple[Input, Mapping[str, Any]]]) -> None:
    first_file, first = known[0]
    seen: dict[Any, Input] = {}
    for one, record in known:
        for what in ("region", "cut"):
            mine, other = first.get(what), record.get(what)
            if mine != other:
                raise SpecError(
                    f"dataset {name!r} has skims of the {what}s {mine!r} and {other!r}, "
                    f"{first_file.label} and {one.label}: rows in both would count twice; " + _apart(name, "a", "b")
                )
        for sign in _signs(one, record):
            twin = seen.setdefault(sign, one)
            if twin is not one:
                raise SpecError(
                    f"dataset {name!r} has the same rows twice: {twin.label} and {one.label} were "
                    "saved from the same rows of one dataset; open one of them, or " + _apart(name, "a", "b")
                )


def _signs(one: Input, record: Mapping[str, Any]) -> list[Any]:
    """Return what two files have in common only if they hold the same rows.

    A run writes the rows of a dataset once for each save. Another run may write them again in
    another format, beside the first file and under its name.
    """
    dataset = record.get("dataset")
    name, _ = os.path.splitext(os.path.realpath(one.location))  # noqa: PTH122 - as above
    signs: list[Any] = [("name", name, dataset, record.get("rows"), record.get("selected"))]
    if record.get("run") is not None:
        signs.append(("run", record["run"], dataset))
    return signs


def _apart(name: str, one: str, other: str) -> str:
    return f"open them under names of their own, as in {{'{name}_{one}': FILES, '{name}_{other}': FILES}}"
