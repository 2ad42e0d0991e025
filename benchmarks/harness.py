"""What all benchmarks share: environments, workers, interleaved rounds, tables and claims.

A benchmark is ``python benchmarks/NAME.py [--quick] [--json FILE]``. It sets up what it needs,
measures all competitors in turn, round by round, within one run, and states each target of the
project as a claim that is met or not. Nothing here is part of the package.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / ".bench"
DATA = BENCH / "data"
PEERS = Path(__file__).resolve().parent / "peers"

#: A sample during which others used more than this share of the machine's processors is noise:
#: on two cores it is a third of one of them.
MAX_FOREIGN = 0.15

#: Resamplings of a bootstrap interval; more do not move its second digit.
RESAMPLES = 4_000


# -- command line and report -----------------------------------------------------------------------


def options(description: str) -> argparse.Namespace:
    """The two options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="the same on less, within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write claims and tables there")
    return parser.parse_args()


def machine(*packages: str) -> dict[str, Any]:
    """Facts that numbers depend on; no names of hosts or people, no paths."""
    names = ("numpy", "awkward", "uproot", "numba", "hist", *packages)
    model = "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": model,
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: version for name in names if (version := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@dataclass
class Report:
    """Collects tables, notes and claims; prints them, and writes them where ``--json`` says."""

    title: str
    machine: dict[str, Any]
    claims: list[dict[str, Any]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table, in Markdown, which reads well on a terminal too."""
        cells = [list(headers), *([str(cell) for cell in row] for row in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
        lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in cells]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
        self._add("\n".join(lines))

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self._add(text)

    def _add(self, block: str) -> None:
        self.blocks.append(block)
        print(block, end="\n\n", flush=True)

    def claim(
        self,
        name: str,
        value: float | None,
        target: float,
        *,
        better: str = "higher",
        interval: tuple[float, float] | None = None,
        reason: str | None = None,
    ) -> None:
        """State a target and the value; None could not be measured, for ``reason``."""
        met = None
        if value is not None:
            met = bool(value >= target if better == "higher" else value <= target)
        claim = {"name": name, "value": value, "target": target, "better": better, "met": met}
        if interval is not None:
            claim["interval"] = list(interval)
        if reason is not None:
            claim["reason"] = reason
        self.claims.append(claim)

    def finish(self, file: Path | None) -> None:
        """Print the claims; write everything to ``file``."""
        words = {True: "met", False: "NOT met", None: "not measured"}
        rows = []
        for claim in self.claims:
            value = "-" if claim["value"] is None else f"{claim['value']:.3g}"
            if "interval" in claim:
                low, high = claim["interval"]
                value += f" [{low:.3g}, {high:.3g}]"
            sign = ">=" if claim["better"] == "higher" else "<="
            verdict = words[claim["met"]]
            if "reason" in claim:
                verdict += f": {claim['reason']}"
            rows.append((claim["name"], value, f"{sign} {claim['target']:g}", verdict))
        self.table(("claim", "value", "target", ""), rows)
        if file is not None:
            content = {"title": self.title, "claims": self.claims, "machine": self.machine, "blocks": self.blocks}
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(content, indent=2) + "\n")


# -- environments ----------------------------------------------------------------------------------


class SetupError(RuntimeError):
    """A peer could not be installed; the message says why."""


def environment(name: str, *requirements: str, pre: bool = False) -> Path:
    """The Python of an environment of its own for a peer, made when it is not there yet."""
    directory = BENCH / "envs" / name
    python = directory / "bin" / "python"
    marker = directory / "complete.json"
    wanted = json.dumps({"requirements": requirements, "pre": pre})
    if marker.exists() and marker.read_text() == wanted and python.exists():
        return python
    print(f"setting up {', '.join(requirements)} ...", file=sys.stderr, flush=True)
    if directory.exists():
        shutil.rmtree(directory)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(directory)], [*pip, *(["--pre"] if pre else []), *requirements]):
        # Half an hour is for a large wheel over a slow line.
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise SetupError(f"{name}: {lines[-1] if lines else 'installation failed'}")
    marker.write_text(wanted)
    return python


# -- workers ---------------------------------------------------------------------------------------


class WorkerError(RuntimeError):
    """A worker ended or reported an error; the message has its last words."""


class Worker:
    """A persistent process that answers requests, one JSON line each; see ``peers/protocol.py``."""

    def __init__(self, script: str | Path, python: Path | str = sys.executable, source: Path = ROOT / "src") -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        paths = [str(source), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", str(PEERS / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,  # a group of its own: its children are ended with it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)},
        )
        try:
            self.versions: dict[str, str] = self._answer()["versions"]
        except WorkerError:
            self.close()
            raise

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerError(self._last_words()) from error
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        return f"{Path(self._process.args[-1]).name} ended: ...{text[-2000:]}"

    def cpu_seconds(self) -> float:
        """Processor time of the process and its living descendants."""
        total = 0.0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    times = one.cpu_times()
                    # Descendants that ended within the sample are in children_*.
                    total += times.user + times.system
                    total += times.children_user + times.children_system
        return total

    def close(self) -> None:
        """End the process and everything it started, and wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- samples ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement and what it answered."""

    wall: float
    cpu: float  #: processor seconds, of all its threads and processes
    foreign: float  #: the share of the machine that others used meanwhile
    result: Any


def _busy_seconds() -> float:
    """Processor time of the whole machine so far, without idle time; 0 where it is not told."""
    with contextlib.suppress(OSError):
        with Path("/proc/stat").open() as file:
            fields = [int(x) for x in file.readline().split()[1:]]
        # user nice system idle iowait irq softirq steal; guest time is within user.
        return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def measure(work: Callable[[], Mapping[str, Any]], own_cpu: Callable[[], float]) -> Sample:
    """Call ``work``, which answers {"wall", "result"}, and see what else ran meanwhile."""
    busy, cpu, start = _busy_seconds(), own_cpu(), time.perf_counter()
    mine = time.process_time()
    answer = work()
    seconds = time.perf_counter() - start
    mine = time.process_time() - mine
    cpu, busy = own_cpu() - cpu, _busy_seconds() - busy
    # Both clocks tick every 10 ms or so; below two ticks nothing can be said.
    rest = max(busy - cpu - mine - 0.02, 0.0)
    foreign = rest / (max(seconds, 1e-9) * (os.cpu_count() or 1))
    return Sample(answer["wall"], cpu or mine, foreign, answer["result"])


def asking(worker: Worker, **request: Any) -> Callable[[], Sample]:
    """A competitor: this request to this worker."""
    return lambda: measure(lambda: worker.ask(**request), worker.cpu_seconds)


def calling(function: Callable[[], Any]) -> Callable[[], Sample]:
    """A competitor within this process."""

    def work() -> dict[str, Any]:
        start = time.perf_counter()
        result = function()
        return {"wall": time.perf_counter() - start, "result": result}

    return lambda: measure(work, lambda: 0.0)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Samples of all competitors, round by round; ``noisy`` ones were kept for want of better."""

    samples: dict[str, list[Sample]]
    noisy: int
    dropped: int

    @property
    def quality(self) -> str:
        """How quiet the machine was, in words."""
        if not self.noisy:
            return f"all quiet ({self.dropped} noisy ones repeated)" if self.dropped else "all quiet"
        return f"{self.noisy} of them with foreign load above {MAX_FOREIGN:.0%}"

    def walls(self, name: str) -> np.ndarray:
        return np.array([sample.wall for sample in self.samples[name]])

    def median(self, name: str) -> float:
        return float(np.median(self.walls(name)))

    def cpu(self, name: str) -> float:
        return float(np.median([sample.cpu for sample in self.samples[name]]))

    def ratio(self, name: str, base: str) -> tuple[float, tuple[float, float]]:
        """Median time of ``name`` over that of ``base``, with a paired 95 % bootstrap interval."""
        a, b = self.walls(name), self.walls(base)
        rng = np.random.default_rng(0)
        picks = rng.integers(0, len(a), (RESAMPLES, len(a)))
        drawn = np.median(a[picks], axis=1) / np.median(b[picks], axis=1)
        low, high = np.percentile(drawn, [2.5, 97.5])
        return float(np.median(a) / np.median(b)), (float(low), float(high))

    def best_of(self, names: Sequence[str], against: str) -> tuple[str, float, tuple[float, float]]:
        """The fastest of ``names``, and the time of ``against`` over its time, with an interval.

        It is chosen on every second round and scored on the others: the best of several is lucky where
        it is chosen.
        """
        if len(self.walls(against)) < 2:
            raise ValueError("the best of several is chosen on some rounds and scored on others: two at least")
        best = min(names, key=lambda name: float(np.median(self.walls(name)[::2])))
        scored = Rounds({n: self.samples[n][1::2] for n in (against, best)}, 0, 0)
        ratio, interval = scored.ratio(against, best)
        return best, ratio, interval


def interleave(competitors: Mapping[str, Callable[[], Sample]], rounds: int, *, extra: int | None = None) -> Rounds:
    """Measure every competitor once per round, in a new order each time.

    Rounds with too much foreign load are repeated, at most ``extra`` of them (default: as many as
    ``rounds``); then the quietest are kept, in the order in which they were measured. Which rounds
    count depends on the load alone, never on who won.
    """
    shuffle = random.Random(0)
    extra = rounds if extra is None else extra
    done: list[tuple[float, dict[str, Sample]]] = []
    names = list(competitors)
    while len(done) < rounds + extra:
        shuffle.shuffle(names)
        one = {name: competitors[name]() for name in names}
        done.append((max(sample.foreign for sample in one.values()), one))
        if sum(load <= MAX_FOREIGN for load, _ in done) >= rounds:
            break
    quietest = sorted(range(len(done)), key=lambda number: done[number][0])[:rounds]
    kept = [done[number] for number in sorted(quietest)]
    return Rounds(
        {name: [one[name] for _, one in kept] for name in competitors},
        noisy=sum(load > MAX_FOREIGN for load, _ in kept),
        dropped=len(done) - len(kept),
    )


def seconds(value: float) -> str:
    """A time as people read it."""
    return f"{value:.3f} s" if value >= 1 else f"{1e3 * value:.0f} ms"
