"""An analysis and its data as plain descriptions: the oracle and a real pipeline are made of them.

Steps are text (``def name(args): return body``), so that a failing example prints as a program.
``MemorySource`` shows described files to Windrow with any unit borders and counts what is read.
Nothing here executes an analysis.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass, field, replace
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import awkward as ak
import numpy as np
from hist import Hist

from windrow.data.base import ColumnInfo, FileInfo, Input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RESERVED = ("dataset", "region", "variation", "rng")


# --- the description ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Step:
    """A cut, column or weight: ``def name(args): return body``, or a ready ``function``."""

    kind: Literal["cut", "column", "weight"]
    name: str
    args: str = ""
    body: str = ""
    after: str | None = None
    when: str | None = None
    each: bool = False
    function: Callable[..., Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output; ``regions=None`` means all rows before any cut."""

    name: str
    args: str
    body: str
    regions: tuple[str, ...] | Literal["*"] | None = "*"
    weights: tuple[str, ...] | Literal["all"] | None = "all"  #: None: unweighted


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """Everything a user writes."""

    steps: tuple[Step, ...]
    regions: Mapping[str, tuple[str, ...]]
    outputs: tuple[Output, ...]
    identity: tuple[str, ...] | None = None

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def source(self) -> str:
        """The program as text, for the reader of a failing example."""
        lines = [f"# identity={self.identity}"]
        for step in self.steps:
            options = f"when={step.when!r} after={step.after!r} each={step.each}"
            lines.append(f"@{step.kind} {step.name}({step.args}): {step.body}   # {options}")
        lines += [f"region {name}: {cuts}" for name, cuts in self.regions.items()]
        lines += [f"@output {out.name}({out.args}): {out.body}   # {out.regions} {out.weights}" for out in self.outputs]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class File:
    """The rows of one file with their canonical unit borders."""

    label: str
    columns: Mapping[str, Any]
    borders: tuple[int, ...]
    collections: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.borders[-1]

    def __repr__(self) -> str:
        return f"File({self.label}, {sorted(self.columns)}, borders={self.borders})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))  # Hypothesis would print every number


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Files with a name and metadata."""

    name: str
    files: tuple[File, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class UpDown:
    """A weight with its two variations, as the oracle's ``wr.updown`` makes it."""

    nominal: Any
    up: Any
    down: Any


def compiled(what: Step | Output, wr: Any) -> Callable[..., Any]:
    """The function of a step, made from its text in a namespace of its own."""
    if isinstance(what, Step) and what.function is not None:
        return what.function
    # Infinities and NaN are part of the data; what NumPy says of them is not what is tested.
    quiet = "with np.errstate(all='ignore')"
    text = f"def {what.name}({what.args}):\n    {quiet}:\n        return {what.body}\n"
    space: dict[str, Any] = {"np": np, "ak": ak, "Hist": Hist, "wr": wr}
    exec(text, space)
    function: Callable[..., Any] = space[what.name]
    return function


@functools.lru_cache(maxsize=4096)
def plain(what: Step | Output) -> Callable[..., Any]:
    """The function as the oracle calls it."""
    return compiled(what, SimpleNamespace(updown=UpDown))


