"""Where chunks run: which engine, how many workers, and how much of their work may be lost."""

from __future__ import annotations

import math
import os
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.core.policies import AtTheEnd, LaunchPolicy
from windrow.core.policies import Options as SchedulerOptions
from windrow.core.records import Needs
from windrow.data.paths import is_remote
from windrow.engines.dask.cluster import nodes_of
from windrow.engines.inline import InlineEngine
from windrow.engines.machine_limits import granted_memory
from windrow.engines.pooled import NODE, PooledEngine
from windrow.engines.read_ahead import ReadAhead
from windrow.engines.supervisor import kept
from windrow.engines.switching import SwitchingEngine
from windrow.engines.threads import ThreadsEngine
from windrow.errors import WindrowError
from windrow.place.lock_watch import LockWatch
from windrow.place.read_ahead_split import FixedSplit, MeasuredSplit
from windrow.shape.allocation.policy import Allocation, NodeSize
from windrow.shape.guided import CappedUntilReordered
from windrow.shape.safety import Bounded
from windrow.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from windrow.core.policies import SafetyPolicy, ShapePolicy, ShapeRequest
    from windrow.core.records import Measurement
    from windrow.core.rows import RowFeeder
    from windrow.data.base import Input, Source
    from windrow.engines.base import Engine
    from windrow.pipeline.definition.options import Options
    from windrow.store.fingerprint.api import Fingerprint


#: Inputs smaller than this in all are not worth starting threads for: a thread costs about 0.1 ms, a chunk of
#: so few bytes or rows takes a few milliseconds.
TINY_BYTES = 1_000_000
TINY_ROWS = 20_000
#: Files of more may be opened to count their rows: a file of NanoAOD has a thousand columns, and 20,000 bytes for each row.
SMALL_BYTES = 30_000_000

#: Seconds of work on one worker for which processes are started: that takes about half of one, and nearly nothing where the process
#: that makes them is warm. Of a chunk until they are there.
LONG_S, LONG_WARM_S, WHILE_ALONE_S = 1.5, 0.5, 0.1
#: Of what a row takes, the share in compiled functions for which threads are started instead.
COMPILED = 0.9
#: Seconds of a row in one step above which threads hand over: functions of whole arrays take less, loops in Python more.
PYTHON_S = 2e-5

#: Bytes of files, once for each step that uses awkward, from which threads are in each other's way for longer than processes take to
#: open files and to send results home, some 0.1 s: 0.5 s of work on one core. And the same in seconds, where it is known.
CROWDED_BYTES, CROWDED_S = 1_000_000_000, 0.8
#: Seconds to go for which threads hand over to processes that can start at once.
HAND_OVER_S = 0.3

#: Tasks that a worker of a cluster has at least, the one that it runs and the next: an answer takes some 20 ms to come and go.
FAR = 2

#: Share of the memory that may hold what was read ahead.
AHEAD_SHARE = 1 / 16
#: The same where nobody knows how much memory there is.
AHEAD_BYTES = 256_000_000

#: What workers import when they open a file of a format, and for the collections in it.
READERS = {
    "root": ("windrow.data.formats.root", "windrow.blocks.vectors"),
    "parquet": ("windrow.data.formats.parquet", "windrow.blocks.vectors"),
}

#: Bytes from a disk that are no reason to think that threads waited for data.
LITTLE = 10_000_000


