"""Facts the scheduler works with: tasks, workers, outputs, grants, rows, measurements, plans, failures.

All immutable; no behaviour beyond adding things up. Records made for every task are named tuples: a third of the
cost of a frozen dataclass (0.34 against 1.02 us for six fields). Tuples of different kinds with equal fields are
equal: compare the types too where kinds can mix. Everything else is a frozen, slotted dataclass.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Makes a named tuple of all its fields: 0.4 instead of 1.0 us for eleven, as its own constructor looks at names and
#: defaults first. For records that are made for every task.
make_record: Final = tuple.__new__

# -- resources ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Needs:
    """Amounts per named resource: what a task asks for, or a pool offers."""

    amounts: tuple[tuple[str, float], ...] = ()  #: sorted by name, no zeros, so that equal needs are equal
    #: (resource, output of the task): it stays taken as long as that exists, as room on a disk does
    lasting: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> Needs:
        """Make needs from a mapping such as ``{"cores": 1}``."""
        return cls(tuple(sorted((name, amount) for name, amount in amounts.items() if amount)))


NO_NEEDS: Final = Needs()
NO_LIMITS: Final = Needs()
ONE_CORE: Final = Needs((("cores", 1),))
#: The resource that input/output tasks need: the place of a worker made for them, which has no core.
IO: Final = "io"
ONE_IO: Final = Needs(((IO, 1),))


class Granted(NamedTuple):
    """One resource that a launch was given."""

    pool: str  #: who gave it
    name: str
    amount: float
    units: tuple[int, ...] = ()  #: which devices, where the pool numbers them
    until: str = ""  #: the output with which it is given back; "": with the end of the attempt


Grant: TypeAlias = tuple[Granted, ...]


# -- workers -----------------------------------------------------------------------------------------------


class Life(NamedTuple):
    """One life of a worker; a worker that was lost and started again has the next incarnation."""

    worker: int
    incarnation: int


class Worker(NamedTuple):
    """A place where one task runs at a time: a thread, a process."""

    life: Life
    offers: Needs = ONE_CORE  #: what it has by itself; a pool of its own
    pools: tuple[str, ...] = ()  #: pools its tasks draw from as well: its node, the devices of that
    io: bool = False  #: its place is for tasks that need ``io``, and for no others
    shares: bool = False  #: it sees the driver's memory: what it makes is with the driver at once


#: Stands for the driver's side of the engine among the holders of an output.
DRIVER: Final = "driver"
Holder: TypeAlias = "Life | str"


# -- tasks and what they make ------------------------------------------------------------------------------


class Task(NamedTuple):
    """Work that is scheduled, retried and accounted as a whole; the scheduler never looks into the payload."""

    id: int
    category: str  #: tasks that are alike: plans, costs and limits are kept per category
    size: int = 1  #: rows, or 1
    payload: Any = None  #: a call, an input to open, rows, a merge
    reads: tuple[str, ...] = ()  #: outputs of other tasks that it needs; each must be made by a task known before
    after: tuple[int, ...] = ()  #: tasks that must have ended before, well or badly
    makes: tuple[str, ...] = ()  #: names of its outputs
    consumes: bool = False  #: it works in place: what it reads is gone once it starts
    needs: Needs = ONE_CORE
    priority: int = 0
    group: int = 0
    deadline: float | None = None
    retries: int = 0  #: times that its own error is forgiven
    restartable: bool = True  #: a second attempt makes the same; else outputs are given out when it has ended
    twin: bool = False  #: a straggler may be run a second time: it has no effects but its outputs
    pin: Life | None = None  #: it runs there and nowhere else
    #: Tasks that must have ended before what it made, which only then counts, is put into place: ``Publish`` asks for that.
    beside: tuple[int, ...] = ()


class Handle(NamedTuple):
    """An output as one attempt made it."""

    output: str
    attempt: int


class Made(NamedTuple):
    """An attempt has made an output."""

    output: str
    bytes: int = 0  #: estimate; 0 where it is small or unknown
    here: bool = False  #: the driver's side of the engine has it too


# -- rows --------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Rows [start, stop) of one input."""

    input: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One input as the front door knows it before anybody opened it."""

    id: int
    category: str  #: the dataset; statistics, plans and row limits are kept per category
    label: str = ""
    rows: int | None = None  #: with ``borders``: known already, never opened for that
    #: Unit borders, 0 and rows included; (0,) for no rows. A range where any row may be a border.
    borders: Sequence[int] | None = None
    ranges: tuple[tuple[int, int], ...] | None = None  #: only these rows are wanted
    identity: str = ""  #: what tells the input from another of its name, where that is known already
    limited: bool = True  #: counts for the row limit of its category, and is bounded by it


class OpenInput(NamedTuple):
    """Payload: open an input; the report is ``Opened``, and there is no output."""

    input: int


class RunRows(NamedTuple):
    """Payload: run rows under the launch's plan; the report is ``RowsReport``, the output a partial."""

    rows: tuple[Rows, ...]  #: of one input, or of several neighbours of which each is run whole
    identities: tuple[str, ...] = ("",)  #: of each input as it was discovered: what is read must be that
    part: bool = False  #: the output is no partial but a part of a unit, which is evaluated from all its parts
    #: Seconds that the first unit takes if the run is a short one: where it takes longer, its first rows are shown to all steps
    #: and run by themselves, as a part. Infinite: they are only run. 0: no limit.
    short_s: float = 0.0
    spare: int = 0  #: workers that have nothing to do: as many steps may run beside the one whose turn it is
    #: Steps that other tasks have shown to be row-pure; None: the first task of all checks them at this time.
    checked: frozenset[str] | None = frozenset()
    block: int = 0  #: rows of a call of a step at most; 0: what the plan says
    predicted_s: float = 0.0  #: what it was taken to take when it was cut; 0: nothing was known

    def ranges(self) -> Iterator[RunRows]:
        """Give a payload for each range."""
        for rows, identity in zip(self.rows, self.identities, strict=True):
            yield self._replace(rows=(rows,), identities=(identity,))


