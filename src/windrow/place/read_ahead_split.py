"""Setting data up against processing it: how many threads of a pool do which, and whether any should do only one.

Setting up is reading what the first steps need, ahead of time. As in HEP-Frame (Pereira and Proenca 2021, section 3.2) the
threads of a pool are shared out at checkpoints; where the paper's rule moves some of them at a time, this one goes where both
sides keep pace with each other. A thread that reads its own chunk and then processes it is balanced by nature, so reading apart pays only where reading waits: a thread that waits needs no processor, and
there may be more of them than there are processors. Whether it pays is measured, tried, and undone if it was not so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from windrow.errors import UsageError

#: Chunks between two checkpoints: at first, and at most.
FIRST_PERIOD = 4
LONGEST_PERIOD = 64

#: Threads that may set up for each one that may process: what they make waits in memory.
MOST_AHEAD = 2

#: Work that must have been seen before anything is said.
SEEN_S = 0.5
SEEN_CHUNKS = 4

#: Share of their time that workers must wait for data before it pays to read ahead of them.
WAITS = 0.15

#: A trial that saves less than this share of the time is given up.
WORTH = 0.03


class Pool(NamedTuple):
    """How many threads may set up and how many may process at a time."""

    setting_up: int
    processing: int


def pool_split(cores: int, setup_s: float, process_s: float, computing: float = 1.0) -> Pool:
    """Share out processors where setting up computes only for a part of its time.

    ``setup_s`` and ``process_s`` are what one thread takes for the same rows. Both sides keep pace and all processors are
    busy: p + computing * s = cores and s / setup_s = p / process_s. If it computes all the time the processors are shared
    out between both; if it only waits, all of them are left to processing.
    """
    computing = min(max(computing, 0.0), 1.0)
    if computing == 1.0:
        wanted = cores * setup_s / (setup_s + process_s) if setup_s + process_s > 0 else cores / 2
        setting_up = min(max(round(wanted), 1), max(cores - 1, 1))
        return Pool(setting_up, max(cores - setting_up, 1))
    demand = process_s + computing * setup_s
    processing = cores * process_s / demand if demand > 0 else float(cores)
    if process_s > 0:
        wanted = processing * setup_s / process_s
    else:
        wanted = cores / computing if computing > 0 else float("inf")
    most = MOST_AHEAD * cores
    # A little less than a whole thread more is not worth one: measured times are not that exact.
    setting_up = most if wanted >= most else max(ceil(wanted - 0.1), 1)
    return Pool(setting_up, min(max(round(processing), 1), cores))


@dataclass(slots=True)
class Balance:
    """A split that is tuned at checkpoints, ever more rarely while nothing changes."""

    cores: int  #: processors to keep busy; threads of the pool where setting up computes all the time
    pool: Pool
    period: int = FIRST_PERIOD  #: chunks until the next checkpoint
    checkpoints: int = 0
    _quiet: int = field(default=0, init=False)
    _busy: int = field(default=0, init=False)

    def checkpoint(self, setup_s: float, process_s: float, computing: float = 1.0) -> None:
        """Tune the split by what one thread takes for the same rows on either side."""
        before = self.pool
        self.checkpoints += 1
        if setup_s > 0 or process_s > 0:
            self.pool = self.tuned(setup_s, process_s, computing)
        if self.pool == before:
            self._quiet, self._busy = self._quiet + 1, 0
        else:
            self._quiet, self._busy = 0, self._busy + 1
        if self._quiet == 2:
            self.period, self._quiet = min(2 * self.period, LONGEST_PERIOD), 0
        elif self._busy == 2:
            self.period, self._busy = max(self.period // 2, 1), 0

    def tuned(self, setup_s: float, process_s: float, computing: float) -> Pool:
        return pool_split(self.cores, setup_s, process_s, computing)


class FixedSplit:
    """So many threads set up and so many process, come what may; for comparison."""

    waits = True  #: whether a worker waits for what others set up rather than read it itself

    def __init__(self, setting_up: int, processing: int) -> None:
        if setting_up < 0 or processing < 1:
            raise UsageError(
                "a split is (threads that set up, threads that process), such as (1, 3); "
                f"got {(setting_up, processing)}"
            )
        self.pool = Pool(setting_up, processing)

    def set_up(self, rows: int, wall_s: float, cpu_s: float) -> None:
        """Learn nothing."""

    def processed(self, rows: int, wall_s: float, reading_s: float, waited_s: float, now: float) -> None:
        """Learn nothing."""

    def said(self) -> str:
        return f"reading: {_threads(self.pool.setting_up)} set up and {self.pool.processing} processed, as asked for"


@dataclass(slots=True)
class _Seen:
    began: float = 0.0
    until: float = 0.0
    chunks: int = 0
    rows: int = 0
    wall: float = 0.0
    reading: float = 0.0
    waited: float = 0.0
    setup_rows: int = 0
    setup_wall: float = 0.0
    setup_cpu: float = 0.0

    @property
    def row_s(self) -> float:
        """Seconds of the run for each row."""
        return (self.until - self.began) / max(self.rows, 1)

    @property
    def computing(self) -> float:
        """The share of setting up apart that is computing."""
        return self.setup_cpu / max(self.setup_wall, 1e-12)


class MeasuredSplit:
    """No thread sets up apart, unless workers are seen to wait for data; then it is tried, and kept if it pays.

    ``from_afar`` says whether data may have been waited for at all: what looks like it may be the interpreter's lock.
    With ``remote`` files it is sure to be waited for: reading apart begins at once, and ends if it does not wait.
    """

    waits = False

    def __init__(self, workers: int, from_afar: Callable[[], bool], *, remote: bool = False) -> None:
        self.pool = Pool(workers if remote else 0, workers)
        self._workers = workers
        self._from_afar = from_afar
        self._balance = Balance(workers, self.pool) if remote else None
        #: chunks that tell nothing: the first of each worker, and what it had asked for by then
        self._skip = 2 * workers
        self._seen: _Seen | None = None
        self._trial = max(SEEN_CHUNKS, 2 * workers)  #: chunks before anything is said
        self._inline_row_s: float | None = None  #: what a row took before, where that was measured
        self._kept: bool | None = None  #: whether the trial was a success
        self._words = ""

    def set_up(self, rows: int, wall_s: float, cpu_s: float) -> None:
        seen = self._seen
        if seen is not None:
            seen.setup_rows += rows
            seen.setup_wall += wall_s
            seen.setup_cpu += cpu_s

    def processed(self, rows: int, wall_s: float, reading_s: float, waited_s: float, now: float) -> None:
        """Count a chunk that is done; of its time so much was reading, and so much of that waiting."""
        if self._skip:
            self._skip -= 1
            if not self._skip:
                self._seen = _Seen(began=now)
            return
        seen = self._seen
        assert seen is not None
        seen.until = now
        seen.chunks += 1
        seen.rows += rows
        seen.wall += wall_s
        seen.reading += reading_s
        seen.waited += waited_s
        if self._balance is None:
            if self._kept is None:
                self._consider(seen)
        elif seen.chunks >= (self._trial if self._kept is None else self._balance.period):
            self._look_back(self._balance, seen)

    def said(self) -> str:
        """Say what was decided and why; empty while nothing was."""
        if self._kept and self._balance is not None:
            pool = self._balance.pool
            return (
                f"{self._words}; in the end {_threads(pool.setting_up)} set up for {pool.processing} that processed "
                f"({self._balance.checkpoints} checkpoints)"
            )
        return self._words

    def _consider(self, seen: _Seen) -> None:
        """Try reading apart if workers wait for data."""
        if seen.chunks < self._trial or seen.wall < SEEN_S:
            return
        share = seen.waited / max(seen.wall, 1e-12)
        if share < WAITS or not self._from_afar():
            self._words = f"reading: by the workers themselves, which waited {share:.0%} of their time for data"
            self._seen = _Seen(began=seen.until)  # a disk may become slow later
            return
        self._inline_row_s = seen.row_s
        computing = 1 - seen.waited / max(seen.reading, 1e-12)
        pool = pool_split(self._workers, seen.reading, seen.wall - seen.reading, computing)
        self._balance = Balance(self._workers, pool)
        self.pool = pool
        self._words = f"reading: ahead of the workers, because they waited {share:.0%} of their time for data"
        # Those at work have read by themselves, and the next ones were set up meanwhile: too good to be true.
        self._skip = (1 + MOST_AHEAD) * self._workers
        self._seen = None

    def _look_back(self, balance: Balance, seen: _Seen) -> None:
        """A checkpoint; the first one also says whether reading apart pays at all."""
        if self._kept is None:
            self._kept = self._pays(seen)
            if not self._kept:
                self._balance, self.pool = None, Pool(0, self._workers)
                return
        if seen.setup_rows:
            setup_s = seen.setup_wall / seen.setup_rows
            process_s = seen.wall / max(seen.rows, 1)
            balance.checkpoint(setup_s, process_s, seen.computing)
            self.pool = balance.pool
        self._seen = _Seen(began=seen.until)

    def _pays(self, seen: _Seen) -> bool:
        if self._inline_row_s is None:
            waited = 1 - seen.computing
            how = f"{waited:.0%} of the time that reading takes is waiting"
            pays = waited >= WAITS and seen.setup_rows > 0
            self._words = f"reading: {'ahead of the workers' if pays else 'by the workers themselves'}, because {how}"
            return pays
        pays = seen.row_s <= (1 - WORTH) * self._inline_row_s
        change = 1 - seen.row_s / max(self._inline_row_s, 1e-12)
        if pays:
            self._words += f", and that saved {change:.0%} of the time"
        else:
            self._words = f"reading: by the workers themselves; reading ahead of them was tried, and changed the time by {-change:+.0%}"
        return pays


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
