"""What the readers of files share: checked requests, one translation of errors, and columns fetched ahead.

Transient ``OSError`` stay what they are, so that a retry can see them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from windrow.data.base import ColumnInfo, FileInfo, read_borders, unit_borders
from windrow.data.columns import check_request, find_collections
from windrow.data.paths import is_remote, missing_package, named_error
from windrow.errors import CorruptFileError, MissingFileError, UsageError, WindrowError

if TYPE_CHECKING:
    from windrow.data.remote.file import Link, RemoteFile
    from windrow.data.remote.http import Range


#: Columns and the rows [start, stop) of them.
Wanted = tuple["Sequence[str]", int, int]


class FileReader(ABC):
    """One open file, for one thread; of a remote one, columns of rows can be fetched ahead in one request."""

    FORMAT: ClassVar[str]
    info: FileInfo

    def __init__(self, label: str, remote: RemoteFile | None) -> None:
        self.reads: list[tuple[str, int, int]] = []
        self._label = label
        self._remote = remote
        self._bytes = 0  #: stored bytes fetched from a local file
        self._listed: dict[str, list[tuple[int, int]]] = {}  #: rows of columns that are held
        self._holding = False

    @abstractmethod
    def _read_rows(self, names: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        """Read columns of rows that are there."""

    @abstractmethod
    def _locate(self, name: str, start: int, stop: int) -> Iterable[Range]:
        """Yield the bytes that reading these rows of a column would fetch."""

    @property
    def bytes_read(self) -> int:
        return self._remote.bytes_read if self._remote else self._bytes

    @property
    def link(self) -> Link | None:
        """What fetching costs; None for a local file, of which nothing is fetched ahead."""
        return self._remote.link if self._remote else None

    @property
    def requests(self) -> int:
        """Requests sent so far, those for opening included."""
        return self._remote.requests if self._remote else 0

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        names = list(dict.fromkeys(columns))
        check_request(
            self.info, self._label, [name for name in names if name != self.info.identity_column], start, stop
        )
        with translated(self._label, self.FORMAT):
            if self._remote is None:
                out = self._read_rows(names, start, stop)
                self.reads.extend((name, start, stop) for name in names if start < stop)
                return out
            self._fetch([(names, start, stop)])
            try:
                return self._read_rows(names, start, stop)
            finally:
                if not self._holding:
                    self.forget()

    def prefetch(self, wanted: Sequence[Wanted]) -> None:
        """Fetch columns of rows in one request and hold them until ``forget``; nothing is decoded yet."""
        if self._remote is not None:
            self._holding = True
            with translated(self._label, self.FORMAT):
                self._fetch(wanted)

    def forget(self) -> None:
        """Let go of what was fetched ahead: other rows come now."""
        self._holding = False
        self._listed.clear()
        if self._remote is not None:
            self._remote.forget()

    def _fetch(self, wanted: Sequence[Wanted]) -> None:
        assert self._remote is not None
        ranges: list[Range] = []
        fresh: list[tuple[str, int, int]] = []
        for names, start, stop in wanted:
            for name in dict.fromkeys(names):
                listed = self._listed.get(name, ())
                if start < stop and not any(a <= start and stop <= b for a, b in listed):
                    ranges.extend(self._locate(name, start, stop))
                    fresh.append((name, start, stop))
        self._remote.prefetch(ranges)
        for name, start, stop in fresh:
            self._listed.setdefault(name, []).append((start, stop))
        self.reads.extend(fresh)


def describe_file(
    rows: int,
    file_borders: Sequence[int],
    grid: int | None,
    columns: dict[str, ColumnInfo],
    identity: str,
    record: Mapping[str, Any] | None,
) -> FileInfo:
    """Put together what is known of a file; ``record`` is what it says about itself if it is a skim."""
    said = record or {}
    hidden = said.get("hidden") if said.get("hidden") in columns else None
    columns.pop(hidden or "", None)
    for counter, names in (said.get("counters") or {}).items():
        columns.update((name, replace(columns[name], counter=counter)) for name in names if name in columns)
    return FileInfo(
        rows=rows,
        borders=unit_borders(rows, file_borders, grid=grid),
        clusters=read_borders(rows, file_borders, grid=grid),
        columns=columns,
        identity=identity,
        collections=find_collections(columns),
        identity_column=hidden,
        made=frozenset(said.get("made") or ()),
    )


@contextmanager
def translated(label: str, format: str = "ROOT") -> Iterator[None]:  # noqa: A002 - as everywhere
    """Turn what a library raises about a file into Windrow's errors."""
    try:
        yield
    except WindrowError:
        raise
    except ImportError as exc:
        raise UsageError(missing_package(label, exc), file=label) from exc
    except FileNotFoundError as exc:
        raise MissingFileError(f"no such file: {label}", file=label) from exc
    except OSError as exc:
        # What the operating system or a connection reports may not happen the next time; a library that finds damaged
        # data gives no error number.
        lasting = exc.errno is None and not isinstance(exc, ConnectionError | TimeoutError)
        if lasting and (not is_remote(label) or label.startswith("http")):
            raise _corrupt(label, format, exc) from exc
        raise named_error(label, exc) from exc
    except Exception as exc:  # damaged data make the libraries fail in any way
        raise _corrupt(label, format, exc) from exc


def _corrupt(label: str, format: str, exc: BaseException) -> CorruptFileError:  # noqa: A002 - as everywhere
    reason = (str(exc).strip() or type(exc).__name__).splitlines()[0]
    damage = "it is truncated, damaged or of another format"
    if format == "ROOT" and not is_remote(label):
        damage = _damage(label)
    return CorruptFileError(f"{label} cannot be read as {format}: {damage} ({reason[:200]})", file=label)


def _damage(label: str) -> str:
    try:
        with Path(label).open("rb") as file:
            head = file.read(8)
    except OSError:
        return "it cannot be opened"
    if not head:
        return "it is empty (0 bytes)"
    if head[:4] == b"PAR1":
        return "it is a Parquet file: give it the suffix .parquet"
    if head[:4] != b"root":
        return f"it does not begin with 'root' but with {head!r}; only ROOT, Parquet and arrays are read"
    return truncation(label) or "it is a ROOT file, but damaged"


def truncation(path: str) -> str | None:
    """Say by how much a ROOT file is shorter than its header records, at the place its version has it."""
    with Path(path).open("rb") as file:
        head = file.read(20)
        size = file.seek(0, 2)
    if head[:4] != b"root":
        return None
    wide = int.from_bytes(head[4:8], "big") >= 1_000_000
    end = int.from_bytes(head[12 : 20 if wide else 16], "big")
    return f"it is truncated: its header says {end} bytes, it has {size}" if end > size else None
