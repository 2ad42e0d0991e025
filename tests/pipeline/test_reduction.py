"""Results added up as they come: any split, any order, put aside or not, the bits are those of one worker."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hist
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from comparing import bits
from description import Dataset, File, MemorySource
from searching import examples
from windrow.blocks.chunk import Partial
from windrow.blocks.outputs import Leaf, Value, merge_leaves
from windrow.blocks.selection import RowSet
from windrow.blocks.tree import Nodes, collapse, grow
from windrow.core.ledger import Ledger, join_rows
from windrow.core.records import Failure, FailureKind, Handle, Rows, Window
from windrow.errors import SaveError, StepError
from windrow.pipeline.run import reduction
from windrow.pipeline.run.partials import UnitedPartial, unite_inputs, with_own_memory
from windrow.pipeline.run.reduction import HeldLeaves, ReducingCollector
from windrow.shape import reduce
from windrow.shape.safety import Bounded
from windrow.store import spill

KEY = ("sum", None, "nominal")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Have hardly any room in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "SMALL_BYTES", size)
        yield


def leaf_of(seed: int) -> Leaf:
    value = np.random.default_rng(seed).normal(size=4) * 10.0 ** (seed % 9)
    return Leaf({KEY: Value(value, None)}, {})


class Driver:
    """A collector with inputs of some units each, of ten rows."""

    def __init__(self, units: list[int]) -> None:
        inputs = [SimpleNamespace(index=number, dataset="d") for number in range(len(units))]
        self.units, self.ledger = units, Ledger()
        borders = {number: tuple(range(0, 10 * count + 1, 10)) for number, count in enumerate(units)}
        for number, count in enumerate(units):
            self.ledger.expect(number, [(0, 10 * count)])
        step: Any = SimpleNamespace(merge=None)
        workload: Any = SimpleNamespace(
            source=SimpleNamespace(datasets={"d": {}}, inputs=inputs), facts=SimpleNamespace(borders=borders),
            definition=SimpleNamespace(steps={"sum": step}),
        )  # fmt: skip
        self.collector = ReducingCollector(workload, self.ledger)
        self.most = 0

    def give(self, *pieces: tuple[int, int, int]) -> None:
        """Bring pieces, each some units of an input; several are made one by their worker first."""
        partials, held = [], dict.fromkeys(range(len(self.units)), 0)
        for number, first, last in pieces:
            partial = Partial(number)
            for unit in range(first, last):
                grow(partial.nodes, (0, unit), leaf_of(100 * number + unit), merge_leaves)
            partials.append(partial)
            held[number] += last - first
        rows = join_rows(Rows(number, 10 * first, 10 * last) for number, first, last in pieces)
        if len(pieces) > 1:
            whole = {number: (number, count) for number, count in enumerate(self.units) if held[number] == count}
            partials = [unite_inputs(partials, whole)]
        name = str(pieces[0])
        assert self.ledger.accept(name, rows)
        self.ledger.settle(name)
        self.collector.add(Handle(name, 0), partials[0], rows)
        self.most = max(self.most, self.collector.leaves.bytes)

    def answer(self) -> list[float] | None:
        self.collector.partials()
        leaf = self.collector.sums.total("d")
        return leaf.outputs[KEY].value.tolist() if leaf.outputs else None


def expected(units: list[int], there: set[tuple[int, int]]) -> list[float] | None:
    whole: Nodes[Leaf] = Nodes()
    for number, count in enumerate(units):
        nodes: Nodes[Leaf] = Nodes()
        nodes.values = {(0, unit): leaf_of(100 * number + unit) for unit in range(count) if (number, unit) in there}
        leaf = collapse(nodes, count, merge_leaves)
        if leaf is not None:
            whole.values[0, number] = leaf
    leaf = collapse(whole, len(units), merge_leaves)
    return None if leaf is None else leaf.outputs[KEY].value.tolist()


@given(data=st.data(), units=st.lists(st.integers(1, 7), min_size=1, max_size=9), size=st.sampled_from([0, 100, 10**6]))
def test_any_split_in_any_order_put_aside_or_not_has_the_bits_of_the_tree(
    data: st.DataObject, units: list[int], size: int
) -> None:
    pieces = []
    for number, count in enumerate(units):
        cuts = sorted({0, count, *data.draw(st.lists(st.integers(0, count), max_size=3))})
        pieces += [(number, first, last) for first, last in itertools.pairwise(cuts)]
    pieces = data.draw(st.permutations(pieces))
    given_up = data.draw(st.integers(0, 2))  # of a run that was stopped
    pieces = pieces[: len(pieces) - given_up]
    there = {(number, unit) for number, first, last in pieces for unit in range(first, last)}
    worker_of = data.draw(st.lists(st.integers(0, 2), min_size=len(pieces), max_size=len(pieces)))
    bundles: list[
        list[tuple[int, int, int]]
    ] = []  # of a worker and a family of four inputs, each begun anew now and then
    for piece, worker in zip(pieces, worker_of, strict=True):
        same = [one for one in bundles[-4:] if one[0][0] // 4 == piece[0] // 4 and worker]
        same[0].append(piece) if same else bundles.append([piece])
    with room_for(size):
        driver = Driver(units)
        for several in bundles:
            driver.give(*several)
            assert driver.collector.leaves.bytes <= max(size, reduce.IN_MEMORY * 32)
        assert driver.answer() == expected(units, there)
    assert driver.collector.leaves.bytes == 0
    assert not (driver.collector.leaves.times and size == 10**6)


def test_inputs_that_come_in_order_leave_a_logarithm_of_them() -> None:
    driver = Driver([3] * 64)
    for number in range(63):
        driver.give((number, 0, 3))
        tree = driver.collector.sums._trees["d"].values
        assert len(tree) == (number + 1).bit_count()
    assert driver.most <= 7 * 32


def test_what_failed_is_passed_over_and_its_input_is_complete() -> None:
    driver = Driver([4, 1])
    driver.ledger.fail(Rows(0, 10, 20), Failure(FailureKind.USER, "E", "", "", None))
    for first, last in ((0, 1), (2, 4)):
        driver.give((0, first, last))
    assert list(driver.collector.sums._trees["d"].values) == [(0, 0)]
    assert driver.answer() == expected([4, 1], {(0, 0), (0, 2), (0, 3)})


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def full(handle: int, piece: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(spill, "write_all", full)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with room_for(0):
        driver = Driver([1] * 8)
        driver.give((0, 0, 1))
        driver.give((2, 0, 1))
        named = rf"cannot be put aside in {tmp_path}: No space left on device; have TMPDIR"
        with pytest.raises(SaveError, match=named):
            driver.give((4, 0, 1))


def test_what_is_put_aside_has_no_name_and_comes_back_as_it_was(tmp_path: Any) -> None:
    thing = {"a": np.arange(100_000.0), "b": hist.Hist.new.Reg(10, 0, 1).Weight().fill([0.5]), "empty": np.zeros(0)}
    aside = spill.SpillFile(str(tmp_path)).put(spill.pieces_of(thing))
    assert not list(tmp_path.iterdir())
    again = aside.read()
    assert again["a"].tolist() == thing["a"].tolist()
    assert again["b"] == thing["b"]
    again["a"][0] = 7.0  # it can be written to
    assert aside.read()["a"][0] == 0.0


def test_what_is_needed_last_is_put_aside_first() -> None:
    leaves = HeldLeaves({})
    held = [leaves.hold(leaf_of(seed), level) for seed, level in enumerate((0, 2, 1, 2, 0, float("inf")))]
    with room_for(0):
        leaves.trim()
    assert [type(one.what) is spill.Aside for one in held] == [False, True, True, True, False, True]
    leaves.hold(leaf_of(7), 0)
    with room_for(0):
        leaves.trim()
    assert [type(one.what) is spill.Aside for one in held] == [True, True, True, True, False, True]
    assert leaves.look(held[1]).outputs[KEY].value.tolist() == leaf_of(1).outputs[KEY].value.tolist()
    assert type(held[1].what) is spill.Aside
    assert (leaves.times, leaves.bytes) == (5, 64)


def test_room_on_disk_is_used_again_and_one_file_is_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    spilled = spill.SpillFile(str(tmp_path))

    def put(number: int) -> spill.Aside:
        return spilled.put(spill.pieces_of(np.full(1000, number)))

    asides = [put(number) for number in range(100)]
    assert spilled.stream is not None
    size = os.fstat(spilled.stream.fileno()).st_size
    for number in range(0, 100, 3):
        asides[number] = put(0)  # while the one before is there
        asides[number] = put(-number)
    assert [int(aside.read()[999]) for aside in asides] == [n if n % 3 else -n for n in range(100)]
    assert os.fstat(spilled.stream.fileno()).st_size < 1.03 * size
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1


def test_what_is_read_keeps_no_more_memory_than_it_has(tmp_path: Path) -> None:
    aside = spill.SpillFile(str(tmp_path)).put(spill.pieces_of({"large": np.zeros(10_000), "small": np.zeros(1)}))
    small = aside.read()["small"]
    while isinstance(small, np.ndarray) and small.base is not None:
        small = small.base
    assert memoryview(small).nbytes == 8


# --- real runs ------------------------------------------------------------------------------------


def files(count: int, rows: int = 600) -> MemorySource:
    found = []
    for number in range(count):
        rng = np.random.default_rng(number)
        columns = {"x": rng.normal(size=rows) * 10.0 ** rng.integers(-6, 6, rows), "k": rng.permutation(rows) % 9}
        found.append(File(label=f"file {number}", columns=columns, borders=(*range(0, rows, 100), rows)))
    cut = count // 3
    return MemorySource([Dataset(name="a", files=tuple(found[:cut])), Dataset(name="b", files=tuple(found[cut:]))])


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("sums")

    @made.cut
    def some(x: Any) -> Any:
        return x > -1

    made.region("A", "some")

    @made.output
    def payload(x: Any) -> Any:
        bins = np.zeros((5, 378))
        np.add.at(bins, np.arange(len(x)) % 5, np.outer(x, np.linspace(0.1, 1.7, 378)))
        return bins

    @made.output
    def words(x: Any, k: Any) -> Any:
        axis = hist.axis.StrCategory([], growth=True, name="word")
        return hist.Hist(axis, storage=hist.storage.Weight()).fill([f"w{n}" for n in k], weight=x)

    @made.output
    def means(x: Any, k: Any) -> Any:
        axis = hist.axis.IntCategory([], growth=True, name="number")
        return hist.Hist(axis, storage=hist.storage.Mean()).fill(k, sample=x)

    @made.output(merge=lambda left, right: left + right)
    def own(x: Any) -> Any:
        return np.array([float(x.sum()), 1.0])

    return made


def content(result: Any) -> Any:
    return {
        (name, dataset): bits(result[name, "A", dataset])
        for name in ("payload", "words", "means", "own")
        for dataset in ("a", "b")
    }  # fmt: skip


@pytest.fixture(scope="module")
def alone() -> Any:
    return content(analysis().run(files(7), engine="inline", workers=1, progress=False))


@pytest.mark.parametrize("engine", ["inline", "threads"])
@pytest.mark.parametrize("chunk", [100, 300, 1500])
def test_a_run_with_hardly_any_memory_has_the_same_bits_and_says_so(alone: Any, engine: str, chunk: int) -> None:
    with room_for(0):
        tight = analysis().run(files(7), engine=engine, workers=3, chunk=chunk, progress=False)
    assert content(tight) == alone
    assert tight.complete
    assert [said for said in tight.decisions if "were put aside in" in said]


@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_the_file_at_fault_is_named_where_a_task_has_several(engine: str, on_error: str) -> None:
    source = files(40)
    at_fault = source.open(33).read(["x"], 333, 334)["x"][0]
    made = wr.Pipeline("bad")

    @made.output
    def total(x: Any) -> Any:
        if (x == at_fault).any():
            raise ValueError("no good")
        return float(x.sum())

    options: Any = {"engine": engine, "workers": 2, "chunk": 5000, "progress": False}
    if on_error == "stop":
        with pytest.raises(StepError, match=r"no good \[file 33, "):
            made.run(source, **options)
        return
    result = made.run(source, on_error="skip", **options)
    assert [(line.dataset, line.file, line.start, line.stop) for line in result.ledger.problems] == [
        ("b", "file 33", 333, 334)
    ]
    assert result.ledger.done == 40 * 600 - 1


def test_what_fits_is_not_put_aside(alone: Any) -> None:
    result = analysis().run(files(7), engine="threads", workers=3, progress=False)
    assert content(result) == alone
    assert not [said for said in result.decisions if said.startswith("reduction")]


@settings(max_examples=examples(5))
@given(workers=st.integers(1, 4), chunk=st.integers(60, 400), most=st.sampled_from([None, 250, 900]))
def test_categories_that_grow_in_other_orders_add_up_the_same(workers: int, chunk: int, most: int | None) -> None:
    """The first file decides how the axis begins, whoever is first with which rows."""
    plain = content(analysis().run(files(5, 300), engine="inline", workers=1, max_rows=most, progress=False))
    with room_for(0):
        split = analysis().run(
            files(5, 300), engine="threads", workers=workers, chunk=chunk, max_rows=most, progress=False
        )
    assert content(split) == plain
    words = split["words", "A", "b"]
    assert len(words.axes[0]) == 9
    summed = sum(float(words[name].value) for name in words.axes[0])
    assert np.isclose(summed, float(split["own", "A", "b"][0]), rtol=1e-9)


def test_values_that_cannot_be_pickled_stay_in_memory() -> None:
    class Local:  # found by no name
        def __init__(self, numbers: list[float]) -> None:
            self.numbers = numbers

        def __add__(self, other: Local) -> Local:
            return Local([*self.numbers, *other.numbers])

    made = wr.Pipeline("local")

    @made.output
    def all_of(x: Any) -> Any:
        return Local(x.tolist())

    with room_for(0):
        result = made.run(files(7), engine="threads", workers=2, progress=False)
    assert len(result["all_of", "b"].numbers) == 5 * 600
    assert not [said for said in result.decisions if said.startswith("reduction")]


@pytest.mark.slow
def test_processes_add_up_neighbouring_inputs_with_the_same_bits() -> None:
    whole = content(analysis().run(files(24), engine="inline", workers=1, progress=False))
    for chunk in (200, 600, 2000):
        result = analysis().run(files(24), engine="processes", workers=2, chunk=chunk, progress=False)
        assert content(result) == whole
        assert result.complete


# --- runs that are written down, or looked at -------------------------------------------------------


class Big:
    """A large result."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = numbers

    def __add__(self, other: Big) -> Big:
        return Big(self.numbers + other.numbers)


