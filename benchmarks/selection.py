"""A jagged dimuon selection with three regions on one ROOT TTree, against what is used today.

Targets: at least 1.5x plain uproot+awkward, at least 3x coffea's futures executor with 2 workers and
1.3x with a pool that is kept, at least 2x RDataFrame with 2 threads; all find the same events. Also how far from the limit: the
time to decompress on 2 threads the bytes that Windrow read, and to do nothing else.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import harness

sys.path.insert(0, str(harness.ROOT / "examples" / "dimuon"))

from generate import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Part of the file's name: raise it when the generator changes, so that no old file is measured.
DATA_VERSION = 1
WORKERS = 2


def data(rows: int) -> Path:
    """The file, generated when it is not there yet."""
    path = harness.DATA / f"selection_v{DATA_VERSION}_{rows}.root"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"generating {rows:,} events ...", file=sys.stderr, flush=True)
        write(path, rows, seed=42, year=2018, is_mc=False)
    return path


def coffea_competitors(worker: harness.Worker, path: str, rows: int) -> dict[str, Any]:
    """coffea as it is by default, and with what helps it most here."""
    half = rows // WORKERS  # one chunk per worker was its best size

    def competitor(workers: int, chunksize: int, **more: Any) -> Callable[[], harness.Sample]:
        return harness.asking(worker, path=path, workers=workers, chunksize=chunksize, **more)

    return {
        "coffea iterative": competitor(1, 100_000),
        "coffea iterative, large chunks": competitor(1, half),
        "coffea futures(2)": competitor(WORKERS, 100_000),
        "coffea futures(2), large chunks": competitor(WORKERS, half),
        "coffea futures(2), large chunks, kept pool": competitor(WORKERS, half, keep_pool=True),
    }


def check(first: dict[str, harness.Sample]) -> dict[str, int]:
    """Every competitor found the same events and filled the same bins; the yields."""
    expected = first["uproot+awkward"].result["regions"]
    for name, sample in first.items():
        if sample.result["regions"] != expected:
            raise SystemExit(f"{name} found other events than uproot+awkward")
    return {region: found["rows"] for region, found in expected.items()}


def start_peers(stack: contextlib.ExitStack, path: str, rows: int) -> tuple[dict, dict, dict]:
    """Start one worker per peer: competitors, versions, and why a peer is missing."""
    competitors: dict[str, Callable[[], harness.Sample]] = {}
    versions: dict[str, str] = {}
    missing: dict[str, str] = {}
    for name, threads in (("uproot+awkward", 1), ("uproot+awkward, 2 reading threads", 2)):
        worker = stack.enter_context(harness.Worker("selection_uproot.py"))
        competitors[name] = harness.asking(worker, path=path, threads=threads)
    for peer, requirement, pre in (("coffea", "coffea==2026.9.0", False), ("ROOT", "ROOT", True)):
        script = {"coffea": "selection_coffea.py", "ROOT": "selection_rdataframe.py"}[peer]
        extra = ("numpy",) if peer == "ROOT" else ()
        try:
            python = harness.environment(peer.lower(), requirement, *extra, pre=pre)
            worker = stack.enter_context(harness.Worker(script, python))
        except (harness.SetupError, harness.WorkerError) as error:
            missing[peer] = str(error).strip().splitlines()[-1]
            continue
        versions[peer] = worker.versions[peer]
        if peer == "coffea":
            competitors.update(coffea_competitors(worker, path, rows))
        else:
            competitors["RDataFrame, 2 threads"] = harness.asking(worker, path=path)
    return competitors, versions, missing


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rows, rounds = (1_000_000, 3) if options.quick else (2_000_000, 7)
    path = str(data(rows))
    with contextlib.ExitStack() as stack:
        competitors, versions, missing = start_peers(stack, path, rows)
        worker = stack.enter_context(harness.Worker("selection_windrow.py"))
        competitors["Windrow"] = harness.asking(worker, path=path, workers=WORKERS)
        compiled = stack.enter_context(harness.Worker("selection_windrow.py"))
        competitors["Windrow, compiled row function"] = harness.asking(
            compiled, path=path, workers=WORKERS, compiled=True
        )

        # The first run of each includes compiling, filling caches and starting pools.
        first = {name: competitor() for name, competitor in competitors.items()}
        yields = check(first)
        if not options.quick:  # and the second one still grows into its memory
            check({name: competitor() for name, competitor in competitors.items()})
        limit = harness.asking(worker, path=path, workers=WORKERS, only_limit=True)
        limit()
        # A quick run has no time to wait for a quiet machine.
        extra = 1 if options.quick else None
        measured = harness.interleave({**competitors, "limit": limit}, rounds, extra=extra)
        for number in range(rounds):
            check({name: measured.samples[name][number] for name in competitors})

    report = harness.Report("Dimuon selection", {**harness.machine(), "peers": versions})
    present(report, measured, first, yields, missing, rows)
    report.finish(options.json)


def present(
    report: harness.Report,
    measured: harness.Rounds,
    first: dict[str, harness.Sample],
    yields: dict[str, int],
    missing: dict[str, str],
    rows: int,
) -> None:
    """The table, the notes and the claims."""
    lines = []
    for name, sample in first.items():
        ratio, (low, high) = measured.ratio(name, "Windrow")
        median = measured.median(name)
        lines.append(
            (
                name,
                harness.seconds(median),
                f"{rows / median / 1e6:.1f} M",
                harness.seconds(measured.cpu(name)),
                "1" if name == "Windrow" else f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
                harness.seconds(sample.wall),
            )
        )
    lines += [(f"{peer}: not installed", "-", "-", "-", "-", "-") for peer in missing]
    report.note(
        f"{rows:,} events, TTree, zstd, {WORKERS} workers; "
        f"medians of {len(measured.walls('Windrow'))} interleaved rounds, {measured.quality}."
    )
    report.table(("program", "median", "rows/s", "processor time", "time / Windrow's [95 %]", "first run"), lines)
    report.note("Equal in all: " + ", ".join(f"{count:,} {name}" for name, count in yields.items()))

    samples = measured.samples["limit"]
    decompress = float(sorted(sample.result["seconds"] for sample in samples)[len(samples) // 2])
    megabytes = samples[0].result["bytes"] / 1e6
    report.note(
        f"Limit: decompressing the {megabytes:.0f} MB that were read, on {WORKERS} threads and"
        f" nothing else: {harness.seconds(decompress)}, which is"
        f" {decompress / measured.median('Windrow'):.2f} of Windrow's time."
    )
    futures = "coffea futures(2)"
    tuned = f"{futures}, large chunks"
    kept = f"{tuned}, kept pool"
    coffea = missing.get("coffea")
    for label, peers, target, reason in (
        ("uproot+awkward", ("uproot+awkward",), 1.5, None),
        (f"{futures}, better of two chunk sizes", (futures, tuned), 3.0, coffea),
        (kept, (kept,), 1.3, coffea),
        ("RDataFrame, 2 threads", ("RDataFrame, 2 threads",), 2.0, missing.get("ROOT")),
    ):
        name = f"selection: times as fast as {label}"
        if reason is not None:
            report.claim(name, None, target, reason=reason)
            continue
        value, interval = measured.ratio(min(peers, key=measured.median), "Windrow")
        report.claim(name, value, target, interval=interval)


if __name__ == "__main__":
    main()
