"""Comparing what a run gives with what the oracle says: outputs bit for bit."""

from __future__ import annotations

import itertools
import math
import struct
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from hist import BaseHist

from reference import Answer, Line, reference
from windrow.random import Rng, identity_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from description import Analysis, Dataset
    from strategies import Way


def bits(value: Any) -> Any:
    """A value in a form that is equal only if every bit is; all NaN are one."""
    if isinstance(value, BaseHist):
        view = np.ascontiguousarray(value.view(flow=True))
        return "hist", repr(value.axes), repr(view.dtype), view.tobytes()
    if isinstance(value, Mapping):
        return "mapping", frozenset((key, bits(item)) for key, item in value.items())
    if isinstance(value, set | frozenset):
        return "set", frozenset(value)
    if isinstance(value, list | tuple):
        return type(value).__name__, tuple(bits(item) for item in value)
    if isinstance(value, np.ndarray):
        return "array", value.shape, tuple(bits(item) for item in value.tolist())
    if isinstance(value, float | np.floating):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


def close(left: float, right: float, scale: float) -> bool:
    """Equal up to the order in which the rows were added."""
    return abs(left - right) <= 1e-12 * (1.0 + scale)


def run(analysis: Any, source: Any, way: Way, **options: Any) -> Any:
    if way.order is not None:
        options["order"] = list(way.order)
    if way.block is not None:
        options["_block_rows"] = way.block
    with warnings.catch_warnings():
        # chunk is an upper bound snapped to units, with a warning where a unit is larger.
        warnings.filterwarnings("ignore", message=".*unit")
        return analysis.run(source, chunk=way.chunk, engine=way.engine, workers=way.workers, progress=False, **options)


def numbers(seed: int = 0) -> Callable[[Any], Any]:
    return lambda columns: Rng(seed, identity_hash(columns), len(columns[0]))


def oracle(analysis: Analysis, datasets: Sequence[Dataset], **options: Any) -> Answer:
    return reference(analysis, datasets, rng=numbers(options.pop("seed", 0)), **options)


def check_outputs(result: Any, answer: Answer) -> None:
    for (name, region, variation, dataset), expected in answer.outputs.items():
        # An output over all rows has no region to be named.
        where = (variation, dataset) if region is None else (region, variation, dataset)
        got = result[name, *where]
        assert bits(got) == bits(expected), (name, region, variation, dataset, got, expected)


def check_lines(lines: Any, expected: Sequence[Line], where: Any) -> None:
    names = [f"!{line.name}" if line.inverted else line.name for line in lines]
    assert names == [line.name for line in expected], (where, names)
    for got, want in zip(lines, expected, strict=True):
        here = (where, want)
        assert type(got.passed) is int, here
        if got.kind == "estimated":
            # How far it may be off is the business of test_cutflow_estimated.py.
            assert got.interval[0] <= got.passed <= got.interval[1], here
            continue
        assert got.passed == want.passed, here
        # Not counted where a cut did not run on the rows that reach it as written.
        if where[0] != "written" or got.undefined is not None:
            assert (got.undefined, got.nan) == (want.undefined, want.nan), here
        assert got.applies == want.applies, here
        # |w| < 2 in all strategies' weights, a few of them multiplied
        scale = 100.0 * want.passed
        assert close(got.sumw, want.sumw, scale), (got.sumw, here)
        assert close(got.sumw2, want.sumw2, scale), (got.sumw2, here)


def check_cutflow(result: Any, answer: Answer, kind: str) -> None:
    for (region, dataset), expected in answer.cutflow.items():
        table = result.cutflow[region, dataset]
        check_lines(getattr(table, kind), expected, (kind, region, dataset))
    for region in {region for region, _ in answer.cutflow}:
        several = [lines for (name, _), lines in answer.cutflow.items() if name == region]
        together = [
            Line(
                same[0].name,
                sum(line.passed for line in same),
                math.fsum(line.sumw for line in same),
                math.fsum(line.sumw2 for line in same),
                sum(line.undefined for line in same),
                sum(line.nan for line in same),
                any(line.applies for line in same),
            )
            for same in zip(*several, strict=True)
        ]
        check_lines(getattr(result.cutflow[region], kind), together, (kind, region))


def check_yields(result: Any, answer: Answer) -> None:
    for (region, dataset), count in answer.yields().items():
        table = result.cutflow[region, dataset]
        assert table.executed[-1].passed == count, (region, dataset)
        rows = result["always", region, "nominal", dataset]
        assert len(rows) == count, (region, dataset)


def check_ledger(result: Any, datasets: Sequence[Dataset]) -> None:
    rows = {file.label: file.rows for dataset in datasets for file in dataset.files}
    ledger = result.ledger
    assert (ledger.total, ledger.done) == (sum(rows.values()), sum(rows.values()))
    assert (ledger.failed, ledger.missing) == (0, 0)
    assert ledger.complete
    assert result.complete
    assert result.exit_code == 0
    for file, count in rows.items():
        spans = sorted((e.start, e.stop) for e in ledger.entries if e.file == file)
        covered = list(itertools.chain.from_iterable(range(*span) for span in spans))
        assert covered == list(range(count)), (file, spans)
