"""Setting data up against processing it: the measured split against every fixed one and against reading inline.

    python benchmarks/balance.py [--quick] [--json FILE]

Two analyses of the same Parquet file (zstd), in chunks of one row group: one reads much and computes little, the other
reads little and computes much. Each is run on the local file, where reading is decompressing, and over a link with 50 ms
per request and 100 MB/s in all, where reading waits (the web server of benchmarks/remote.py, in a process of its own: its
latency is a property of the link). In a fixed split so many threads of the pool only read and so many only process; inline
every thread reads what it processes. The measured split may add threads that read to a whole pool that processes, two for
each, where workers wait for a link: there all fixed splits with as many threads compete too, and the table says how many each
has. Every run starts a new pipeline, which has learned nothing, so what it costs to find out is in its time. Target: at most
1.05 times as long as the best fixed split, which is chosen on every second round and scored on the others. A full run takes
some 10 minutes on two cores: there are fewer rounds over the link, where there are most splits.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from remote import BYTES_PER_S, LATENCY_S, slow_server

import windrow as wr
from windrow.place.read_ahead_split import MOST_AHEAD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Part of the file's name: raise it when the generator changes, so that no old file is measured.
DATA_VERSION = 1
UNIT = 50_000
COLUMNS = tuple(f"c{number}" for number in range(12))
POOLS = (2, 4)
MEASURED, INLINE = "measured", "inline"

#: Terms of a series for each row: about 0.25 ms of NumPy for each of them in a chunk.
TERMS = {"read-bound": 1, "compute-bound": 200}
READS = {"read-bound": COLUMNS, "compute-bound": COLUMNS[:3]}


def data(chunks: int) -> Path:
    """The file, generated when it is not there yet; numbers keep 12 bits, as measured ones do."""
    path = harness.DATA / f"balance_v{DATA_VERSION}_{chunks}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"generating {chunks * UNIT:,} events ...", file=sys.stderr, flush=True)
        random = np.random.default_rng(5)
        types = pa.schema([(name, pa.float32()) for name in COLUMNS])
        with pq.ParquetWriter(path, types, compression="zstd", use_dictionary=False) as file:
            for _ in range(chunks):
                numbers = random.integers(0, 4096, (len(COLUMNS), UNIT)).astype(np.float32) / 4096
                file.write_table(pa.table(dict(zip(COLUMNS, numbers, strict=True))), UNIT)
    return path


def pipeline(kind: str) -> wr.Pipeline:
    """A new one for every run."""
    analysis = wr.Pipeline(f"balance, {kind}")
    terms = TERMS[kind]

    def passes(**columns: Any) -> Any:
        first, *rest = columns.values()
        total = first
        for column in rest:
            total = total + column
        series = np.zeros_like(total)
        for number in range(1, terms + 1):
            series += np.sin(total * number) / number
        return series > 0.2

    # The columns are the arguments, so that a step reads as many as the case says.
    names = READS[kind]
    scope: dict[str, Any] = {"passes": passes}
    call = ", ".join(f"{name}={name}" for name in names)
    exec(f"def selected({', '.join(names)}): return passes({call})", scope)
    analysis.cut(scope["selected"])

    @analysis.output
    def counts(c0: Any) -> Any:
        return np.histogram(c0, np.linspace(0, 1, 21))[0]

    return analysis


def competitor(place: str, kind: str, workers: int, split: tuple[int, int] | None) -> Callable[[], Any]:
    """One run; what it found, and what it said about reading."""

    def run() -> dict[str, Any]:
        source = wr.data.open(place, grid=UNIT)
        result = pipeline(kind).run(
            source, engine="threads", workers=workers, chunk=UNIT, order="written", progress=False, _split=split
        )
        said = [line for line in result.decisions if line.startswith("reading: ") and "remote" not in line]
        return {"found": result["counts"].tolist(), "said": said}

    return run


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    chunks = 40 if options.quick else 80
    rounds = {"local": 2, "link": 2} if options.quick else {"local": 6, "link": 4}
    path = data(chunks)
    report = harness.Report("Setting up against processing", harness.machine("pyarrow"))
    report.note(
        f"{chunks} chunks of {UNIT:,} rows, Parquet with zstd; link: {LATENCY_S * 1e3:.0f} ms per request, "
        f"{BYTES_PER_S / 1e6:.0f} MB/s. Medians of {rounds['local']} interleaved rounds, {rounds['link']} over the link. "
        "Splits are threads that set up + threads that process; of the measured one it is told what it had in the end."
    )
    with slow_server(path.parent) as url:
        places = {"local": str(path), "link": f"{url}/{path.name}"}
        for kind in TERMS:
            for name, place in places.items():
                for workers in POOLS[:1] if options.quick else POOLS:
                    title = f"{kind}, {name}, pool of {workers}"
                    case(report, title, place, kind, workers, rounds[name])
    report.finish(options.json)


def fixed_splits(workers: int, *, link: bool) -> dict[str, tuple[int, int]]:
    """The splits of a pool; over a link also those that read ahead of a whole pool, as the measured one may."""
    splits = [(n, workers - n) for n in range(1, workers)]
    if link:
        splits += [(n, workers) for n in range(1, MOST_AHEAD * workers + 1)]
    return {f"{setting_up}+{processing}": (setting_up, processing) for setting_up, processing in splits}


def threads(split: tuple[int, int] | None, workers: int, said: list[str]) -> int:
    """How many threads there were; of the measured split in the end, as it said."""
    if split is not None:
        return sum(split)
    words = re.search(r"in the end (\d+) threads? set up for (\d+)", " ".join(said))
    return workers if words is None else int(words[1]) + int(words[2])


def case(report: harness.Report, title: str, place: str, kind: str, workers: int, rounds: int) -> None:
    """Measure one case; a row for every split, and claims."""
    fixed = fixed_splits(workers, link=place.startswith("http"))
    splits: dict[str, tuple[int, int] | None] = {MEASURED: None, INLINE: (0, workers), **fixed}
    runs = {name: competitor(place, kind, workers, split) for name, split in splits.items()}
    expected = runs[INLINE]()["found"]
    measured = harness.interleave({n: harness.calling(run) for n, run in runs.items()}, rounds, extra=1)
    rows = []
    for name, samples in measured.samples.items():
        if any(sample.result["found"] != expected for sample in samples):
            raise SystemExit(f"{title}: {name} found something else")
        ratio, (low, high) = measured.ratio(MEASURED, name)
        against = "" if name == MEASURED else f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
        rows.append(
            (
                name,
                threads(splits[name], workers, samples[-1].result["said"]),
                harness.seconds(measured.median(name)),
                against,
                harness.seconds(measured.cpu(name)),
            )
        )
    report.note(f"**{title}** ({measured.quality})")
    report.table(("split", "threads", "median", "measured / this [95 %]", "CPU"), rows)
    said = measured.samples[MEASURED][-1].result["said"]
    report.note("Said: " + ("; ".join(said) or "nothing"))
    best, ratio, interval = measured.best_of(list(fixed), MEASURED)
    report.claim(
        f"balance: {title}: measured / best fixed ({best})", ratio, 1.05, better="lower", interval=interval
    )  # fmt: skip
    ratio, interval = measured.ratio(MEASURED, INLINE)
    report.claim(f"balance: {title}: measured / inline", ratio, 1.05, better="lower", interval=interval)


if __name__ == "__main__":
    main()
