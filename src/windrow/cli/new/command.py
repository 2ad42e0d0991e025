"""``windrow new``: a directory with an analysis that runs, written for the files it is for."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windrow.cli.failures import Command
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.cli.show import Contents
    from windrow.data.base import Source


#: Files of each --from that are opened: a dataset's files are alike, and opening thousands takes
#: minutes.
LOOKED_AT = 10


@click.command("new", cls=Command)
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
def command(name: str, sources: tuple[str, ...], kind: str) -> int:
    """Write the directory NAME with an analysis, its test and a README.

    Looks at the files: triggers, objects, weights and ranges are theirs. Nothing is overwritten.
    """
    from windrow.cli.new.design import fill_directory

    directory = _directory(name)
    if kind == "pipeline":
        texts = _pipeline(directory.name, sources)
    elif sources:
        raise UsageError(f"--from is for pipelines; a {kind} skeleton brings its own example data")
    else:
        texts = fill_directory(kind, directory.name, {})
    directory.mkdir(parents=True)
    for file, text in texts.items():
        (directory / file).write_text(text, encoding="utf-8")
    program = directory / f"{directory.name}.py"
    lines = ["written:", *(f"  {directory / file}" for file in texts), "", "next:", f"  python {program}"]
    lines += [f"  windrow run {program}"] if kind == "pipeline" else []
    click.echo("\n".join([*lines, f"  pytest {directory}"]))
    return 0


def _directory(name: str) -> Path:
    from windrow.cli.new.design import is_name

    directory = Path(name)
    plain = directory.name
    if not is_name(plain):
        raise UsageError(
            f"the name of an analysis is one that Python can import: letters, digits and underscores; got {plain!r}"
        )
    if plain in sys.stdlib_module_names or importlib.util.find_spec(plain) is not None:
        raise UsageError(
            f"{plain!r} is the name of an installed module, which {plain}.py would hide; "
            f"call it something else, such as 'my_{plain}'"
        )
    if directory.exists() or directory.is_symlink():
        raise UsageError(f"{directory} exists and is left alone; choose another name or move it")
    return directory


# -- pipelines ------------------------------------------------------------------------------------


def _pipeline(name: str, sources: Sequence[str]) -> dict[str, str]:
    from windrow import data
    from windrow.cli.new.design import design, fill_directory
    from windrow.cli.show import files_text, look, together

    if not sources:
        raise UsageError(
            "which files is it for? write --from FILE, once for each dataset; windrow show FILE tells what is in one"
        )
    files = _files(sources)
    source = data.open({dataset: {"files": paths[:LOOKED_AT]} for dataset, paths in files.items()})
    found = look(source)
    merged = together(found)
    click.echo(files_text(found, merged) + "\n")
    for dataset, paths in files.items():
        if len(paths) > LOOKED_AT:
            click.echo(f"looked at {LOOKED_AT} of the {len(paths):,} files of {dataset}\n")
    values = design(name, merged, source)
    if values["spectra"] is None and len(merged.common) < len(merged.columns):
        raise UsageError(
            "the files have too little in common for one analysis: no number of each row and no collection with "
            "momenta is in all of them with the same type, as listed above. Write an analysis for each: "
            "windrow new NAME --from FILE"
        )
    values["fileset"] = _fileset(sources, files, source, found)
    values["sources"] = "\n".join(f"- `{given}`" for given in sources)
    return fill_directory("pipeline", name, values)


def _files(sources: Sequence[str]) -> dict[str, list[str]]:
    from windrow.data.paths import expand, split_tree

    files: dict[str, list[str]] = {}
    for source in sources:
        path, tree = split_tree(source)
        if path.lower().endswith((".json", ".json.gz")):
            raise UsageError(
                f"--from takes ROOT and Parquet files, not the fileset {path}; name a file of it, and "
                "run the analysis on the fileset: windrow run ANALYSIS.py FILESET.json"
            )
        stem = path.rstrip("/").rpartition("/")[2].partition(".")[0]
        name = plain = re.sub(r"\W+", "_", stem).strip("_") or "data"
        number = 2
        while name in files:
            name = f"{plain}_{number}"
            number += 1
        files[name] = [found if tree is None else f"{found}:{tree}" for found in expand(path)]
    return files


def _fileset(
    sources: Sequence[str], files: Mapping[str, Sequence[str]], source: Source, found: Sequence[Contents]
) -> str:
    from windrow.cli.new.design import WEIGHTS

    simulated = dict.fromkeys(files, True)
    for one, contents in zip(source.inputs, found, strict=True):
        simulated[one.dataset] &= any(name in contents.columns for name in WEIGHTS)
    lines = ["{"]
    for given, name in zip(sources, files, strict=True):
        metadata = {"is_mc": simulated[name]} if any(simulated.values()) else {}
        path = json.dumps(_absolute(given), ensure_ascii=False)
        about = ", ".join(f'"{key}": {value}' for key, value in metadata.items())
        lines.append(f'    {json.dumps(name)}: {{"files": [{path}], "metadata": {{{about}}}}},')
    return "\n".join([*lines, "}"])


def _absolute(source: str) -> str:
    """Write a local path so that the analysis finds its files from any directory; globs stay globs."""
    from windrow.data.paths import is_remote, split_tree

    path, tree = split_tree(source)
    if is_remote(path):
        return source
    local = Path(path.removeprefix("file://")).expanduser()
    text = os.path.abspath(local)  # noqa: PTH100 - Path.resolve would follow links that may move
    return text if tree is None else f"{text}:{tree}"
