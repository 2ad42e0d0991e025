"""Outputs that are histograms as data go through everything that functions go through, with the same bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import hist
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_analysis
import windrow as wr
from comparing import bits
from searching import examples
from windrow.pipeline.resume.step_digest import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

AXIS = hist.axis.Regular(10, 0.0, 1.0, name="x", label="x & <y>")
EDGES = hist.axis.Variable([0.0, 0.1, 0.5, 1.0])


def as_data(**options: Any) -> wr.Pipeline:
    """Return the small analysis with its spectrum as data, and an output of two axes, one of them of a made column."""
    made = small_analysis.analysis()
    with pytest.warns(wr.errors.RedefinitionNote):
        made.output(redefined(AXIS, **options), name="spectrum")
    made.column(lambda x, y: x * y, name="product")
    made.output(wr.hist("product", EDGES, "y", hist.axis.Regular(5, 0, 1)), name="plane")
    return made


def redefined(*what: Any, **options: Any) -> Any:
    spec = wr.hist(*what, **options)
    spec.__module__ = small_analysis.__name__  # as if that module had been run again with this in place of the function
    return spec


def as_functions() -> wr.Pipeline:
    made = small_analysis.analysis()
    made.column(lambda x, y: x * y, name="product")

    @made.output
    def plane(product: Any, y: Any, weight: Any) -> Any:
        axes = [EDGES, hist.axis.Regular(5, 0, 1)]
        return hist.Hist(*axes, storage=hist.storage.Weight()).fill(product, y, weight=weight)

    return made


def run(analysis: wr.Pipeline, **options: Any) -> wr.Result:
    source = wr.data.open(small_analysis.arrays(), metadata=small_analysis.METADATA)
    return analysis.run(source, progress=False, **options)


@settings(max_examples=examples(8))
@given(st.one_of(st.none(), st.integers(1, 450)), st.sampled_from(["inline", "threads"]), st.booleans())
def test_any_chunks_orders_and_tables_give_the_bits_of_functions(chunk: int | None, engine: str, nminus1: bool) -> None:
    options: dict[str, Any] = {"nminus1": True} if nminus1 else {"chunk": chunk} if chunk else {}
    found = run(as_data(), engine=engine, workers=2, **options)
    assert found.complete
    assert bits(found.outputs) == bits(run(as_functions(), engine="inline").outputs)


def test_processes_fill_them_too() -> None:
    found = run(as_data(), engine="processes", workers=2)
    assert bits(found.outputs) == bits(run(as_functions(), engine="inline").outputs)


def test_a_row_that_fails_is_left_out() -> None:
    arrays = {"mc": {"x": np.arange(40.0)}}
    analysis = wr.Pipeline("odd")

    @analysis.column
    def value(x: Any) -> Any:
        return ak.mask(x, x != 17)

    analysis.output(wr.hist("value", hist.axis.Regular(1, 0, 100)), name="spectrum")
    result = analysis.run(wr.data.open(arrays), progress=False, engine="inline", on_error="skip")
    assert (result.ledger.done, result.ledger.failed) == (39, 1)
    assert result["spectrum"].sum().value == 39


def test_results_are_saved_merged_reported_and_continued(tmp_path: Path) -> None:
    first = run(as_data(), engine="inline", rundir=tmp_path / "run")
    expected = bits(first.outputs)
    first.save(tmp_path / "result.root")
    first.report(tmp_path / "report.html")
    assert "spectrum" in (tmp_path / "report.html").read_text()
    assert bits(wr.load(tmp_path / "run").outputs) == expected
    again = run(as_data(), engine="inline", rundir=tmp_path / "run", resume=True)
    assert bits(again.outputs) == expected
    other = as_data()
    with pytest.warns(wr.errors.RedefinitionNote):
        other.output(redefined(hist.axis.Regular(20, 0.0, 1.0, name="x")), name="spectrum")
    changed = run(other, engine="inline", rundir=tmp_path / "run", resume=True)
    assert changed["spectrum", "SR", "nominal", "tt"].axes[0].size == 20


def test_a_step_digest_has_axes_columns_and_storage_in_it() -> None:
    def digest(*what: Any, **options: Any) -> str:
        analysis = wr.Pipeline("digest")
        analysis.output(wr.hist(*what, **options), name="spectrum")
        return fingerprint(analysis.definition(0).steps["spectrum"])

    assert digest(AXIS) == digest(hist.axis.Regular(10, 0.0, 1.0, name="x", label="x & <y>"))
    others = [
        digest("y", AXIS), digest(AXIS, storage="Double"), digest(hist.axis.Regular(11, 0.0, 1.0, name="x")),
        digest(hist.axis.Regular(10, 0.0, 1.0, name="x", label="x & <y>", overflow=False)), digest("x.y", AXIS),
    ]  # fmt: skip
    assert len({digest(AXIS), *others}) == 6


def test_pictures_and_descriptions_say_what_it_is(tmp_path: Path) -> None:
    analysis = as_data()
    assert "output plane: reads product, y, weight" in analysis.explain()
    assert "wr.hist(&#x27;product&#x27;" in analysis.graph()._repr_html_()
    with pytest.raises(wr.errors.UsageError, match="is an output"):
        analysis.peek("plane", small_analysis.arrays()["tt"])
