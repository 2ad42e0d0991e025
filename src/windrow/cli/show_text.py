"""What ``windrow show`` prints: a short overview of files of any number of columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from windrow.cli.contents import grouped
from windrow.pipeline.results.grid import Grid
from windrow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.cli.contents import Column, Contents, Group, Together
    from windrow.data.base import FileInfo


WIDTH = 100
#: What a physicist looks for first in a collection.
TELLING = ("pt", "eta", "phi", "mass", "charge", "Px", "Py", "Pz", "E", "Charge")
#: As many fields as fit behind the numbers of a collection.
TELLING_SHOWN = 6
#: Names of one type that are written out; a file with more single columns is summarised.
SINGLES_SHOWN = 24
#: Missing columns written out one by one, by file.
MISSING_SHOWN = 12


def files_text(found: Sequence[Contents], merged: Together, *, everything: bool = False) -> str:
    parts = [*map(file_text, found), overview_text(merged.columns, merged.info, everything=everything)]
    if len(found) > 1:
        parts.append(differences_text(merged))
    return "\n\n".join(part for part in parts if part)


def file_text(file: Contents) -> str:
    size = "" if file.bytes is None else f", {format_bytes(file.bytes)}"
    kind = {"root": "ROOT", "parquet": "Parquet"}.get(file.format, file.format)
    lines = [f"{file.label}: {kind}{size}"]
    if file.format == "root":
        for table in file.tables:
            mark = " <- shown below" if table is file.used and len(file.tables) > 1 else ""
            lines.append(f"  tree {table.name} ({table.kind}): {_rows(table.rows)}{mark}")
        if file.used is None:
            found = "several trees and none called Events" if file.tables else "no tree"
            lines.append(f"  {found}: write FILE:TREE to see one")
    if file.info is not None:
        rows = "" if file.format == "root" else f"{_rows(file.info.rows)}, "
        lines.append(f"  {rows}{_count(len(file.columns), 'column')}, {_units(file.info)}")
    if file.metadata:
        facts = ", ".join(f"{key}={value!r}" for key, value in file.metadata.items())
        lines.append(_wrapped("metadata: ", facts))
    return "\n".join(lines)


def _count(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("x") else "s"
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def _rows(count: int) -> str:
    return _count(count, "row")


def _units(info: FileInfo) -> str:
    """Say how the file is cut, which decides how far the work on it can be shared."""
    units = [stop - start for start, stop in pairwise(info.borders)]
    if not units:
        return "no units"
    low, high = min(units), max(units)
    sizes = f"{low:,} to {high:,} rows" if low != high else _rows(low)
    text = f"{_count(len(units), 'unit')} of {sizes}"
    pieces = len(info.clusters) - 1
    return text + (f", read in up to {pieces:,} pieces" if pieces > len(units) else "")


def overview_text(columns: Mapping[str, Column], info: FileInfo, *, everything: bool) -> str:
    """Write collections with their counters, prefixes with their counts, and the single columns."""
    groups, rest = grouped(columns, info)
    lists = [group for group in groups if group.lists]
    flat = [group for group in groups if not group.lists]
    parts = []
    if lists:
        parts.append(_section("collection", "lists of objects", lists, everything=everything))
    if flat:
        parts.append(_section("prefix", "one value per row", flat, everything=everything))
    if rest:
        title = f"{_count(len(rest), 'single column')}"
        lines = _listed(rest) if everything else _by_type(rest)
        parts.append("\n".join([title, *lines]))
    return "\n\n".join(parts)


def _section(noun: str, what: str, groups: Sequence[Group], *, everything: bool) -> str:
    rows = [
        (
            group.prefix if group.lists else _starred(group),
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
    return Grid("", (), rows, numbers=numbers).text().splitlines()


def _starred(group: Group) -> str:
    return group.members[0].name[: len(group.prefix) + 1] + "*"


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
    lines = []
    for kind, names in kinds.items():
        more = len(names) - SINGLES_SHOWN
        shown = [*names[:SINGLES_SHOWN], *([f"and {more:,} more (--all)"] if more > 0 else [])]
        lines.append(_wrapped(f"{kind:<{width}}  ", ", ".join(shown)))
    return lines


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
    """One line for each column, as ``--all`` and ``--columns`` show them."""
    return _table([(column.name, column.type, _size(column.stored_bytes)) for column in columns], numbers=(2,))


def columns_text(columns: Sequence[Column]) -> str:
    return "\n".join([*_listed(columns), _count(len(columns), "column")])


def differences_text(all_files: Together) -> str:
    same, total = len(all_files.common), len(all_files.columns)
    if same == total:
        return f"all {total:,} columns are in every file with the same type"
    lines = [f"{same:,} of {total:,} columns are in every file with the same type"]
    for label, names in all_files.missing.items():
        if names:
            lines.append(f"missing in {label} ({len(names):,}):")
            lines.append(_wrapped("", ", ".join(_summed_up(names, all_files))))
    for name, kinds in all_files.types.items():
        where = "; ".join(f"{kind} in {', '.join(labels)}" for kind, labels in kinds.items())
        lines.append(f"type of {name} differs: {where}")
    return "\n".join(lines)


def _summed_up(names: Sequence[str], all_files: Together) -> list[str]:
    """Write whole and partial groups as one word where there are many names."""
    if len(names) <= MISSING_SHOWN:
        return list(names)
    groups, rest = grouped(all_files.columns, all_files.info)
    gone = set(names)
    words = []
    for group in groups:
        absent = [member.name for member in group.members if member.name in gone]
        if len(absent) == len(group.members):
            words.append(f"{_starred(group)} ({len(absent)})")
        elif len(absent) > 2:
            words.append(f"{_starred(group)} ({len(absent)} of {len(group.members)})")
        else:
            words += absent
        gone.difference_update([*absent, group.counter or ""])
    return [*words, *(column.name for column in rest if column.name in gone)]
