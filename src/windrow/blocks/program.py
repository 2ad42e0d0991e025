"""What a worker executes for one kind of file: bound steps, lanes and what each lane needs.

A program is made by a front door for one (dataset, set of columns) and shared by all workers of a process. It holds no
rows. The only things that change are what was learned: which fields of a collection a step touches and which steps were
checked to be row-pure; both only grow and are safe to lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from windrow.blocks.fetch_ahead import AccessLog

if TYPE_CHECKING:
    from windrow.blocks.calls import Meter
    from windrow.blocks.kernels import EachKernel
    from windrow.core.records import StepCost
    from windrow.data.base import ColumnInfo


#: The name of the variation in which no weight is shifted.
NOMINAL = "nominal"

StepKind = Literal["cut", "column", "weight"]
ArgumentKind = Literal["file", "made", "collection", "glob", "default", "weight"]


@dataclass(frozen=True, slots=True)
class Argument:
    """Where one positional argument of a function comes from in this kind of file."""

    name: str  #: of the argument
    kind: ArgumentKind
    source: str = ""  #: file column, made column or collection prefix
    members: tuple[str, ...] = ()  #: file columns of a collection or a glob
    default: Any = None


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A cut, column or weight with its arguments found."""

    name: str
    kind: StepKind
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    keywords: Mapping[str, Any]  #: parameters, and ``dataset`` if it is wanted
    wants_rng: bool
    lanes: tuple[int, ...]  #: the lanes that need it
    kernel: EachKernel | None = None
    #: the first of several steps with the same answers, of which this is one; None: there is no other
    same_as: str | None = None


@dataclass(frozen=True, slots=True)
class BoundOutput:
    """An output with its arguments found, for one lane."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    keywords: Mapping[str, Any]
    wants_rng: bool
    wants_region: bool
    wants_variation: bool
    takes_weight: bool
    weights: tuple[str, ...]  #: the factors of ``weight``, in the order of definition
    merge: Callable[[Any, Any], Any] | None
    lane: int


@dataclass(frozen=True, slots=True)
class BoundSave:
    """Rows and columns of a chunk that go to a file, for one kind of input file."""

    key: str  #: the file they go to; the same for all inputs of a dataset
    lanes: tuple[int, ...]  #: rows that any of these wants
    columns: tuple[str, ...]  #: of the file, to be read
    made: tuple[str, ...]  #: of steps
    identity: bool  #: whether the rows' identity goes along, as a column of its own
    staging: str  #: directory for fragments


@dataclass(frozen=True, slots=True)
class Lane:
    """One region's selection: its cuts, some of them inverted. ``region`` None is all rows before any cut."""

    region: str | None
    cuts: Mapping[str, bool]  #: cut -> inverted; those that exist for this dataset
    declared: Mapping[str, bool]  #: those of the region everywhere; the others pass every row here
    hidden: bool = False  #: no region of the user's: part of one, for an N-1 table or a file
    optional: bool = False  #: given up where a step fails on rows that no other lane has


def length_columns(members: tuple[str, ...], columns: Mapping[str, ColumnInfo]) -> tuple[str, ...]:
    """Return the one column that tells how many objects each row has; none for flat collections."""
    jagged = [columns[member] for member in members if columns[member].kind == "jagged"]
    if not jagged:
        return ()
    counter = next((info.counter for info in jagged if info.counter in columns), None)
    if counter is not None:
        return (counter,)
    # No counter in the file: the lengths come with a field, so take the one that is cheapest to read.
    return (min(jagged, key=lambda info: info.stored_bytes).name,)


@dataclass(slots=True)
class Program:
    """Everything needed to run chunks of one kind of file, but the rows."""

    dataset: str
    columns: Mapping[str, ColumnInfo]  #: of the files it is for
    steps: Mapping[str, BoundStep]  #: by name, in written order; pruned
    lanes: tuple[Lane, ...]
    outputs: tuple[BoundOutput, ...]
    written: tuple[str, ...]  #: the written order of ``steps``
    cuts: frozenset[str]  #: names of all cuts of the pipeline
    weights: tuple[str, ...]  #: weight steps in the order of definition
    identity: tuple[str, ...]  #: columns that identify a row; empty: (file, entry)
    seed: int
    defaults_used: tuple[str, ...] = ()  #: optional columns this file lacks
    #: step -> file columns it was seen to touch inside collections (shared, values replaced as a whole)
    touched: dict[str, frozenset[str]] = field(default_factory=dict)
    access: AccessLog = field(default_factory=AccessLog)  #: what chunks need over slow links (shared)
    #: steps that still have to be shown to be row-pure (shared by all programs of a pipeline)
    unchecked: set[str] = field(default_factory=set)
    timed: bool = False  #: it is known how long its rows take
    row_s: dict[str, float] = field(default_factory=dict)  #: what a row of a step takes, as far as it was tried
    long_calls: dict[str, StepCost] = field(
        default_factory=dict
    )  #: what steps cost whose calls took long, in this process
    #: what steps took in chunks that had threads to spare, and steps that gain nothing from these
    measured: dict[str, Meter] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)
    sample_rows: int | None = None  #: how many rows the check for row-purity asks about again, where that was said
    saves: tuple[BoundSave, ...] = ()
    #: weights of the rows before any cut, where these are to be added up; None: nobody asks
    initial_weights: tuple[str, ...] | None = None
    keep_rows: bool = False  #: whether a chunk tells which rows its regions have
    all_written: tuple[str, ...] = ()  #: the written order of all steps, also of those not here
    used_cuts: frozenset[str] = frozenset()  #: of all regions, also of those not needed here

    def needed(self, order: tuple[str, ...]) -> tuple[str, ...]:
        """Restrict an order of all steps of a pipeline to those that exist and are needed here."""
        return tuple(name for name in order if name in self.steps)

    def file_columns(self, name: str, arguments: Iterable[Argument]) -> list[str]:
        """Return the file columns that a function is known to need."""
        columns: list[str] = []
        for argument in arguments:
            if argument.kind == "file":
                columns.append(argument.source)
            elif argument.kind == "glob":
                columns.extend(argument.members)
            elif argument.kind == "collection":
                columns.extend(length_columns(argument.members, self.columns))
        touched = self.touched.get(name, frozenset())
        columns.extend(sorted(touched & self.columns.keys()))
        return columns