class EvaluateUnit(NamedTuple):
    """Payload: make the partial of one unit from the parts that the task reads."""

    rows: tuple[Rows, ...]  #: of each part, and those that no worker can run
    identity: str = ""


class MergePartials(NamedTuple):
    """Payload: make one partial of those that the task reads, in row order, perhaps in place."""

    input: int
    #: inputs that these partials are all of, to be added up: number, place among those of the category, last row asked for
    whole: tuple[tuple[int, int, int], ...] = ()


class Opened(NamedTuple):
    """Report of an input that was opened: its rows and unit borders."""

    rows: int
    borders: Sequence[int]
    identity: str = ""  #: what tells the input from another of its name
    free: bool = False  #: no row limit counts its rows: one may stand for none


class RowsReport(NamedTuple):
    """Report of rows that were run."""

    evidence: Evidence | None = None
    skipped: tuple[tuple[Rows, Failure], ...] = ()  #: rows that the partial leaves out, and why
    rest: Rows | None = None  #: rows at the end that were not run, as they would take long: the output is a part
    row_s: float = 0.0  #: what a row would have taken, where more was done than to run it; 0: as measured
    checked: frozenset[str] = frozenset()  #: steps that were shown to be row-pure


NO_REPORT: Final = RowsReport()


# -- measurements and plans --------------------------------------------------------------------------------


class Measurement(NamedTuple):
    """What one attempt used; zero where an engine cannot tell."""

    wall: float = 0.0
    cpu: float = 0.0
    lock_wait: float = 0.0  #: wall - cpu - waiting for a processor: the interpreter lock, or blocking reads
    peak_memory: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    load: float = 0.0
    baseline: int = 0  #: memory of the worker after the task, with nothing running


class StepCost(NamedTuple):
    """Sums over calls of a step, enough to fit ``fixed + per_row * rows`` by least squares."""

    calls: int = 0
    rows_in: int = 0
    rows_out: int = 0
    wall: float = 0.0
    rows_squared: float = 0.0  #: sum of rows_in ** 2 over calls
    rows_wall: float = 0.0  #: sum of rows_in * wall over calls
    bytes_read: int = 0
    read_s: float = 0.0  #: seconds it took to read them, which are not in ``wall``

    @classmethod
    def of_call(cls, rows_in: int, rows_out: int, wall: float, bytes_read: int = 0) -> StepCost:
        return cls(1, rows_in, rows_out, wall, float(rows_in) * rows_in, rows_in * wall, bytes_read)

    def merge(self, other: StepCost) -> StepCost:
        return StepCost(*map(add, self, other))


NO_COST = StepCost()


class CostSums:
    """Sums over tasks that grow with every one; like ``StepCost``, which is made of them where it is kept."""

    __slots__ = ("calls", "rows_in", "rows_squared", "rows_wall", "wall")

    def __init__(self) -> None:
        self.calls = self.rows_in = 0
        self.wall = self.rows_squared = self.rows_wall = 0.0

    def record(self) -> StepCost:
        return StepCost(self.calls, self.rows_in, self.rows_in, self.wall, self.rows_squared, self.rows_wall)


class StepFacts(NamedTuple):
    """What the order decision has to know of a step, as it is bound to a kind of file."""

    name: str
    kind: str  #: "cut", "column" or "weight"
    lanes: tuple[int, ...]  #: the lanes that need it
    #: file columns it reads, fields of collections included as far as they were seen to be touched,
    #: with their stored bytes per row (0 where nothing has to be read from a file)
    columns: tuple[tuple[str, float], ...] = ()


