"""``open``: from what a user wrote to a source, and from a source to readers.

A source opens nothing until work reaches an input, and pickles as the description it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windrow.data.arrays import concatenate
from windrow.data.paths import is_remote
from windrow.data.skim.record import find_skims, merge_records
from windrow.data.spec import parse
from windrow.errors import CorruptFileError, MissingColumnError, SpecError, nearest
from windrow.files import Once

if TYPE_CHECKING:
    from windrow.data.base import Input, Reader, Source


#: Files of which is kept what readers found in them. They are worked through in order: a few more than there are workers is
#: enough, and a small analysis that is run again opens none of its files anew.
LAYOUTS = 32
#: Clocks of file systems tick every 2 s or more often: what was changed so long ago has another time if it is changed again.
SETTLED_NS = 2_000_000_000


#: What readers found in the local files opened last: it takes a while to understand 1,900 branches.
_KNOWN: Once[Any] = Once(LAYOUTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Files and arrays by dataset; opens each input anew for every reader."""

    inputs: tuple[Input, ...]
    datasets: Mapping[str, Mapping[str, Any]]  #: metadata per dataset, in fileset order
    grid: int | None = None  #: rows of a unit where the file's own units are not wanted
    #: What readers found in files that are remote, or were written just now.
    _layouts: Once[Any] = field(default_factory=lambda: Once(LAYOUTS), compare=False, repr=False)

    def open(self, index: int) -> Reader:
        source = self.inputs[index]
        opened: list[Reader] = []

        def understand() -> Any:
            opened.append(_reader(source, self.grid, None))
            return getattr(opened[0], "layout", None)

        stamp = stamp_of(source)
        if stamp is not None and time.time_ns() - max(stamp[-2:]) > SETTLED_NS:
            layout = _KNOWN.get((str(source.location), source.tree, self.grid, stamp), understand)
        else:
            layout = self._layouts.get((index, stamp), understand)
        reader = opened[0] if opened else _reader(source, self.grid, layout)
        try:
            _check_promises(source, reader)
        except CorruptFileError:
            reader.close()
            raise
        return reader

    def __reduce__(self) -> Any:
        # Read-only views do not pickle; the dictionaries behind them do.
        plain = {name: dict(metadata) for name, metadata in self.datasets.items()}
        return _rebuild, (self.inputs, plain, self.grid)


def _rebuild(inputs: tuple[Input, ...], datasets: Mapping[str, Mapping[str, Any]], grid: int | None) -> FileSource:
    return FileSource(inputs=inputs, datasets=_read_only(datasets), grid=grid)


