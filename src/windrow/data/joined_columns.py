"""Which columns a joined source has, and what they are called. Reads no file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from windrow.data.base import IDENTITY_COLUMN
from windrow.errors import MissingColumnError, SpecError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.data.base import ColumnInfo, FileInfo
    from windrow.data.chain import Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedColumns:
    """What the columns of the friend are called in the joined source."""

    names: Mapping[str, str]  #: joined -> friend's own
    infos: Mapping[str, ColumnInfo]  #: under the joined name
    counted: Mapping[str, str]  #: joined -> the main source's counter, which must agree


def joined_columns(
    main: FileInfo, friend: Chain, *, labels: tuple[str, str], on: Sequence[str], rename: str, option: bool
) -> JoinedColumns:
    """Name the friend's columns, but for those that identify rows; refuse names that both have.

    ``rename`` has ``{}`` where a name goes. With ``option``, a value may be missing in any of them.
    """
    for label, columns in zip(labels, (main.columns, friend.columns), strict=True):
        _check_identity(on, label, columns)
    left_out = {*on, IDENTITY_COLUMN}
    names = {rename.format(name): name for name in friend.columns if name not in left_out}
    clashes = [name for name in names if name in main.columns]
    # Lists of both may be counted by one column of the same name; then it is the same collection.
    counters = _counters(main.columns) & _counters(friend.columns)
    shared = {name for name in clashes if name in counters and names[name] == name}
    _refuse_clashes([name for name in clashes if name not in shared], labels)
    names = {name: own for name, own in names.items() if name not in shared}
    theirs = {own: name for name, own in names.items()}
    infos, counted = {}, {}
    for name, own in names.items():
        column = friend.columns[own]
        if option:
            infos[name] = replace(column, name=name, kind="other", dtype=None, counter=None)
            continue
        counter = column.counter
        if counter in shared:
            counted[name] = str(counter)
        else:
            counter = theirs.get(counter or "")
        infos[name] = replace(column, name=name, counter=counter)
    return JoinedColumns(names=names, infos=infos, counted=counted)


def _refuse_clashes(clashes: Sequence[str], labels: tuple[str, str]) -> None:
    if clashes:
        more = f" and {len(clashes) - 5} more" if len(clashes) > 5 else ""
        raise SpecError(
            f"{labels[0]} and its friend {labels[1]} both have {', '.join(clashes[:5])}{more}: write "
            'join(..., prefix="friend_") to give the friend\'s columns names of their own'
        )


def _counters(columns: Mapping[str, ColumnInfo]) -> set[str]:
    return {column.counter for column in columns.values() if column.counter is not None}


def _check_identity(on: Sequence[str], label: str, columns: Mapping[str, ColumnInfo]) -> None:
    for name in on:
        if name not in columns:
            raise MissingColumnError(
                f"{label} has no column {name!r}, which on= names{nearest(name, columns)}", column=name, file=label
            )
        dtype = columns[name].dtype
        if columns[name].kind != "flat" or dtype is None or dtype.kind not in "biu":
            raise UsageError(f"{label}: on= names {name!r}, which is not one whole number per row ({dtype})")
