"""Keeping a result on disk, and having it back: ``keep(result, rundir)``, ``load(rundir)``.

Every output is pickled by itself, so that one that cannot be kept, or cannot be read back where its class is missing,
costs nothing but itself. The result remembers that there was one: half of a sum must not look like all of it.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from windrow import __version__
from windrow.data.base import Input
from windrow.data.paths import is_remote
from windrow.errors import CorruptFileError, DataError, MissingFileError
from windrow.pipeline.results.result import Result
from windrow.store.rundir import RESULT, RunDirectory, is_run_directory, read_result_file, time_text

#: Raised when results of earlier versions can no longer be read: 3 names the modules of ``pipeline/results``.
FORMAT = 3
#: Fields that say where a result is, not what it is.
_PLACE = ("log", "rundir")
#: Fields whose entries are kept one by one.
_ONE_BY_ONE = ("outputs", "merges", "not_kept")
#: Fields without which there is no result.
_REQUIRED = [field.name for field in fields(Result) if field.default is MISSING and field.default_factory is MISSING]

#: ("field", name), ("output", dataset, output, region, variation) or ("merge", output).
Part = tuple[Any, ...]


def keep(result: Result, rundir: str | os.PathLike[str] | RunDirectory) -> tuple[str, ...]:
    """Write the result, its summary and the end of the manifest; returns notes on what could not be kept.

    A path is the directory of the run itself, where it has written its log; that of another run is cleared first.
    """
    if not isinstance(rundir, RunDirectory):
        place = Path(rundir)
        mine = result.rundir is not None and Path(result.rundir).resolve() == place.resolve()
        goes_on = is_run_directory(place) and (mine or not (place / RESULT).exists())
        with RunDirectory.open(place) if goes_on else RunDirectory.create(place) as directory:
            return keep(result, directory)
    directory = rundir
    state, notes = _pack(result)
    content = pickle.dumps({**state, "format": FORMAT}, protocol=5)
    directory.write_result(content)
    directory.write_summary(replace(result, notes=(*result.notes, *notes)).to_json())
    if result.log and not directory.log.exists():
        directory.write_log(result.log)
    directory.close_log()
    directory.write_manifest(
        {
            "windrow": __version__,
            "pipeline": result.name,
            "state": "complete" if result.complete else "incomplete",
            "ended": time_text(),
            "datasets": {name: dict(metadata) for name, metadata in result.datasets.items()},
            "environment": result.environment,
        }
    )
    directory.forget_previous()
    return notes


def load(path: str | os.PathLike[str]) -> Result:
    """Return the result that a run left in its directory; ``path`` may also be the result file itself.

    A result is a pickle: it is read only where you alone can have changed it.
    """
    place = Path(path)
    if place.is_dir():
        directory = RunDirectory.open(place)
        content = directory.read_result()
        return _unpack(content, str(place), str(place))
    if not place.exists():
        raise MissingFileError(f"no run directory or result file {place}", file=str(place))
    return _unpack(read_result_file(place), str(place), None)


# -- packing -----------------------------------------------------------------------------------


class ArraysNotKept:
    """Stands for arrays in memory that were a run's input: a result keeps what they were called, not the arrays."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise DataError(
            "the rows of this result were arrays in memory, which are not kept with it: they cannot be read again"
        )


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        from windrow.data.arrays import ArrayTable

        return "arrays" if isinstance(value, ArrayTable | ArraysNotKept) else None

    def reducer_override(self, value: Any) -> Any:
        # Read-only views of metadata do not pickle; the dictionaries behind them do.
        if isinstance(value, MappingProxyType):
            return MappingProxyType, (dict(value),)
        if isinstance(value, Input):
            return _absolute(value)
        return NotImplemented


def _absolute(item: Input) -> Any:
    """Say where a local file is from anywhere: a result may be loaded from another directory."""
    facts = {field.name: getattr(item, field.name) for field in fields(item)}
    if item.format != "arrays" and not is_remote(str(item.location)):
        facts["location"] = os.path.abspath(item.location)  # noqa: PTH100 - keeps what ".." means
    return partial(Input, **facts), ()


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 - there is one kind
        return ArraysNotKept()


