"""Skims of 1,479 columns: a third of the rows of a real NanoAOD file, in each format.

Against what a competent user writes with uproot, awkward and pyarrow: everything read at once, rows
taken, one call of a writer that gets all of them; collections zipped where the format needs it. All
outputs are compared with the source, column by column. The source is the real file with 1,000 rows,
repeated in other orders.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import harness
import numpy as np
import uproot

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Callable

#: Part of the file's name: raise it when the generator changes, so that no old file is measured.
DATA_VERSION = 1
WORKERS = 2
FORMATS = ("parquet", "rntuple", "ttree")
SUFFIX = {"parquet": "parquet", "rntuple": "root", "ttree": "root"}
SHARE = 0.3
OUTPUTS = harness.BENCH / "skim"

Columns = dict[str, Any]


# -- data ------------------------------------------------------------------------------------------


def sample() -> Path:
    """The real file: where WINDROW_SAMPLES says, or beside the checkout."""
    default = harness.ROOT.parent / "shared" / "data"
    path = Path(os.environ.get("WINDROW_SAMPLES", default)) / "nanoaodv5_sample.root"
    if not path.is_file():
        raise SystemExit(f"{path.name} is not there: set WINDROW_SAMPLES to its directory")
    return path


def zipped(columns: Columns) -> Columns:
    """Collections as lists of records, so that a TTree counts each of them once."""
    prefixes = [name[1:] for name in columns if name.startswith("n") and f"{name[1:]}" not in columns]
    out, used = {}, set()
    for prefix in prefixes:
        members = {
            name[len(prefix) + 1 :]: column
            for name, column in columns.items()
            if name.startswith(f"{prefix}_") and isinstance(column, ak.Array)
        }
        if members:
            out[prefix] = ak.zip(members)
            used |= {f"n{prefix}", *(f"{prefix}_{member}" for member in members)}
    lists = {f"n{name}" for name, column in columns.items() if isinstance(column, ak.Array)}
    return {**{n: c for n, c in columns.items() if n not in used | lists}, **out}


def write_tree(path: Path, parts: list[Columns]) -> None:
    first = zipped(parts[0])
    with uproot.recreate(path, compression=uproot.ZSTD(1)) as file:
        types = {
            name: column.dtype if isinstance(column, np.ndarray) else ak.type(column).content
            for name, column in first.items()
        }
        tree = file.mktree("Events", types, initial_basket_capacity=len(parts) + 2)
        tree.extend(first)
        for part in parts[1:]:
            tree.extend(zipped(part))


def data(rows: int) -> Path:
    """The source file, made when it is not there yet."""
    path = harness.DATA / f"skim_v{DATA_VERSION}_{rows}.root"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        print(f"generating {rows:,} rows of 1,479 columns ...", file=sys.stderr, flush=True)
        whole = read(sample())
        part = path.with_suffix(".part")
        rng = np.random.default_rng(7)
        count = len(whole["run"])
        orders = [rng.permutation(count) for _ in range(rows // count)]
        # Ten at a time: baskets of 10,000 rows.
        pieces = [np.concatenate(orders[n : n + 10]) for n in range(0, len(orders), 10)]
        write_tree(part, [take(whole, piece) for piece in pieces])
        part.rename(path)
    return path


def take(columns: Columns, rows: np.ndarray) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def threshold() -> float:
    with uproot.open(sample()) as file:
        return float(np.quantile(file["Events"]["MET_pt"].array(library="np"), 1 - SHARE))


# -- by hand ---------------------------------------------------------------------------------------


def read(path: Path) -> Columns:
    with uproot.open(path) as file:
        arrays = file["Events"].arrays(how=dict)
    return {n: np.asarray(a) if a.ndim == 1 else a for n, a in arrays.items()}


def write_by_hand(path: Path, form: str, columns: Columns) -> None:
    if form == "ttree":
        write_tree(path, [columns])
    elif form == "rntuple":
        with uproot.recreate(path, compression=uproot.ZSTD(1)) as file:
            file.mkrntuple("Events", columns)
    else:
        layouts = [ak.to_layout(column) for column in columns.values()]
        records = ak.Array(ak.contents.RecordArray(layouts, list(columns)))
        ak.to_parquet(records, path, compression="zstd", extensionarray=False)


def by_hand(source: Path, form: str, cut: float) -> dict[str, Any]:
    path = OUTPUTS / f"by_hand_{form}.{SUFFIX[form]}"
    begin = time.perf_counter()
    columns = read(source)
    columns = take(columns, np.flatnonzero(columns["MET_pt"] > cut))
    writing = time.perf_counter()
    write_by_hand(path, form, columns)
    end = time.perf_counter()
    return {"path": path, "reading": writing - begin, "writing": end - writing}


# -- Windrow ---------------------------------------------------------------------------------------


def with_windrow(source: Path, form: str, cut: float) -> dict[str, Any]:
    path = OUTPUTS / f"windrow_{form}.{SUFFIX[form]}"
    analysis = wr.Pipeline("skim")

    @analysis.cut
    def high_met(MET_pt: np.ndarray) -> np.ndarray:
        return MET_pt > cut

    analysis.region("presel", "high_met")
    analysis.save(path, columns="*", region="presel", format=form)
    analysis.run(source, workers=WORKERS, progress=False)
    return {"path": path}


# -- report ----------------------------------------------------------------------------------------


def check(path: Path, expected: Columns) -> None:
    """Every column of an output is the source's, for the selected rows."""
    reader = wr.data.open(path).open(0)
    missing = set(expected) ^ set(reader.info.columns)
    if missing:
        raise SystemExit(f"{path.name}: columns differ: {sorted(missing)[:5]}")
    found = reader.read(list(expected), 0, reader.info.rows)
    reader.close()
    for name, column in expected.items():
        counts = [np.asarray(ak.num(c)) for c in (column, found[name])] if column.ndim > 1 else []
        flat = [np.asarray(ak.flatten(c, axis=None)) for c in (column, found[name])]
        # A TTree written by uproot has counters of another type, of the same numbers.
        same = len(flat[0]) == len(flat[1]) and np.array_equal(*flat, equal_nan=flat[0].dtype.kind == "f")
        if not same or (counts and not np.array_equal(*counts)):
            raise SystemExit(f"{path.name}: column {name} differs from the source")


