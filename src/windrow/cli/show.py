"""``windrow show``: what files hold, before anything is written about it; ``windrow new`` builds on it.

Files are opened by ``windrow.data``; nothing here reads a column of numbers.
"""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windrow.cli.failures import Command
from windrow.errors import DataError, MissingTreeError, SpecError, UnknownNameError, nearest
from windrow.units import format_bytes

if TYPE_CHECKING:
    from windrow.data.base import FileInfo, Input, Reader


#: A prefix that several columns share is worth a line of its own.
GROUP_SIZE = 2


@dataclass(frozen=True, slots=True)
class Table:
    """A tree of a ROOT file."""

    name: str
    kind: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column and its type in words: ``float32``, ``float32[]`` for one list per row."""

    name: str
    type: str
    kind: str
    counter: str | None
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What one file holds."""

    label: str
    format: str
    bytes: int | None  #: None for files on other machines
    tables: tuple[Table, ...]
    used: Table | None  #: the tree a run would read; None where it would ask which one, or there are no trees
    info: FileInfo | None
    columns: Mapping[str, Column]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Columns of one prefix: the fields of objects, or flags and numbers that belong together."""

    prefix: str
    members: tuple[Column, ...]
    counter: str | None  #: the column that says how many objects a row has
    lists: bool  #: whether they are lists of objects

    @property
    def stored_bytes(self) -> int:
        return sum(member.stored_bytes for member in self.members)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(member.name[len(self.prefix) + 1 :] for member in self.members)


def look(spec: Any) -> list[Contents]:
    from windrow import data

    source = data.open(spec)
    if not source.inputs:
        raise SpecError(f"{spec} names no file")
    return [_look(source, one) for one in source.inputs]


def _look(source: Any, one: Input) -> Contents:
    kinds, rows, name = _trees(one) if one.format == "root" else ({}, {}, None)
    label = one.label if one.tree is None else f"{one.label}:{one.tree}"
    path = Path(str(one.location))
    size = path.stat().st_size if path.is_file() else None
    info, columns, metadata = None, {}, {}
    if not kinds or name is not None or one.tree is not None:
        # A file without the tree asked for, or without any, is an error here.
        with closing(source.open(one.index)) as reader:
            info, columns = reader.info, _columns_in(reader)
            # Looked at after opening: a skim brings the metadata of its dataset along.
            metadata = {k: v for k, v in source.datasets[one.dataset].items() if k != "dataset"}
    read = 0 if info is None else info.rows
    tables = tuple(Table(tree, kind, rows.get(tree, read)) for tree, kind in kinds.items())
    used = next((table for table in tables if table.name == name), None)
    return Contents(
        label=label, format=one.format, bytes=size, tables=tables, used=used, info=info,
        columns=columns, metadata=metadata,
    )  # fmt: skip


def _trees(one: Input) -> tuple[dict[str, str], dict[str, int], str | None]:
    """Return the kinds of the trees, the rows of all but the one that a run would read, and that one.

    Understanding a large tree takes a while, and opening it for its columns counts its rows too.
    """
    from windrow.data.formats.reader import translated
    from windrow.data.formats.root import RNTUPLE, chosen_tree, trees_in
    from windrow.data.formats.root_files import open_file

    with translated(one.label), open_file(str(one.location)) as handle:
        classes = trees_in(handle)
        kinds = {name: "RNTuple" if kind == RNTUPLE else "TTree" for name, kind in classes.items()}
        read = chosen_tree(kinds, one.tree)
        rows = {name: int(handle[name].num_entries) for name in kinds if name != read}
    return kinds, rows, read


def _columns_in(reader: Reader) -> dict[str, Column]:
    found = reader.info.columns
    other = _other_types(reader, [name for name, column in found.items() if column.kind == "other"])
    return {
        name: Column(
            name=name,
            type=other.get(name) or f"{column.dtype}{'[]' if column.kind == 'jagged' else ''}",
            kind=column.kind,
            counter=column.counter,
            stored_bytes=column.stored_bytes,
        )
        for name, column in found.items()
    }


def _other_types(reader: Reader, names: Sequence[str]) -> dict[str, str]:
    """Read no row of all columns at once, which takes no longer than of one; by halves where one of them is unreadable."""
    import awkward as ak

    if not names:
        return {}
    try:
        return {name: str(ak.type(values).content) for name, values in reader.read(names, 0, 0).items()}
    except DataError:
        if len(names) == 1:
            return {names[0]: "unreadable"}
        half = len(names) // 2
        return _other_types(reader, names[:half]) | _other_types(reader, names[half:])


# -- groups -----------------------------------------------------------------------------------------


def grouped(columns: Mapping[str, Column], info: FileInfo) -> tuple[list[Group], list[Column]]:
    """Return the collections, each column in the one with the longest prefix, and what is left."""
    home: dict[str, str] = {}
    for prefix in sorted(info.collections, key=len):
        members = info.collections[prefix]
        if len(members) >= GROUP_SIZE or columns[members[0]].kind == "jagged":
            home.update(dict.fromkeys(members, prefix))
    groups = []
    for prefix in info.collections:
        mine = tuple(columns[name] for name in info.collections[prefix] if home.get(name) == prefix)
        if mine:
            named = [one.counter for one in mine if one.counter in columns]
            # One counter for all members is the collection's; one for each is no news.
            counter = named[0] if len(set(named)) == 1 else None
            groups.append(Group(prefix=prefix, members=mine, counter=counter, lists=mine[0].kind == "jagged"))
    counters = {group.counter for group in groups}
    rest = [c for name, c in columns.items() if name not in home and name not in counters]
    return groups, rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Several files seen as one: all their columns, and where they differ."""

    columns: Mapping[str, Column]  #: of any file; stored sizes are added up
    info: FileInfo  #: of all columns together; rows are added up
    missing: Mapping[str, tuple[str, ...]]  #: file -> columns that it lacks and other files have
    types: Mapping[str, Mapping[str, tuple[str, ...]]]  #: column -> type -> files, where they differ

    @property
    def common(self) -> tuple[str, ...]:
        gone = {name for names in self.missing.values() for name in names}
        return tuple(n for n in self.columns if n not in gone and n not in self.types)


def together(files: Sequence[Contents]) -> Together:
    from windrow.data.base import FileInfo
    from windrow.data.columns import find_collections

    opened = [(one, one.info) for one in files if one.info is not None]
    if not opened:
        labels = ", ".join(one.label for one in files)
        raise MissingTreeError(f"{labels}: several trees, none called Events; write FILE:TREE")
    infos: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    types: dict[str, dict[str, list[str]]] = {}
    for one, info in opened:
        for name, column in one.columns.items():
            infos.setdefault(name, info.columns[name])
            sizes[name] = sizes.get(name, 0) + column.stored_bytes
            types.setdefault(name, {}).setdefault(column.type, []).append(one.label)
    columns = {
        name: Column(
            name=name, type=" or ".join(types[name]), kind=info.kind, counter=info.counter, stored_bytes=sizes[name]
        )
        for name, info in infos.items()
    }  # fmt: skip
    rows = sum(info.rows for _, info in opened)
    info = FileInfo(
        rows=rows, borders=(0, rows) if rows else (0,), columns=infos, identity="",
        collections=find_collections(infos),
    )  # fmt: skip
    return Together(
        columns=columns,
        info=info,
        missing={one.label: tuple(name for name in columns if name not in one.columns) for one, _ in opened},
        types={
            name: {kind: tuple(labels) for kind, labels in kinds.items()}
            for name, kinds in types.items()
            if len(kinds) > 1
        },
    )


# -- the command

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
