"""A recorded run as a model: what its rows cost, taken apart, so that other runs over them can be foretold.

A task's time is taken apart into computing, waiting for the interpreter lock or for reads, and
waiting for a processor. Rows keep what they cost in the task that had them, without what every
task costs (fitted) and without what the first task of a worker costs more. What one run cannot
tell is not guessed but said in ``notes``.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.core.records import StepCost
from windrow.engines.simulated.model import Costs, Demand, Model, SimulatedInput, drawn, normal
from windrow.errors import DataError, MissingFileError
from windrow.shape.costs import fit
from windrow.store.rundir import RunDirectory
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.core.records import Rows
    from windrow.engines.simulated.devices import Device
    from windrow.engines.simulated.engine import Kind
    from windrow.watch.readlog import Log

#: Sizes of tasks must differ by this factor for what every task costs to be told from what rows cost.
TELLING = 1.5

#: Seconds between two tasks of a worker that the simulated driver takes by itself.
ROUND_TRIP_S = 1e-4

#: Seconds of computing, seconds of being blocked, and bytes.
Triple = tuple[float, float, float]


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

    def __init__(self, pieces: Sequence[tuple[int, int, Triple]], usual: Triple) -> None:
        """Take (start, stop, costs of the whole piece), apart from each other and in order."""
        self._edges, parts = [0], [np.zeros(3)]
        for start, stop, costs in pieces:
            self._edges += [start, stop]
            parts += [(start - self._edges[-3]) * np.array(usual), np.array(costs)]
        self._edges.append(self._edges[-1] + 1)  # after the end it goes on as usual
        self._sums = np.cumsum([*parts, np.array(usual)], axis=0)

    def until(self, row: int) -> NDArray[np.float64]:
        """Add up the costs of all rows before one: computing, blocked seconds, bytes."""
        edges = self._edges
        at = min(bisect_right(edges, row), len(edges) - 1)
        share = (row - edges[at - 1]) / (edges[at] - edges[at - 1])
        sums: NDArray[np.float64] = (1 - share) * self._sums[at - 1] + share * self._sums[at]
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCosts(Costs):
    """What the tasks of a recorded category cost; with a ``device`` reads go there and nothing is blocked otherwise."""

    rows: Mapping[int, CostsOfRows]  #: by input: computing, blocked seconds, bytes
    fixed_s: float = 0.0  #: computing of every task
    lock_share: float = 0.0
    sigma: float = 0.0  #: how much tasks that should cost the same differ
    memory: float = 0.0

    def demand(self, rows: Rows, tries: int, seed: int) -> Demand:
        number, start, stop = rows
        costs = self.rows[number]
        compute, blocked, read = (costs.until(stop) - costs.until(start)).tolist()
        compute += self.fixed_s
        if self.sigma:
            sigma = self.sigma
            compute *= exp(sigma * (normal(*drawn(seed, 1, number, start, tries)) - sigma / 2))
        locked = self.lock_share * compute
        return Demand(compute - locked, locked, 0.0 if self.device is not None else blocked, read, self.memory)


def scatter(per_row: Sequence[float]) -> float:
    """Estimate how much equal tasks differ, from neighbours: what changes slowly is no scatter."""
    if len(per_row) < 3:
        return 0.0
    mean = sum(per_row) / len(per_row)
    if mean <= 0:
        return 0.0
    steps = [(a - b) ** 2 for a, b in pairwise(per_row)]
    return min(0.5, sqrt(sum(steps) / len(steps) / 2) / mean)


# -- reading a run directory -----------------------------------------------------------------------


def read_record(path: str | os.PathLike[str]) -> Recorded:
    """Read the run directory of a run that was complete, stopped or killed."""
    directory = RunDirectory.open(path)
    try:
        with directory.log.open(encoding="utf-8") as lines:
            log = read_log(lines)
    except FileNotFoundError as error:
        raise MissingFileError(
            f"{directory.path} has no event log ({directory.log.name}), so nothing is known of its "
            "tasks: run the analysis again with rundir=",
            file=str(directory.log),
        ) from error
    if not np.count_nonzero(log.attempts.done & (log.attempts.input >= 0)):
        raise DataError(f"{directory.log} tells of no task that ended, so there is nothing to foretell from")
    return Recorded(directory, log)


class Recorded:
    """What a run directory tells about other runs of the same analysis."""

    def __init__(self, directory: RunDirectory, log: Log) -> None:
        manifest = directory.read_manifest()
        options, environment = manifest.get("options") or {}, manifest.get("environment") or {}
        self._log = log
        self.notes: list[str] = []  #: what the run cannot tell
        summary: dict[str, Any] = {}
        try:
            summary = directory.read_summary()
        except DataError:
            self.notes.append("the run did not come to its end: speed-ups compare all rows with those done")
        if log.unreadable:
            self.notes.append(f"{log.unreadable} lines of the log cannot be read")
        if log.dropped:
            self.notes.append(f"{log.dropped:,} lines of the log were not kept: costs are from the rest")
        self.workers = int(summary.get("workers") or 0) or len(set(log.attempts.worker.tolist()))
        self.engine = str(summary.get("engine") or options.get("engine") or "threads")  #: inline, threads or processes
        if self.engine == "auto":
            self.engine = "inline" if self.workers == 1 else "threads"
        self.chunk = _whole(options.get("chunk"))  #: rows, where the user had said so
        self.cores = _whole(environment.get("cores")) if isinstance(environment, dict) else None  #: of the machine
        self.complete = bool(summary) and (log.ended or {}).get("status") == "complete"
        self._datasets = [str(one.get("dataset", "data")) for one in manifest.get("inputs") or []]
        #: when the first worker was there: from then on time is simulated
        self._joined = min((line["t"] for line in log.rare if line["event"] == "WorkerJoined"), default=0.0)
        self.seconds = float(summary.get("seconds") or log.span)  #: of the whole run
        inside = float(log.attempts.end.max()) - min(float(log.attempts.begin.min()), self._joined)
        self.outside_s = max(0.0, self.seconds - inside)  #: before the first worker and after the last task
        self._lock_share = 0.0
        self._take_apart()
        self.tasks = len(self._rows)
        self.inputs = self._find_inputs()
        between, opening = self._between()
        categories = sorted({one.category for one in self.inputs})
        self.costs = {category: self._find_costs(category, between, opening) for category in categories}
        #: bytes that are needed once, and that every worker needs; None: not known
        self.memory_base, self.memory_each = self._find_memory()

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
        return Model(inputs=tuple(self.inputs), costs=costs, devices=devices, name="recorded")

    def memory_of(self, workers: int, kind: Kind) -> float | None:
        """Say what so many workers need in all; None where it is not known."""
        if self.memory_each is None or self.memory_base is None:
            return None
        # Threads have the process in common; processes have one each.
        times = 1 if kind == "threads" else workers
        return times * self.memory_base + workers * self.memory_each

    def _dataset(self, number: int) -> str:
        return self._datasets[number] if number < len(self._datasets) else "data"

    def _take_apart(self) -> None:
        tasks = self._log.attempts
        keep = np.flatnonzero(tasks.done & (tasks.input >= 0))
        keep = keep[np.lexsort((tasks.start[keep], tasks.input[keep]))]
        self._input, self._start, self._stop, self._read = (
            column[keep] for column in (tasks.input, tasks.start, tasks.stop, tasks.read)
        )
        self._rows = self._stop - self._start
        self._category = np.array([self._dataset(number) for number in self._input.tolist()])
        wall, cpu, lock = tasks.wall[keep], tasks.cpu[keep], tasks.lock[keep]
        # An engine that cannot tell the parts apart leaves 0: then all of it is computing.
        self._cpu = np.where(cpu > 0, np.minimum(cpu, wall), wall)
        waiting = np.clip(np.minimum(lock, wall - self._cpu), 0.0, None)
        waits_for_lock = self.engine == "threads" and self.workers > 1
        self._blocked = np.zeros(len(keep)) if waits_for_lock else waiting
        span = max(float(tasks.end[keep].max() - tasks.begin[keep].min()), 1e-9)
        queued = np.clip(wall - self._cpu - waiting, 0.0, None)
        self._find_lock_share(float(wall.sum()), float(waiting.sum()), float(queued.sum()), span)
        #: the first task of each worker and category
        self._cold = np.zeros(len(keep), dtype=np.bool_)
        seen: set[tuple[int, str]] = set()
        for place in np.argsort(tasks.begin[keep], kind="stable").tolist():
            who = int(tasks.worker[keep[place]]), str(self._category[place])
            self._cold[place] = who not in seen
            seen.add(who)

    def _find_lock_share(self, worked: float, waiting: float, queued: float, span: float) -> None:
        """Decide what the waiting was for, and say what cannot be known."""
        computing = float(self._cpu.sum())
        if self.engine == "threads" and self.workers > 1:
            if computing > 0:
                self._lock_share = lock_share_of(waiting / computing, max(2, round(worked / span)))
        elif self.engine != "processes":
            self.notes.append(
                "how much of the computing needs the interpreter lock cannot be seen with one worker: "
                "for threads none of it is taken to, so they may be slower than foretold"
            )
        if queued > 0.05 * worked:
            self.notes.append(
                f"{queued / worked:.0%} of the tasks' time went into waiting for a processor that something else "
                "had; what is foretold has a processor for every worker"
            )
        if self.workers == 1:
            self.notes.append(
                "whether workers get into each other's way in memory or at the disk cannot be seen with one"
            )

    def _find_inputs(self) -> list[SimulatedInput]:
        found = self._log.inputs
        ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
        edges: dict[int, set[int]] = defaultdict(set)
        for number, start, stop in zip(self._input.tolist(), self._start.tolist(), self._stop.tolist(), strict=True):
            mine = ranges[number]
            edges[number] |= {start, stop}
            if mine and mine[-1][1] == start:
                mine[-1] = mine[-1][0], stop
            else:
                mine.append((start, stop))
        sizes = [int(one["rows"]) for one in found.values()]
        usual = round(sum(sizes) / len(sizes)) if sizes else 0
        inputs, unknown = [], 0
        for number in range(max([*ranges, *found, len(self._datasets) - 1]) + 1):
            about = found.get(number, {})
            rows = int(about.get("rows", 0)) or max(edges[number], default=0)
            if not rows and not self.complete and not about:
                unknown += 1
                rows = usual
            # What a complete run left out was not wanted; what another one left out is to come.
            wanted = tuple(ranges[number]) if self.complete else None
            if wanted == ((0, rows),):
                wanted = None
            borders = _borders(rows, about, edges[number])
            inputs.append(SimulatedInput(category=self._dataset(number), rows=rows, borders=borders, ranges=wanted))
        if unknown:
            self.notes.append(
                f"{unknown} of {len(inputs)} inputs were never opened; they are taken to have the mean "
                f"of the others, {usual:,} rows"
            )
        return inputs

    def _find_costs(self, category: str, between: float, opening: float) -> RecordedCosts:
        mine = self._category == category
        warm = mine & ~self._cold
        fixed = cold_s = 0.0
        cpu = self._cpu.copy()
        if np.count_nonzero(warm) >= 2:
            fixed = self._fixed(warm)
            per_row = float((cpu[warm] - fixed).sum()) / max(1.0, float(self._rows[warm].sum()))
            # The first task of a worker compiles and opens: its rows cost as those of the others.
            first = mine & self._cold
            usual = fixed + per_row * self._rows[first]
            cold_s = max(0.0, float(np.median(cpu[first] - usual))) if first.any() else 0.0
            cpu[first] = np.minimum(cpu[first], usual)
        alone = np.clip(cpu - fixed, 0.0, None)
        columns = np.stack((alone, self._blocked, self._read), axis=1)
        compute, blocked, read = (columns[mine].sum(axis=0) / max(1.0, float(self._rows[mine].sum()))).tolist()
        pieces: dict[int, list[tuple[int, int, Triple]]] = defaultdict(list)
        for place in np.flatnonzero(mine).tolist():
            piece = int(self._start[place]), int(self._stop[place]), tuple(columns[place].tolist())
            pieces[int(self._input[place])].append(piece)
        some = warm if np.count_nonzero(warm) >= 3 else mine
        return RecordedCosts(
            rows={
                number: CostsOfRows(pieces[number], (compute, blocked, read))
                for number, one in enumerate(self.inputs)
                if one.category == category
            },
            fixed_s=fixed + between,
            lock_share=self._lock_share,
            sigma=scatter((alone[some] / np.maximum(1, self._rows[some])).tolist()),
            cold_s=cold_s,
            inspect_s=opening,
        )

    def _fixed(self, warm: NDArray[np.bool_]) -> float:
        """Fit what every task costs; nothing where tasks are too much alike to tell."""
        rows, cpu = self._rows[warm], self._cpu[warm]
        if rows.max() < TELLING * max(1, int(rows.min())):
            return 0.0
        sums = StepCost()
        for size, spent in zip(rows.tolist(), cpu.tolist(), strict=True):
            sums = sums.merge(StepCost.of_call(size, size, spent))
        return min(fit(sums)[0], float(cpu.min()))

    def _between(self) -> tuple[float, float]:
        tasks = self._log.attempts
        columns = (column[tasks.ran].tolist() for column in (tasks.begin, tasks.end, tasks.worker))
        happenings = [(*one, False) for one in zip(*columns, strict=True)]
        opened = [one for one in self._log.inputs.values() if isinstance(one.get("worker"), int)]
        happenings += [(one["t"], one["t"], one["worker"], True) for one in opened]
        gaps: list[float] = []
        openings: list[float] = []
        ready: dict[int, float] = {}
        for begin, end, worker, opening in sorted(happenings):
            before = ready.get(worker, self._joined if opening else begin)
            (openings if opening else gaps).append(max(0.0, begin - before))
            ready[worker] = end
        # The mean, as a merge comes every few tasks; the longest were rather waits for an input.
        usual = sorted(gaps)[: max(1, int(0.95 * len(gaps)))]
        between = float(np.mean(usual)) - ROUND_TRIP_S if gaps else 0.0
        return max(0.0, between), float(np.median(openings)) if openings else 0.0

    def _find_memory(self) -> tuple[float | None, float | None]:
        """Say what is needed once and by every worker; from peaks of tasks, else from the process."""
        peaks, memory = self._log.attempts.peak[self._log.attempts.done], self._log.memory
        if peaks.size and peaks.max() > 0:
            return 0.0, float(peaks.max())
        if self.engine == "processes" or not len(memory):
            return None, None
        used = memory[:, 1]
        return float(used[0]), float(used.max() - used[0]) / max(1, self.workers)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _borders(rows: int, about: Mapping[str, Any], edges: set[int]) -> tuple[int, ...]:
    """Give the unit borders: as logged, else as many as logged, else where tasks were cut."""
    if not rows:
        return (0,)
    borders = about.get("borders")
    if isinstance(borders, list) and borders[:1] == [0] and borders[-1:] == [rows]:
        return tuple(borders)
    units = int(about.get("units", 0))
    even = {round(rows * k / units) for k in range(units + 1)} if units else {0, rows}
    return tuple(sorted({edge for edge in edges | even if 0 <= edge <= rows} | {0, rows}))