def _read_only(datasets: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    return MappingProxyType({name: MappingProxyType(dict(m)) for name, m in datasets.items()})


def stamp_of(source: Input) -> tuple[int, int, int, int, int] | None:
    """Return what shows that a local file was replaced: device, inode, size, and times of its content and of anything.

    None where there is nothing to look at.
    """
    if source.format == "arrays" or is_remote(str(source.location)):
        return None
    try:
        now = Path(source.location).stat()
    except (OSError, TypeError, ValueError):
        return None  # opening it will say what is wrong
    return now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns


def _reader(source: Input, grid: int | None, layout: Any) -> Reader:
    # The formats' libraries are imported when the first such file is opened: they take time to load.
    if source.format == "arrays":
        from windrow.data.arrays import ArrayReader

        return ArrayReader(source, grid)
    if source.format == "parquet":
        from windrow.data.formats.parquet import ParquetReader

        return ParquetReader(source, grid, layout)
    from windrow.data.formats.root import open_root

    return open_root(source, grid, layout)


def _check_promises(source: Input, reader: Reader) -> None:
    rows, identity = reader.info.rows, reader.info.identity
    last = source.steps[-1][1] if source.steps else 0
    problem = None
    if source.rows is not None and source.rows != rows:
        problem = f"says {source.rows} rows, the file has {rows}"
    elif last > rows:
        problem = f"has a step up to row {last}, the file has {rows} rows"
    elif source.format == "root" and source.uuid is not None and source.uuid.lower() != identity.lower():
        problem = f"says uuid {source.uuid}, the file is {identity}: it was replaced"
    if problem is not None:
        raise CorruptFileError(
            f"{source.label}: the fileset {problem}; preprocess the fileset again", file=source.label
        )


def open(  # noqa: A001 - reads as windrow.data.open
    spec: Any, *, tree: str | None = None, metadata: Mapping[str, Any] | None = None, grid: int | None = None
) -> Source:
    """Return the source that ``spec`` names; nothing is read before work reaches it.

    Parameters
    ----------
    spec
        A path, a glob, ``"file.root:Tree"``, a list of these, ``{file: tree}``, a coffea fileset
        in any of its forms or the path of one in JSON, a mapping of arrays, an awkward array of
        records, or a source, which is returned as it is.
    tree
        The tree of files whose spec names none; without it a file's only tree, or the one called
        "Events".
    metadata
        By dataset, added to what the fileset says; with one dataset also the metadata itself.
    grid
        Rows of a unit, instead of the file's own clusters or row groups.
    """
    if hasattr(spec, "inputs") and hasattr(spec, "datasets") and callable(getattr(spec, "open", None)):
        if tree is not None or metadata is not None or grid is not None:
            raise SpecError("a source is complete: give tree, metadata and grid where it is opened")
        source: Source = spec
        return source
    if grid is not None and grid < 1:
        raise SpecError(f"grid is the number of rows of a unit and at least 1, not {grid}")
    parsed = parse(spec, tree)
    skims = find_skims(parsed)
    for name, extra in _by_dataset(metadata or {}, parsed.datasets).items():
        parsed.datasets[name].update(extra)
    for name, records in skims.items():
        parsed.datasets[name] = merge_records(parsed.datasets[name], records)
    return FileSource(inputs=tuple(parsed.inputs), datasets=_read_only(parsed.datasets), grid=grid)


def _by_dataset(metadata: Mapping[str, Any], datasets: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    unknown = [name for name in metadata if name not in datasets]
    if not unknown and all(isinstance(m, Mapping) for m in metadata.values()):
        return metadata
    if len(datasets) == 1:
        return {next(iter(datasets)): metadata}
    name = unknown[0] if unknown else next(iter(metadata))
    raise SpecError(
        f"metadata must map datasets to mappings, and {name!r} is "
        + (f"no dataset{nearest(name, datasets)}" if unknown else "not mapped to one")
    )


def table(files: Any, tree: str | None = None, *, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the columns of a tree by name, the files one after the other.

    ``wr.data.table("dy/*.root", "Runs")["genEventSumw"].sum()`` is the sum of weights before any skim. One number per
    row is a NumPy array, everything else an awkward array.

    Parameters
    ----------
    files
        Whatever ``wr.data.open`` takes for the files of one dataset; trees named in it do not count, so that the files of
        an analysis can be given as they are.
    tree
        The tree; by default the only one, or the one called "Events".
    columns
        Which columns; by default all of them.
    """
    if isinstance(columns, str):
        raise SpecError(f"columns= is a list of names, got {columns!r}")
    source = open(files)
    if not isinstance(source, FileSource):
        raise SpecError(f"a table is read from files, got a {type(source).__name__}; give the files it is made of")
    if len(source.datasets) > 1:
        names = ", ".join(source.datasets)
        raise SpecError(f"a table is read from the files of one dataset, got those of {names}")
    if tree is not None:
        if odd := next((item for item in source.inputs if item.format != "root"), None):
            raise SpecError(f"{odd.label} is no ROOT file and has no trees, but {tree!r} is asked for")
        # What is known of the rows of one tree says nothing about another.
        source = replace(source, inputs=tuple(replace(i, tree=tree, rows=None, steps=None) for i in source.inputs))
    parts = []
    for item in source.inputs:
        reader = source.open(item.index)
        try:
            wanted = list(reader.info.columns) if columns is None else list(columns)
            parts.append(reader.read(wanted, 0, reader.info.rows))
        finally:
            reader.close()
        if unlike := sorted(parts[0].keys() ^ parts[-1].keys()):
            raise MissingColumnError(
                f"{unlike[0]!r} is in only one of {source.inputs[0].label} and {item.label}: name the columns you need "
                "with columns=[...]",
                column=unlike[0],
                file=item.label,
            )
    return {name: concatenate([part[name] for part in parts]) for name in parts[0]}