@contextmanager
def few() -> Iterator[None]:
    """Have hardly any room, and few large results of those that the driver had in its hands in memory at a time."""
    hold, look = HeldLeaves.hold, HeldLeaves.look
    alive: weakref.WeakSet[Big] = weakref.WeakSet()
    most = 0

    def seen(leaf: Leaf) -> Leaf:
        nonlocal most
        for value in leaf.outputs.values():
            if isinstance(value.value, Big):
                alive.add(value.value)
        most = max(most, len(alive))
        return leaf

    with pytest.MonkeyPatch.context() as patch, room_for(0):
        patch.setattr(Bounded, "due", lambda *_: True)  # every chunk is brought at once
        patch.setattr(HeldLeaves, "hold", lambda self, leaf, level: hold(self, seen(leaf), level))
        patch.setattr(HeldLeaves, "look", lambda self, held: seen(look(self, held)))
        yield
    # Two that stay, three nodes of an input and what they come to, two that are added.
    assert 2 < most <= 8


def analysis_of_large(wait: Any = None) -> wr.Pipeline:
    made = wr.Pipeline("large")

    @made.cut(version="1")
    def some(x: Any) -> Any:
        if wait is not None:
            wait(x)
        return x > -1

    made.region("A", "some")

    @made.output(version="1")
    def payload(x: Any) -> Any:
        return Big(np.outer(x, np.linspace(0.1, 1.7, 50)).sum(axis=0))

    def added(left: Any, right: Any) -> Any:
        left += right  # in place
        return left

    @made.output(merge=added, version="1")
    def own(x: Any) -> Any:
        return np.array([float(x.sum()), len(x)])

    return made


