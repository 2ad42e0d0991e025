"""``windrow new``: a directory with an analysis that runs, written for the files it is for."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.cli.contents import Together
    from windrow.cli.skeleton import Dataset


#: Files of each --from that are opened: a dataset's files are alike, and opening thousands takes
#: minutes.
LOOKED_AT = 10


@click.command("new")
@click.argument("name")
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="FILE[:TREE]",
    help="A file, or a glob, the analysis is for; each one is a dataset. May be repeated.",
)
@click.option(
    "--kind",
    type=click.Choice(["pipeline", "task", "study"]),
    default="pipeline",
    show_default=True,
    help="An analysis of rows; a graph of tasks; or a plain program to grow into a study.",
)
@click.option("--debug", is_flag=True, help="Show the whole traceback of an error.")
def command(name: str, sources: tuple[str, ...], kind: str, debug: bool) -> int:
    """Write the directory NAME with an analysis, its test and a README.

    Looks at the files: triggers, objects, weights and ranges are theirs. Nothing is overwritten.
    """
    from windrow.cli.failures import describe

    try:
        directory = _directory(name)
        if kind == "pipeline":
            texts = _pipeline(directory.name, sources)
        else:
            texts = _plain(kind, directory.name, sources)
        _write(directory, texts)
    except Exception as error:  # noqa: BLE001 - translated: this is where errors become words
        click.echo(describe(error, debug=debug), err=True)
        raise SystemExit(1) from None
    click.echo(_ending(directory, texts, kind))
    return 0


def _directory(name: str) -> Path:
    """Refuse names that Python could not import, and directories that are there."""
    from windrow.cli.skeleton_layout import is_name

    directory = Path(name)
    plain = directory.name
    if not is_name(plain):
        raise UsageError(
            f"the name of an analysis is one that Python can import, such as {_better(directory)!r}; got {plain!r}"
        )
    if _installed(plain):
        raise UsageError(
            f"{plain!r} is the name of an installed module, which {plain}.py would hide; "
            f"call it something else, such as {_better(directory)!r}"
        )
    if directory.exists() or directory.is_symlink():
        raise UsageError(f"{directory} exists and is left alone; choose another name or move it")
    return directory


def _installed(name: str) -> bool:
    return name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None


def _better(directory: Path) -> str:
    """Return a name that is as near to the wanted one as can be and would be taken."""
    from windrow.cli.skeleton_layout import as_name, is_name

    name = as_name(directory.name) or "analysis"
    while not is_name(name) or _installed(name) or (directory.parent / name).exists():
        name = f"my_{name}"
    return name


def _write(directory: Path, texts: Mapping[str, str]) -> None:
    directory.mkdir(parents=True)
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")


def _ending(directory: Path, texts: Mapping[str, str], kind: str) -> str:
    program = directory / f"{directory.name}.py"
    lines = ["written:", *(f"  {directory / file}" for file in texts), "", "next:"]
    lines.append(f"  python {program}")
    if kind == "pipeline":
        lines.append(f"  windrow run {program}")
    return "\n".join([*lines, f"  pytest {directory}"])


def _plain(kind: str, name: str, sources: Sequence[str]) -> dict[str, str]:
    from windrow.cli.skeleton_plain import plain_texts

    if sources:
        raise UsageError(f"--from is for pipelines; a {kind} skeleton brings its own example data")
    return plain_texts(kind, name)


# -- pipelines ------------------------------------------------------------------------------------


def _pipeline(name: str, sources: Sequence[str]) -> dict[str, str]:
    """Look at the files, say what is in them, and return the texts."""
    from windrow import data
    from windrow.cli.contents import look, together
    from windrow.cli.show_text import differences_text, file_text, overview_text
    from windrow.cli.skeleton import design
    from windrow.cli.skeleton_checks import checks_text
    from windrow.cli.skeleton_pipeline import analysis_text, readme_text
    from windrow.cli.skeleton_sample import Sample

    if not sources:
        raise UsageError(
            "which files is it for? write --from FILE, once for each dataset; windrow show FILE tells what is in one"
        )
    files = _files(sources)
    source = data.open({dataset: {"files": paths[:LOOKED_AT]} for dataset, paths in files.items()})
    found = look(source)
    merged = together(found)
    parts = [*map(file_text, found), overview_text(merged.columns, merged.info, everything=False)]
    if len(found) > 1:
        parts.append(differences_text(merged))
    for dataset, paths in files.items():
        if len(paths) > LOOKED_AT:
            parts.append(f"looked at {LOOKED_AT} of the {len(paths):,} files of {dataset}")
    click.echo("\n\n".join(parts) + "\n")
    datasets = _datasets(sources, files, source, found)
    plan = design(name, sources, datasets, merged, Sample(source, range(len(source.inputs))))
    if not plan.spectra and len(merged.common) < len(merged.columns):
        raise UsageError(_strangers(merged))
    return {f"{name}.py": analysis_text(plan), f"test_{name}.py": checks_text(plan), "README.md": readme_text(plan)}


def _strangers(merged: Together) -> str:
    """Say how files differ that one analysis can do nothing with but count rows."""
    differ = [f"{len(names):,} are missing in {label}" for label, names in merged.missing.items()]
    if merged.types:
        differ.append(f"{len(merged.types):,} differ in type")
    return (
        "the files have too little in common for one analysis: no number of each row and no collection "
        f"with momenta is in all of them with the same type. Of {len(merged.columns):,} columns "
        f"{', '.join(differ)}; they are listed above. Write an analysis for each: "
        "windrow new NAME --from FILE"
    )


def _files(sources: Sequence[str]) -> dict[str, list[str]]:
    """Name a dataset after each source and list its files."""
    from windrow.data.paths import expand, split_tree

    files: dict[str, list[str]] = {}
    for source in sources:
        path, tree = split_tree(source)
        if path.lower().endswith((".json", ".json.gz")):
            raise UsageError(
                f"--from takes ROOT and Parquet files, not the fileset {path}; name a file of it, and "
                "run the analysis on the fileset: windrow run ANALYSIS.py FILESET.json"
            )
        name = _dataset_name(path)
        number = 2
        while name in files:
            name = f"{_dataset_name(path)}_{number}"
            number += 1
        files[name] = [found if tree is None else f"{found}:{tree}" for found in expand(path)]
    return files


def _dataset_name(path: str) -> str:
    stem = path.rstrip("/").rpartition("/")[2].partition(".")[0]
    return re.sub(r"\W+", "_", stem).strip("_") or "data"


def _datasets(
    sources: Sequence[str], files: Mapping[str, Sequence[str]], source: Any, found: Sequence[Any]
) -> list[Dataset]:
    """Describe the datasets of the analysis; simulation is what has a weight of simulation."""
    from windrow.cli.skeleton import WEIGHTS, Dataset

    weighted: dict[str, bool] = {}
    for one, contents in zip(source.inputs, found, strict=True):
        here = any(name in contents.columns for name in WEIGHTS)
        weighted[one.dataset] = weighted.get(one.dataset, True) and here
    any_weight = any(weighted.values())
    return [
        Dataset(name, (_absolute(given),), weighted[name] if any_weight else None)
        for given, name in zip(sources, files, strict=True)
    ]


def _absolute(source: str) -> str:
    """Write a local path so that the analysis finds its files from any directory; globs stay globs."""
    from windrow.data.paths import is_remote, split_tree

    path, tree = split_tree(source)
    if is_remote(path):
        return source
    local = Path(path.removeprefix("file://")).expanduser()
    text = os.path.abspath(local)  # noqa: PTH100 - Path.resolve would follow links that may move
    return text if tree is None else f"{text}:{tree}"