class Terrain(NamedTuple):
    """What a worker runs for one kind of file, as far as an order of it can matter."""

    steps: tuple[StepFacts, ...]  #: in written order; those that exist and are needed here
    #: by lane: its cuts, and whether they are inverted; no cuts: all rows
    lanes: tuple[tuple[tuple[str, bool], ...], ...]


#: Values of ``Window.verdicts``.
PASSED, FAILED, UNDEFINED, NOT_ASKED = 1, 0, -1, -2


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """What every cut says about some neighbouring rows, each asked wherever it may be asked.

    Rows that all cuts answer alike are one pattern. A cut is not asked about rows that one of its
    guards rejects in every lane that needs it.
    """

    input: int  #: of the source
    start: int  #: rows of the input
    stop: int
    unit: int  #: number of the unit they are in
    unit_rows: int  #: rows of that unit
    cuts: tuple[str, ...]  #: those that exist here, in written order
    verdicts: NDArray[np.int8]  #: (patterns, cuts): PASSED, FAILED, UNDEFINED or NOT_ASKED
    rows: NDArray[np.int64]  #: of each pattern
    weights: tuple[str, ...] = ()  #: weight steps that exist here, in written order
    #: (patterns, 1 + weights, 2): what the rows weigh with the first 0, 1, 2 ... weights, and the
    #: sums of squares; a weight that was not asked for a row counts nothing for it
    sums: NDArray[np.float64] | None = None
    order: tuple[str, ...] = ()  #: in which the chunk ran that it was taken from
    seconds: float = 0.0  #: what looking took
    share: float = 1.0  #: of units that were looked at while it was taken

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an attempt learned; counted only if its rows are accepted."""

    steps: tuple[tuple[str, StepCost], ...] = ()
    guards: tuple[tuple[str, str], ...] = ()  #: (step, cut): the step must come after the cut
    windows: tuple[Window, ...] = ()
    terrain: Terrain | None = None  #: goes along with windows
    #: what steps cost where rows were shown to all of them; not in ``steps``, which are the run's own
    probed: tuple[tuple[str, StepCost], ...] = ()
    #: of many attempts: windows, their rows and seconds, also of those that are no longer kept
    looked: tuple[int, int, float] = (0, 0, 0.0)
    #: of many attempts, by the order in which steps ran, the latest last: what is in ``steps``
    ran: tuple[tuple[tuple[str, ...], tuple[tuple[str, StepCost], ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A version of how a category's steps run; the heart never looks into order and blocks."""

    id: int  #: grows with every version of a category's plan
    category: str
    order: tuple[str, ...] = ()
    guards: tuple[tuple[str, str], ...] = ()
    blocks: tuple[tuple[str, int], ...] = ()
    reason: str = ""
    written: tuple[str, ...] = ()  #: the order to fall back to; () where ``order`` is that
    #: the share of units, by keyed hash, in which rows are shown to all cuts, and how many rows
    sample: float = 0.0
    sample_rows: int = 0

    @property
    def moved(self) -> bool:
        return bool(self.written) and self.order != self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """A question to the order decision: what was learned of a category since its plan was made."""

    category: str
    plan: Plan  #: in force now
    guards: tuple[tuple[str, str], ...]  #: all that are known; the new plan must keep every one
    evidence: Evidence  #: all accepted attempts of the category so far
    costs: StepCost = NO_COST  #: of its tasks: rows and wall time
    spent_s: float = 0.0  #: seconds of the category's accepted attempts
    run_s: float = 0.0  #: seconds that the whole run is expected to take, what is done included
    left_s: float = 0.0  #: seconds that the rest of the run is expected to take, added up over workers
    blamed: int = 0  #: attempts that ran out of memory or time in a moved order


class FailureKind(enum.Enum):
    """Whose fault a failure is, and so what is done about it."""

    USER = "user"  #: a user's function raised: stop, or leave the unit out
    TRANSIENT_IO = "transient_io"  #: reading failed and may not fail again: retry, then stop or leave out the input
    BAD_FILE = "bad_file"  #: a part of the input cannot be read: stop, or leave out its units
    EXHAUSTED = "exhausted"  #: too large for a resource: cut smaller, then as USER
    CRASHED = "crashed"  #: the task ended its worker: again, then smaller, then as USER
    LOST = "lost"  #: the worker went away: again elsewhere, free
    INTERNAL = "internal"  #: a bug in Windrow: always stop


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, in words and as the exception itself."""

    kind: FailureKind
    type: str
    message: str
    place: str = ""  #: step, file and rows as far as known
    exception: BaseException | None = field(default=None, compare=False, repr=False)
    final: bool = False  #: another try would end the same way
    #: The task that did not make what this one reads; 0 if it has failed by itself.
    since: int = field(default=0, compare=False)
