"""Reading over a slow link: learned waves against a request per step or column, and against uproot.

    python benchmarks/remote.py [--quick] [--json FILE]

A web server of its own, in a process of its own, answers after 50 ms and sends 100 MB/s in all. The
analysis reads 36 of 60 columns of a TTree in ten steps with two regions, in chunks of one unit;
every run starts a new pipeline, which has learned nothing. Targets: at most 2.5 requests per chunk,
at least 5x as fast as one request per column; all find what a run on the local file finds.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import harness
import numpy as np

sys.path.insert(0, str(harness.PEERS))

from remote_common import COLUMNS, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Part of the file's name: raise it when the generator changes, so that no old file is measured.
DATA_VERSION = 2
WORKERS = 2
LATENCY_S = 0.05
BYTES_PER_S = 100e6

WAVES, STEP, COLUMN = "Windrow, learned waves", "a request per step", "a request per column"
UPROOT, UPROOT_PARTS = "uproot", "uproot, HTTPSource"


def data(rows: int) -> Path:
    """The file, generated when it is not there yet."""
    path = harness.DATA / f"remote_v{DATA_VERSION}_{rows}.root"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"generating {rows:,} events ...", file=sys.stderr, flush=True)
        write(path, rows)
    return path


@contextlib.contextmanager
def slow_server(folder: Path) -> Iterator[str]:
    """Serve a folder until the block ends; give its address."""
    script = harness.ROOT / "tests" / "range_server.py"
    command = [sys.executable, str(script), str(folder), str(LATENCY_S), str(BYTES_PER_S)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def served(url: str) -> np.ndarray:
    """Requests and bytes the server has answered so far."""
    with urllib.request.urlopen(f"{url}/_statistics") as answer:
        return np.array(json.load(answer))


def counting(url: str, competitor: Callable[[], harness.Sample]) -> Callable[[], harness.Sample]:
    """The same competitor, with what the server saw of it in its result."""

    def measured() -> harness.Sample:
        before = served(url)
        sample = competitor()
        requests, size = (served(url) - before).tolist()
        sample.result.update(served_requests=requests, served_bytes=size)
        return sample

    return measured


def check(samples: dict[str, harness.Sample], expected: dict[str, Any]) -> None:
    """Windrow finds over the link, bit by bit, what it finds locally; so does uproot, up to sums."""
    for name, sample in samples.items():
        for key, value in sample.result["found"].items():
            same = value == expected[key]
            if name in (UPROOT, UPROOT_PARTS) and isinstance(value, float):
                same = abs(value - expected[key]) <= 1e-6 * abs(value)  # its weights are float32
            if not same:
                raise SystemExit(f"{name} found another {key} than Windrow on the local file")


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rows, rounds = (420_000, 2) if options.quick else (1_260_000, 5)
    path = data(rows)
    missing: str | None = None
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(slow_server(path.parent))
        remote = f"{url}/{path.name}"
        worker = stack.enter_context(harness.Worker("remote_windrow.py"))
        local = worker.ask(spec=f"{path}:Events", how="waves", workers=WORKERS)["result"]
        plain = stack.enter_context(harness.Worker("remote_uproot.py"))
        competitors = {
            name: harness.asking(worker, spec=f"{remote}:Events", how=how, workers=WORKERS)
            for name, how in ((WAVES, "waves"), (STEP, "step"), (COLUMN, "column"))
        }
        competitors[UPROOT_PARTS] = harness.asking(plain, url=remote, parts=True)
        try:
            # By default uproot reads over HTTP with fsspec, which needs aiohttp.
            python = harness.environment("uproot-http", "uproot>=5.6", "aiohttp")
            default = stack.enter_context(harness.Worker("remote_uproot.py", python))
            competitors[UPROOT] = harness.asking(default, url=remote, parts=False)
        except (harness.SetupError, harness.WorkerError) as error:
            missing = str(error).strip().splitlines()[-1]
        competitors = {n: counting(url, competitor) for n, competitor in competitors.items()}
        first = {name: competitor() for name, competitor in competitors.items()}
        check(first, local["found"])
        measured = harness.interleave(competitors, rounds, extra=1)
        for number in range(rounds):
            check({n: s[number] for n, s in measured.samples.items()}, local["found"])

    report = harness.Report("Reading over a slow link", harness.machine())
    present(report, measured, rows, local["bytes"], missing)
    report.finish(options.json)


def present(report: harness.Report, measured: harness.Rounds, rows: int, local: int, missing: str | None) -> None:
    """The table, the notes and the claims."""
    chunks = measured.samples[WAVES][0].result["chunks"]
    lines = []
    for name, samples in measured.samples.items():
        ratio, (low, high) = measured.ratio(name, WAVES)
        result = samples[0].result
        requests = float(np.median([s.result["served_requests"] for s in samples]))
        lines.append(
            (
                name,
                harness.seconds(measured.median(name)),
                "1" if name == WAVES else f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
                f"{requests:.0f}",
                f"{requests / chunks:.2f}",
                str(result.get("opening", "-")),
                f"{result['served_bytes'] / 1e6:.1f} MB",
            )
        )
    if missing is not None:
        lines.append((f"{UPROOT}: not installed", *"------"))
    report.note(
        f"{rows:,} events in {chunks} chunks, TTree, zstd, {len(COLUMNS)} of 60 columns; "
        f"{LATENCY_S * 1e3:.0f} ms per request, {BYTES_PER_S / 1e6:.0f} MB/s in all; {WORKERS} "
        f"workers (uproot: 1); medians of {len(measured.walls(WAVES))} interleaved rounds, "
        f"{measured.quality}."
    )
    report.table(("program", "median", "time / Windrow's [95 %]", "requests", "per chunk", "opening", "sent"), lines)
    report.note(
        f"Equal in all: every count and every sum of weights (uproot's to 1e-6, as its weights are "
        f"float32) to what Windrow finds in the local file, of which it reads {local / 1e6:.1f} MB."
    )
    samples = measured.samples[WAVES]
    later = [np.mean(sample.result["requests"][1:]) for sample in samples]
    every = [sample.result["served_requests"] / chunks for sample in samples]
    report.claim(
        "remote: requests per chunk after the first chunk", float(np.median(later)), 2.5,
        better="lower",
    )  # fmt: skip
    report.claim(
        "remote: requests per chunk, opening and first chunk included", float(np.median(every)),
        2.5, better="lower",
    )  # fmt: skip
    value, interval = measured.ratio(COLUMN, WAVES)
    report.claim(f"remote: times as fast as {COLUMN}", value, 5.0, interval=interval)
    value, interval = measured.ratio(UPROOT_PARTS, WAVES)
    report.claim(f"remote: times as fast as {UPROOT_PARTS}", value, 1.0, interval=interval)


if __name__ == "__main__":
    main()
