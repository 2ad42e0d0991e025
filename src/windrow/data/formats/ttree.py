"""A TTree: what it says about itself, and a reader of it.

The layout (columns, baskets, units) is found once per file and shared by the readers of that file;
each reader has a handle of its own. Plain columns go through ``baskets``, everything else through
uproot.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import uproot

from windrow.data.arrays import native, native_lists
from windrow.data.base import ColumnInfo, FileInfo
from windrow.data.columns import check_request, find_collections
from windrow.data.formats.baskets import BasketFile, Baskets, Unsupported
from windrow.data.formats.root_files import is_local, open_file, remote_file, translated
from windrow.data.remote.file import Ahead, FetchesAhead, RemoteFile
from windrow.data.skim.record import hidden_in, made_in, public, record_of_root
from windrow.data.units import cluster_borders, common_borders, read_borders, unit_borders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from windrow.data.base import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class TTreeLayout:
    """All that is known of a tree without its data; shared between threads, never changed."""

    path: str  #: of the tree in the file
    info: FileInfo
    baskets: Mapping[str, Baskets]  #: the columns whose baskets are plain
    where: Mapping[str, str]  #: column -> what uproot finds its branch by
    others: Mapping[str, Baskets]  #: where those of the other columns are, to fetch them ahead


class TTreeReader(FetchesAhead):
    """One open TTree; ``ranges`` are the (offset, size) of the baskets fetched so far."""

    def __init__(self, source: Input, layout: TTreeLayout, handle: Any = None) -> None:
        self.info = layout.info
        self.layout = layout
        self.reads: list[tuple[str, int, int]] = []
        self._label = source.label
        self._location = str(source.location)
        #: uproot's own handle: needed for the columns that are not plain
        self._handle = handle
        self._bytes = 0
        self._ranges: list[tuple[int, int]] = []
        self._remote: RemoteFile | None = None
        if handle is not None:
            self._remote = remote_file(handle)
        elif not is_local(self._location):
            self._remote = RemoteFile(self._location)
        self._file = BasketFile(self._location, self._remote)
        if self._remote is not None:
            self._ahead = Ahead(self._remote, self.reads, self._locate, self._errors)
        if handle is not None and len(layout.baskets) == len(layout.where):
            handle.close()
            self._handle = None

    @property
    def bytes_read(self) -> int:
        return self._remote.bytes_read if self._remote else self._bytes + self._file.bytes_read

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return self._remote.ranges if self._remote else self._ranges + self._file.ranges

    def _errors(self) -> AbstractContextManager[None]:
        return translated(self._label)

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        check_request(self.info, self._label, public(columns, self.info), start, stop)
        out: dict[str, Any] = dict.fromkeys(columns)
        with self._errors():
            if self._ahead is None:
                self._read(start, stop, out)
                self.reads.extend((name, start, stop) for name in out)
            else:
                with self._ahead.reading(columns, start, stop):
                    self._read(start, stop, out)
        return out

    def _read(self, start: int, stop: int, out: dict[str, Any]) -> None:
        odd = [name for name in out if not self._read_plain(name, start, stop, out)]
        if odd:
            self._read_through_uproot(odd, start, stop, out)

    def _locate(self, name: str, start: int, stop: int) -> Iterable[tuple[int, int]]:
        baskets = self.layout.baskets.get(name) or self.layout.others[name]
        return self._file.locate(baskets, start, stop)

    def _read_plain(self, name: str, start: int, stop: int, out: dict[str, Any]) -> bool:
        baskets = self.layout.baskets.get(name)
        if baskets is None:
            return False
        with suppress(Unsupported):
            out[name] = self._file.read(baskets, start, stop)
            return True
        return False

    def _read_through_uproot(self, names: Sequence[str], start: int, stop: int, out: dict[str, Any]) -> None:
        if self._handle is None:
            self._handle = open_file(self._location, self._remote)
            remote_file(self._handle)
        tree = self._handle[self.layout.path]
        branches = {name: tree[self.layout.where[name]] for name in names}
        for branch in branches.values():
            self._count(branch, start, stop)
        # One request for all of them: what counts for a remote file.
        arrays = tree.arrays(
            [self.layout.where[name] for name in names],
            entry_start=start,
            entry_stop=stop,
            library="ak",
            how=dict,
            array_cache=None,
        )
        for name in names:
            array = arrays[self.layout.where[name]]
            hidden = name == self.info.identity_column
            kind = "flat" if hidden else self.info.columns[name].kind
            if kind == "flat":
                out[name] = native(np.asarray(array))
            else:
                out[name] = native_lists(array) if kind == "jagged" else array

    def _count(self, branch: Any, start: int, stop: int) -> None:
        entries = branch.entry_offsets
        seeks = branch.member("fBasketSeek")
        for number in range(branch.num_baskets - len(branch.embedded_baskets)):
            if entries[number] < stop and start < entries[number + 1]:
                size = int(branch.basket_compressed_bytes(number))
                self._bytes += size
                self._ranges.append((int(seeks[number]), size))

    def close(self) -> None:
        self._file.close()
        if self._handle is not None:
            self._handle.close()
        if self._remote is not None:
            self._remote.close()


# -- layout ---------------------------------------------------------------------------------------


def ttree_layout(handle: Any, path: str, tree: Any, grid: int | None) -> TTreeLayout:
    rows = int(tree.num_entries)
    branches = leaves(tree)
    columns: dict[str, ColumnInfo] = {}
    baskets: dict[str, Baskets] = {}
    where: dict[str, str] = {}
    others: dict[str, Baskets] = {}
    all_entries: list[Sequence[int]] = []
    for name, (place, branch) in branches.items():
        meaning = branch.interpretation
        if isinstance(meaning, Exception):
            continue  # uproot cannot read it, and then neither can anybody
        entries = tuple(branch.entry_offsets)
        if entries[-1] != rows:
            continue  # a branch filled more or less often than the tree has no row for each
        columns[name] = _describe(name, branch, meaning)
        where[name] = place
        all_entries.append(entries)
        stored = _plain(columns[name], branch, meaning)
        if stored is not None:
            baskets[name] = _baskets(columns[name], branch, stored, entries)
        else:
            others[name] = _baskets(columns[name], branch, np.dtype(np.uint8), entries)
    own_borders = _file_borders(tree, rows, all_entries)
    record = record_of_root(handle)
    hidden = hidden_in(record, columns)
    columns.pop(hidden or "", None)
    info = FileInfo(
        rows=rows,
        borders=unit_borders(rows, own_borders, grid=grid),
        clusters=read_borders(rows, own_borders, grid=grid),
        columns=columns,
        identity=str(handle.file.uuid),
        collections=find_collections(columns),
        identity_column=hidden,
        made=made_in(record),
    )
    return TTreeLayout(path=path, info=info, baskets=baskets, where=where, others=others)


def leaves(tree: Any) -> dict[str, tuple[str, Any]]:
    """Return the branches that hold data, by their own name where that is unique, else by path."""
    found: dict[str, tuple[str, Any]] = {}
    twice: set[str] = set()
    for path, branch in tree.iteritems(recursive=True, full_paths=True):
        if branch.branches:
            continue  # a parent: its data are in its children
        name = str(branch.name).rstrip(".")
        if name in found or name in twice:
            twice.add(name)
            if name in found:
                place, other = found.pop(name)
                found[place] = (place, other)
            name = path
        found[name] = (path, branch)
    return found


def _describe(name: str, branch: Any, meaning: Any) -> ColumnInfo:
    stored = int(branch.compressed_bytes)
    number = uproot.interpretation.numerical.AsDtype
    if type(meaning) is number and _is_number(meaning.to_dtype):
        dtype = meaning.to_dtype.newbyteorder("=")
        return ColumnInfo(name=name, kind="flat", dtype=dtype, stored_bytes=stored)
    lists = type(meaning) is uproot.interpretation.jagged.AsJagged
    if lists and type(meaning.content) is number and _is_number(meaning.content.to_dtype):
        counter = branch.count_branch
        return ColumnInfo(
            name=name,
            kind="jagged",
            dtype=meaning.content.to_dtype.newbyteorder("="),
            counter=None if counter is None else str(counter.name),
            stored_bytes=stored,
        )
    return ColumnInfo(name=name, kind="other", dtype=None, stored_bytes=stored)


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.shape == () and dtype.kind in "biuf"


def _plain(column: ColumnInfo, branch: Any, meaning: Any) -> np.dtype[Any] | None:
    """Return the type of a stored number if the lean path may read the baskets."""
    if column.kind == "other" or branch.embedded_baskets:
        return None
    jagged = column.kind == "jagged"
    if jagged and meaning.header_bytes:
        return None
    stored: np.dtype[Any] = (meaning.content if jagged else meaning).from_dtype
    return stored if stored.newbyteorder("=") == column.dtype else None


def _baskets(column: ColumnInfo, branch: Any, stored: np.dtype[Any], entries: tuple[int, ...]) -> Baskets:
    count = branch.num_baskets - len(branch.embedded_baskets)
    return Baskets(
        name=column.name,
        stored=stored,
        jagged=column.kind == "jagged",
        counter=column.counter,
        entries=entries,
        seeks=tuple(branch.member("fBasketSeek")[:count].tolist()),
        sizes=tuple(branch.member("fBasketBytes")[:count].tolist()),
    )


def _file_borders(tree: Any, rows: int, all_entries: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the clusters if the baskets respect them, else the borders all baskets share."""
    common = common_borders(all_entries)
    with suppress(KeyError, TypeError, AttributeError):
        clusters = cluster_borders(
            rows,
            tree.member("fClusterRangeEnd").tolist(),
            tree.member("fClusterSize").tolist(),
            int(tree.member("fAutoFlush")),
        )
        if clusters and set(clusters).issubset(common):
            return clusters
    return common