def _parts(result: Result) -> Iterator[tuple[Part, Any]]:
    """Return everything that is pickled by itself: fields, outputs and functions that add outputs."""
    for field in fields(result):
        if field.name not in (*_PLACE, *_ONE_BY_ONE):
            yield ("field", field.name), getattr(result, field.name)
    for dataset, values in result.outputs.items():
        for key, value in values.items():
            yield ("output", dataset, *key), value
    for name, function in result.merges.items():
        yield ("merge", name), function


def _called(part: Part) -> str:
    if part[0] != "output":
        return f"{part[1]!r} of the result"
    _, dataset, name, region, variation = part
    return f"output {name!r} (region {region!r}, {variation}, dataset {dataset!r})"


def _pack(result: Result) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Pickle part by part; what fails is left out and noted."""
    notes: list[str] = []
    packed: dict[Part, bytes | None] = {}
    not_kept = {dataset: dict(keys) for dataset, keys in result.not_kept.items()}
    for part, value in _parts(result):
        try:
            stream = io.BytesIO()
            _Pickler(stream, protocol=5).dump(value)
            packed[part] = stream.getvalue()
        except Exception as error:  # noqa: BLE001 - whatever a user's object raises
            if part[0] == "merge":
                packed[part] = None  # a function without a name (a lambda): that there was one is kept
                continue
            why = f"was not kept: it cannot be pickled ({_said(error)})"
            notes.append(f"{_called(part)} {why}")
            if part[0] == "output":
                not_kept.setdefault(part[1], {})[part[2:]] = f"it {why}"
    state = {"parts": packed, "datasets": list(result.outputs), "not kept": not_kept, "notes kept": tuple(notes)}
    return state, tuple(notes)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# -- unpacking ---------------------------------------------------------------------------------


def _unpack(content: bytes, path: str, rundir: str | None) -> Result:
    try:
        state = pickle.loads(content)  # noqa: S301 - the file was found to be ours alone
        known = "notes kept" in state
    except (pickle.UnpicklingError, TypeError, EOFError) as error:
        raise CorruptFileError(f"{path} holds no result ({_said(error)})") from error
    if not known:
        raise CorruptFileError(f"{path} holds no result")
    if state.get("format") != FORMAT:
        raise DataError(f"{path} was made by an earlier version of Windrow, and cannot be read any more: run again")
    notes, not_kept = list(state["notes kept"]), state["not kept"]
    values: dict[str, Any] = {"outputs": {name: {} for name in state["datasets"]}, "merges": {}, "not_kept": not_kept}
    for part, packed in state["parts"].items():
        try:
            value = None if packed is None else _Unpickler(io.BytesIO(packed)).load()
        except Exception as error:
            hint = (
                "; import the module that defines it first" if isinstance(error, AttributeError | ImportError) else ""
            )
            if part[0] == "merge":
                value = None  # refused where values are to be added
            elif part[0] == "field" and part[1] in _REQUIRED:
                raise CorruptFileError(f"{path}: {part[1]!r} cannot be read back ({_said(error)}{hint})") from error
            else:
                why = f"cannot be read back ({_said(error)}{hint})"
                notes.append(f"{_called(part)} {why}")
                if part[0] == "output":
                    not_kept.setdefault(part[1], {})[part[2:]] = f"it {why}"
                continue
        if part[0] == "output":
            values["outputs"][part[1]][part[2:]] = value
        elif part[0] == "merge":
            values["merges"][part[1]] = value
        else:
            values[part[1]] = value
    values["notes"] = (*values.get("notes", ()), *notes)
    values["rundir"] = rundir
    try:
        return Result(**values)
    except TypeError as error:
        raise CorruptFileError(f"{path} holds only part of a result ({error})") from error
