"""A TTree: what it says about itself, and a reader of it.

The layout (columns, baskets, units) is found once per file and shared by the readers of that file; each reader has a
handle of its own. Plain columns go through ``baskets``, everything else through uproot.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import uproot

from windrow.data.arrays import as_read
from windrow.data.base import ColumnInfo, FileInfo, cluster_borders, common_borders
from windrow.data.formats.baskets import BasketFile, Baskets, Unsupported
from windrow.data.formats.reader import FileReader, describe_file
from windrow.data.formats.root_files import open_file, remote_file
from windrow.data.formats.tree_head import Clusters, Head, read_head
from windrow.data.paths import is_remote
from windrow.data.remote.file import RemoteFile
from windrow.data.skim.record import record_of_root

if TYPE_CHECKING:
    from windrow.data.base import Input


@dataclass(frozen=True, slots=True, kw_only=True)
class TTreeLayout:
    """All that is known of a tree without its data; shared between threads, never changed."""

    path: str  #: of the tree in the file
    info: FileInfo
    baskets: Mapping[str, Baskets]  #: by column


class TTreeReader(FileReader):
    """One open TTree."""

    FORMAT = "ROOT"

    def __init__(self, source: Input, layout: TTreeLayout, handle: Any = None) -> None:
        self._location = str(source.location)
        remote: RemoteFile | None = None
        if handle is not None:
            remote = remote_file(handle)
        elif is_remote(self._location):
            remote = RemoteFile(self._location)
        super().__init__(source.label, remote)
        self.info = layout.info
        self.layout = layout
        self._file = BasketFile(self._location, remote)
        #: uproot's own handle: needed for the columns that are not plain
        self._handle = handle
        if handle is not None and all(one.plain for one in layout.baskets.values()):
            handle.close()
            self._handle = None

    @property
    def bytes_read(self) -> int:
        return self._remote.bytes_read if self._remote else self._bytes + self._file.bytes_read

    def _read_rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        out: dict[str, Any] = dict.fromkeys(names)
        odd = []
        for name in names:
            try:
                out[name] = self._file.read(self.layout.baskets[name], start, stop)
            except Unsupported:
                odd.append(name)
        if odd:
            self._read_through_uproot(odd, start, stop, out)
        return out

    def _locate(self, name: str, start: int, stop: int) -> Iterable[tuple[int, int]]:
        return self._file.locate(self.layout.baskets[name], start, stop)

    def _read_through_uproot(self, names: Sequence[str], start: int, stop: int, out: dict[str, Any]) -> None:
        if self._handle is None:
            self._handle = open_file(self._location, self._remote)
            remote_file(self._handle)
        tree = self._handle[self.layout.path]
        baskets = {name: self.layout.baskets[name] for name in names}
        for one in baskets.values():
            self._bytes += sum(one.sizes[number] for number in one.overlapping(start, stop))
        # One request for all of them: what counts for a remote file.
        arrays = tree.arrays(
            [one.path for one in baskets.values()],
            entry_start=start,
            entry_stop=stop,
            library="ak",
            how=dict,
            array_cache=None,
        )
        for name, one in baskets.items():
            hidden = name == self.info.identity_column
            kind = "flat" if hidden else self.info.columns[name].kind
            array = arrays[one.path]
            out[name] = as_read(kind, np.asarray(array) if kind == "flat" else array)

    def close(self) -> None:
        self._file.close()
        if self._handle is not None:
            self._handle.close()
        if self._remote is not None:
            self._remote.close()


# -- layout ---------------------------------------------------------------------------------------


def ttree_layout(handle: Any, path: str, grid: int | None) -> TTreeLayout:
    head = read_head(handle, path)
    clusters: Clusters | None
    if head is not None:
        rows, clusters = head.rows, head.clusters
        columns, baskets = _described(head)
    else:
        tree = handle[path]
        rows, clusters = int(tree.num_entries), _clusters(tree)
        columns, baskets = _described_by_uproot(tree, rows)
    common = common_borders(one.entries for one in baskets.values())
    said = () if clusters is None else cluster_borders(rows, *clusters)
    # The clusters if the baskets respect them, else the borders that all baskets share.
    borders = said if said and set(said).issubset(common) else common
    info = describe_file(rows, borders, grid, columns, str(handle.file.uuid), record_of_root(handle))
    return TTreeLayout(path=path, info=info, baskets=baskets)


def _described(head: Head) -> tuple[dict[str, ColumnInfo], dict[str, Baskets]]:
    columns: dict[str, ColumnInfo] = {}
    baskets: dict[str, Baskets] = {}
    for one, size in head.branches:
        if one.entries[-1] != head.rows:
            continue  # as below
        kind: Literal["flat", "jagged"] = "jagged" if one.jagged else "flat"
        columns[one.name] = ColumnInfo(
            name=one.name, kind=kind, dtype=one.stored.newbyteorder("="), counter=one.counter, stored_bytes=size
        )
        baskets[one.name] = one
    return columns, baskets


def _described_by_uproot(tree: Any, rows: int) -> tuple[dict[str, ColumnInfo], dict[str, Baskets]]:
    columns: dict[str, ColumnInfo] = {}
    baskets: dict[str, Baskets] = {}
    for name, (place, branch) in leaves(tree).items():
        meaning = branch.interpretation
        if isinstance(meaning, Exception):
            continue  # uproot cannot read it, and then neither can anybody
        entries = array("q", branch.entry_offsets)
        if entries[-1] != rows:
            continue  # a branch filled more or less often than the tree has no row for each
        column = columns[name] = _describe(name, branch, meaning)
        stored = _plain(column, branch, meaning)
        count = branch.num_baskets - len(branch.embedded_baskets)
        baskets[name] = Baskets(
            name=name,
            path=place,
            plain=stored is not None,
            stored=stored or np.dtype(np.uint8),
            jagged=column.kind == "jagged",
            counter=column.counter,
            entries=entries,
            seeks=array("q", branch.member("fBasketSeek")[:count].tolist()),
            sizes=array("q", branch.member("fBasketBytes")[:count].tolist()),
        )
    return columns, baskets


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


def _clusters(tree: Any) -> Clusters | None:
    with suppress(KeyError, TypeError, AttributeError):
        ends, sizes = (tree.member(name).tolist() for name in ("fClusterRangeEnd", "fClusterSize"))
        return ends, sizes, int(tree.member("fAutoFlush"))
    return None
