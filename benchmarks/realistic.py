"""A realistic selection of cheap awkward steps, against the plain program in as many processes.

    python benchmarks/realistic.py [--quick] [--json FILE]

One lepton and jets in a NanoAOD-like file of 1.5 million events: cross-cleaning, seven cuts in stages, three regions, three
histograms with three variations of the weight. Plain uproot and awkward in one process and in two (each half of the file, added
up; the pool is kept), coffea's futures executor with a kept pool, and Windrow, whose pipeline is made anew for every run.

Targets: at most 0.95 of the time of plain in two processes (0.80 is the stretch), no more processor time than plain in one,
``engine="auto"`` within 5 % of the better engine. All give the same histograms.
"""

from __future__ import annotations

import compileall
import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import harness
import numpy as np

sys.path.insert(0, str(harness.ROOT / "examples" / "nanoaod"))

import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Part of the file's name: raise it when the generator changes, so that no old file is measured.
DATA_VERSION = 1
#: Rows of a cluster.
CLUSTER = 50_000
#: Numbers for each object that nobody reads: real files have more of those than of the others.
UNREAD = {"Jet": 8, "Muon": 8, "Electron": 8}
#: Kinds of events and jets besides those of tops: a simulated sample that is made for such a selection.
MIXTURE = {"soft": 0.15, "single": 0.35, "Z": 0.10, "top": 0.40}
JETS = {"soft": 4.0, "single": 5.0, "Z": 4.5, "top": 5.0}
WORKERS = 2
PLAIN, HALVES, AUTO = "plain", "plain, two processes", "Windrow"
ENGINES = {AUTO: "auto", "Windrow, threads": "threads", "Windrow, processes": "processes"}


def data(rows: int) -> Path:
    """The file, generated when it is not there yet."""
    path = harness.DATA / f"realistic_v{DATA_VERSION}_{rows}.root"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"generating {rows:,} events ...", file=sys.stderr, flush=True)
        partial = path.with_name(path.name + ".part")
        generate.BLOCK, generate.MIXTURE, generate.JETS = CLUSTER, MIXTURE, JETS
        generate._write_root(partial, blocks(rows))
        partial.replace(path)
    return path


def blocks(rows: int) -> Iterator[dict[str, Any]]:
    import awkward as ak

    for number, block in enumerate(generate.blocks(rows, seed=16, is_mc=True)):
        rng = np.random.default_rng([16, number])
        for axis in "xyz":  # coffea makes a vertex of these
            block[f"PV_{axis}"] = generate.stored(rng.normal(0, 1, len(block["event"])))
        for name, count in UNREAD.items():
            like = block[f"{name}_pt"]
            lengths = np.asarray(ak.num(like))
            for field in range(count):
                values = generate.stored(rng.random(int(lengths.sum())))
                block[f"{name}_unread{field}"] = ak.unflatten(values, lengths)
        yield block


