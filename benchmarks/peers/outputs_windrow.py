"""What an analysis of ``examples/`` gives, in a form that is equal only if every bit is; of the checkout that is imported."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hist import BaseHist
from protocol import serve


def written(value: Any) -> str:
    """A value as text, bit by bit."""
    if isinstance(value, BaseHist):
        return f"histogram {value.axes!r} {written(np.ascontiguousarray(value.view(flow=True)))}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(sorted(f'{key!r}: {written(item)}' for key, item in value.items()))}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    return repr(value)


def covered(ledger: Any) -> list[Any]:
    """What became of which rows, whatever the chunks were."""
    found: list[Any] = []
    for entry in ledger.entries:
        facts = (Path(str(entry.file)).name, entry.state, entry.reason)
        if found and found[-1][0] == facts and found[-1][2] == entry.start:
            found[-1] = (facts, found[-1][1], entry.stop)
        else:
            found.append((facts, entry.start, entry.stop))
    return found


#: What a line of a cutflow says.
LINE = ("label", "entered", "passed", "sumw", "sumw2", "undefined", "nan", "applies")


def exact_lines(lines: Any) -> list[Any]:
    """The lines that were counted, not estimated."""
    return [[getattr(line, name) for name in LINE] for line in lines or () if line.kind == "exact"]


def described(result: Any, datasets: list[str], *, fixed: bool) -> dict[str, str]:
    """Outputs, yields and ledger; the tables too where the order does not depend on how long steps take."""
    told = {f"output {name}": written(result[name]) for name in result}
    for region in result.cutflow:
        for where in (region, *((region, dataset) for dataset in datasets)):
            table = result.cutflow[where]
            told[f"yield of {where}"] = written(table.passed)
            if fixed:
                told[f"cutflow of {where}"] = written([exact_lines(table.executed), exact_lines(table.written)])
    told["ledger"] = written(covered(result.ledger))
    told["complete"] = repr(result.complete)
    return told


def dimuon(run: Any, directory: Path, variant: Any) -> tuple[Any, Any, list[str]]:
    files = run.fileset(directory, rows_per_file=variant)
    return run.analysis, files, list(files)


def nanoaod(run: Any, directory: Path, variant: Any) -> tuple[Any, Any, list[str]]:
    files = run.generated(directory, variant) | run.real(directory / "real")
    return run.build(4), files, list(files)


def tth(run: Any, directory: Path, variant: Any) -> tuple[Any, Any, list[str]]:
    path = directory / "tth.parquet"
    if not path.exists():
        run.write(path, 1_000)
    return run.build(variant, samples=run.QUICK[variant]), path, []


EXAMPLES = {"dimuon": dimuon, "nanoaod": nanoaod, "tth": tth}


def do(checkout: str, example: str, directory: str, variant: Any, options: dict[str, Any]) -> dict[str, str]:
    place = str(Path(checkout) / "examples" / example)
    if place not in sys.path:
        sys.path.insert(0, place)
    run = importlib.import_module("run")
    analysis, data, datasets = EXAMPLES[example](run, Path(directory), variant)
    if options.get("order") == "reversed":
        options["order"] = run.reverse(analysis)
    fixed = options.get("order", "adaptive") != "adaptive"
    return described(analysis.run(data, progress=False, **options), datasets, fixed=fixed)


if __name__ == "__main__":
    serve(do, "numpy")
