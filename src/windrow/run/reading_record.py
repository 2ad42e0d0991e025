"""From the files of a run directory to a ``Recorded``: whatever is there is used, what is not is said."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.core.records import StepCost
from windrow.engines.simulated.model import SimulatedInput
from windrow.errors import DataError, MissingFileError
from windrow.run.recorded import CostsOfRows, Recorded, RecordedCosts, lock_share_of, scatter
from windrow.shape.costs import fit
from windrow.store.rundir import RunDirectory
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from windrow.watch.readlog import Log


#: Sizes of tasks must differ by this factor for what every task costs to be told from what rows cost.
TELLING = 1.5

#: Looks at the interpreter lock that say something about how often it is held.
FEW_LOOKS = 10

#: Seconds between two tasks of a worker that the simulated driver takes by itself.
ROUND_TRIP_S = 1e-4


def read_record(path: str | os.PathLike[str]) -> Recorded:
    """Read the run directory of a run that was complete, stopped or killed."""
    directory = RunDirectory.open(path)
    aside = _Aside()
    try:
        with directory.log.open(encoding="utf-8") as lines:
            log = read_log(aside.noted(lines))
    except FileNotFoundError as error:
        raise MissingFileError(
            f"{directory.path} has no event log ({directory.log.name}), so nothing is known of its "
            "tasks: run the analysis again with rundir=",
            file=str(directory.log),
        ) from error
    if not np.count_nonzero(log.attempts.done & (log.attempts.input >= 0)):
        raise DataError(f"{directory.log} tells of no task that ended, so there is nothing to foretell from")
    facts = _facts(directory, log)
    facts.held, facts.looks = aside.held, aside.looks
    table = _table(log, facts)
    inputs = _inputs(table, aside.found, facts)
    costs = {
        category: _costs(category, table, inputs, facts, log) for category in sorted({one.category for one in inputs})
    }
    base, each = _memory(log, facts)
    return Recorded(
        inputs=tuple(inputs),
        costs=costs,
        workers=facts.workers,
        engine=facts.engine,
        seconds=facts.seconds,
        outside_s=facts.outside_s,
        chunk=facts.chunk,
        cores=facts.cores,
        complete=facts.complete,
        memory_base=base,
        memory_each=each,
        lock_known=facts.lock_known,
        tasks=len(table.rows),
        notes=tuple(facts.notes),
    )


class _Aside:
    """What a log says beside tasks; noted on the way, as its reader keeps but the first of such lines."""

    def __init__(self) -> None:
        self.found: dict[int, dict[str, Any]] = {}  #: inputs that were opened
        self.held, self.looks = 0.0, 0  #: share of the looks at which somebody had the lock

    def noted(self, lines: Iterable[str]) -> Iterator[str]:
        """Pass lines on."""
        for line in lines:
            if '"Discovered"' in line or '"held"' in line:
                # Half a line at the end of a killed run is counted by the log's reader.
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    record = json.loads(line)
                    if "held" in record:
                        self.held, self.looks = float(record["held"]), int(record["looks"])
                    else:
                        self.found[int(record["input"])] = record
            yield line


@dataclass(slots=True, kw_only=True)
class _Facts:
    """What is known of the run as a whole."""

    workers: int
    engine: str
    seconds: float
    outside_s: float
    chunk: int | None
    cores: int | None
    complete: bool
    datasets: list[str]
    held: float = 0.0
    looks: int = 0
    lock_known: bool = True
    lock_share: float = 0.0
    waits_for_lock: bool = False
    notes: list[str]


def _facts(directory: RunDirectory, log: Log) -> _Facts:
    manifest = directory.read_manifest()
    options = manifest.get("options") or {}
    summary: dict[str, Any] = {}
    notes = []
    try:
        summary = directory.read_summary()
    except DataError:
        notes.append("the run did not come to its end: only what its log tells is used")
    tasks = log.attempts
    joined = log.counts.get("WorkerJoined", 0)
    workers = int(summary.get("workers") or 0) or len(set(tasks.worker.tolist())) or joined
    engine = str(summary.get("engine") or options.get("engine") or "threads")
    if engine == "auto":
        engine = "inline" if workers == 1 else "threads"
    first, last = float(tasks.begin.min()), float(tasks.end.max())
    seconds = float(summary.get("seconds") or log.span)
    chunk = options.get("chunk")
    environment = manifest.get("environment") or {}
    cores = environment.get("cores") if isinstance(environment, dict) else None
    if log.unreadable:
        notes.append(f"{log.unreadable} lines of the log cannot be read")
    if log.dropped:
        notes.append(f"{log.dropped:,} lines of the log were not kept: costs are from the rest")
    opening = min(first, _first_discovered(log))
    return _Facts(
        workers=workers,
        engine=engine,
        seconds=seconds,
        outside_s=max(0.0, seconds - (last - min(opening, first))),
        chunk=int(chunk) if isinstance(chunk, int) and not isinstance(chunk, bool) else None,
        cores=int(cores) if isinstance(cores, int) else None,
        complete=bool(summary) and (log.ended or {}).get("status") == "complete",
        datasets=[str(one.get("dataset", "data")) for one in manifest.get("inputs") or []],
        notes=notes,
    )


def _first_discovered(log: Log) -> float:
    """Find when the first worker was there: from then on time is simulated."""
    return min((line["t"] for line in log.rare if line["event"] == "WorkerJoined"), default=0.0)


@dataclass(slots=True, kw_only=True)
class _Table:
    """Accepted tasks in the order of their rows; times in seconds."""

    input: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    rows: NDArray[np.int64]
    cpu: NDArray[np.float64]
    blocked: NDArray[np.float64]
    read: NDArray[np.int64]
    cold: NDArray[np.bool_]  #: the first of its worker and category
    category: NDArray[Any]


def _category(facts: _Facts, number: int) -> str:
    return facts.datasets[number] if number < len(facts.datasets) else "data"


def _table(log: Log, facts: _Facts) -> _Table:
    tasks = log.attempts
    keep = np.flatnonzero(tasks.done & (tasks.input >= 0))
    category = np.array([_category(facts, int(number)) for number in tasks.input[keep]])
    cold = np.zeros(len(keep), dtype=np.bool_)
    seen: set[tuple[int, str]] = set()
    for place in np.argsort(tasks.begin[keep], kind="stable").tolist():
        who = int(tasks.worker[keep[place]]), str(category[place])
        cold[place] = who not in seen
        seen.add(who)
    wall, cpu, lock = tasks.wall[keep], tasks.cpu[keep], tasks.lock[keep]
    # An engine that cannot tell the parts apart leaves 0: then all of it is computing.
    cpu = np.where(cpu > 0, np.minimum(cpu, wall), wall)
    waiting = np.clip(np.minimum(lock, wall - cpu), 0.0, None)
    queued = np.clip(wall - cpu - waiting, 0.0, None)
    _about_waiting(facts, wall, cpu, waiting, queued, tasks, keep)
    order = np.lexsort((tasks.start[keep], tasks.input[keep]))
    pick = keep[order]
    return _Table(
        input=tasks.input[pick],
        start=tasks.start[pick],
        stop=tasks.stop[pick],
        rows=(tasks.stop - tasks.start)[pick],
        cpu=cpu[order],
        blocked=np.zeros(len(order)) if facts.waits_for_lock else waiting[order],
        read=tasks.read[pick],
        cold=cold[order],
        category=category[order],
    )


def _about_waiting(
    facts: _Facts,
    wall: NDArray[np.float64],
    cpu: NDArray[np.float64],
    waiting: NDArray[np.float64],
    queued: NDArray[np.float64],
    tasks: Any,
    keep: NDArray[np.int64],
) -> None:
    """Decide what the waiting was for, and say what cannot be known."""
    computing, worked = float(cpu.sum()), float(wall.sum())
    span = max(float(tasks.end[keep].max() - tasks.begin[keep].min()), 1e-9)
    if facts.engine == "threads" and facts.workers > 1:
        facts.waits_for_lock = True
        at_once = max(2, round(worked / span))
        if computing > 0:
            facts.lock_share = lock_share_of(float(waiting.sum()) / computing, at_once)
    elif facts.engine != "processes" and facts.looks >= FEW_LOOKS:
        # Nobody computes between tasks.
        facts.lock_share = min(1.0, facts.held * span / max(worked, 1e-9))
    elif facts.engine != "processes":
        facts.lock_known = False
        facts.notes.append(
            "how much of the computing needs the interpreter lock was not seen in so short a run: "
            "for threads none of it is taken to, so they may be slower than foretold"
        )
    if float(queued.sum()) > 0.05 * worked:
        share = float(queued.sum()) / worked
        facts.notes.append(
            f"{share:.0%} of the tasks' time went into waiting for a processor that something else "
            "had; what is foretold has a processor for every worker"
        )
    if facts.workers == 1:
        facts.notes.append("whether workers get into each other's way in memory or at the disk cannot be seen with one")


def _inputs(table: _Table, found: dict[int, dict[str, Any]], facts: _Facts) -> list[SimulatedInput]:
    ranges: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, start, stop in zip(table.input.tolist(), table.start.tolist(), table.stop.tolist(), strict=True):
        mine = ranges[number]
        if mine and mine[-1][1] == start:
            mine[-1] = mine[-1][0], stop
        else:
            mine.append((start, stop))
    highest = max([*ranges, *found, len(facts.datasets) - 1])
    edges: dict[int, set[int]] = defaultdict(set)
    for number, start, stop in zip(table.input.tolist(), table.start.tolist(), table.stop.tolist(), strict=True):
        edges[number] |= {start, stop}
    inputs = []
    unknown = 0
    sizes = [int(one["rows"]) for one in found.values()]
    usual = round(sum(sizes) / len(sizes)) if sizes else 0
    for number in range(highest + 1):
        about = found.get(number)
        rows = int(about["rows"]) if about else max(edges[number], default=0)
        if not rows and not facts.complete and about is None:
            unknown += 1
            rows = usual
        # What a complete run left out was not wanted; what another one left out is to come.
        wanted = tuple(ranges[number]) if facts.complete else None
        if wanted == ((0, rows),):
            wanted = None
        borders = _borders(rows, about, edges[number])
        category = _category(facts, number)
        inputs.append(SimulatedInput(category=category, rows=rows, borders=borders, ranges=wanted))
    if unknown:
        facts.notes.append(
            f"{unknown} of {len(inputs)} inputs were never opened; they are taken to have the mean "
            f"of the others, {usual:,} rows"
        )
    return inputs


def _borders(rows: int, about: dict[str, Any] | None, edges: set[int]) -> tuple[int, ...]:
    """Give the unit borders: as logged, else as many as logged, else where tasks were cut."""
    if not rows:
        return (0,)
    if about is not None and isinstance(about.get("borders"), list):
        borders = tuple(int(one) for one in about["borders"])
        if borders[:1] == (0,) and borders[-1:] == (rows,):
            return borders
    units = int(about.get("units", 0)) if about is not None else 0
    even = {round(rows * k / units) for k in range(units + 1)} if units else {0, rows}
    return tuple(sorted({edge for edge in edges | even if 0 <= edge <= rows} | {0, rows}))


def _costs(category: str, table: _Table, inputs: list[SimulatedInput], facts: _Facts, log: Log) -> RecordedCosts:
    mine = table.category == category
    warm = mine & ~table.cold
    fixed, cold_s = 0.0, 0.0
    cpu = table.cpu.copy()
    if np.count_nonzero(warm) >= 2:
        fixed = _fixed(table, warm)
        per_row = float((table.cpu[warm] - fixed).sum()) / max(1.0, float(table.rows[warm].sum()))
        # The first task of a worker compiles and opens: its rows cost as those of the others.
        first = mine & table.cold
        usual = fixed + per_row * table.rows[first]
        more = table.cpu[first] - usual
        cold_s = max(0.0, float(np.median(more))) if more.size else 0.0
        cpu[first] = np.minimum(cpu[first], usual)
    alone = np.clip(cpu - fixed, 0.0, None)
    rows = max(1.0, float(table.rows[mine].sum()))
    usual_row = (
        float(alone[mine].sum()) / rows,
        float(table.blocked[mine].sum()) / rows,
        float(table.read[mine].sum()) / rows,
    )
    pieces: dict[int, list[tuple[int, int, tuple[float, float, float]]]] = defaultdict(list)
    for i in np.flatnonzero(mine).tolist():
        costs = float(alone[i]), float(table.blocked[i]), float(table.read[i])
        pieces[int(table.input[i])].append((int(table.start[i]), int(table.stop[i]), costs))
    numbers = [n for n, one in enumerate(inputs) if one.category == category]
    some = warm if np.count_nonzero(warm) >= 3 else mine
    between, inspect = _between(log)
    return RecordedCosts(
        rows={number: CostsOfRows(pieces[number], usual_row) for number in numbers},
        fixed_s=fixed + between,
        lock_share=facts.lock_share,
        sigma=scatter((alone[some] / np.maximum(1, table.rows[some])).tolist()),
        cold_s=cold_s,
        inspect_s=inspect,
    )


def _fixed(table: _Table, warm: NDArray[np.bool_]) -> float:
    """Fit what every task costs; nothing where tasks are too much alike to tell."""
    rows, cpu = table.rows[warm], table.cpu[warm]
    if rows.max() < TELLING * max(1, int(rows.min())):
        return 0.0
    sums = StepCost()
    for size, spent in zip(rows.tolist(), cpu.tolist(), strict=True):
        sums = sums.merge(StepCost.of_call(size, size, spent))
    return min(fit(sums)[0], float(cpu.min()))


def _between(log: Log) -> tuple[float, float]:
    """Give what workers take between tasks (merging), and for opening an input."""
    tasks = log.attempts
    ran = tasks.ran
    gaps: list[float] = []
    openings: list[float] = []
    ready: dict[int, float] = {}
    happenings = [
        (float(begin), float(end), int(worker), False)
        for begin, end, worker in zip(tasks.begin[ran], tasks.end[ran], tasks.worker[ran], strict=True)
    ]
    happenings += [
        (line["t"], line["t"], int(line["worker"]), True)
        for line in log.rare
        if line["event"] == "Discovered" and isinstance(line.get("worker"), int)
    ]
    joined = min((line["t"] for line in log.rare if line["event"] == "WorkerJoined"), default=0.0)
    for begin, end, worker, opening in sorted(happenings):
        before = ready.get(worker, joined if opening else begin)
        (openings if opening else gaps).append(max(0.0, begin - before))
        ready[worker] = end
    # The mean, as a merge comes every few tasks; the longest were rather waits for an input.
    usual = sorted(gaps)[: max(1, int(0.95 * len(gaps)))]
    between = float(np.mean(usual)) - ROUND_TRIP_S if gaps else 0.0
    return max(0.0, between), float(np.median(openings)) if openings else 0.0


def _memory(log: Log, facts: _Facts) -> tuple[float | None, float | None]:
    """Say what is needed once and by every worker; from peaks of tasks, else from the process."""
    peaks = log.attempts.peak
    if peaks.size and peaks.max() > 0:
        return 0.0, float(peaks.max())
    if facts.engine == "processes" or not len(log.memory):
        facts.notes.append("the log has no memory of workers: how many fit is not known")
        return None, None
    used = log.memory[:, 1]
    facts.notes.append("memory is that of the whole process, seen four times a second: short peaks may be missing")
    return float(used[0]), float(used.max() - used[0]) / max(1, facts.workers)
