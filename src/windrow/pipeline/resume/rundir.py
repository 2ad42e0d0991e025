"""The run directory while a run goes on: what it set out to do is written first, how it ended last."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError, WindrowError
from windrow.pipeline.resume.step_digest import contents_used
from windrow.store.rundir import RunDirectory
from windrow.watch.environment import commit_of, environment, installed_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.data.base import Source
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.options import Options


#: Options that say where things go, not what the run is.
_ASIDE = ("rundir", "progress", "block_rows", "split", "resume")


@contextmanager
def running_in(options: Options, definition: Definition, source: Source) -> Iterator[RunDirectory | None]:
    """Make the run directory, if one was asked for, for this run alone; note in it if the body fails."""
    if options.rundir is None:
        yield None
        return
    try:
        make = RunDirectory.resume if options.resume else RunDirectory.create
        directory = make(options.rundir)
    except OSError as error:
        raise _unusable(options, error) from error
    with directory:
        try:
            directory.write_manifest(_facts(options, definition, source))
        except OSError as error:
            raise _unusable(options, error) from error
        try:
            yield directory
        except BaseException as error:
            words = str(error) if isinstance(error, WindrowError) else f"{type(error).__name__}: {error}"
            directory.write_manifest({"state": "failed", "error": words, "ended": _now()})
            raise


def _unusable(options: Options, error: OSError) -> UsageError:
    return UsageError(f"rundir= {options.rundir} cannot be written to: {error}")


def _facts(options: Options, definition: Definition, source: Source) -> dict[str, Any]:
    chosen = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in _ASIDE}
    return {
        "windrow": __version__,
        "pipeline": definition.name,
        "state": "running",
        "started": _now(),
        "options": chosen,
        "regions": {region: dict(cuts) for region, cuts in definition.regions.items()},
        "steps": {name: step.kind for name, step in definition.steps.items()},
        "contents": {name: used for name, step in definition.steps.items() if (used := contents_used(step))},
        "datasets": {name: dict(metadata) for name, metadata in source.datasets.items()},
        "inputs": [{"dataset": item.dataset, "file": item.label} for item in source.inputs],
        "commit": commit_of(_home(definition)),
        "environment": environment(),
        "packages": installed_packages(),
    }


def _home(definition: Definition) -> Path | None:
    for step in definition.steps.values():
        code = getattr(step.function, "__code__", None)
        if code is not None and Path(code.co_filename).is_file():
            return Path(code.co_filename).parent
    return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