def present(report: harness.Report, measured: harness.Rounds, sizes: dict[str, float]) -> None:
    table = []
    for form in FORMATS:
        hand, ours = f"{form} by hand", f"{form} Windrow"
        ratio, (low, high) = measured.ratio(hand, ours)
        writing = np.median([sample.result["writing"] for sample in measured.samples[hand]])
        table.append(
            (
                form,
                f"{harness.seconds(measured.median(hand))} ({harness.seconds(float(writing))})",
                harness.seconds(measured.median(ours)),
                f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
                f"{sizes[hand]:.1f} / {sizes[ours]:.1f} MB",
            )
        )
        report.claim(f"skim, {form}: times as fast as by hand", ratio, 1.0, interval=(low, high))
    report.table(("format", "by hand (writing)", "Windrow", "by hand / Windrow [95 %]", "sizes"), table)


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rows, rounds = (10_000, 1) if options.quick else (100_000, 3)
    source, cut = data(rows), threshold()
    shutil.rmtree(OUTPUTS, ignore_errors=True)
    OUTPUTS.mkdir(parents=True)
    expected = read(source)
    expected = take(expected, np.flatnonzero(expected["MET_pt"] > cut))
    report = harness.Report("Skims of 1,479 columns", harness.machine("pyarrow"))
    competitors: dict[str, Callable[[], dict[str, Any]]] = {}
    for form in FORMATS:
        competitors[f"{form} by hand"] = lambda form=form: by_hand(source, form, cut)
        competitors[f"{form} Windrow"] = lambda form=form: with_windrow(source, form, cut)
    # The first run of each fills caches, and its output is looked at.
    sizes = {}
    for name, competitor in competitors.items():
        path = competitor()["path"]
        check(path, expected)
        sizes[name] = path.stat().st_size / 1e6
    selected = len(expected["run"])
    del expected
    measured = harness.interleave(
        {name: harness.calling(function) for name, function in competitors.items()},
        rounds,
        extra=0 if options.quick else 2,
    )
    report.note(
        f"{selected:,} of {rows:,} rows with all of {len(wr.data.open(source).open(0).info.columns):,} "
        f"columns; Windrow with {WORKERS} workers; medians of {rounds} interleaved rounds, "
        f"{measured.quality}. Outputs equal the source in every column."
    )
    present(report, measured, sizes)
    report.finish(options.json)
    shutil.rmtree(OUTPUTS)


if __name__ == "__main__":
    main()
