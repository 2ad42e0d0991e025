"""What a user may write to name data, turned into inputs. Opens nothing but a JSON fileset.

Every form becomes entries (dataset, location, tree, ...) in the order written. A bare path, list
or array is the dataset "data".
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import awkward as ak
import numpy as np

from windrow.data.arrays import ArrayTable
from windrow.data.base import Input
from windrow.data.paths import expand, file_format, is_named_like_file, is_remote, looks_like_file, split_tree
from windrow.errors import SpecError

#: The dataset of data that come without a name.
BARE_DATASET = "data"

#: What a dataset's description may say; "form" and the like are coffea's and not needed to read.
_DATASET_KEYS = {"files", "metadata", "treename", "object_path", "form", "format"}
_FILE_KEYS = {"object_path", "treename", "steps", "num_entries", "uuid", "format"}


@dataclass(slots=True)
class Parsed:
    """The inputs and the metadata of the datasets, in fileset order."""

    inputs: list[Input] = field(default_factory=list)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    named: bool = False  #: the user gave the datasets their names


def parse(spec: Any, tree: str | None = None) -> Parsed:
    """Turn any accepted form into inputs; ``tree`` is used where the form names none."""
    parsed = Parsed()
    spec = _loaded(spec)
    if _is_fileset(spec):
        parsed.named = True
        for name, dataset in spec.items():
            if not isinstance(name, str):
                raise SpecError(f"a dataset is named by a string, not by {name!r}")
            _add_dataset(parsed, name, dataset, tree)
    else:
        _add_dataset(parsed, BARE_DATASET, spec, tree)
    return parsed


def _loaded(spec: Any) -> Any:
    if isinstance(spec, str | os.PathLike):
        text = os.fspath(spec)
        if isinstance(text, str) and text.lower().endswith((".json", ".json.gz")):
            return _read_json(text)
    if hasattr(spec, "model_dump"):  # pydantic, as coffea's FilesetSpec and DatasetSpec
        return spec.model_dump()
    if hasattr(spec, "files") and hasattr(spec, "metadata"):
        return {"files": spec.files, "metadata": spec.metadata}
    return spec


def _read_json(text: str) -> Any:
    (path,) = expand(text)
    try:
        raw = Path(path).read_bytes()
        content = json.loads(gzip.decompress(raw) if path.lower().endswith(".gz") else raw)
    except (ValueError, EOFError, gzip.BadGzipFile) as exc:
        raise SpecError(f"{text} is not a JSON fileset: {exc}") from exc
    if not isinstance(content, Mapping):
        raise SpecError(f"{text} holds a JSON {type(content).__name__}, not a fileset (an object)")
    return content


# -- which form is it? ----------------------------------------------------------------------------


def _is_fileset(spec: Any) -> bool:
    """Say whether a mapping's keys are datasets (rather than files or columns)."""
    if not isinstance(spec, Mapping) or _is_described(spec):
        return False
    if not spec:
        raise SpecError("an empty mapping names no data")
    return not (_is_file_mapping(spec) or _is_column_mapping(spec))


def _is_described(spec: Mapping[Any, Any]) -> bool:
    """Say whether a mapping is one dataset's description: ``{"files": ..., "metadata": ...}``."""
    return "files" in spec and set(spec) <= _DATASET_KEYS


def _is_file_mapping(spec: Mapping[Any, Any]) -> bool:
    """Say whether the keys are files: ``{file: tree}`` or ``{file: {"object_path": ...}}``."""
    files = [isinstance(k, os.PathLike) or _names_file(k, v) for k, v in spec.items()]
    if any(files) and not all(files):
        odd = [str(k) for k, is_file in zip(spec, files, strict=True) if not is_file]
        raise SpecError(
            f"some keys of the mapping are files, but {odd[0]!r} is not: "
            "write {file: tree} or {dataset: files}, not both"
        )
    return all(files)


def _names_file(key: Any, value: Any) -> bool:
    if not isinstance(key, str) or not looks_like_file(key):
        return False
    if isinstance(value, Mapping):
        return bool(value) and set(value) <= _FILE_KEYS
    if not isinstance(value, str | None):
        return False
    # {"data": "run.root"} is a dataset, though a file called "data" may lie around.
    return is_named_like_file(key) or value is None or not is_named_like_file(value)


def _is_column_mapping(spec: Mapping[Any, Any]) -> bool:
    """Say whether the values are columns; row-wise records alone are datasets, not columns."""
    return _holds_arrays(spec) and not all(_is_record_array(value) for value in spec.values())


def _holds_arrays(spec: Mapping[Any, Any]) -> bool:
    """Say whether all values can be columns; a list of strings can, but alone it means files."""
    values = list(spec.values())
    return any(map(_is_array, values)) and all(
        _is_array(value) or (isinstance(value, list | tuple) and bool(value)) for value in values
    )


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray | ak.Array):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and not any(isinstance(item, str | os.PathLike | Mapping) for item in value)
    return hasattr(value, "__array__") and not isinstance(value, Mapping)


def _is_record_array(value: Any) -> bool:
    if isinstance(value, ak.Array):
        return bool(value.fields) and value.ndim == 1
    return isinstance(value, np.ndarray) and value.dtype.names is not None


# -- entries --------------------------------------------------------------------------------------