def start_peers(
    stack: contextlib.ExitStack, path: str, rows: int
) -> tuple[dict[str, Callable[[], harness.Sample]], dict[str, str], dict[str, str]]:
    """Start one worker per program: competitors, versions, and why a peer is missing."""
    competitors: dict[str, Callable[[], harness.Sample]] = {}
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, processes in ((PLAIN, 1), (HALVES, 2)):
        worker = stack.enter_context(harness.Worker("realistic_plain.py"))
        competitors[name] = harness.asking(worker, path=path, processes=processes)
    try:
        worker = stack.enter_context(
            harness.Worker("realistic_coffea.py", harness.environment("coffea", "coffea==2026.9.0"))
        )
    except (harness.SetupError, harness.WorkerError) as error:
        missing["coffea"] = str(error).strip().splitlines()[-1]
    else:
        versions["coffea"] = worker.versions["coffea"]
        for name, chunk in (("100 k rows", 100_000), ("halves", rows // WORKERS)):
            competitors[f"coffea futures(2), kept pool, {name}"] = harness.asking(
                worker, path=path, workers=WORKERS, chunksize=chunk
            )
    for name, engine in ENGINES.items():
        worker = stack.enter_context(harness.Worker("realistic_windrow.py"))
        competitors[name] = harness.asking(worker, path=path, workers=WORKERS, engine=engine)
    return competitors, versions, missing


def check(samples: dict[str, harness.Sample]) -> None:
    """Every program filled the same histograms; sums of weights differ in their last bits, as they are added in another order."""
    expected = samples[PLAIN].result
    for name, sample in samples.items():
        if sample.result.keys() != expected.keys():
            raise SystemExit(f"{name} made other histograms than {PLAIN}")
        for key, (values, variances) in expected.items():
            own = sample.result[key]
            for one, other in ((values, own[0]), (variances, own[1])):
                if not np.allclose(one, other, rtol=1e-9, atol=1e-9 * max(map(abs, one), default=0.0)):
                    raise SystemExit(f"{name} filled {key} otherwise than {PLAIN}")


def whole_programs(path: str, rounds: int) -> dict[str, float]:
    """Median seconds of whole programs, from the interpreter's start to its end, in turn."""
    scripts = {HALVES: "realistic_plain.py", AUTO: "realistic_windrow.py"}
    walls: dict[str, list[float]] = {name: [] for name in scripts}
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "src")}
    for _ in range(rounds):
        for name, script in scripts.items():
            begin = time.perf_counter()
            command = [sys.executable, "-W", "ignore", str(harness.PEERS / script), path]
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
            walls[name].append(time.perf_counter() - begin)
    return {name: float(np.median(times)) for name, times in walls.items()}


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rows, rounds = (400_000, 3) if options.quick else (1_500_000, 7)
    # Nobody compiles modules within a run.
    compileall.compile_dir(str(harness.ROOT / "src"), quiet=1)
    path = str(data(rows))
    with contextlib.ExitStack() as stack:
        competitors, versions, missing = start_peers(stack, path, rows)
        first = {name: competitor() for name, competitor in competitors.items()}
        check(first)
        if not options.quick:  # the second one still grows into its memory
            check({name: competitor() for name, competitor in competitors.items()})
        measured = harness.interleave(competitors, rounds, extra=1 if options.quick else None)
        for number in range(rounds):
            check({name: measured.samples[name][number] for name in competitors})
    report = harness.Report("A realistic selection", {**harness.machine(), "peers": versions})
    present(report, measured, first, missing, rows)
    programs = whole_programs(path, min(rounds, 3))
    report.table(
        ("whole program, imports included", "median"), [(name, harness.seconds(s)) for name, s in programs.items()]
    )
    claims(report, measured)
    report.finish(options.json)


def present(
    report: harness.Report,
    measured: harness.Rounds,
    first: dict[str, harness.Sample],
    missing: dict[str, str],
    rows: int,
) -> None:
    lines = []
    for name, sample in first.items():
        ratio, (low, high) = measured.ratio(name, HALVES)
        lines.append(
            (
                name,
                harness.seconds(measured.median(name)),
                f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
                harness.seconds(measured.cpu(name)),
                f"{measured.cpu(name) / measured.cpu(PLAIN):.2f}",
                harness.seconds(sample.wall),
            )
        )
    lines += [(f"{peer}: not installed ({why})", "-", "-", "-", "-", "-") for peer, why in missing.items()]
    report.note(
        f"{rows:,} events, TTree, zstd, warm, {WORKERS} workers; "
        f"medians of {len(measured.walls(AUTO))} interleaved rounds, {measured.quality}."
    )
    headers = ("program", "median", f"over {HALVES} [95 %]", "processor time", "over plain", "first run")
    report.table(headers, lines)


def claims(report: harness.Report, measured: harness.Rounds) -> None:
    value, interval = measured.ratio(AUTO, HALVES)
    for target, word in ((0.95, ""), (0.80, " (stretch)")):
        report.claim(
            f"realistic: time over plain in two processes{word}", value, target, better="lower", interval=interval
        )
    report.claim("realistic: processor time over plain", measured.cpu(AUTO) / measured.cpu(PLAIN), 1.0, better="lower")
    better = min((name for name in ENGINES if name != AUTO), key=measured.median)
    value, interval = measured.ratio(AUTO, better)
    report.claim(
        "realistic: auto over the better of threads and processes", value, 1.05, better="lower", interval=interval
    )


if __name__ == "__main__":
    main()