@dataclass(slots=True)
class EngineChoice:
    """The engine of a run, and why it is this one."""

    options: Options
    kind: str
    workers: int
    why: str = ""  #: empty where the user chose
    #: to processes: from threads if they wait for each other, from one worker if rows take long
    may_switch: bool = False
    after: int = 0  #: workers after that, where they are more
    changes_globals: Callable[[], bool] = bool  #: whether a step does: then processes would give another answer
    waited: str = ""  #: what an earlier run found out about threads
    split: tuple[int, int] | None = None  #: threads that set up and that process, where fixed
    remote: bool = False  #: whether there are remote files
    crowded: str = ""  #: why processes would be better than threads, as far as that is known beforehand
    reads_with: tuple[str, ...] = ()  #: modules that workers need for the files
    row_s: Mapping[str, float] = field(default_factory=dict)  #: of steps that were tried, without what every call takes
    compiled: Collection[str] = ()  #: steps that are
    then: str = "processes"  #: what it changes over to
    _foreseen: bool = False  #: first rows have shown that the run takes long
    _switching: SwitchingEngine | None = None
    _setup: ReadAhead | None = None
    _cluster: Any = None
    _shape: ShapePolicy = field(init=False)

    def engine(self, rows: RowFeeder) -> Engine:
        """Make the engine; where memory is limited all workers draw on that of this machine which the run may use."""
        engine, memory = self._engine(rows), self.options.memory
        if memory is None or self.options.client is not None:
            return engine
        return PooledEngine(engine, {NODE: Needs.of({"memory": allowed_memory(memory)})})

    def _engine(self, rows: RowFeeder) -> Engine:
        if self.kind == "inline":
            inline = InlineEngine(self.workers)
            if not self.may_switch:
                return inline
            self._switching = SwitchingEngine(
                inline, lambda number: self._beside(inline, number, rows), lambda *_: self._long(rows)
            )
            return self._switching
        if self.isolated:
            return self._processes(0, rows)
        before = _from_disk()
        self._setup = self._ahead(before)
        threads = ThreadsEngine(self.workers, self._setup)
        if not self.may_switch:
            return threads
        watch = LockWatch(self.workers)
        if self.crowded:
            kept.warm(self._preload())

        def reason(used: Measurement, now: float) -> str:
            watch.add(used, now)
            if self._foreseen and (long := self._long(rows)):
                return long
            if self.crowded and kept.is_warm() and (_left_s(rows) or 0.0) > HAND_OVER_S:
                return self.crowded
            return watch.change(now, lambda: _left_s(rows), lambda: _from_disk() - before > LITTLE)

        self._switching = SwitchingEngine(threads, lambda number: self._processes(number, rows), reason)
        return self._switching

    def foresee_long(self) -> None:
        """Have processes prepared that one worker or threads will be changed for."""
        compiled, slowest_s = self._is_compiled(), max(self.row_s.values(), default=0.0)
        self._foreseen = self.may_switch and (self.kind == "inline" or (slowest_s > PYTHON_S and not compiled))
        if self._foreseen and self.options.client is None and not compiled and not kept.is_warm():
            kept.warm(self._preload())

    def _is_compiled(self) -> bool:
        """Say whether rows take long in compiled functions: these let go of the lock, and a process would compile them anew."""
        return sum(self.row_s.get(name, 0.0) for name in self.compiled) > COMPILED * sum(self.row_s.values())

    def _beside(self, inline: InlineEngine, number: int, rows: RowFeeder) -> Engine:
        """Make the engine that one worker is changed for."""
        if self.options.client is not None or not self._is_compiled():
            return self._processes(number, rows)
        self.then = "threads"
        threads = ThreadsEngine(self.after, number=number)
        threads.outputs = inline.outputs
        return threads

    def _long(self, rows: RowFeeder) -> str:
        """Say why one worker, or threads that may wait for each other, are not enough: rows take long."""
        left_s = _left_s(rows, sum(self.row_s.values()) or math.inf)
        if left_s is None or left_s < min(LONG_S, LONG_WARM_S if kept.is_warm() else LONG_S) or self.changes_globals():
            return ""
        return (
            f"rows take long, and some {left_s:.0f} s were still to go on {'one worker' if self.after else 'threads'}"
        )

    def _ahead(self, before: int) -> ReadAhead | None:
        memory = int(AHEAD_SHARE * granted_memory(os.environ)) or AHEAD_BYTES
        if self.split is None:
            split = MeasuredSplit(
                self.workers, lambda: self.remote or _from_disk() - before > LITTLE, remote=self.remote
            )
            return ReadAhead(split, self.workers, memory)
        if not self.split[0]:
            return None
        return ReadAhead(FixedSplit(*self.split), self.workers, memory)

    def shape(self, shape: ShapePolicy) -> ShapePolicy:
        """Let workers have more to do at a time where something is to be read ahead, less while more may still come."""
        self._shape = CappedUntilReordered(shape, self._most_s) if self.kind in ("inline", "threads") else shape
        return self

    def _most_s(self, category: str) -> float | None:  # noqa: ARG002 - all are alike
        early = self.may_switch if self.kind == "inline" else self._foreseen
        return WHILE_ALONE_S if early and not self.switched else None

    def rows(self, request: ShapeRequest) -> int:
        return self._shape.rows(request)

    def window(self, task_s: float | None) -> int:
        """Let queues be as deep as reading ahead, or the way to the workers, needs them."""
        return max(self._shape.window(task_s), self.depth)

    @property
    def depth(self) -> int:
        if self.kind == "dask":
            return FAR
        return 1 if self._setup is None or self.switched else self._setup.depth

    def _processes(self, number: int, rows: RowFeeder) -> Engine:
        if self.options.client is not None:
            from windrow.engines.dask.engine import DaskEngine

            self.then = "dask"
            self._cluster = DaskEngine(
                self.options.client, number=number, memory=self.options.memory, load=self._preload()
            )
            self._cluster.left_s = lambda: _work_s(rows)
            engine: Engine = self._cluster
            return engine
        from windrow.engines.processes.engine import ProcessesEngine

        return ProcessesEngine(self.after or self.workers, number=number, preload=self._preload())

    def _preload(self) -> list[str]:
        from windrow.engines.processes.startup import preload

        return [*preload(), *self.reads_with]

    def launch_policy(self, remembered: Iterable[Mapping[str, Any]], *, blocks: bool = True) -> LaunchPolicy:
        """Make what learns how much memory chunks need, where that is limited; ``blocks``: steps may be called for fewer rows."""
        options, nodes = self.options, self._nodes_with_memory()
        limits = Needs.of({} if options.timeout is None else {"seconds": options.timeout})
        if not nodes:
            return LaunchPolicy(limits)
        return Allocation(
            limits,
            nodes,
            strategy=options.allocation,
            cap=options.task_memory,
            ladder=options.ladder,
            target=options.target_memory,
            guessed=options.first_rows is not None,
            blocks=blocks,
            remembered=remembered,
        )

    def scheduler_options(self, engine: Engine, *, open_ended: bool = False, twice: bool = True) -> SchedulerOptions:
        """Give what the engine allows; ``twice``: a task that takes long may be run a second time while it still runs."""
        can, may_switch = engine.capabilities, self.may_switch
        return SchedulerOptions(
            open=open_ended,
            restart=can.can_restart or may_switch,
            speculate=twice and (can.can_kill or may_switch),
            elastic=self.options.client is not None,
            direct=self.kind == "dask",
        )

    def _nodes_with_memory(self) -> list[NodeSize]:
        """Say what the workers of each machine share, where that is limited: of a cluster by Dask, or by what the user allows each of them."""
        memory = self.options.memory
        if self.kind != "dask":
            return [] if memory is None else [NodeSize(allowed_memory(memory), self.workers)]
        sizes = nodes_of(self.options.client).sizes
        most = [(min(filter(None, (size, memory)), default=0), cores) for size, cores in sizes]
        return [NodeSize(size, cores) for size, cores in most if size]

    @property
    def isolated(self) -> bool:
        """Whether workers are processes of their own."""
        return self.kind in ("processes", "dask")

    @property
    def guessed(self) -> bool:
        """Whether processes were taken at once although threads would do."""
        return self.kind == "processes" and bool(self.crowded)

    @property
    def switched(self) -> bool:
        return self._switching is not None and self._switching.switched

    def safety(self, *, journaled: bool) -> SafetyPolicy:
        """Say how much work may be lost: little where workers can be, or where it is written down as it goes."""
        if journaled or self.isolated:
            return Bounded()
        return self if self.may_switch else AtTheEnd()

    def due(self, held_s: float, cost_s: float | None, life_s: float | None) -> bool:
        """Say whether work is to be brought to safety: where threads may become processes not before they have."""
        return self.switched and Bounded().due(held_s, cost_s, life_s)

    def said(self) -> list[str]:
        """Say what was decided and why; to be asked when the run has ended."""
        said = []
        switching = self._switching
        if self.switched and switching is not None:
            said.append(f"engine: {self.kind}, then {self.then}, because {switching.why}")
            self.kind = self.then
            if self.then == "processes" and switching.why != self.crowded:
                self.waited = switching.why
            self.workers = self.after or self.workers
        elif self.why:
            said.append(f"engine: {self.kind}, because {self.why}")
            if switching is not None and switching.why:
                said.append(f"engine: {switching.why}")
        if self.kind == "dask":
            nodes, lost, left = len(self._cluster.seen), self._cluster.lost, self._cluster.left
            part = f"cluster: {nodes} workers of Dask took part" + (f", {lost} were lost" if lost else "")
            said.append(part + (f", {left} were retired and lost nothing" if left else ""))
            said += [f"cluster: {address} was not used: {why}" for address, why in self._cluster.unfit.items()]
        memory, most = self.options.memory, self.options.task_memory
        if self.kind == "processes" and memory is not None:
            allowed = allowed_memory(memory)
            amount = f"{format_bytes(memory)} for {self.workers} workers"
            if allowed < memory:
                amount += f", but only {format_bytes(allowed)} are granted"
            most_said = f"; a chunk may use {format_bytes(most)} at most" if most else ""
            said.append(f"memory: {amount}, so the share of each is {format_bytes(allowed // self.workers)}{most_said}")
        if self._setup is not None and (about := self._setup.split.said()):
            said.append(about)
        return said