def _add_dataset(parsed: Parsed, name: str, spec: Any, tree: str | None) -> None:
    spec = _loaded(spec)
    metadata: Mapping[str, Any] = {}
    kind: str | None = None
    if isinstance(spec, Mapping) and _is_described(spec):
        tree = spec.get("treename") or spec.get("object_path") or tree
        metadata = spec.get("metadata") or {}
        kind = spec.get("format")
        spec = spec["files"]
    elif isinstance(spec, Mapping) and "files" in spec and not _is_column_mapping(spec):
        unknown = sorted(map(str, set(spec) - _DATASET_KEYS))
        raise SpecError(f"dataset {name!r}: unknown keys {', '.join(unknown)} beside 'files'")
    if not isinstance(metadata, Mapping):
        raise SpecError(f"dataset {name!r}: metadata must be a mapping, not {metadata!r:.60}")
    before = len(parsed.inputs)
    if _holds_arrays(spec) if isinstance(spec, Mapping) else isinstance(spec, np.ndarray | ak.Array):
        _add_arrays(parsed, name, spec)
    else:
        _add_files(parsed, name, spec, tree, kind)
    if len(parsed.inputs) == before:
        raise SpecError(f"dataset {name!r} has no files")
    parsed.datasets[name] = {"dataset": name, **metadata}


def _add_arrays(parsed: Parsed, name: str, arrays: Any) -> None:
    if isinstance(arrays, np.ndarray) and arrays.dtype.names:
        arrays = {column: arrays[column] for column in arrays.dtype.names}
    if not isinstance(arrays, Mapping) and not getattr(arrays, "fields", None):
        raise SpecError(
            f"dataset {name!r}: an array needs named fields to be data; write {{'column': array}} to name it"
        )
    table = ArrayTable(arrays, f"dataset {name!r}")
    parsed.inputs.append(
        Input(index=len(parsed.inputs), dataset=name, label=name, location=table, format="arrays", rows=table.rows)
    )


def _add_files(parsed: Parsed, name: str, spec: Any, tree: str | None, kind: str | None) -> None:
    seen: set[tuple[str, str | None]] = set()
    for text, details in _files(name, spec):
        written, own_tree = split_tree(text)
        details = {"object_path": own_tree, **details} if own_tree else details
        for path in expand(written):
            entry = _file_input(parsed, name, path, {"object_path": tree, "format": kind}, details)
            where = path if is_remote(path) else os.path.realpath(path)
            if (where, entry.tree) in seen:
                raise SpecError(f"dataset {name!r} names {path} twice; its rows would be counted twice")
            seen.add((where, entry.tree))
            parsed.inputs.append(entry)


def _files(name: str, spec: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield (path, what is said about it) of every form in which files are listed."""
    if isinstance(spec, str | os.PathLike):
        yield os.fspath(spec), {}
    elif isinstance(spec, Mapping):
        for path, value in spec.items():
            if not isinstance(path, str | os.PathLike):
                raise SpecError(f"dataset {name!r}: a file is named by a string, not by {path!r}")
            yield os.fspath(path), _details(name, path, value)
    elif isinstance(spec, Sequence | AbstractSet | Iterator):
        for item in sorted(spec, key=str) if isinstance(spec, AbstractSet) else spec:
            if isinstance(item, Mapping):
                yield from _files(name, item)
            elif isinstance(item, str | os.PathLike):
                yield os.fspath(item), {}
            else:
                raise SpecError(f"dataset {name!r}: {item!r:.60} is not a file")
    else:
        raise SpecError(
            f"dataset {name!r}: cannot read data from {spec!r:.60}; expected a path, a glob, "
            "a list of them, a fileset, a mapping of arrays or an awkward array"
        )


def _details(name: str, path: Any, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"object_path": value}
    value = value.model_dump() if hasattr(value, "model_dump") else value
    if isinstance(value, Mapping):
        unknown = sorted(map(str, set(value) - _FILE_KEYS))
        if unknown and not ("object_path" in value or "steps" in value):
            raise SpecError(f"dataset {name!r}, file {path}: unknown keys {', '.join(unknown)}")
        return {key: v for key, v in value.items() if key in _FILE_KEYS and v is not None}
    raise SpecError(
        f"dataset {name!r}, file {path}: expected the name of its tree or a mapping "
        f"with object_path and steps, not {value!r:.60}"
    )


def _file_input(parsed: Parsed, name: str, path: str, defaults: dict[str, Any], details: dict[str, Any]) -> Input:
    facts = {**defaults, **details}
    kind = facts.get("format") or file_format(path)
    if kind not in ("root", "parquet"):
        raise SpecError(f"{path}: format {kind!r} is neither 'root' nor 'parquet'")
    form: Literal["root", "parquet"] = kind
    rows = facts.get("num_entries")
    steps = facts.get("steps")
    uuid = facts.get("uuid")
    return Input(
        index=len(parsed.inputs),
        dataset=name,
        label=path,
        location=path,
        tree=None if form == "parquet" else facts.get("object_path") or facts.get("treename"),
        format=form,
        rows=None if rows is None else int(rows),
        steps=None if steps is None else _checked_steps(path, steps, rows),
        uuid=None if uuid is None else str(uuid),
    )


def _checked_steps(path: str, steps: Any, rows: int | None) -> tuple[tuple[int, int], ...]:
    """Return steps as sorted, disjoint (start, stop); uproot's flat list of offsets is one too."""
    try:
        items = list(steps)
        if items and not isinstance(items[0], Sequence | np.ndarray):
            items = list(pairwise(items))
        pairs = sorted((int(start), int(stop)) for start, stop in items)
    except (TypeError, ValueError) as exc:
        raise SpecError(f"{path}: steps must be [[start, stop], ...], not {steps!r:.60}") from exc
    last = 0
    for start, stop in pairs:
        if start < last or stop < start:
            raise SpecError(f"{path}: step [{start}, {stop}] is reversed or overlaps another one")
        if rows is not None and stop > rows:
            raise SpecError(f"{path}: step [{start}, {stop}] goes beyond its {rows} rows")
        last = stop
    return tuple(pairs)
