"""``join``: a source with further columns from other files, row by row or found by the row's identity (friend trees).

Rows, units and identities are those of the first source; of the second, the friend, only the columns that are asked
for are read. A row that has no partner is an error, or has None there: it is never dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from windrow.data.base import IDENTITY_COLUMN
from windrow.data.columns import check_request, find_collections
from windrow.data.join.chain import Chain, ChainReader, IdentityIndex, chain
from windrow.data.source import open as open_source
from windrow.errors import CorruptFileError, DataError, MissingColumnError, SpecError, UsageError, nearest
from windrow.files import Once

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.data.base import ColumnInfo, FileInfo, Input, Reader, Source
    from windrow.data.join.chain import Chain


Missing = Literal["error", "none"]


def join(
    main: Any,
    friend: Any,
    on: str | Sequence[str] | None = None,
    *,
    missing: Missing = "error",
    prefix: str = "",
    suffix: str = "",
) -> JoinedSource:
    """Return a source with the rows of ``main`` and the columns of both.

    Parameters
    ----------
    main, friend
        Whatever ``wr.data.open`` takes. Datasets are joined by name; two that are each alone need not be named alike.
    on
        None: row by row, file by file where a dataset has as many files in both, else as the files of the dataset
        follow each other; there must be as many rows. Columns, such as ``("run", "luminosityBlock", "event")``: the
        friend's row with the same numbers, in any file of the dataset. They are read once for the whole friend.
    missing
        What a row is that has no partner, with ``on``: an error, or None in all columns of the friend.
    prefix, suffix
        Put around the friend's column names; needed where both have a column of one name.
    """
    columns = (on,) if isinstance(on, str) else None if on is None else tuple(on)
    if columns is not None and not (columns and all(isinstance(c, str) for c in columns)):
        raise SpecError(f"on= names the columns that identify a row, or is None, got {on!r}")
    if missing not in ("error", "none"):
        raise SpecError(f"missing= must be 'error' or 'none', got {missing!r}")
    if missing == "none" and columns is None:
        raise SpecError("missing='none' needs on=: row by row, every row must have its partner")
    joined = JoinedSource(
        main=open_source(main), friend=open_source(friend), on=columns, missing=missing, prefix=prefix, suffix=suffix
    )
    _partners(joined.main, joined.friend)
    return joined


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedSource:
    """Two sources as one; ``join`` makes it."""

    main: Source
    friend: Source
    on: tuple[str, ...] | None
    missing: Missing = "error"
    prefix: str = ""
    suffix: str = ""
    _known: _Known = field(default_factory=lambda: _Known(), compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return self.main.inputs

    @property
    def files_read(self) -> tuple[Input, ...]:
        """The inputs of both, and of what they are joined of."""
        both = (self.main, self.friend)
        return tuple(item for one in both for item in getattr(one, "files_read", one.inputs))

    @property
    def datasets(self) -> Mapping[str, Mapping[str, Any]]:
        return self.main.datasets

    def made_of(self, index: int) -> tuple[str, list[tuple[Source, int]]]:
        """Say how the rows of an input are put together, and from which inputs: a digest of the rows looks at all of them."""
        said = repr(("join", self.on, self.missing, self.prefix, self.suffix))
        mine, theirs = self._files(self.main.inputs[index])
        if self.on is not None:
            mine = (index,)  # else the rows of those before it say where its own begin
        return said, [(self.main, i) for i in mine] + [(self.friend, i) for i in theirs]

    def open(self, index: int) -> JoinedReader:
        reader = self.main.open(index)
        try:
            return self._joined(self.main.inputs[index], reader)
        except BaseException:
            reader.close()
            raise

    def _joined(self, item: Input, reader: Reader) -> JoinedReader:
        mine, theirs = self._files(item)
        known = self._known.chains.get(theirs, lambda: chain(self.friend, theirs))
        columns = joined_columns(
            reader.info,
            known,
            labels=(item.label, self.friend.inputs[theirs[0]].label),
            on=self.on or (),
            rename=f"{self.prefix}{{}}{self.suffix}",
            option=self.missing == "none",
        )
        friend = ChainReader(self.friend, known)
        first = self._first_row(item, mine, reader.info.rows, known) if self.on is None else 0

        def fetch(names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
            if self.on is None:
                return friend.read(names, first + start, first + stop)
            # By what the files are, too: the source may outlive them.
            key = (item.index, reader.info.identity, known.identities)
            rows = self._known.matches.get(key, lambda: self._match(self.on or (), item, reader, friend))
            return friend.take(names, rows[start:stop], option=self.missing == "none")

        return JoinedReader(item.label, reader, friend, columns, fetch)

    def _match(self, on: Sequence[str], item: Input, reader: Reader, friend: ChainReader) -> NDArray[np.int64]:
        """Find the friend's rows with the same identity, for a whole file, so that errors do not depend on cuts."""
        index = self._known.indexes.get((friend.known.inputs, friend.known.identities), lambda: self._index(on, friend))
        values = reader.read(on, 0, reader.info.rows)
        mine = [values[name] for name in on]
        rows = index.find(mine)
        lacking = np.flatnonzero(rows < 0)
        if len(lacking) and self.missing == "error":
            raise DataError(
                f"{item.label}: {len(lacking)} of its {len(rows)} rows have no partner in the friend, the first "
                f"{_identities(on, mine, lacking)}; missing='none' makes their columns None",
                file=item.label,
            )
        return rows

    def _index(self, on: Sequence[str], friend: ChainReader) -> IdentityIndex:
        values = friend.read(on, 0, friend.known.rows)
        columns = [values[name] for name in on]
        index = IdentityIndex(columns)
        twice = index.duplicates()
        if len(twice):
            label = self.friend.inputs[friend.known.inputs[0]].label
            where = label if len(friend.known.inputs) == 1 else f"{label} and its like"
            raise DataError(
                f"{where}: {len(twice)} identities are there more than once, the first "
                f"{_identities(on, columns, twice)}; more columns in on= may tell them apart",
                file=label,
            )
        return index

    def _files(self, item: Input) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the inputs whose rows an input's are numbered with, ascending, and those of its friend."""

        def find() -> tuple[tuple[int, ...], tuple[int, ...]]:
            partner = _partners(self.main, self.friend)[item.dataset]
            return (
                tuple(one.index for one in self.main.inputs if one.dataset == item.dataset),
                tuple(one.index for one in self.friend.inputs if one.dataset == partner),
            )

        mine, theirs = self._known.files.get(item.dataset, find)
        if self.on is None and len(mine) == len(theirs):
            return (item.index,), (theirs[bisect_left(mine, item.index)],)
        return mine, theirs

    def _first_row(self, item: Input, mine: tuple[int, ...], rows: int, known: Chain) -> int:
        counts = [rows if index == item.index else self._rows(index) for index in mine]
        if sum(counts) != known.rows:
            files = [self.friend.inputs[index].label for index in known.inputs]
            whose = item.label if len(mine) == 1 else f"dataset {item.dataset!r}"
            others = files[0] if len(files) == 1 else f"the {len(files)} files of its friend"
            raise DataError(
                f"{whose} has {sum(counts)} rows, {others} has {known.rows}: row by row there must be as many; "
                "on=(columns) finds rows by their identity",
                file=item.label,
            )
        return sum(counts[: mine.index(item.index)])

    def _rows(self, index: int) -> int:
        def count() -> int:
            reader = self.main.open(index)
            reader.close()
            return reader.info.rows

        rows = self.main.inputs[index].rows
        return self._known.rows.get(index, count) if rows is None else rows

    def __reduce__(self) -> Any:
        # What was learnt stays here: it holds locks, and files may be elsewhere for others.
        kept = ("main", "friend", "on", "missing", "prefix", "suffix")
        return partial(JoinedSource, **{name: getattr(self, name) for name in kept}), ()


