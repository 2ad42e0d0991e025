"""What files hold, as ``windrow show`` tells it and ``windrow new`` builds on it.

Files are opened by ``windrow.data``; nothing here reads a column of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import DataError, MissingTreeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    if kinds and name is None and one.tree is None:
        tables = tuple(Table(tree, kind, rows[tree]) for tree, kind in kinds.items())
        return Contents(
            label=label, format=one.format, bytes=size, tables=tables, used=None, info=None, columns={}
        )  # fmt: skip
    # A file without the tree asked for, or without any, is an error here.
    reader = source.open(one.index)
    try:
        info = reader.info
        columns = _columns(reader)
        # Looked at after opening: a skim brings the metadata of its dataset along.
        metadata = {k: v for k, v in source.datasets[one.dataset].items() if k != "dataset"}
    finally:
        reader.close()
    tables = tuple(Table(tree, kind, rows.get(tree, info.rows)) for tree, kind in kinds.items())
    used = next((table for table in tables if table.name == name), None)
    return Contents(
        label=label, format=one.format, bytes=size, tables=tables, used=used, info=info,
        columns=columns, metadata=metadata,
    )  # fmt: skip


def _trees(one: Input) -> tuple[dict[str, str], dict[str, int], str | None]:
    """Return the kinds of the trees, the rows of all but the one that a run would read, and that one.

    Understanding a large tree takes a while, and whoever opens it to look at its columns counts its rows.
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


def _columns(reader: Reader) -> dict[str, Column]:
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
    missing: Mapping[str, tuple[str, ...]]  #: file -> columns that others have
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
