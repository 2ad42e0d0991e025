"""``windrow show``: what is in a file, before anything is written about it."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import click

from windrow.cli.failures import Command
from windrow.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.cli.contents import Contents, Together


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
    from windrow.cli.show_text import file_text, files_text

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
    from windrow.cli.show_text import columns_text

    parts = [columns_text([merged.columns[name] for name in chosen])]
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
        "trees": [{"name": table.name, "kind": table.kind, "rows": table.rows} for table in file.tables]
        if file.format == "root"
        else [],
        "tree": (file.used.name or None) if file.used else None,
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