def of_large(result: Any) -> Any:
    found = {dataset: (result["payload", "A", dataset].numbers, result["own", "A", dataset]) for dataset in ("a", "b")}
    return bits({name: list(values) for name, values in found.items()}), result.cutflow.as_dict()


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    directory = tmp_path_factory.mktemp("tables")
    paths = []
    for number in range(24):
        rng = np.random.default_rng(number)
        paths.append(str(directory / f"{number}.parquet"))
        pq.write_table(
            pa.table({"x": rng.normal(size=500) * 10.0 ** rng.integers(-6, 6, 500)}), paths[-1], row_group_size=100
        )
    return {"a": paths[:8], "b": paths[8:]}


def opened(tables: dict[str, list[str]]) -> Any:
    return wr.data.open(tables, grid=100)


@pytest.fixture(scope="module")
def whole(tables: dict[str, list[str]]) -> Any:
    return of_large(analysis_of_large().run(opened(tables), engine="inline", workers=1, progress=False))


@pytest.mark.parametrize("engine", ["inline", "threads"])
@pytest.mark.parametrize("chunk", [100, 500])
def test_a_run_that_is_written_down_has_few_large_results_in_memory(
    engine: str, chunk: int, tables: Any, whole: Any, tmp_path: Path
) -> None:
    options: Any = {"engine": engine, "workers": 2, "chunk": chunk, "progress": False, "rundir": tmp_path / "run"}
    part = {name: paths[:5] for name, paths in tables.items()}
    with few():
        analysis_of_large().run(opened(part), **options)
    with few():
        more = analysis_of_large().run(opened(tables), resume=True, **options)
    assert more.steps["payload"].rows_in < 24 * 500
    assert of_large(more) == whole
    del more
    with few():
        again = analysis_of_large().run(opened(tables), resume=True, **options)
    assert "payload" not in again.steps or not again.steps["payload"].calls
    assert of_large(again) == whole
    assert not again.notes