def choose_engine(
    source: Source,
    options: Options,
    to_do: int,
    waited: str,
    steps: Callable[[], Mapping[str, Fingerprint]],
    past_s: float | None = None,
    *,
    compiled: Collection[str] = (),
    saves: bool = False,
) -> EngineChoice:
    """Decide where chunks run; ``waited`` is why threads are of no use, where an earlier run found that out.

    ``past_s`` are seconds of work of the last run, if there was one; ``compiled`` are steps that are; ``saves``: files are written.
    """
    kind, why, crowded, workers = options.engine, "", "", workers_of(options)
    remote = any(i.format != "arrays" and is_remote(str(i.location)) for i in source.inputs)
    if kind == "auto":
        kind, why = _choose_kind(source, options, to_do, waited, steps)
        crowded = _crowded(source, steps(), past_s) if kind == "threads" and not compiled else ""
        if crowded and kept.is_warm():
            kind, why = "processes", crowded
    alone = bool(why) and kind == "inline"
    return EngineChoice(
        options,
        kind,
        1 if alone else workers,
        why,
        # Waiting for a remote file looks like waiting for the lock.
        may_switch=bool(why) and not remote and (kind == "threads" or (alone and workers > 1 and to_do > 0)),
        after=workers if alone else 0,
        changes_globals=lambda: any(found.stores_globals for found in steps().values()),
        waited=waited,
        split=options.split,
        remote=remote,
        crowded=crowded,
        compiled=compiled,
        reads_with=modules_for({item.format for item in source.inputs} | ({"parquet"} if saves else set())),
    )


