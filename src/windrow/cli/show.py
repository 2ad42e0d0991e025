"""``windrow show``: what is in a file, before anything is written about it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from windrow.cli.failures import Command
from windrow.errors import UnknownNameError, nearest
from windrow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.cli.contents import Column, Contents, Group, Together
    from windrow.data.base import FileInfo


WIDTH = 100
#: What a physicist looks for first in a collection.
TELLING = ("pt", "eta", "phi", "mass", "charge", "Px", "Py", "Pz", "E", "Charge")
#: As many fields as fit behind the numbers of a collection.
TELLING_SHOWN = 6
#: Names that are written out in a list of one type, or of what a file lacks.
NAMES_SHOWN = 24


@click.command("show", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE[:TREE]...")
@click.option(
    "--columns",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="List the columns that match, such as 'HLT_*'; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="List every column with type and size.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(files: tuple[str, ...], patterns: tuple[str, ...], everything: bool, as_json: bool) -> int:
    """Show the columns, collections, types, rows and units of FILEs.

    FILE is ROOT (TTree, RNTuple) or Parquet, a glob, or a fileset (.json). With several files, what
    is missing in which one comes last.
    """
    from windrow.cli.contents import look, together
    from windrow.cli.loading import data_of

    found = look(data_of(files))
    if all(file.info is None for file in found):
        # Nothing to compare or list: which tree is the question.
        text = json.dumps(_json(found, None), indent=2) if as_json else "\n\n".join(map(file_text, found))
    else:
        merged = together(found)
        chosen = _chosen(merged, patterns)
        if as_json:
            text = json.dumps(_json(found, merged, chosen), indent=2)
        elif patterns:
            text = _columns(found, merged, chosen)
        else:
            text = files_text(found, merged, everything=everything)
    click.echo(text)
    return 0


def _chosen(merged: Together, patterns: Sequence[str]) -> list[str]:
    """Return the columns that match any pattern; all without one. A pattern in vain is an error."""
    if not patterns:
        return list(merged.columns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in merged.columns):
            known = [*merged.info.collections, *merged.columns]
            raise UnknownNameError(
                f"no column matches {pattern!r}{nearest(pattern.strip('*?_'), known)} "
                f"(there are {len(merged.columns):,} columns)"
            )
    return [name for name in merged.columns if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _columns(found: Sequence[Contents], merged: Together, chosen: Sequence[str]) -> str:
    parts = [*_listed([merged.columns[name] for name in chosen]), _count(len(chosen), "column")]
    for label, names in merged.missing.items():
        absent = [name for name in names if name in set(chosen)]
        if absent and len(found) > 1:
            parts.append(f"missing in {label}: {', '.join(absent)}")
    return "\n".join(parts)


def _json(found: Sequence[Contents], merged: Together | None, chosen: Sequence[str] = ()) -> dict[str, Any]:
    wanted = set(chosen)
    answer: dict[str, Any] = {"files": [_file_json(file, wanted) for file in found]}
    if merged is not None:
        answer["missing"] = {
            label: [name for name in names if name in wanted] for label, names in merged.missing.items()
        }
        answer["types"] = {
            name: {kind: list(labels) for kind, labels in kinds.items()}
            for name, kinds in merged.types.items()
            if name in wanted
        }
    return answer


def _file_json(file: Contents, wanted: set[str]) -> dict[str, Any]:
    from windrow.cli.contents import grouped

    answer: dict[str, Any] = {
        "file": file.label,
        "format": file.format,
        "bytes": file.bytes,
        "trees": [{"name": table.name, "kind": table.kind, "rows": table.rows} for table in file.tables],
        "tree": file.used.name if file.used else None,
    }
    if file.info is None:
        return answer
    groups, _ = grouped(file.columns, file.info)
    return answer | {
        "rows": file.info.rows,
        "units": list(file.info.borders),
        "clusters": list(file.info.clusters),
        "metadata": json.loads(json.dumps(dict(file.metadata), default=str)),
        "columns": {
            name: {"type": column.type, "counter": column.counter, "bytes": column.stored_bytes}
            for name, column in file.columns.items()
            if name in wanted
        },
        "collections": {
            group.prefix: {
                "lists": group.lists,
                "counter": group.counter,
                "columns": [member.name for member in group.members if member.name in wanted],
            }
            for group in groups
            if any(member.name in wanted for member in group.members)
        },
    }


# -- text ----------------------------------------------------------------------------------------


def files_text(found: Sequence[Contents], merged: Together, *, everything: bool = False) -> str:
    parts = [*map(file_text, found), _overview(merged, everything=everything)]
    if len(found) > 1:
        parts.append(_differences(merged))
    return "\n\n".join(part for part in parts if part)


def file_text(file: Contents) -> str:
    size = "" if file.bytes is None else f", {format_bytes(file.bytes)}"
    kind = {"root": "ROOT", "parquet": "Parquet"}.get(file.format, file.format)
    lines = [f"{file.label}: {kind}{size}"]
    if file.format == "root":
        for table in file.tables:
            mark = " <- shown below" if table is file.used and len(file.tables) > 1 else ""
            lines.append(f"  tree {table.name} ({table.kind}): {_count(table.rows, 'row')}{mark}")
        if file.used is None:
            found = "several trees and none called Events" if file.tables else "no tree"
            lines.append(f"  {found}: write FILE:TREE to see one")
    if file.info is not None:
        rows = "" if file.format == "root" else f"{_count(file.info.rows, 'row')}, "
        lines.append(f"  {rows}{_count(len(file.columns), 'column')}, {_units(file.info)}")
    if file.metadata:
        facts = ", ".join(f"{key}={value!r}" for key, value in file.metadata.items())
        lines.append(_wrapped("metadata: ", facts))
    return "\n".join(lines)


def _count(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("x") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def _units(info: FileInfo) -> str:
    """Say how the file is cut, which decides how far the work on it can be shared."""
    units = [stop - start for start, stop in pairwise(info.borders)]
    if not units:
        return "no units"
    low, high = min(units), max(units)
    sizes = f"{low:,} to {high:,} rows" if low != high else _count(low, "row")
    text = f"{_count(len(units), 'unit')} of {sizes}"
    pieces = len(info.clusters) - 1
    return text + (f", read in up to {pieces:,} pieces" if pieces > len(units) else "")


def _overview(merged: Together, *, everything: bool) -> str:
    from windrow.cli.contents import grouped

    groups, rest = grouped(merged.columns, merged.info)
    lists = [group for group in groups if group.lists]
    flat = [group for group in groups if not group.lists]
    parts = []
    if lists:
        parts.append(_section("collection", "lists of objects", lists, everything=everything))
    if flat:
        parts.append(_section("prefix", "one value per row", flat, everything=everything))
    if rest:
        lines = _listed(rest) if everything else _by_type(rest)
        parts.append("\n".join([_count(len(rest), "single column"), *lines]))
    return "\n\n".join(parts)


def _section(noun: str, what: str, groups: Sequence[Group], *, everything: bool) -> str:
    rows = [
        (
            group.prefix if group.lists else group.members[0].name[: len(group.prefix) + 1] + "*",
            _count(len(group.members), "field" if group.lists else "column"),
            group.counter or "",
            _size(group.stored_bytes),
            "" if everything else _telling(group) if group.lists else _types(group.members),
        )
        for group in groups
    ]
    lines = [f"{_count(len(groups), noun)} ({what})"]
    for line, group in zip(_table(rows, numbers=(1, 3)), groups, strict=True):
        lines.append(line)
        lines += [f"  {member}" for member in _listed(group.members)] if everything else []
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> list[str]:
    from windrow.pipeline.results.grid import Grid

    return Grid("", (), rows, numbers=numbers).text().splitlines()


def _size(stored_bytes: int) -> str:
    return format_bytes(stored_bytes) if stored_bytes else ""


def _telling(group: Group) -> str:
    first = [name for name in TELLING if name in group.fields]
    shown = [*first, *(name for name in group.fields if name not in first)][:TELLING_SHOWN]
    return " ".join(shown) + (" ..." if len(group.fields) > len(shown) else "")


def _types(members: Iterable[Column]) -> str:
    kinds = Counter(member.type for member in members)
    if len(kinds) == 1:
        return next(iter(kinds))
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())


def _by_type(columns: Sequence[Column]) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for column in columns:
        kinds.setdefault(column.type, []).append(column.name)
    width = min(max(map(len, kinds)), 24)
    return [_wrapped(f"{kind:<{width}}  ", _first(names)) for kind, names in kinds.items()]


def _first(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join([*names[:NAMES_SHOWN], *([f"and {more:,} more (--all)"] if more > 0 else [])])


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text,
        width=WIDTH,
        initial_indent=f"  {head}",
        subsequent_indent=" " * (len(head) + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _listed(columns: Sequence[Column]) -> list[str]:
    return _table([(column.name, column.type, _size(column.stored_bytes)) for column in columns], numbers=(2,))


def _differences(all_files: Together) -> str:
    same, total = len(all_files.common), len(all_files.columns)
    if same == total:
        return f"all {total:,} columns are in every file with the same type"
    lines = [f"{same:,} of {total:,} columns are in every file with the same type"]
    for label, names in all_files.missing.items():
        if names:
            lines.append(f"missing in {label} ({len(names):,}):")
            lines.append(_wrapped("", _first(names)))
    for name, kinds in all_files.types.items():
        where = "; ".join(f"{kind} in {', '.join(labels)}" for kind, labels in kinds.items())
        lines.append(f"type of {name} differs: {where}")
    return "\n".join(lines)
