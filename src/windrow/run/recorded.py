"""A recorded run as a model: what its rows cost, taken apart, so that other runs over them can be foretold.

A task's time is taken apart into computing, waiting for the interpreter lock or for reads, and
waiting for a processor. Rows keep what they cost in the task that had them, without what every
task costs (fitted) and without what the first task of a worker costs more. What one run cannot
tell is not guessed but said in ``notes``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, sqrt
from typing import TYPE_CHECKING

from windrow.engines.simulated.model import Costs, Demand, Model, SimulatedInput, drawn, normal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.core.records import Rows
    from windrow.engines.simulated.devices import Device
    from windrow.engines.simulated.engine import Kind


def lock_wait_of(share: float, threads: int) -> float:
    """Foretell how long a thread waits for the lock, per second of its computing.

    Each computes without the lock and with it in turn; ``share`` of the time with it. Exact mean
    value analysis of such a network of queues (Reiser and Lavenberg 1980, doi:10.1145/322186.322195).
    """
    queue = stay = 0.0
    for number in range(1, threads + 1):
        stay = share * (1 + queue)
        queue = number * stay / (1 - share + stay) if stay else 0.0
    return stay - share


def lock_share_of(wait: float, threads: int) -> float:
    """Find the share of computing with the lock from the wait it led to; the inverse of the above."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if lock_wait_of(middle, threads) < wait:
            low = middle
        else:
            high = middle
    return high


class CostsOfRows:
    """What the rows of one input cost: level within a recorded task, the mean where nothing was recorded."""

    __slots__ = ("_edges", "_sums")

    def __init__(
        self, pieces: Sequence[tuple[int, int, tuple[float, float, float]]], usual: tuple[float, float, float]
    ) -> None:
        """Take (start, stop, costs of the whole piece), apart from each other and in order."""
        edges, sums = [0], [(0.0, 0.0, 0.0)]
        for start, stop, costs in pieces:
            if start > edges[-1]:
                rows = start - edges[-1]
                edges.append(start)
                sums.append(_add(sums[-1], usual, rows))
            edges.append(stop)
            sums.append(_add(sums[-1], costs, 1))
        edges.append(edges[-1] + 1)  # after the end it goes on as usual
        sums.append(_add(sums[-1], usual, 1))
        self._edges, self._sums = edges, sums

    def until(self, row: int) -> tuple[float, float, float]:
        """Add up the costs of all rows before one."""
        edges, sums = self._edges, self._sums
        at = min(bisect_right(edges, row), len(edges) - 1)
        share = (row - edges[at - 1]) / (edges[at] - edges[at - 1])
        low, high = sums[at - 1], sums[at]
        return (
            low[0] + share * (high[0] - low[0]),
            low[1] + share * (high[1] - low[1]),
            low[2] + share * (high[2] - low[2]),
        )


def _add(
    sums: tuple[float, float, float], costs: tuple[float, float, float], times: float
) -> tuple[float, float, float]:
    return sums[0] + times * costs[0], sums[1] + times * costs[1], sums[2] + times * costs[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCosts(Costs):
    """What the tasks of a recorded category cost; with a ``device`` reads go there and nothing is blocked otherwise."""

    rows: Mapping[int, CostsOfRows]  #: by input: computing, blocked seconds, bytes
    fixed_s: float = 0.0  #: computing of every task
    lock_share: float = 0.0
    sigma: float = 0.0  #: how much tasks that should cost the same differ
    memory: float = 0.0

    def demand(self, rows: Rows, tries: int, seed: int) -> Demand:
        """Say what a task asks for."""
        number, start, stop = rows
        costs = self.rows[number]
        low, high = costs.until(start), costs.until(stop)
        compute = self.fixed_s + high[0] - low[0]
        if self.sigma:
            sigma = self.sigma
            compute *= exp(sigma * (normal(*drawn(seed, 1, number, start, tries)) - sigma / 2))
        locked = self.lock_share * compute
        blocked = 0.0 if self.device is not None else high[1] - low[1]
        return Demand(compute - locked, locked, blocked, high[2] - low[2], self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a run directory tells about other runs of the same analysis."""

    inputs: tuple[SimulatedInput, ...]
    costs: Mapping[str, RecordedCosts]
    workers: int
    engine: str  #: inline, threads or processes
    seconds: float  #: of the whole run
    outside_s: float  #: before the first worker was there and after the last task was done
    chunk: int | None  #: rows, where the user had said so
    cores: int | None = None  #: of the machine
    complete: bool = True
    memory_base: float | None = None  #: bytes that are needed once; None: not known
    memory_each: float | None = None  #: bytes that every worker needs; None: not known
    lock_known: bool = True  #: whether the run tells how much computing needs the interpreter lock
    tasks: int = 0
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """What it would be run with by default: as it was, and threads for one without any."""
        return "processes" if self.engine == "processes" else "threads"

    def model(self, device: tuple[str, Device] | None = None) -> Model:
        """Make the model; ``device`` (name, curve) is where reads are to come from instead."""
        costs = dict(self.costs)
        devices = {}
        if device is not None:
            name, curve = device
            devices[name] = curve
            costs = {category: replace(one, device=name) for category, one in costs.items()}
        return Model(inputs=self.inputs, costs=costs, devices=devices, name="recorded")

    def memory_of(self, workers: int, kind: Kind) -> float | None:
        """Say what so many workers need in all; None where it is not known."""
        if self.memory_each is None or self.memory_base is None:
            return None
        # Threads have the process in common; processes have one each.
        times = 1 if kind == "threads" else workers
        return times * self.memory_base + workers * self.memory_each

    def workers_that_fit(self, memory: float, kind: Kind, most: int) -> int | None:
        """Say how many workers fit into so much memory, ``most`` at most; None if not known."""
        if self.memory_of(1, kind) is None:
            return None
        fits = (n for n in range(most, 0, -1) if (self.memory_of(n, kind) or 0.0) <= memory)
        return next(fits, 0)


def scatter(per_row: Sequence[float]) -> float:
    """Estimate how much equal tasks differ, from neighbours: what changes slowly is no scatter."""
    if len(per_row) < 3:
        return 0.0
    mean = sum(per_row) / len(per_row)
    if mean <= 0:
        return 0.0
    steps = [(a - b) ** 2 for a, b in pairwise(per_row)]
    return min(0.5, sqrt(sum(steps) / len(steps) / 2) / mean)