@pytest.mark.parametrize("merges", [1, 3, 9])
def test_what_a_ctrl_c_finds_half_changed_is_done_again(
    merges: int, tables: Any, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = merges

    def interrupted(*leaves: Leaf) -> Leaf:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return merge_leaves(*leaves)

    options: Any = {"engine": "inline", "workers": 1, "chunk": 100, "progress": False, "rundir": tmp_path / "run"}
    with monkeypatch.context() as patch:
        patch.setattr(reduction, "merge_leaves", interrupted)
        patch.setattr(Bounded, "due", lambda *_: True)  # so that all are merged at the driver
        with pytest.raises(KeyboardInterrupt):
            analysis_of_large().run(opened(tables), **options)
    result = analysis_of_large().run(opened(tables), resume=True, **options)
    assert of_large(result) == whole
    assert result.complete


@pytest.mark.parametrize("written", [True, False])
def test_what_is_asked_for_on_the_way_is_right_and_changes_nothing(
    written: bool, tables: Any, whole: Any, tmp_path: Path
) -> None:
    last, asked = threading.Event(), threading.Event()
    final = pq.read_table(tables["b"][-1])["x"].to_numpy()[-1]

    def wait(x: Any) -> None:
        if final in np.asarray(x):
            last.set()
            assert asked.wait(60)

    more: Any = {"rundir": tmp_path / "run"} if written else {}
    with few():
        run = analysis_of_large(wait).start(
            opened(tables), engine="threads", workers=1, chunk=100, progress=False, order="written", **more
        )
        with run:
            assert last.wait(60)
            for _ in range(3):
                result = run.result()
                done = [one for one in result.ledger.entries if one.state == "done"]
                parts = [pq.read_table(one.file)["x"].to_numpy()[one.start : one.stop] for one in done]
                x = np.concatenate(parts)
                sums = sum(result["own", "A", dataset] for dataset in ("a", "b"))
                assert np.allclose(sums, [x[x > -1].sum(), (x > -1).sum()])
                del result
            asked.set()
            run.wait()
            final_one = run.result()
    assert of_large(final_one) == whole


def test_a_stream_has_few_large_results_in_memory(tables: Any) -> None:
    columns = np.concatenate([pq.read_table(path)["x"].to_numpy() for path in tables["a"]])
    plain = analysis_of_large().run({"x": columns}, engine="inline", workers=1, progress=False)
    batches = ({"x": part} for part in np.split(columns, 40))
    with few():
        result = analysis_of_large().run(
            wr.data.stream(batches, batch=100), engine="threads", workers=2, progress=False
        )
    assert np.allclose(result["payload"].numbers, plain["payload"].numbers)
    assert [said for said in result.decisions if "were put aside in" in said]


def test_what_cannot_be_pickled_stays_in_memory_where_a_run_is_written_down_too(tables: Any, tmp_path: Path) -> None:
    class Local:
        def __init__(self, numbers: list[float]) -> None:
            self.numbers = np.array(numbers)

        def __add__(self, other: Local) -> Local:
            return Local([*self.numbers, *other.numbers])

    made = wr.Pipeline("local")

    @made.output
    def all_of(x: Any) -> Any:
        return Local(x.tolist())

    with room_for(0):
        result = made.run(
            opened(tables), engine="threads", workers=2, chunk=100, progress=False, rundir=tmp_path / "run"
        )
    assert len(result["all_of", "b"].numbers) == 16 * 500
    assert not [said for said in result.decisions if said.startswith("reduction")]
    assert any("this run was not written down" in note for note in result.notes)


PROGRAM = """
import resource, sys
import numpy as np, windrow as wr

BINS = 40_000  # of 378 coefficients: 121 MB

def main():
    analysis = wr.Pipeline("large")

    @analysis.output
    def payload(x):
        bins = np.zeros((BINS, 378))
        np.add.at(bins, (np.arange(len(x)) * 37) % BINS, np.outer(x, np.linspace(0.1, 1.7, 378)))
        return bins

    more = {"rundir": sys.argv[1], "resume": True} if sys.argv[1] else {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = analysis.run(sys.argv[2:], engine="processes", workers=2, progress=False, **more)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print((peak - before) / (BINS * 378 * 8))
    print(repr(float(result["payload"].sum())))
    print(*result.decisions, sep="\\n")

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("written", [False, True])
def test_large_results_of_many_files_take_the_driver_the_memory_of_a_few(written: bool, tmp_path: Path) -> None:
    paths, total = [], 0.0
    for number in range(10):
        x = np.random.default_rng(number).integers(1, 100, 1000)
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"x": x}), paths[-1])
        total += float(x.sum()) * np.linspace(0.1, 1.7, 378).sum()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    directory = tmp_path / "run" if written else ""
    for again in [False, True][: 1 + written]:
        command = [sys.executable, program, directory, *paths]
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        results, found, *decisions = ran.stdout.splitlines()
        assert float(results) < 6  # two that wait, two that are added, their sum
        assert np.isclose(float(found), total, rtol=1e-9)
        assert any("were put aside in" in said for said in decisions)
        assert any("nothing has to be run" in said for said in decisions) == again


def test_small_arrays_that_came_along_do_not_keep_the_memory_of_large_ones() -> None:
    arrived = np.zeros(100_000, dtype=np.uint8)
    rows = RowSet(0, 80, True, arrived[10:20])
    own = with_own_memory(rows)
    assert own.data.base is None
    assert own.data.tolist() == rows.data.tolist()
    assert with_own_memory(own) is own
    counts = np.zeros((1, 1), dtype=np.int64)
    window = Window(0, 0, 8, 0, 8, ("cut",), arrived[:1].view(np.int8).reshape(1, 1), counts[0])
    united = UnitedPartial(HeldLeaves({}))
    leaf = Leaf({("out", "region", ""): Value(arrived, None)}, {}, {}, (window,))
    nodes: Nodes[Leaf] = Nodes()
    nodes.values[0, 0] = leaf
    united.add((), Partial(0, nodes, (), (("region", rows),)))
    assert all(kept.data.base is None for _, kept in united.kept)
    (found,) = united.whole().nodes.values.values()
    assert all(array.base is None for one in found.windows for array in (one.verdicts, one.rows))
