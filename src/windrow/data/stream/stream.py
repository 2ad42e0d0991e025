"""``stream``: rows that come while the run goes on, and are gone when they are done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windrow.data.base import Input
from windrow.data.spec import BARE_DATASET
from windrow.data.stream.flow import Flow
from windrow.data.stream.sources import DirectoryWatch, Tap, loopback_address, take_from_iterable, take_from_socket
from windrow.errors import SpecError, UsageError
from windrow.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from windrow.data.base import Reader


class Stream:
    """A source whose rows are not there yet; each run over it begins anew."""

    def __init__(
        self,
        label: str,
        open_tap: Callable[[], Tap],
        *,
        dataset: str,
        metadata: Mapping[str, Any],
        batch: int | None,
        columns: Sequence[str] | None,
        buffer: int,
    ) -> None:
        self.inputs = (Input(index=0, dataset=dataset, label=label, location=None, format="arrays"),)
        self.datasets = MappingProxyType({dataset: MappingProxyType(dict(metadata))})
        self.batch = batch
        self.buffer = buffer
        self._open_tap = open_tap
        self._columns = columns

    def __repr__(self) -> str:
        return f"<{self.inputs[0].label}>"

    def open(self, index: int) -> Reader:  # noqa: ARG002 - a source's
        """Refuse: there are no rows but in a run."""
        raise UsageError(
            f"{self.inputs[0].label} has rows only while a run takes them: look at a batch of it as arrays, or run"
        )

    def begin(self, max_rows: int | None = None) -> tuple[Tap, Flow]:
        """Give what one run needs: where batches come from, and where they go."""
        item = self.inputs[0]
        flow = Flow(
            label=item.label,
            dataset=item.dataset,
            metadata=self.datasets[item.dataset],
            batch=self.batch,
            columns=self._columns,
            buffer=self.buffer,
            max_rows=max_rows,
        )
        return self._open_tap(), flow


def stream(
    source: Any,
    *,
    dataset: str = BARE_DATASET,
    metadata: Mapping[str, Any] | None = None,
    batch: int | None = None,
    columns: Sequence[str] | None = None,
    buffer: str | float = "64 MB",
    until_idle: str | float | None = None,
) -> Stream:
    """Return a source of rows that come while the run goes on; memory stays bounded, whoever is faster.

    Parameters
    ----------
    source
        An iterator, generator or other iterable of batches (mappings of arrays, awkward arrays of records, Arrow record
        batches or tables); a directory, or ``"directory/*.parquet"``, whose files are taken as they appear, until one called
        ``stream.end`` does; or ``"tcp://localhost:PORT"``, to which a sender of Arrow's stream format listens.
    dataset, metadata
        What the rows belong to, and what is known of it.
    batch
        Rows of a mini-batch, on which outputs are evaluated. With it the result has the same bits as a run over the same
        rows as arrays, ``wr.data.open(arrays, grid=batch)``, however the producer cut them. By default each batch that
        comes is one (above 262,144 rows it is cut).
    columns
        Take these only; by default all, and all batches must have the same.
    buffer
        Bytes of rows that may wait or be worked on before the producer is made to wait; one batch more, at most.
    until_idle
        Of a directory: end after so long without a new file.
    """
    if batch is not None and (type(batch) is not int or batch < 1):
        raise SpecError(f"batch= is the number of rows of a mini-batch and at least 1, not {batch!r}")
    if isinstance(columns, str):
        raise SpecError(f"columns= is a list of names, got {columns!r}")
    size = parse_bytes(buffer)
    if size < 1:
        raise SpecError(f"buffer= must be more than nothing, got {buffer!r}")
    names = None if columns is None else tuple(columns)
    label, open_tap = _find_source(source, names, until_idle)
    return Stream(
        label,
        open_tap,
        dataset=dataset,
        metadata={"dataset": dataset, **(metadata or {})},
        batch=batch,
        columns=names,
        buffer=size,
    )


def _find_source(
    source: Any, columns: Sequence[str] | None, until_idle: str | float | None
) -> tuple[str, Callable[[], Tap]]:
    """Return what to call the source, and what opens it for one run."""
    is_socket = isinstance(source, str) and source.startswith("tcp://")
    is_directory = isinstance(source, str | os.PathLike) and not is_socket
    if until_idle is not None and not is_directory:
        raise SpecError("until_idle= is for directories: iterators and sockets end by themselves")
    if is_socket:
        label = f"stream {source}"
        return label, partial(Tap, partial(take_from_socket, loopback_address(source), label))
    if is_directory:
        path = Path(source)
        pattern = path.name if any(sign in path.name for sign in "*?[") else ""
        place = path.parent if pattern else path
        if not place.is_dir():
            raise SpecError(f"{place} is no directory: a stream of files needs one that exists")
        idle = None if until_idle is None else parse_seconds(until_idle)
        return f"stream {path}", lambda: Tap(DirectoryWatch(place, pattern, columns, idle).batches)
    if isinstance(source, Iterable) and not isinstance(source, Mapping):
        return "stream", _Iterations(source).open
    raise SpecError(
        f"cannot stream from {source!r:.60}; expected an iterable of batches, a directory or tcp://localhost:PORT"
        + ("; a mapping of arrays is no stream: run over it as it is, or give [it]" * isinstance(source, Mapping))
    )


class _Iterations:
    """An iterable of batches; an iterator can be gone through once."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._used = False

    def open(self) -> Tap:
        if iter(self._batches) is self._batches:
            if self._used:
                raise UsageError(
                    "this stream was run before, and its iterator gives its batches once: make a new one, or give a "
                    "list or another thing that can be gone through again"
                )
            self._used = True
        return Tap(lambda _: take_from_iterable(self._batches), ends_at_once=False)