def modules_for(formats: Collection[str]) -> tuple[str, ...]:
    """Name what workers import to read files of some formats, or to write them."""
    found = {name for one in formats for name in READERS.get(one, ())}
    # With its first array pyarrow imports pandas, where there is one: 0.3 s in every worker that is begun.
    return tuple(sorted(found | {name for name in ("pandas",) if "parquet" in formats and find_spec(name) is not None}))


def workers_of(options: Options) -> int:
    return options.workers if options.client is None else max(nodes_of(options.client).cores, 1)


def choose_place(
    options: Options, small: Callable[[], bool], waited: str = "", others: str = "threads"
) -> tuple[str, str]:
    """Decide where rows run, and why, as far as what is to run does not matter: nothing where it does.

    ``others`` are what more workers than one would be.
    """
    if options.client is not None:
        if options.memory is None and options.timeout is None and small():
            return "inline", "the data is too small for a cluster to pay"
        return "dask", f"the cluster has {workers_of(options)} workers"
    if options.memory is not None:
        return "processes", f"memory is limited to {format_bytes(options.memory)}, and only processes can be limited"
    if options.timeout is not None:
        return "processes", f"a chunk may take {format_seconds(options.timeout)}, and only processes can be limited"
    if options.workers == 1:
        return "inline", "there is one worker"
    if waited:
        return "processes", f"in an earlier run {waited}"
    if small():
        return "inline", f"the data is too small for {others} to pay"
    return "", ""


