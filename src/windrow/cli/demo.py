"""``windrow demo``: the dimuon example on events it generates.

The example is shipped inside the package; in a checkout it is where its readers look for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.cli.loading import loaded, pipeline_in
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.pipeline.results.result import Result


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