def _partners(main: Source, friend: Source) -> dict[str, str]:
    if len(main.datasets) == 1 == len(friend.datasets):
        return dict(zip(main.datasets, friend.datasets, strict=True))
    lacking = [name for name in main.datasets if name not in friend.datasets]
    if lacking:
        raise SpecError(
            f"the friend has no dataset {lacking[0]!r}{nearest(lacking[0], friend.datasets)} "
            f"(it has {', '.join(friend.datasets)}): datasets are joined by name"
        )
    return {name: name for name in main.datasets}


# -- rows -----------------------------------------------------------------------------------------


class JoinedReader:
    """One open input and its friend: one thread."""

    def __init__(
        self,
        label: str,
        main: Reader,
        friend: ChainReader,
        columns: tuple[Mapping[str, str], Mapping[str, ColumnInfo], Mapping[str, str]],
        fetch: Callable[[Sequence[str], int, int], dict[str, Any]],
    ) -> None:
        self._label = label
        self._main = main
        self._friend = friend
        self._names, infos, self._counted = columns
        self._fetch = fetch
        every = {**main.info.columns, **infos}
        self.info = replace(main.info, columns=every, collections=find_collections(every))

    @property
    def bytes_read(self) -> int:
        return self._main.bytes_read + self._friend.bytes_read

    @property
    def reads(self) -> list[tuple[str, int, int]]:
        return self._main.reads

    @property
    def link(self) -> Any:
        """What fetching costs, if the main source is remote; columns of the friend are not fetched ahead."""
        return getattr(self._main, "link", None)

    def prefetch(self, wanted: Sequence[tuple[Sequence[str], int, int]]) -> None:
        mine = [([name for name in columns if name not in self._names], start, stop) for columns, start, stop in wanted]
        self._main.prefetch([one for one in mine if one[0]])  # type: ignore[attr-defined]  # what has a link has it

    def forget(self) -> None:
        self._main.forget()  # type: ignore[attr-defined]  # what has a link has it

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        """Read ``columns`` of rows [start, stop): one request for each of the two."""
        hidden = self.info.identity_column  # where the main source has one, it is its own to read
        check_request(self.info, self._label, [c for c in columns if c != hidden], start, stop)
        names, counted = self._names, self._counted
        theirs = [name for name in dict.fromkeys(columns) if name in names]
        mine = [name for name in dict.fromkeys(columns) if name not in names]
        mine += sorted({counted[name] for name in theirs if name in counted}.difference(mine))
        out = self._main.read(mine, start, stop) if mine else {}
        if theirs:
            found = self._fetch([names[name] for name in theirs], start, stop)
            self.reads.extend((name, start, stop) for name in theirs)
            for name in theirs:
                out[name] = found[names[name]]
                if name in counted:
                    self._check_counts(name, out[name], out[counted[name]], start)
        return {name: out[name] for name in columns}

    def _check_counts(self, name: str, lists: Any, counts: NDArray[Any], start: int) -> None:
        wrong = np.flatnonzero(np.diff(np.asarray(lists.layout.offsets)) != counts)
        if len(wrong):
            counter = self._counted[name]
            raise CorruptFileError(
                f"{self._label}: in row {start + int(wrong[0])} the friend's {name!r} has another number of objects "
                f"than {counter!r} says; write join(..., prefix=...) to keep the two apart",
                file=self._label,
            )

    def close(self) -> None:
        self._main.close()
        self._friend.close()


