"""Counts, outputs, failures and meters of one chunk."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.blocks.calls import Meter
from windrow.blocks.chunk import Chunk, ChunkRun
from windrow.blocks.cutflow_counts import merge_counts
from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.errors import DataError, MergeError, RowPurityError, StepError, StepResultError
from windrow.pipeline.binding.bind import bind

if TYPE_CHECKING:
    from pathlib import Path


def chunk_run(analysis: wr.Pipeline, arrays: dict[str, Any], borders: tuple[int, ...], **options: Any) -> ChunkRun:
    reader = wr.data.open(arrays).open(0)
    definition = analysis.definition(0)
    program = bind(definition, "data", {}, reader.info, "file.root")
    chunk = Chunk(0, "file.root", 0, borders, borders)
    return ChunkRun(program, reader, chunk, definition.written, {}, **options)


def counting() -> wr.Pipeline:
    analysis = wr.Pipeline("counting")

    @analysis.output
    def count(x: Any) -> Any:
        return len(x)

    return analysis


# --- counts ---------------------------------------------------------------------------------------


def counts_by_unit(run: ChunkRun) -> list[dict[Any, Any]]:
    """Run a chunk of which no two units are siblings of the tree; return the counts of each as lists."""
    leaves = dict(sorted((k, leaf) for (level, k), leaf in run.run().nodes.values.items() if level == 0))
    return [{key: lines.tolist() for key, lines in leaf.counts.items()} for leaf in leaves.values()]


@given(st.data(), st.booleans())
def test_counts_are_those_of_each_unit(data: st.DataObject, weighted: bool) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    borders = np.concatenate(([0], np.cumsum(sizes)))
    length = int(borders[-1])
    bits = st.lists(st.booleans(), min_size=length, max_size=length).map(np.array)
    first, second, odd = data.draw(bits), data.draw(bits), data.draw(bits)
    numbers = np.arange(1.0, length + 1)
    analysis = counting()
    analysis.cut(lambda first: first, name="a")
    if weighted:
        analysis.weight(lambda x: x, name="w")
    analysis.cut(lambda second, odd: ak.mask(second, ~odd), name="b")
    arrays = {"x": numbers, "first": first, "second": second, "odd": odd}
    for start, stop in itertools.pairwise(borders.tolist()):
        (found,) = counts_by_unit(chunk_run(analysis, arrays, (start, stop)))
        here = slice(start, stop)
        entered, passed = first[here], first[here] & second[here] & ~odd[here]
        values = numbers[here][passed] if weighted else np.ones(int(passed.sum()))
        order = next(order for order, _ in found if order)
        end = [stop - start, passed.sum(), 0, 0, values.sum(), (values * values).sum()]
        assert found[(), "all"][1] == end
        assert found[order, "all"][2] == [entered.sum(), passed.sum(), (entered & odd[here]).sum(), 0, *end[4:]]
        assert found[order, "all"][1][:2] == [stop - start, entered.sum()]


def test_counts_keep_regions_apart_and_their_lines_in_the_order_that_runs() -> None:
    analysis = counting()
    analysis.cut(lambda x: x > 0, name="a")
    analysis.cut(lambda x: x > 1, name="b")
    analysis.cut(lambda x: x > 2, name="unused")
    analysis.region("one", "b")
    analysis.region("two", "a", "!b")
    analysis.region("all")
    run = chunk_run(analysis, {"x": np.arange(3.0)}, (0, 3))
    moved = run.again(("b", "a", "unused"), run.rows)
    (found,) = counts_by_unit(moved)
    passed = {key: [line[1] for line in lines] for key, lines in found.items()}
    order = ("b", "a", "unused")
    assert passed == {
        (order, "one"): [3, 1], (order, "two"): [3, 2, 1], (order, "all"): [3],
        ((), "one"): [3, 1], ((), "two"): [3, 1], ((), "all"): [3, 3],
    }  # fmt: skip


def test_counts_add_up_by_order_and_lane_and_stay_as_they_are() -> None:
    one: Any = {(("a",), "SR"): np.ones((2, 6))}
    both = merge_counts(one, {**one, ((), "SR"): np.full((2, 6), 3.0)})
    assert {key: int(lines[0, 0]) for key, lines in both.items()} == {(("a",), "SR"): 2, ((), "SR"): 3}
    assert (one[("a",), "SR"] == 1).all()


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cut", "column", "weight"])
@given(bad=st.integers(0, 39))
def test_the_row_that_fails_is_found(kind: str, bad: int) -> None:
    analysis = wr.Pipeline("failing")

    def step(x: Any) -> Any:
        if (x == 100 + bad).any():
            raise ValueError("bad number\n\nand a page about it")
        return x > 0 if kind == "cut" else x

    getattr(analysis, kind)(step)
    analysis.output(lambda x, weight: float(weight.sum()), name="total")
    if kind == "column":
        analysis.output(lambda step: len(step), name="uses")
    run = chunk_run(analysis, {"x": np.arange(100, 140)}, (3, 10, 40))
    if bad < 3:
        run.run()
        return
    with pytest.raises(StepError, match=r"raised ValueError: bad number \[file.root, row \d+;") as e:
        run.run()
    assert e.value.facts == {
        "step": "step", "file": "file.root", "start": bad, "stop": bad + 1, "region": "all",
    }  # fmt: skip
    assert isinstance(e.value.__cause__, ValueError)


def test_a_step_that_fails_on_rows_together_names_them_all() -> None:
    analysis = counting()

    @analysis.cut
    def together(x: Any) -> Any:
        if len(x) == 8:
            raise RuntimeError
        return x > 0

    with pytest.raises(StepError, match=r"raised RuntimeError: \(no message\).*rows 0-8") as e:
        chunk_run(analysis, {"x": np.arange(8.0)}, (0, 8)).run()
    assert (e.value.facts["start"], e.value.facts["stop"]) == (0, 8)


def test_only_the_regions_the_row_is_in_are_named() -> None:
    analysis = counting()
    analysis.cut(lambda x: x < 4, name="low")

    @analysis.column
    def inverse(x: Any) -> Any:
        return [1 // v for v in x.astype(int).tolist()]

    analysis.output(lambda inverse: len(inverse), name="uses")
    analysis.region("below", "low")
    analysis.region("above", "!low")
    values = np.arange(1.0, 9)
    values[6] = 0  # in "below"
    with pytest.raises(StepError, match="ZeroDivisionError") as e:
        chunk_run(analysis, {"x": values}, (0, 8)).run()
    assert e.value.facts["start"] == 6
    assert e.value.facts["region"] == "below"


def test_a_row_is_found_in_a_jagged_collection() -> None:
    analysis = counting()

    @analysis.cut
    def second(Muon: Any) -> Any:
        return Muon.pt[:, 1] > 0

    lists = ak.Array([[1.0, 2.0]] * 5 + [[1.0]] + [[3.0, 4.0]] * 5)
    arrays = {"x": np.zeros(11), "Muon_pt": lists}
    with pytest.raises(StepError, match="row 5") as e:
        chunk_run(analysis, arrays, (0, 4, 11)).run()
    assert e.value.facts["start"] == 5
    assert "\n" not in str(e.value)


def test_wrong_results_keep_their_kind_and_get_a_place() -> None:
    analysis = counting()
    analysis.cut(lambda x: x, name="c")
    with pytest.raises(StepResultError, match=r"must return booleans.*\[file.root, rows 0-4\]"):
        chunk_run(analysis, {"x": np.arange(4.0)}, (0, 4)).run()


def test_a_step_that_looks_at_other_rows_is_named_with_a_row() -> None:
    analysis = counting()
    analysis.cut(lambda x: x > x.mean(), name="c")
    with pytest.raises(RowPurityError, match="cut 'c' is not a function of its own row"):
        chunk_run(analysis, {"x": np.arange(9.0)}, (0, 9)).run()


def test_a_read_that_fails_inside_a_users_function_is_the_files_fault() -> None:
    analysis = counting()

    @analysis.cut
    def touching(Muon: Any) -> Any:
        return ak.num(Muon.pt) > 0

    run = chunk_run(analysis, {"x": np.zeros(2), "Muon_pt": [[1.0], []]}, (0, 2))

    def broken(columns: Any, start: int, stop: int) -> Any:
        raise ValueError("checksum")

    run.store.reader.read = broken  # type: ignore[method-assign]
    with pytest.raises(DataError, match=r"file.root could not be read: ValueError: checksum"):
        run.run()


# --- columns that each=True steps may read ---------------------------------------------------------


def total_of(make: Any) -> list[bool]:
    """Sum the lists of a made column in a row function; return which rows are above one."""
    analysis = wr.Pipeline("each")
    analysis.column(make, name="lists")

    @analysis.cut(each=True)
    def above(lists: Any) -> Any:
        total = 0.0
        for value in lists:
            total += value
        return total > 1

    analysis.output(lambda x: x.tolist(), name="rows")
    (leaf,) = chunk_run(analysis, {"x": np.arange(4.0)}, (0, 4)).run().nodes.values.values()
    (value,) = leaf.outputs.values()
    return value.value  # type: ignore[no-any-return]


LISTS: dict[str, Any] = {
    "lists": lambda x: ak.Array([[v, v] for v in x]),
    "lists of one length": lambda x: ak.to_regular(ak.Array([[v, v] for v in x])),
    "matrix": lambda x: np.stack([x, x], axis=1),
    "lists that might be None": lambda x: ak.mask(ak.Array([[v, v] for v in x]), x >= 0),
    "numbers that might be None": lambda x: ak.mask((lists := ak.Array([[v, v] for v in x])), lists >= 0),
}


@pytest.mark.parametrize("name", LISTS)
def test_row_functions_take_lists_in_any_form(name: str) -> None:
    assert total_of(LISTS[name]) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda x: ak.mask(ak.Array([[v] for v in x]), x > 1),
        lambda x: ak.Array([[v, None] for v in x]),
        lambda x: ak.Array([[[v]] for v in x]),
        lambda x: ak.Array([[{"pt": v}] for v in x]),
    ],
)
def test_row_functions_refuse_what_is_no_number(make: Any) -> None:
    with pytest.raises(StepError, match="each=True takes numbers or lists of numbers") as caught:
        total_of(make)
    assert caught.value.facts["step"] == "above"


# --- outputs --------------------------------------------------------------------------------------


def leaf(**values: Any) -> Leaf:
    return Leaf({(name, None, "nominal"): Value(value, None) for name, value in values.items()}, {})


def test_leaves_merge_key_by_key_and_stay_as_they_are() -> None:
    one, two = leaf(a=1, b=[1]), leaf(a=2, c={3})
    merged = merge_leaves(one, two)
    assert {key[0]: value.value for key, value in merged.outputs.items()} == {
        "a": 3, "b": [1], "c": {3},
    }  # fmt: skip
    assert {key[0]: value.value for key, value in one.outputs.items()} == {"a": 1, "b": [1]}


def test_merge_of_the_user_is_used_and_its_errors_name_the_output() -> None:
    key = ("o", "SR", "nominal")

    def larger(a: Any, b: Any) -> Any:
        return max(a, b)

    merged = merge_leaves(Leaf({key: Value(3, larger)}, {}), Leaf({key: Value(2, larger)}, {}))
    assert merged.outputs[key].value == 3
    with pytest.raises(MergeError, match="output 'o' \\(region 'SR'\\) cannot be merged") as caught:
        merge_leaves(Leaf({key: Value(3, larger)}, {}), Leaf({key: Value("x", larger)}, {}))
    assert caught.value.facts["step"] == "o"


@pytest.mark.parametrize("value", [None, (1, 2), "text"])
def test_outputs_that_cannot_be_merged_are_refused_on_the_first_unit(value: Any) -> None:
    analysis = wr.Pipeline("bad")
    analysis.output(lambda x: value, name="o")
    with pytest.raises(MergeError, match=r"output 'o' .*cannot be merged"):
        chunk_run(analysis, {"x": np.zeros(2)}, (0, 2)).run()


def test_outputs_are_evaluated_once_per_unit_that_has_rows() -> None:
    analysis = wr.Pipeline("units")
    seen: list[list[float]] = []

    @analysis.output
    def values(x: Any) -> Any:
        seen.append(x.tolist())
        return x.tolist()

    analysis.cut(lambda x: (x < 2) | (x > 3), name="c")
    partial = chunk_run(analysis, {"x": np.arange(6.0)}, (0, 2, 4, 6)).run()
    assert seen == [[0.0, 1.0], [4.0, 5.0]]
    assert set(partial.nodes.values) == {(1, 0), (0, 2)}


def test_blocks_of_any_size_give_the_same_leaves() -> None:
    analysis = counting()
    analysis.cut(lambda x: ak.mask(ak.Array(x > 2), x != 5), name="c")
    analysis.weight(lambda x: wr.updown(x, x + 1, x - 1), name="w")
    analysis.output(lambda x, weight: float((x * weight).sum()), name="total")
    found = []
    for size in (None, 1, 2, 100):
        run = chunk_run(analysis, {"x": np.arange(9.0)}, (0, 4, 9), force_rows=size)
        (node,) = run.run().nodes.values.values()
        outputs = {key: value.value for key, value in node.outputs.items()}
        found.append((outputs, [lines.tolist() for (order, _), lines in node.counts.items() if order]))
    assert all(one == found[0] for one in found)
    assert found[0][0]["total", "all", "w_up"] > found[0][0]["total", "all", "nominal"]
    assert found[0][1][0][1][:4] == [9, 5, 1, 0]


# --- meter ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 10)), max_size=8))
def test_a_meter_sums_what_a_fit_needs(calls: list[tuple[int, float]]) -> None:
    meter = Meter()
    for rows, seconds in calls:
        meter.call(rows, seconds)
    meter.rows_out, meter.bytes_read = 5, 7
    cost = meter.cost()
    assert cost.calls == len(calls)
    assert cost.rows_in == sum(rows for rows, _ in calls)
    assert cost.wall == pytest.approx(sum(seconds for _, seconds in calls))
    assert cost.rows_squared == sum(rows * rows for rows, _ in calls)
    assert cost.rows_wall == pytest.approx(sum(rows * seconds for rows, seconds in calls))
    assert (cost.rows_out, cost.bytes_read) == (5, 7)


def test_every_byte_that_is_read_is_charged_to_a_step_or_an_output(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    table = pa.table({name: random.random(6_000) for name in "abcdef"})
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=2_000)
    analysis = wr.Pipeline("bytes")
    analysis.cut(lambda a: a > 0.2, name="some")
    analysis.column(lambda b: b * 2, name="twice")
    analysis.region("R", "some")
    analysis.region("S", "!some")
    analysis.output(lambda twice, c: float((twice * c).sum()), name="first")
    analysis.output(lambda c, d: float((c * d).sum()), name="second")
    analysis.output(lambda d, e: float((d * e).sum()), name="third", region=None)
    reader = wr.data.open(str(tmp_path / "p.parquet"), grid=2_000).open(0)
    definition = analysis.definition(0)
    program = bind(definition, "data", {}, reader.info, "file")
    borders = reader.info.borders
    before = reader.bytes_read
    run = ChunkRun(program, reader, Chunk(0, "file", 0, borders, borders), definition.written, {})
    run.run()
    charged = {name: meter.bytes_read for name, meter in run.meters.items()}
    assert sum(charged.values()) == reader.bytes_read - before > 0
    assert charged["first"] > 0
    assert charged["third"] > 0
    assert run.meters["third"].read_s > 0
