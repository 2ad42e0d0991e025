"""What the heart talks about: rows, tasks, workers, handles, measurements, plans, failures.

Facts only, all immutable; no behaviour beyond adding things up. Records made for every task are
named tuples: a third of the cost of a frozen dataclass (0.34 against 1.02 us for six fields).
Tuples of different kinds with equal fields are equal: compare the types too where kinds can mix.
Everything else is a frozen, slotted dataclass.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "ONE_CORE",
    "Evidence",
    "Failure",
    "FailureKind",
    "Handle",
    "InputSpec",
    "Measurement",
    "Needs",
    "Plan",
    "PlanJob",
    "Rows",
    "StepCost",
    "StepFacts",
    "Task",
    "Terrain",
    "Window",
    "Worker",
    "WorkerId",
    "named",
]

WorkerId = int


@dataclass(frozen=True, slots=True)
class Needs:
    """Amounts per named resource: what a task asks for or a worker offers."""

    amounts: tuple[tuple[str, float], ...] = ()  #: sorted by name, no zeros, so that equal needs are equal

    @classmethod
    def of(cls, amounts: Mapping[str, float]) -> Needs:
        """Make needs from a mapping such as ``{"cores": 1}``."""
        return cls(tuple(sorted((name, amount) for name, amount in amounts.items() if amount)))

    def covers(self, other: Needs) -> bool:
        """Say whether these amounts, taken as an offer, are enough for ``other``."""
        mine = dict(self.amounts)
        return all(mine.get(name, 0) >= amount for name, amount in other.amounts)


ONE_CORE = Needs((("cores", 1),))


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
    rows: int | None = None  #: with ``borders``: known already, never inspected
    borders: tuple[int, ...] | None = None  #: unit borders, 0 and rows included; (0,) for no rows
    ranges: tuple[tuple[int, int], ...] | None = None  #: only these rows are wanted
    limited: bool = True  #: counts for the row limit of its category, and is bounded by it


class Task(NamedTuple):
    """Work that is scheduled, retried and accounted as a whole."""

    id: int
    category: str
    inputs: tuple[Rows, ...]
    size: int  #: rows
    needs: Needs = ONE_CORE
    outputs: tuple[str, ...] = ("",)  #: fingerprints of what it makes; "" is all that a pipeline makes
    priority: int = 0
    group: int = 0
    deadline: float | None = None
    budget: int = 0  #: retries left when it was cut
    restartable: bool = True
    reads: tuple[str, ...] = ()  #: outputs of other tasks that it needs
    after: tuple[int, ...] = ()  #: tasks that must have ended before, well or badly


class Worker(NamedTuple):
    """A place where one task runs at a time; each life of it has its own incarnation."""

    id: WorkerId
    incarnation: int
    offers: Needs = ONE_CORE
    pools: tuple[str, ...] = ()  #: shared offerers (a machine, a device) its tasks also draw from


class Handle(NamedTuple):
    """A partial result that its worker keeps; it covers rows of one input only.

    An output of a task of a graph has no rows and is known by ``id`` (the attempt) and ``output``
    together; without an output's name it stands for all that the attempt has not reported yet.
    """

    id: int  #: the attempt's id, or a number from the same count for a merged handle
    attempt: int
    worker: WorkerId
    incarnation: int
    rows: tuple[Rows, ...]
    bytes: int = 0  #: estimate, 0 where unknown
    output: str = ""
    here: bool = False  #: an output of which the engine has a copy that no worker can take along


def named(handle: Handle, output: str) -> Handle:
    """Give the handle of one output of an attempt; ``_replace`` takes three times as long."""
    number, attempt, worker, incarnation, rows, size, name, here = handle
    if name == output:
        return handle
    return Handle(number, attempt, worker, incarnation, rows, size, output, here)


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
        """Make the sums of a single call."""
        return cls(1, rows_in, rows_out, wall, float(rows_in) * rows_in, rows_in * wall, bytes_read)

    def merge(self, other: StepCost) -> StepCost:
        """Add the sums of two sets of calls."""
        return StepCost(
            self.calls + other.calls,
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.wall + other.wall,
            self.rows_squared + other.rows_squared,
            self.rows_wall + other.rows_wall,
            self.bytes_read + other.bytes_read,
            self.read_s + other.read_s,
        )


NO_COST = StepCost()


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
        """How many rows were looked at."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an attempt learned; counted only if its rows are accepted."""

    steps: tuple[tuple[str, StepCost], ...] = ()
    guards: tuple[tuple[str, str], ...] = ()  #: (step, cut): the step must come after the cut
    notes: tuple[str, ...] = ()
    windows: tuple[Window, ...] = ()
    terrain: Terrain | None = None  #: goes along with windows
    #: what steps cost where rows were shown to all of them; not in ``steps``, which are the run's own
    probed: tuple[tuple[str, StepCost], ...] = ()
    #: of many attempts: windows, their rows and seconds, also of those that are no longer kept
    looked: tuple[int, int, float] = (0, 0, 0.0)


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
        """Whether steps run in another order than they are written in."""
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