def _identities(names: Sequence[str], columns: Sequence[Any], rows: NDArray[np.int64]) -> str:
    shown = ["(" + ", ".join(f"{n}={c[row]}" for n, c in zip(names, columns, strict=True)) + ")" for row in rows[:3]]
    return ", ".join(shown)


class _Known:
    """What a joined source has learnt; every process learns it anew."""

    def __init__(self) -> None:
        # Files are worked through in order: a few more than there are workers on a machine is enough. An index may be
        # as large as the friend's identities, and datasets come one after the other.
        self.files: Once[tuple[tuple[int, ...], tuple[int, ...]]] = Once(100_000)
        self.chains: Once[Chain] = Once(32)
        self.rows: Once[int] = Once(100_000)
        self.indexes: Once[IdentityIndex] = Once(2)
        self.matches: Once[NDArray[np.int64]] = Once(32)


def joined_columns(
    main: FileInfo, friend: Chain, *, labels: tuple[str, str], on: Sequence[str], rename: str, option: bool
) -> tuple[dict[str, str], dict[str, ColumnInfo], dict[str, str]]:
    """Name the friend's columns, but for those that identify rows; refuse names that both have.

    Return by joined name: the friend's own, what is known of it, and the main source's counter, which must agree.
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
    clashes = [name for name in clashes if name not in shared]
    if clashes:
        more = f" and {len(clashes) - 5} more" if len(clashes) > 5 else ""
        raise SpecError(
            f"{labels[0]} and its friend {labels[1]} both have {', '.join(clashes[:5])}{more}: write "
            'join(..., prefix="friend_") to give the friend\'s columns names of their own'
        )
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
    return names, infos, counted


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