@functools.lru_cache(maxsize=4096)
def signature(what: Step | Output) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Columns read, each with its default (``Parameter.empty`` if required), and reserved names."""
    parameters = inspect.signature(plain(what)).parameters.values()
    reads = {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}
    reserved = tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in RESERVED)
    return reads, reserved


def build(analysis: Analysis) -> Any:
    """The same analysis as a real pipeline."""
    import windrow as wr

    options = {} if analysis.identity is None else {"identity": analysis.identity}
    pipeline = wr.Pipeline("property", **options)
    for step in analysis.steps:
        given = {key: getattr(step, key) for key in ("after", "when") if getattr(step, key)}
        if step.each:
            given["each"] = True
        if step.function is not None:
            given["name"] = step.name
        getattr(pipeline, step.kind)(**given)(compiled(step, wr))
    for name, cuts in analysis.regions.items():
        pipeline.region(name, *cuts)
    for output in analysis.outputs:
        given = {} if output.weights == "all" else {"weights": output.weights}
        where = {"region": None} if output.regions is None else {"regions": output.regions}
        pipeline.output(**where, **given)(compiled(output, wr))
    return pipeline


# --- the data, as Windrow reads them --------------------------------------------------------------


class MemoryReader:
    """One described file, open."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.bytes_read = 0
        self.reads: list[tuple[str, int, int]] = []
        infos = {name: _info(name, values, file) for name, values in file.columns.items()}
        self.info = FileInfo(
            rows=file.rows,
            borders=file.borders,
            columns=MappingProxyType(infos),
            identity=file.label,
            collections=MappingProxyType(dict(file.collections)),
        )

    def read(self, columns: Sequence[str], start: int, stop: int) -> dict[str, Any]:
        assert 0 <= start <= stop <= self._file.rows
        parts = {name: self._file.columns[name][start:stop] for name in columns}
        for name, part in parts.items():
            self.reads.append((name, start, stop))
            self.bytes_read += part.nbytes
        return {name: ak.to_packed(p) if isinstance(p, ak.Array) else p.copy() for name, p in parts.items()}

    def close(self) -> None:
        pass


def _info(name: str, values: Any, file: File) -> ColumnInfo:
    if isinstance(values, np.ndarray):
        return ColumnInfo(name=name, kind="flat", dtype=values.dtype, stored_bytes=values.nbytes)
    dtype = np.asarray(ak.to_numpy(ak.flatten(values))).dtype
    counter = f"n{name.partition('_')[0]}"
    return ColumnInfo(
        name=name,
        kind="jagged",
        dtype=dtype,
        counter=counter if counter in file.columns else None,
        stored_bytes=values.nbytes,
    )


class MemorySource:
    """Described datasets as a source; several files per dataset, any borders."""

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self._files = [file for dataset in datasets for file in dataset.files]
        self.datasets: Mapping[str, Mapping[str, Any]] = {d.name: dict(d.metadata) for d in datasets}
        owners = [dataset.name for dataset in datasets for _ in dataset.files]
        self.inputs = tuple(
            Input(index=i, dataset=owner, label=file.label, location=None, format="arrays")
            for i, (owner, file) in enumerate(zip(owners, self._files, strict=True))
        )

    def open(self, index: int) -> MemoryReader:
        return MemoryReader(self._files[index])


def jets(rows: int = 200, unit: int = 25, *, files: int = 1) -> Dataset:
    """Events with 0 to 4 jets, a number ``x`` of 0 to 10, and what tells them apart."""
    random = np.random.default_rng(1)
    found = []
    for number in range(files):
        first = number * rows
        counts = random.integers(0, 5, rows)
        columns = {
            "x": (first + np.arange(rows)) % 11,
            "event": np.arange(first, first + rows),
            "Jet_pt": ak.unflatten(random.exponential(2.0, counts.sum()), counts),
        }
        borders = (*range(0, rows, unit), rows)
        found.append(File(label=f"jets{number}.mem", columns=columns, borders=borders))
    return Dataset(name="jets", files=tuple(found))


def first_rows(datasets: Sequence[Dataset], count: int) -> list[Dataset]:
    """The first rows of each dataset in the order of its files: what ``max_rows`` means."""
    cut = []
    for dataset in datasets:
        left, files = count, []
        for file in dataset.files:
            rows = min(left, file.rows)
            left -= rows
            borders = (*[b for b in file.borders if b < rows], rows) if rows else (0,)
            columns = {name: values[:rows] for name, values in file.columns.items()}
            files.append(replace(file, columns=columns, borders=borders))
        cut.append(replace(dataset, files=tuple(files)))
    return cut
