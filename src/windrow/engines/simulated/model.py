"""What a simulated run is made of: inputs, costs of tasks, devices, workers and a driver that takes time.

Whatever varies is drawn from numbers that belong to the seed and to the rows, never to the order of
events: a task costs the same wherever and whenever it runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from windrow.core.records import InputSpec, Needs, Rows, RunRows, make_record
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.core.records import Task
    from windrow.engines.simulated.devices import Device

_KEY = Struct("<qqqqq")

#: Standard deviations between the usual memory of a row and ``memory_per_row``: what is known of memory are peaks, and one
#: task in 740 needs more than that.
PEAK = 3.0


def drawn(seed: int, *key: int) -> tuple[float, float]:
    """Draw two uniform numbers in (0, 1) that belong to a seed and up to four numbers."""
    packed = _KEY.pack(seed, *key, *(0,) * (4 - len(key)))
    bits = xxhash.xxh3_128_intdigest(packed)
    return ((bits >> 75) + 0.5) * 2.0**-53, ((bits & 0x1FFFFFFFFFFFFF) + 0.5) * 2.0**-53


def normal(first: float, second: float) -> float:
    """Make a standard normal number of two uniform ones (Box and Muller 1958)."""
    return math.sqrt(-2.0 * math.log(first)) * math.cos(2.0 * math.pi * second)


def rows_of(task: Task) -> tuple[Rows, ...]:
    """Give the rows by which a task is known to costs; a call has none, and is known by its number."""
    payload = task.payload
    return payload.rows if isinstance(payload, RunRows) else (Rows(task.id, 0, task.size),)


class Demand(NamedTuple):
    """What a task asks for; its time alone on one core of speed 1 is the sum of the seconds."""

    free_s: float = 0.0  #: computing without the interpreter lock
    locked_s: float = 0.0  #: computing with it
    blocked_s: float = 0.0  #: waiting for something that others do not slow down
    read: float = 0.0  #: bytes
    memory: float = 0.0  #: bytes, at its peak
    parallel_s: float = 0.0  #: computing without the interpreter lock that all cores of the task share


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the tasks of a category cost beside what each of them demands."""

    device: str | None = None  #: that is read from
    overlap: float = 0.0  #: the share of the bytes that is read while computing
    requests: int = 1  #: of a task; each waits for the device's latency
    cold_s: float = 0.0  #: what the first task of a worker takes more (compiling, importing, opening)
    inspect_s: float = 0.0  #: opening an input
    merge_s: float = 0.0  #: adding one partial to another
    fetch_s: float = 0.0  #: bringing a partial to the driver

    def demand(self, rows: Rows, tries: int, seed: int) -> Demand:
        """Say what a task asks for; ``tries`` counts earlier attempts at the same rows."""
        raise NotImplementedError

    def releases(self, task: int) -> Sequence[tuple[float, str]]:  # noqa: ARG002 - by default nothing early
        """Say after which shares of its time a call releases which outputs."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineCosts(Costs):
    """Tasks that cost ``fixed + per_row * rows``, more or less."""

    fixed_s: float = 0.0
    per_row_s: float = 0.0
    sigma: float = 0.0  #: of the logarithm of a task's time; the mean stays
    input_sigma: float = 0.0  #: likewise, for all tasks of an input together
    straggler_share: float = 0.0  #: of all tasks
    straggler_factor: float = 1.0  #: times as long as others
    lock_share: float = 0.0  #: of computing, with the interpreter lock
    read_per_row: float = 0.0
    fixed_parallel: float = 0.0  #: the share of ``fixed_s`` that all cores of a task work on, as in Amdahl's law
    per_row_parallel: float = 0.0  #: likewise of ``per_row_s``
    memory_fixed: float = 0.0
    memory_per_row: float = 0.0
    memory_sigma: float = 0.0  #: of the logarithm of memory per row; ``memory_per_row`` is the upper end (``PEAK``)

    def __post_init__(self) -> None:
        for name in ("straggler_share", "lock_share", "overlap", "fixed_parallel", "per_row_parallel"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise UsageError(f"{name} is a share between 0 and 1; got {value}")
        if self.read_per_row and self.device is None:
            raise UsageError("read_per_row needs device=, the device that is read from")
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, int | float) and value < 0:
                raise UsageError(f"{one.name} is not negative; got {value}")

    def demand(self, rows: Rows, tries: int, seed: int) -> Demand:
        number, start, stop = rows
        size = stop - start
        compute = self.fixed_s + self.per_row_s * size
        parallel = 0.0
        if self.fixed_parallel or self.per_row_parallel:
            parallel = self.fixed_parallel * self.fixed_s + self.per_row_parallel * self.per_row_s * size
            parallel /= compute or 1.0
        if self.sigma or self.straggler_share:
            first, second = drawn(seed, 1, number, start, tries)
            if self.sigma:
                compute *= math.exp(self.sigma * (normal(first, second) - self.sigma / 2))
            # Other digits of the same number: being a straggler is independent of the rest.
            if math.modf(first * 2.0**26)[0] < self.straggler_share:
                compute *= self.straggler_factor
        if self.input_sigma:
            sigma = self.input_sigma
            compute *= math.exp(sigma * (normal(*drawn(seed, 2, number)) - sigma / 2))
        parallel *= compute
        compute -= parallel
        locked = self.lock_share * compute
        memory = self.memory_per_row * size
        if self.memory_sigma:  # the same in every attempt: it is a matter of the rows
            memory *= math.exp(self.memory_sigma * (normal(*drawn(seed, 6, number, start)) - PEAK))
        read = self.read_per_row * size
        return make_record(Demand, (compute - locked, locked, 0.0, read, self.memory_fixed + memory, parallel))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedInput:
    """One input: known to the front door by category and label, to workers by the rest."""

    category: str
    rows: int
    borders: tuple[int, ...]
    label: str = ""
    ranges: tuple[tuple[int, int], ...] | None = None  #: only these rows are wanted

    @classmethod
    def even(cls, category: str, rows: int, unit: int, label: str = "") -> SimulatedInput:
        borders = (*range(0, rows, unit), rows) if rows else (0,)
        return cls(category=category, rows=rows, borders=borders, label=label)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCosts:
    """What the driver's own work takes; it does one thing at a time.

    The defaults are those of two threads: 48.2 us per task of 5 ms with the log on
    (benchmarks/RESULTS.md, "Overhead"), which are two events (started, finished), one command and
    an eighth of a merge; and half the 32 us of a pipe's round trip (measured apart).
    """

    event_s: float = 15e-6
    command_s: float = 15e-6
    latency_s: float = 16e-6  #: of a message, either way


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """A machine that several tasks run on at a time, as far as its cores and its memory go by what the tasks ask for."""

    cores: float = 1.0
    memory: float = 0.0  #: bytes that its tasks have together; 0: memory is not limited, and tasks must not ask for any
    places: int = 0  #: workers on it, each running one task at a time; 0: one for each core

    def __post_init__(self) -> None:
        if not self.cores > 0 or self.memory < 0 or self.places < 0:
            raise UsageError(f"a node has some cores, and no memory or places below 0; got {self}")

    @property
    def workers(self) -> int:
        return self.places or max(int(self.cores), 1)

    def offers(self) -> Needs:
        return Needs.of({"cores": self.cores, "memory": self.memory})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How workers differ, come and go; where a model has nodes, all of a node do so together, and it is numbered here."""

    speeds: tuple[float, ...] = (1.0,)  #: of workers, in turn
    joins: tuple[float, ...] = (0.0,)  #: when workers come, in turn
    leaves: tuple[tuple[float, int], ...] = ()  #: (time, worker): it is gone for good
    losses: tuple[tuple[float, int], ...] = ()  #: (time, worker): it is lost, and comes back
    life_s: float | None = None  #: mean life between losses at random times; None: endless
    rejoin_s: float | None = 10.0  #: after a loss; None: it does not come back by itself
    start_s: float = 0.0  #: between the order to start a worker and its first job

    def __post_init__(self) -> None:
        if not self.speeds or min(self.speeds) <= 0:
            raise UsageError(f"speeds of workers are above 0; got {self.speeds}")
        if not self.joins or min(self.joins) < 0:
            raise UsageError(f"times at which workers join are not negative; got {self.joins}")
        if self.life_s is not None and self.life_s <= 0:
            raise UsageError(f"the mean life of a worker is above 0; got {self.life_s} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """All that decides how a simulated run goes, but the seed and the number of workers."""

    inputs: tuple[SimulatedInput, ...]
    costs: Mapping[str, Costs]  #: by category
    devices: Mapping[str, Device] = field(default_factory=lambda: MappingProxyType({}))
    driver: DriverCosts = field(default_factory=DriverCosts)
    fleet: Fleet = field(default_factory=Fleet)
    cores: int | None = None  #: shared by all workers; None: as many as there are workers
    nodes: tuple[SimulatedNode, ...] = ()  #: machines that workers are on, in turn; (): each worker is by itself
    name: str = ""

    def __post_init__(self) -> None:
        for one in self.inputs:
            if one.category not in self.costs:
                known = ", ".join(sorted(self.costs)) or "none"
                raise UsageError(f"nothing says what tasks of {one.category!r} cost (known: {known})")
        for category, costs in self.costs.items():
            if costs.device is not None and costs.device not in self.devices:
                known = ", ".join(sorted(self.devices)) or "none"
                raise UsageError(
                    f"tasks of {category!r} read from {costs.device!r}, which is no device of the "
                    f"model (devices: {known})"
                )
        if self.cores is not None and self.cores < 1:
            raise UsageError(f"a machine has at least one core; got cores={self.cores}")

    def specs(self) -> list[InputSpec]:
        """Describe the inputs as a front door does before anybody opened them."""
        return [
            InputSpec(id=number, category=one.category, label=one.label, ranges=one.ranges)
            for number, one in enumerate(self.inputs)
        ]
