"""Finding the pipeline in an analysis file, and the data the file names.

The file is executed as a module of its own name with its directory on ``sys.path``, as far as both
are free, so that its helpers and its pickles are found. Nothing here runs a pipeline.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import isroutine
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from windrow.errors import InternalError, UnknownNameError, UsageError, nearest

if TYPE_CHECKING:
    from windrow.pipeline.pipeline import Pipeline
    from windrow.pipeline.results.result import Result


#: The name that wins where a file has several pipelines, and the names of the file's own data.
USUAL_NAME = "analysis"
DATA_NAMES = ("data", "fileset")


class LoadError(UsageError):
    """The analysis file raised while it was executed; the cause has the traceback."""


def split_target(target: str) -> tuple[Path, str | None]:
    path, colon, name = target.rpartition(":")
    picks = bool(colon) and path.endswith(".py") and not Path(target).exists()
    file, pick = (Path(path), name) if picks else (Path(target), None)
    if not file.is_file():
        what = "is a directory" if file.is_dir() else "does not exist"
        raise UsageError(f"the analysis file {file} {what}; expected a Python file")
    if file.suffix != ".py":
        raise UsageError(
            f"the analysis file must be a Python file (.py), got {file}; write: windrow run ANALYSIS.py DATA..."
        )
    return file, pick


@contextmanager
def loaded(file: Path) -> Iterator[ModuleType]:
    """Execute a Python file as a module; it can be imported by its name inside the block."""
    file = file.resolve()
    # A file called random.py must not become everybody's module "random".
    taken = file.stem in sys.modules or file.stem in sys.stdlib_module_names
    name = f"windrow_{file.stem}" if taken else file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    former, path = sys.modules.get(name), list(sys.path)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    try:
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, SystemExit):
                why = f"it ended itself with exit code {error.code}; guard that by __name__ == '__main__'"
            raise LoadError(f"{file.name} could not be loaded: {why}") from error
        yield module
    finally:
        sys.path[:] = path
        del sys.modules[name]
        if former is not None:
            sys.modules[name] = former


def pipeline_in(module: ModuleType, file: Path, pick: str | None = None) -> Pipeline:
    from windrow.pipeline.pipeline import Pipeline

    found = {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}
    if pick is not None:
        if pick in found:
            return found[pick]
        there = f"pipelines: {', '.join(found)}" if found else "it has no pipeline"
        raise UnknownNameError(f"{file} has no pipeline {pick!r}{nearest(pick, found)} ({there})")
    if not found:
        raise UsageError(
            f'{file} has no pipeline: expected one at the top level, such as analysis = wr.Pipeline("name")'
        )
    if USUAL_NAME in found or len({id(pipeline) for pipeline in found.values()}) == 1:
        return found.get(USUAL_NAME) or next(iter(found.values()))
    choices = " or ".join(f"{file}:{name}" for name in found)
    raise UsageError(f"{file} has {len(found)} pipelines; pick one: {choices}")


def data_in(module: ModuleType, file: Path) -> Any:
    for name in DATA_NAMES:
        value = getattr(module, name, None)
        # "from windrow import data" is no data.
        if value is None or isinstance(value, ModuleType | type) or isroutine(value):
            continue
        return value
    raise UsageError(f"no data: name files after {file}, or define {' or '.join(map(repr, DATA_NAMES))} in it")


def data_of(arguments: tuple[str, ...]) -> Any:
    filesets = [text for text in arguments if text.lower().endswith((".json", ".json.gz"))]
    if len(arguments) == 1:
        return arguments[0]
    if filesets:
        raise UsageError(
            f"a fileset stands alone, but {filesets[0]} came with {len(arguments) - 1} more; name one fileset, or files"
        )
    return list(arguments)


# -- the dimuon example, shipped inside the package; in a checkout it is where its readers look for it


#: The files of the example that the demo needs.
FILES = ("generate.py", "analysis.py")
#: Where they are: in an installed package (see pyproject.toml), or in a checkout.
PLACES = (Path(__file__).parent / "dimuon", Path(__file__).resolve().parents[3] / "examples" / "dimuon")
#: How many files the generator writes.
DATA_FILES = 6


def example_directory(places: tuple[Path, ...] = PLACES) -> Path:
    for place in places:
        if all((place / name).is_file() for name in FILES):
            return place
    raise InternalError(
        f"the demo's files {' and '.join(FILES)} are not in {' or '.join(map(str, places))}; install Windrow again"
    )


def generated(directory: Path, rows: int) -> Any:
    with loaded(example_directory() / "generate.py") as module:
        return module.generate(directory, rows_per_file=-(-rows // DATA_FILES))


def run_example(fileset: Any, **options: Any) -> Result:
    file = example_directory() / "analysis.py"
    with loaded(file) as module:
        return pipeline_in(module, file).run(fileset, **options)