def _choose_kind(
    source: Source, options: Options, to_do: int, waited: str, steps: Callable[[], Mapping[str, Fingerprint]]
) -> tuple[str, str]:
    if not to_do:
        return "inline", "nothing is left to do"
    kind, why = choose_place(options, lambda: _is_tiny(source), waited)
    if kind:
        return kind, why
    for name, found in steps().items():
        if found.stores_globals:
            return "processes", f"{name!r} changes {found.stores_globals[0]}, which threads would share"
    return "threads", f"{options.workers} workers share the files of one process"


def _crowded(source: Source, steps: Mapping[str, Fingerprint], past_s: float | None) -> str:
    """Say why threads would be in each other's way; empty if they would not, or processes would lose more.

    Awkward holds the interpreter's lock between its kernels, and all threads share one memory to clear pages in. Compiled functions let
    go of the lock, and would be compiled again in every process; arrays would have to be sent there.
    """
    awkward = sum("library awkward" in found.parts for found in steps.values())
    size = local_bytes(source.inputs)
    if not awkward or size is None:
        return ""
    if past_s < CROWDED_S if past_s is not None else awkward * size < CROWDED_BYTES:
        return ""
    return f"{awkward} steps use awkward, which holds the interpreter's lock"


def allowed_memory(memory: int) -> int:
    """Say how much of the memory asked for there is: a limit above that would never be reached."""
    return min(memory, granted_memory(os.environ) or memory)


def _from_disk() -> int:
    """Bytes that this process had to wait for because they were not in memory; only Linux tells."""
    try:
        with Path("/proc/self/io").open("rb") as facts:
            for line in facts:
                if line.startswith(b"read_bytes:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def _left_s(rows: RowFeeder, most_row_s: float = math.inf) -> float | None:
    work_s = _work_s(rows, most_row_s)
    return None if work_s is None else work_s / max(rows.standing().workers, 1)


def _work_s(rows: RowFeeder, most_row_s: float = math.inf) -> float | None:
    """Predict what the rows that are left take on one worker."""
    costs = [account.costs() for account in rows.accounts.values()]
    done = sum(cost.rows_in for cost in costs)
    if not done:
        return None
    now = rows.standing()
    ahead = now.waiting + now.expected + now.running
    return ahead * min(sum(cost.wall for cost in costs) / done, most_row_s)


def _is_tiny(source: Source) -> bool:
    if all(item.format == "arrays" for item in source.inputs):
        return all(item.rows is not None and item.rows <= TINY_ROWS for item in source.inputs)
    size = local_bytes(source.inputs)
    return size is not None and (size <= TINY_BYTES or (size <= SMALL_BYTES and _rows(source) <= TINY_ROWS))


def local_bytes(inputs: Iterable[Input]) -> int | None:
    """Bytes of the files; None where some are remote, gone, or no files at all."""
    total = 0
    for item in inputs:
        if item.format == "arrays":
            return None
        try:
            total += Path(item.location).stat().st_size
        except (OSError, TypeError, ValueError):
            return None
    return total


def _rows(source: Source) -> float:
    """Count the rows of some small files: what is found in them is kept for the workers."""
    rows = 0
    for item in source.inputs:
        try:
            with closing(source.open(item.index)) as reader:
                rows += reader.info.rows
        except (WindrowError, OSError):
            return math.inf  # whoever works on it tells what is wrong
        if rows > TINY_ROWS:
            break
    return rows
