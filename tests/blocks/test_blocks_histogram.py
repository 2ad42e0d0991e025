"""Histograms as data are those of a function that fills them with the same rows, bit for bit."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import pytest
from hist import Hist, axis, storage
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.blocks import histogram
from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.selection import Selection, everything
from windrow.errors import DefinitionError, MissingColumnError, StepError
from windrow.pipeline.binding.bind import bind


def chunk_run(analysis: wr.Pipeline, arrays: dict[str, Any], borders: tuple[int, ...]) -> ChunkRun:
    reader = wr.data.open(arrays).open(0)
    definition = analysis.definition(0)
    program = bind(definition, "data", {}, reader.info, "file.root")
    return ChunkRun(program, reader, Chunk(0, "file.root", 0, borders, borders), definition.written, {})


STORAGES: dict[str, Any] = {"Weight": storage.Weight, "Double": storage.Double, "Int64": storage.Int64}

floats = st.one_of(
    st.floats(-3, 8), st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0, 5.0]), st.floats(width=32)
)
flow = st.fixed_dictionaries({"underflow": st.booleans(), "overflow": st.booleans()})
AXES = st.one_of(
    st.builds(lambda n, options: axis.Regular(n, 0, 5, **options), st.integers(1, 9), flow),
    st.just(axis.Regular(4, 0, 2, circular=True)),
    st.just(axis.Regular(5, 1, 6, transform=axis.transform.log)),
    st.builds(
        lambda edges, options: axis.Variable(sorted(edges), **options), st.sets(st.floats(-2, 6), min_size=2), flow
    ),
    st.just(axis.Variable([0, 1, 3], circular=True)),
)
WHOLE_AXES = st.one_of(
    st.builds(lambda options: axis.Integer(-1, 3, **options), flow),
    st.just(axis.Integer(0, 3, circular=True)),
    st.builds(lambda flow: axis.IntCategory([3, 1, 2], overflow=flow), st.booleans()),
    st.just(axis.Boolean()),
)
WORD_AXES = st.builds(lambda flow: axis.StrCategory(["mu", "e", "tau"], overflow=flow), st.booleans())


@st.composite
def filled_axis(draw: st.DrawFn, size: int) -> tuple[Any, np.ndarray]:
    """Draw an axis and as many values for it."""
    kind = draw(st.sampled_from(["number", "whole number", "word"]))
    if kind == "number":
        dtype = draw(st.sampled_from([np.float64, np.float32, np.int64, np.bool_]))
        values = st.integers(-3, 8) if dtype in (np.int64, np.bool_) else floats
        with np.errstate(all="ignore"):
            return draw(AXES), np.array(draw(st.lists(values, min_size=size, max_size=size))).astype(dtype)
    if kind == "whole number":
        dtype = draw(st.sampled_from([np.int64, np.int8, np.uint8, np.bool_]))
        whole = draw(st.lists(st.integers(-3, 5), min_size=size, max_size=size))
        return draw(WHOLE_AXES), np.array(whole, dtype=np.int64).astype(dtype)
    words = st.sampled_from(["e", "mu", "tau", "", "muon"])
    return draw(WORD_AXES), np.array(draw(st.lists(words, min_size=size, max_size=size)), dtype=np.str_)


weights = st.one_of(st.floats(-3, 3), st.sampled_from([0.1, 1e300, -1e-300, -0.0, np.inf]))


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one.axes == other.axes and bits(one) == bits(other)


def bits(filled: Any) -> tuple[Any, bytes]:
    view = np.asarray(filled.view(flow=True))
    return view.dtype, np.where(np.isnan(view), np.nan, view).tobytes() if view.dtype.names is None else view.tobytes()


@settings(max_examples=examples(300))
@given(st.data(), st.sampled_from(list(STORAGES)), st.booleans())
def test_any_rows_are_filled_as_boost_histogram_fills_them(data: st.DataObject, kind: str, jagged: bool) -> None:
    rows = data.draw(st.integers(0, 12))
    counts = np.array(data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows)), dtype=np.int64)
    entries = int(counts.sum()) if jagged else rows
    axes, values = zip(*[data.draw(filled_axis(entries)) for _ in range(data.draw(st.integers(1, 3)))], strict=True)
    weight = np.array(data.draw(st.lists(weights, min_size=rows, max_size=rows)), dtype=np.float64)
    spec = wr.hist(*[thing for n, one in enumerate(axes) for thing in (f"c{n}", one)], storage=kind)
    chosen = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    selection = Selection(rows, chosen) if data.draw(st.booleans()) else everything(rows)
    start, stop = sorted((data.draw(st.integers(0, selection.count)), data.draw(st.integers(0, selection.count))))

    mine = selection.positions()[start:stop]
    where = np.isin(np.repeat(np.arange(rows), counts), mine) if jagged else mine
    repeated = np.repeat(weight, counts) if jagged else weight
    extra = {} if kind == "Int64" else {"weight": repeated[where]}
    plain = Hist(*axes, storage=STORAGES[kind]()).fill(*[one[where] for one in values], **extra)

    columns = [ak.unflatten(one, counts) if jagged else one for one in values]
    bins = spec.bins(columns, everything(rows))
    assert bins is not None
    given_weight = None if kind == "Int64" else weight[selection.positions()]
    assert same(bins.of(selection).fill(given_weight, start, stop), plain)
    # Called as a function it fills the same.
    assert same(spec(*[one[mine] for one in columns], *([] if kind == "Int64" else [weight[mine]])), plain)


def analysis_of(variations: bool, form: str, kind: str) -> wr.Pipeline:
    """Return an analysis with a jagged and a flat histogram, written in one of two forms."""
    analysis = wr.Pipeline("two forms")
    analysis.weight(lambda g: g, name="gen")
    if variations:
        analysis.weight(lambda s: wr.updown(s, s * 1.5, -s), name="scale")
    analysis.cut(lambda a: a, name="first")
    analysis.cut(lambda b: b, name="second")
    analysis.column(lambda Jet: Jet[Jet.pt > 1], name="jets")
    analysis.region("A", "first")
    analysis.region("B", "first", "second")
    analysis.region("C", "first", "!second")
    pt, eta, met = axis.Regular(5, 0, 5), axis.Variable([-1, 0, 2]), axis.Regular(3, 0, 4, name="met")
    if form == "data":
        analysis.output(wr.hist("jets.pt", pt, "jets.eta", eta, met, storage=kind), name="jagged")
        analysis.output(wr.hist(met, storage=kind), name="flat", regions="[BC]", weights=["gen"])
        analysis.output(wr.hist("Jet.pt", pt, storage=kind), name="before_cuts", region=None)
        return analysis

    def fill(axes: list[Any], values: list[Any], weight: Any) -> Any:
        return Hist(*axes, storage=STORAGES[kind]()).fill(*values, **({} if kind == "Int64" else {"weight": weight}))

    def jagged(jets: Any, met_: Any, weight: Any) -> Any:
        count = ak.num(jets)
        values = [ak.flatten(jets.pt), ak.flatten(jets.eta), np.repeat(met_, count)]
        return fill([pt, eta, met], values, np.repeat(weight, count))

    def flat(met_: Any, weight: Any) -> Any:
        return fill([met], [met_], weight)

    def before_cuts(p: Any, weight: Any) -> Any:
        return fill([pt], [ak.flatten(p)], np.repeat(weight, ak.num(p)))

    if kind == "Int64":  # an output that takes a weight has variations
        analysis.output(lambda jets, met_: jagged(jets, met_, met_), name="jagged", reads={"met_": "met"})
        analysis.output(lambda met_: flat(met_, None), name="flat", regions="[BC]", reads=["met"])
        analysis.output(lambda p: before_cuts(p, np.ones(len(p))), name="before_cuts", region=None, reads=["Jet_pt"])
    else:
        analysis.output(jagged, reads={"met_": "met"})
        analysis.output(flat, regions="[BC]", weights=["gen"], reads=["met"])
        analysis.output(before_cuts, region=None, reads=["Jet_pt"])
    return analysis


@settings(max_examples=examples(40))
@given(st.data(), st.booleans(), st.sampled_from(list(STORAGES)))
def test_regions_and_variations_are_those_of_functions(data: st.DataObject, variations: bool, kind: str) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    borders = tuple(int(one) for one in np.concatenate(([0], np.cumsum(sizes))))
    rows = borders[-1]

    def column(of: Any, size: int = rows) -> Any:
        return np.array(data.draw(st.lists(of, min_size=size, max_size=size)), dtype=None if size else np.float64)

    counts = column(st.integers(0, 3))
    total = int(counts.sum())
    arrays = {
        "a": column(st.booleans()), "b": column(st.booleans()), "g": column(st.floats(-2, 2)),
        "s": column(st.floats(-2, 2)), "met": column(st.floats(-1, 6)),
        "Jet_pt": ak.unflatten(column(st.floats(0, 6), total), counts),
        "Jet_eta": ak.unflatten(column(st.floats(-2, 3), total), counts),
    }  # fmt: skip
    leaves = {
        form: [
            {key: value.value for key, value in leaf.outputs.items()}
            for _, leaf in sorted(
                chunk_run(analysis_of(variations, form, kind), arrays, borders).run().nodes.values.items()
            )
        ]
        for form in ("data", "function")
    }
    for mine, theirs in zip(leaves["data"], leaves["function"], strict=True):
        assert mine.keys() == theirs.keys()
        assert all(same(mine[key], theirs[key]) for key in mine)


def test_bins_are_found_once_for_all_regions_and_variations(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, called = [], []
    find, call = histogram.HistogramSpec.bins, histogram.HistogramSpec.__call__

    def noted_find(spec: Any, *given: Any) -> Any:
        asked.append(spec.columns)
        return find(spec, *given)

    def noted_call(spec: Any, *given: Any) -> Any:
        called.append(spec.columns)
        return call(spec, *given)

    monkeypatch.setattr(histogram.HistogramSpec, "bins", noted_find)
    monkeypatch.setattr(histogram.HistogramSpec, "__call__", noted_call)
    arrays = {
        "a": np.array([True, True, True, False]), "b": np.array([True, False, True, True]), "g": np.ones(4),
        "s": np.ones(4), "met": np.arange(4.0),
        "Jet_pt": ak.Array([[1.5], [], [2.0, 3.0], [4.0]]), "Jet_eta": ak.Array([[0.0], [], [1.0, 0.5], [0.0]]),
    }  # fmt: skip

    def look() -> None:
        asked.clear()
        called.clear()
        chunk_run(analysis_of(True, "data", "Weight"), arrays, (0, 2, 4)).run()

    look()
    assert asked == [("jets.pt", "jets.eta", "met"), ("Jet.pt",)]
    assert set(called) == {("met",)}  # one number for each row, in equal bins: there is nothing to share
    monkeypatch.setattr(histogram, "MOST_KEPT", 0)  # there is no room: each region for itself
    look()
    assert asked == [("jets.pt", "jets.eta", "met")] * 3 + [("Jet.pt",)]


def test_growing_axes_are_filled_as_by_a_function() -> None:
    analysis = wr.Pipeline("growing")
    analysis.output(wr.hist("word", axis.StrCategory([], growth=True)), name="words")
    arrays = {"word": ak.Array(["b", "a", "b", "c"])}
    (leaf,) = chunk_run(analysis, arrays, (0, 4)).run().nodes.values.values()
    found = leaf.outputs["words", "all", "nominal"].value
    assert list(found.axes[0]) == ["b", "a", "c"]
    assert found.values().tolist() == [2.0, 1.0, 1.0]


COLUMNS = {
    "x": np.array([0.5, 0.7]), "Jet_pt": ak.Array([[1.0], []]), "Mu_pt": ak.Array([[1.0], [2.0]]),
    "words": ak.Array(["a", "b"]), "missing": ak.Array([1.0, None]), "deep": ak.Array([[[1.0]], []]),
    "complex": np.array([1j, 2j]),
}  # fmt: skip
BINS = axis.Regular(3, 0, 1)


@pytest.mark.parametrize(
    ("what", "error", "said"),
    [
        (("xx", BINS), MissingColumnError, "reads the column 'xx'.*did you mean"),
        (("Jet.pq", BINS), StepError, "'Jet.pq' fills an axis: there is no such field"),
        (("Jet", BINS), StepError, "'Jet' fills an axis: it has one number or one list of numbers"),
        (("words", BINS), StepError, "could not convert string"),
        (("missing", BINS), StepError, "none missing, got 2 . .float64"),
        (("deep", BINS), StepError, "one list of numbers for each row"),
        (("complex", BINS), StepError, "got 2 . complex128"),
        (("x", axis.Integer(0, 3)), StepError, "Only integer arrays"),
        (("Jet.pt", BINS, "Mu.pt", BINS), StepError, "'Jet.pt' and 'Mu.pt' fill axes.*: 0 and 1 in row 1"),
    ],
)
def test_what_cannot_be_filled_is_named(what: tuple[Any, ...], error: type[Exception], said: str) -> None:
    analysis = wr.Pipeline("wrong")
    analysis.output(wr.hist(*what), name="spectrum")
    with pytest.raises(error, match=said) as caught:
        chunk_run(analysis, COLUMNS, (0, 2)).run()
    assert "output 'spectrum'" in str(caught.value)


@pytest.mark.parametrize("what", [(), ("x",), (BINS,), ("x", "y", BINS), (BINS, "x"), (3, BINS), ("x", BINS, 3)])
def test_every_axis_needs_what_fills_it(what: tuple[Any, ...]) -> None:
    with pytest.raises(DefinitionError, match=r"wr\.hist takes axes, each with a name or after the name"):
        wr.hist(*what)


def test_what_is_no_output_or_has_another_storage_is_refused() -> None:
    analysis = wr.Pipeline("wrong")
    with pytest.raises(DefinitionError, match="not Mean"):
        wr.hist("x", BINS, storage=storage.Mean())
    with pytest.raises(DefinitionError, match="is an output"):
        analysis.cut(wr.hist("x", BINS), name="cut")
    with pytest.raises(DefinitionError, match="says itself what it reads"):
        analysis.output(wr.hist("x", BINS), name="spectrum", reads={"x0": "y"})
    with pytest.raises(DefinitionError, match=r"wr\.hist.'x', Regular.* has no name of its own"):
        analysis.output(wr.hist("x", BINS))
