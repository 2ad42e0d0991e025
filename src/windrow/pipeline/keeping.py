"""Keeping a result on disk, and having it back: ``keep(result, rundir)``, ``load(rundir)``, ``merge(a, b)``.

Every output is pickled by itself, so that one that cannot be kept, or cannot be read back where its class is missing,
costs nothing but itself.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import CorruptFileError, DataError, MissingFileError, WindrowError
from windrow.pipeline.merging import merge
from windrow.pipeline.result import Result
from windrow.store.rundir import RESULT, RunDirectory, is_run_directory, read_result_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

__all__ = ["ArraysNotKept", "keep", "load", "merge"]

#: Fields that say where a result is, not what it is.
_PLACE = ("log", "rundir")


def keep(result: Result, rundir: str | os.PathLike[str] | RunDirectory) -> tuple[str, ...]:
    """Write the result, its summary and the end of the manifest; returns notes on what could not be kept."""
    directory = rundir if isinstance(rundir, RunDirectory) else _directory(result, rundir)
    state, notes = _pack(result)
    content = pickle.dumps({**state, "notes kept": notes}, protocol=5)
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
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "datasets": {name: dict(metadata) for name, metadata in result.datasets.items()},
            "environment": result.environment,
        }
    )
    return notes


def load(path: str | os.PathLike[str]) -> Result:
    """Return the result that a run left in its directory; ``path`` may also be the result file itself.

    A result is a pickle: it is read only where nobody but you can have changed it.
    """
    place = Path(path)
    if place.is_dir():
        directory = RunDirectory.open(place)
        content = directory.read_result()
        return _unpack(content, str(place), str(place))
    if not place.exists():
        raise MissingFileError(f"no run directory or result file {place}", file=str(place))
    return _unpack(read_result_file(place), str(place), None)


def _directory(result: Result, path: str | os.PathLike[str]) -> RunDirectory:
    """The directory of the run itself, where it has written its log; one of another run is cleared first."""
    place = Path(path)
    mine = result.rundir is not None and Path(result.rundir).resolve() == place.resolve()
    if is_run_directory(place) and (mine or not (place / RESULT).exists()):
        return RunDirectory.open(place)
    return RunDirectory.create(place)


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
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 - there is one kind
        return ArraysNotKept()


def _pack(result: Result) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Pickle field by field and output by output; what fails is left out and noted."""
    notes: list[str] = []
    packed: dict[str, bytes] = {}
    for field in fields(result):
        if field.name not in (*_PLACE, "outputs"):
            value = getattr(result, field.name)
            if field.name == "merges":
                value = _merges_to_keep(value)
            _add(packed, field.name, value, f"{field.name!r} of the result", notes)
    outputs: dict[str, dict[Any, bytes]] = {}
    for dataset, values in result.outputs.items():
        outputs[dataset] = {}
        for key, value in values.items():
            _add(outputs[dataset], key, value, _called(dataset, key), notes)
    return {"fields": packed, "outputs": outputs}, tuple(notes)


def _merges_to_keep(merges: Mapping[str, Callable[[Any, Any], Any]]) -> dict[str, Any]:
    """Functions by name; one that has none (a lambda) cannot be kept, but that there was one is."""
    kept: dict[str, Any] = {}
    for name, function in merges.items():
        try:
            _dump(function)
        except Exception:  # noqa: BLE001 - whatever a user's object raises
            kept[name] = None
        else:
            kept[name] = function
    return kept


def _add(into: dict[Any, bytes], key: Any, value: Any, called: str, notes: list[str]) -> None:
    try:
        into[key] = _dump(value)
    except Exception as error:  # noqa: BLE001 - whatever a user's object raises
        notes.append(f"{called} was not kept: it cannot be pickled ({_said(error)})")


def _dump(value: Any) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


def _called(dataset: str, key: tuple[str, str | None, str]) -> str:
    name, region, variation = key
    return f"output {name!r} (region {region!r}, {variation}, dataset {dataset!r})"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# -- unpacking ---------------------------------------------------------------------------------


def _unpack(content: bytes, path: str, rundir: str | None) -> Result:
    try:
        state = pickle.loads(content)  # noqa: S301 - the file was found to be ours alone
        packed, outputs, notes = state["fields"], state["outputs"], list(state["notes kept"])
    except (pickle.UnpicklingError, KeyError, TypeError, EOFError) as error:
        raise CorruptFileError(f"{path} holds no result ({_said(error)})") from error
    values: dict[str, Any] = {}
    for field in fields(Result):
        if field.name in packed:
            try:
                values[field.name] = _read(packed[field.name])
            except Exception as error:
                if field.default is MISSING and field.default_factory is MISSING:
                    raise CorruptFileError(
                        f"{path}: {field.name!r} cannot be read back ({_said(error)})"
                    ) from error
                notes.append(f"{field.name!r} of the result cannot be read back ({_said(error)})")
    values["outputs"] = {}
    for dataset, kept in outputs.items():
        values["outputs"][dataset] = {}
        for key, value in kept.items():
            try:
                values["outputs"][dataset][key] = _read(value)
            except Exception as error:  # noqa: BLE001 - whatever a user's class raises
                notes.append(f"{_called(dataset, key)} cannot be read back ({_said(error)})")
    values["notes"] = (*values.get("notes", ()), *notes)
    values["rundir"] = rundir
    try:
        return Result(**values)
    except TypeError as error:
        raise CorruptFileError(f"{path} holds only part of a result ({error})") from error


def _read(content: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except WindrowError:
        raise
    except (AttributeError, ImportError) as error:
        raise DataError(f"{error}; import the module that defines it first") from error
