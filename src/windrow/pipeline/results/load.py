"""Keeping a result on disk, and having it back: ``keep(result, rundir)``, ``load(rundir)``, ``merge(a, b)``.

Every output is pickled by itself, so that one that cannot be kept, or cannot be read back where its class is missing,
costs nothing but itself. The result remembers that there was one: half of a sum must not look like all of it.
"""

from __future__ import annotations

import io
import os
import pickle
from dataclasses import MISSING, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.data.base import Input
from windrow.data.paths import is_remote
from windrow.errors import CorruptFileError, DataError, MissingFileError, WindrowError
from windrow.pipeline.results.merge import merge
from windrow.pipeline.results.result import Result
from windrow.store.rundir import RESULT, RunDirectory, is_run_directory, read_result_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ArraysNotKept", "keep", "load", "merge"]

#: Raised when results of earlier versions can no longer be read: 3 names the modules of ``pipeline/results``.
FORMAT = 3
#: Fields that say where a result is, not what it is.
_PLACE = ("log", "rundir")
#: Fields whose entries are kept one by one.
_ONE_BY_ONE = ("outputs", "merges", "not_kept")


def keep(result: Result, rundir: str | os.PathLike[str] | RunDirectory) -> tuple[str, ...]:
    """Write the result, its summary and the end of the manifest; returns notes on what could not be kept."""
    if isinstance(rundir, RunDirectory):
        return _keep(result, rundir)
    with _directory(result, rundir) as directory:
        return _keep(result, directory)


def _keep(result: Result, directory: RunDirectory) -> tuple[str, ...]:
    state, notes = _pack(result)
    content = pickle.dumps({**state, "notes kept": notes, "format": FORMAT}, protocol=5)
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
    directory.forget_previous()
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
        if isinstance(value, Input):
            return _absolute(value)
        return NotImplemented


def _absolute(item: Input) -> Any:
    """Say where a local file is from anywhere: a result may be loaded by somebody who stands in another directory."""
    facts = {field.name: getattr(item, field.name) for field in fields(item)}
    if item.format != "arrays" and not is_remote(str(item.location)):
        facts["location"] = os.path.abspath(item.location)  # noqa: PTH100 - keeps what ".." means
    return partial(Input, **facts), ()


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002 - there is one kind
        return ArraysNotKept()


def _pack(result: Result) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Pickle field by field and output by output; what fails is left out and noted."""
    notes: list[str] = []
    packed: dict[str, bytes] = {}
    for field in fields(result):
        if field.name not in (*_PLACE, *_ONE_BY_ONE):
            value = getattr(result, field.name)
            _add(packed, field.name, value, f"{field.name!r} of the result", notes)
    outputs: dict[str, dict[Any, bytes]] = {}
    not_kept = {dataset: dict(keys) for dataset, keys in result.not_kept.items()}
    for dataset, values in result.outputs.items():
        outputs[dataset] = {}
        for key, value in values.items():
            why = _add(outputs[dataset], key, value, _called(dataset, key), notes)
            if why:
                not_kept.setdefault(dataset, {})[key] = why
    merges = {name: _merge_to_keep(function) for name, function in result.merges.items()}
    state = {"fields": packed, "outputs": outputs, "merges": merges, "not kept": not_kept}
    return state, tuple(notes)


def _merge_to_keep(function: Callable[[Any, Any], Any] | None) -> bytes | None:
    """A function goes by its name; one that has none (a lambda) cannot be kept, but that there was one is."""
    try:
        return _dump(function)
    except Exception:  # noqa: BLE001 - whatever a user's object raises
        return None


def _add(into: dict[Any, bytes], key: Any, value: Any, called: str, notes: list[str]) -> str:
    """Pickle a value; return why it was not kept, nothing if it was."""
    try:
        into[key] = _dump(value)
    except Exception as error:  # noqa: BLE001 - whatever a user's object raises
        why = f"was not kept: it cannot be pickled ({_said(error)})"
        notes.append(f"{called} {why}")
        return f"it {why}"
    return ""


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
        packed, notes = state["fields"], list(state["notes kept"])
        outputs, merges, not_kept = state["outputs"], state["merges"], state["not kept"]
    except (pickle.UnpicklingError, KeyError, TypeError, EOFError) as error:
        raise CorruptFileError(f"{path} holds no result ({_said(error)})") from error
    if state.get("format") != FORMAT:
        raise DataError(f"{path} was made by an earlier version of Windrow, and cannot be read any more: run again")
    values: dict[str, Any] = {}
    for field in fields(Result):
        if field.name in packed:
            try:
                values[field.name] = _read(packed[field.name])
            except Exception as error:
                if field.default is MISSING and field.default_factory is MISSING:
                    raise CorruptFileError(f"{path}: {field.name!r} cannot be read back ({_said(error)})") from error
                notes.append(f"{field.name!r} of the result cannot be read back ({_said(error)})")
    values["outputs"] = _outputs(outputs, not_kept, notes)
    values["not_kept"] = not_kept
    values["merges"] = {name: _merge_kept(function) for name, function in merges.items()}
    values["notes"] = (*values.get("notes", ()), *notes)
    values["rundir"] = rundir
    try:
        return Result(**values)
    except TypeError as error:
        raise CorruptFileError(f"{path} holds only part of a result ({error})") from error


def _outputs(
    packed: Mapping[str, Mapping[Any, bytes]], not_kept: dict[str, Any], notes: list[str]
) -> dict[str, dict[Any, Any]]:
    """Read the outputs; those that cannot be read are noted, and join those that were not kept."""
    found: dict[str, dict[Any, Any]] = {}
    for dataset, values in packed.items():
        found[dataset] = {}
        for key, value in values.items():
            try:
                found[dataset][key] = _read(value)
            except Exception as error:  # noqa: BLE001 - whatever a user's class raises
                why = f"cannot be read back ({_said(error)})"
                notes.append(f"{_called(dataset, key)} {why}")
                not_kept.setdefault(dataset, {})[key] = f"it {why}"
    return found


def _merge_kept(packed: bytes | None) -> Callable[[Any, Any], Any] | None:
    """Return the function; None, which is refused where values are to be added, if it cannot be had here."""
    if packed is None:
        return None
    try:
        function: Callable[[Any, Any], Any] | None = _read(packed)
    except Exception:  # noqa: BLE001 - whatever importing a user's module raises
        return None
    return function


def _read(content: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except WindrowError:
        raise
    except (AttributeError, ImportError) as error:
        raise DataError(f"{error}; import the module that defines it first") from error
