"""Where the rows of a stream come from, how they are cut into units, and how much of them is in memory."""

from __future__ import annotations

import pickle
import socket
import sys
import threading
import weakref
from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.data.arrays import concatenate as joined
from windrow.data.stream import flow as stream_flow
from windrow.data.stream import stream as sources
from windrow.data.stream.flow import Flow
from windrow.data.stream.stream import DirectoryWatch, Tap, loopback_address, take_from_socket
from windrow.errors import DataError, MissingColumnError, SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def a_flow(batch: int | None = None, buffer: int = 10**9, **options: Any) -> Flow:
    return Flow(
        label="stream", dataset="d", metadata={}, batch=batch, columns=options.pop("columns", None),
        buffer=buffer, **options,
    )  # fmt: skip


def directory_tap(*about: Any) -> Tap:
    return Tap(DirectoryWatch(*about).batches)


def socket_tap(address: str) -> Tap:
    return Tap(partial(take_from_socket, loopback_address(address), f"stream {address}"))


def portions(flow: Flow) -> list[Any]:
    found = []
    while (portion := flow.take()) is not None:
        found.append(portion)
    return found


# --- batches --------------------------------------------------------------------------------------

LISTS = [[1.5], [], [2.5, 3.5]]
FORMS: dict[str, Callable[[], Any]] = {
    "mapping": lambda: {"x": np.arange(3.0), "Jet_pt": ak.Array(LISTS)},
    "lists": lambda: {"x": [0.0, 1.0, 2.0], "Jet_pt": LISTS},
    "awkward": lambda: ak.Array({"x": np.arange(3.0), "Jet_pt": LISTS}),
    "record batch": lambda: pa.record_batch({"x": np.arange(3.0), "Jet_pt": pa.array(LISTS)}),
    "table": lambda: pa.table({"x": pa.chunked_array([[0.0], [1.0, 2.0]]), "Jet_pt": LISTS}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_batch_has_the_same_columns(form: str) -> None:
    flow = a_flow()
    flow.push(FORMS[form](), "batch 0")
    flow.push(FORMS["mapping"](), "batch 1")
    reader = flow.open(0)
    values = reader.read(["x", "Jet_pt"], 0, 6)
    assert values["x"].tolist() == [0, 1, 2, 0, 1, 2]
    assert values["Jet_pt"].to_list() == LISTS * 2
    assert {c.name: c.kind for c in reader.info.columns.values()} == {
        "x": "flat", "Jet_pt": "jagged",
    }  # fmt: skip


def test_structured_arrays_and_records() -> None:
    flow = a_flow()
    flow.push(np.array([(1, 2.5)], dtype=[("n", "i4"), ("v", "f8")]), "batch 0")
    assert flow.open(0).read(["v"], 0, 1)["v"].tolist() == [2.5]
    flow = a_flow()
    flow.push(ak.Array({"Muon": [[{"pt": 1.0, "eta": 2.0}]]}), "batch 0")
    assert flow.open(0).info.collections["Muon"] == ("Muon.pt", "Muon.eta")


VIEWS: dict[str, Callable[[Any], Any]] = {
    "array": lambda own: {"x": own},
    "part of an array": lambda own: {"x": own[:]},
    "read-only view": lambda own: {"x": np.frombuffer(own.data.toreadonly())},
    "awkward array": lambda own: {"x": ak.from_numpy(own)},
    "awkward records": lambda own: ak.Array({"x": own}),
    "structured array": lambda own: own.view([("x", "f8")]),
    "Arrow array": lambda own: {"x": pa.array(own)},
    "chunked Arrow array": lambda own: {"x": pa.chunked_array([pa.array(own)])},
    "record batch": lambda own: pa.record_batch({"x": pa.array(own)}),
    "table": lambda own: pa.table({"x": pa.array(own)}),
}


@pytest.mark.parametrize("form", VIEWS)
def test_a_producer_may_fill_its_arrays_again(form: str) -> None:
    flow, own = a_flow(), np.zeros(2)
    for number in range(3):
        own[:] = number
        flow.push(VIEWS[form](own), f"batch {number}")
    assert flow.open(0).read(["x"], 0, 6)["x"].tolist() == [0, 0, 1, 1, 2, 2]


LISTS_OF: dict[str, Callable[[Any], Any]] = {
    "lists": lambda own: {"v": ak.unflatten(own, [1, 2])},
    "lists of records": lambda own: ak.Array({"v": ak.unflatten(ak.Array({"pt": own}), [1, 2])}),
    "lists that may be missing": lambda own: {"v": ak.mask(ak.unflatten(own, [1, 2]), [True] * 2)},
    "Arrow lists": lambda own: pa.table(
        {"v": pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), pa.array(own))}
    ),
}


@pytest.mark.parametrize("form", LISTS_OF)
def test_a_producer_may_fill_its_lists_again(form: str) -> None:
    flow, own = a_flow(), np.zeros(3)
    for number in range(2):
        own[:] = number
        flow.push(LISTS_OF[form](own), f"batch {number}")
    (name,) = flow.open(0).info.columns
    values = flow.open(0).read([name], 0, 4)[name].to_list()
    assert values == [[0.0], [0.0, 0.0], [1.0], [1.0, 1.0]]


def test_a_slice_of_a_large_array_takes_no_more_than_it_shows() -> None:
    flow = a_flow()
    large = ak.unflatten(np.arange(20_000.0), np.full(10_000, 2))
    flow.push({"v": large[500:510]}, "batch 0")
    assert flow.held < 1000


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"x": np.zeros(1), "z": np.zeros(1)}, "batch 7 has the column 'z' and batch 0 has not"),
        ({}, "at least one array"),
        ({"y": np.zeros(1)}, "'x'"),
        ({"x": np.zeros(1, "f4")}, "'x' is of type float32 in batch 7 and of type float64"),
        ({"x": np.zeros(1), "y": np.zeros(2)}, "'x' has 1 rows and 'y' has 2"),
        ({"x": ak.Array([[1.0]])}, "var \\* float64"),
        (pa.record_batch({"x": pa.array([None, 1.0])}), r"\?float64"),
        (np.zeros(3), "batch 7 is a ndarray"),
        (None, "batch 7 is a NoneType"),
    ],
)
def test_a_batch_that_is_not_like_the_first(batch: Any, words: str) -> None:
    flow = a_flow()
    flow.push({"x": np.zeros(2)}, "batch 0")
    with pytest.raises(DataError, match=words):
        flow.push(batch, "batch 7")
    assert flow.taken == 2


def test_types_that_say_less_become_those_of_the_first() -> None:
    flow = a_flow()
    first = {"v": ak.Array([[1.0], []]), "m": ak.Array([1.0, None])}
    flow.push(first, "batch 0")
    flow.push({"v": [[], []], "m": np.array([2.0, 3.0])}, "batch 1")
    values = flow.open(0).read(["v", "m"], 0, 4)
    assert values["v"].to_list() == [[1.0], [], [], []]
    assert values["m"].to_list() == [1.0, None, 2.0, 3.0]
    assert str(values["m"].type) == "4 * ?float64"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([[], []], r"var \* unknown"),
        (ak.Array([None, None]), r"\?unknown"),
        (ak.Array([[[]], []]), r"var \* var \* unknown"),
    ],
)
def test_a_first_batch_of_unknown_type_is_refused_with_what_to_do(column: Any, kind: str) -> None:
    flow = a_flow()
    with pytest.raises(DataError, match=rf"'v' has no values in batch 0.*{kind}.*enforce_type"):
        flow.push({"v": column}, "batch 0")
    assert flow.taken == 0
    typed = ak.enforce_type(ak.Array([[], []]), "var * float64")
    flow.push({"v": typed, "unknown": np.zeros(2)}, "batch 0")
    flow.push({"v": [[1.5], []], "unknown": np.zeros(2)}, "batch 1")
    assert flow.open(0).read(["v"], 0, 4)["v"].to_list() == [[], [], [1.5], []]


def test_columns_choose_what_is_taken() -> None:
    flow = a_flow(columns=("x",))
    flow.push({"x": np.zeros(1), "y": np.zeros(1)}, "batch 0")
    flow.push({"z": np.zeros(1), "x": np.zeros(1)}, "batch 1")
    assert list(flow.open(0).info.columns) == ["x"]
    with pytest.raises(DataError, match=r"batch 2 has no column 'x'; did you mean 'X'\?"):
        flow.push({"X": np.zeros(1)}, "batch 2")


# --- units ----------------------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    sizes=st.lists(st.integers(0, 40), max_size=90),
    batch=st.none() | st.integers(1, 50),
    take=st.integers(1, 5),
    max_rows=st.none() | st.integers(0, 300),
    data=st.data(),
)
def test_rows_are_cut_as_they_should_and_read_as_they_came(
    sizes: list[int], batch: int | None, take: int, max_rows: int | None, data: st.DataObject
) -> None:
    flow = a_flow(batch, max_rows=max_rows)
    values = np.random.default_rng(0).normal(size=sum(sizes))
    lists = ak.unflatten(np.arange(values.size * 2), np.full(values.size, 2))
    taken, found = 0, []
    for number, size in enumerate(sizes):
        now = slice(taken, taken + size)
        more = flow.push({"x": values[now], "v": lists[now]}, f"batch {number}")
        taken += size
        if number % take == 0:
            found += portions(flow)
        if not more:
            break
    flow.end()
    found += portions(flow)
    rows = taken if max_rows is None else min(taken, max_rows)
    assert flow.taken == rows
    assert [p.start for p in found] == [0, *[p.stop for p in found]][: len(found)]
    borders = [0, *[end for p in found for end in p.ends]]
    if batch is not None:
        assert borders == [*range(0, rows, batch), rows][: None if rows else 1]
    assert list(flow.borders) == borders
    assert borders[-1] == rows
    if rows:
        start = data.draw(st.integers(0, rows))
        stop = data.draw(st.integers(start, rows))
        read = flow.open(0).read(["x", "v"], start, stop)
        assert read["x"].tobytes() == values[start:stop].tobytes()
        assert read["v"].to_list() == lists[start:stop].to_list()
    for portion in data.draw(st.permutations(found)):
        flow.release(portion)
    assert flow.held == 0
    assert not flow._tables


def test_large_batches_are_cut_on_the_grid_of_arrays() -> None:
    flow = a_flow()
    flow.push({"x": np.zeros(600_000, "i1")}, "batch 0")
    (portion,) = portions(flow)
    assert portion.ends == (262_144, 524_288, 600_000)


def test_a_producer_of_single_rows_costs_few_objects() -> None:
    flow = a_flow(batch=10_000)
    for number in range(1000):
        flow.push({"x": np.array([number])}, "a batch")
    assert len(flow._unfinished) < 70
    flow.end()
    assert flow.open(0).read(["x"], 0, 1000)["x"].tolist() == list(range(1000))


def test_single_rows_are_copied_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = [0]

    def noted(parts: Any) -> Any:
        copied[0] += sum(map(len, parts)) if len(parts) > 1 else 0
        return joined(parts)

    monkeypatch.setattr(stream_flow, "concatenate", noted)
    rows = 10_000
    flow = a_flow(batch=2 * rows)
    for number in range(rows):
        flow.push({"x": np.array([number])}, "a batch")
        assert len(flow._unfinished) < stream_flow.MANY_PIECES
    assert copied[0] < 20 * rows
    flow.end()
    assert flow.open(0).read(["x"], 0, rows)["x"].tolist() == list(range(rows))


def test_borders_of_rows_that_are_gone_take_no_memory() -> None:
    flow = a_flow()
    kept: list[Any] = []
    for number in range(1000):
        flow.push({"x": np.full(1 + number % 3, number)}, f"batch {number}")
        kept += portions(flow)
        if len(kept) == 5:
            flow.release(kept.pop(2))  # not the oldest
            flow.release(kept.pop(0))
    borders = np.cumsum([0, *(1 + n % 3 for n in range(1000))]).tolist()
    assert len(flow.borders._state[1]) < 20
    assert len(flow.borders) == 1001
    assert flow.borders[-1] == borders[-1] == flow.taken
    for row in range(kept[0].start, flow.taken + 1):
        assert bisect_right(flow.borders, row) == bisect_right(borders, row)
        assert bisect_left(flow.borders, row) == bisect_left(borders, row)
    first = borders.index(kept[0].start)
    assert flow.borders[first:] == tuple(borders[first:])
    for portion in kept:
        flow.release(portion)
    assert len(flow.borders._state[1]) == 1
    with pytest.raises(IndexError):
        flow.borders[1001]


def test_what_is_done_leaves_the_memory_also_where_a_unit_had_begun() -> None:
    flow = a_flow(batch=10)
    values = np.arange(15.0)
    values.flags.writeable = False  # or a copy would be taken
    alive = weakref.ref(values)
    flow.push({"x": values}, "batch 0")
    del values
    assert alive() is not None
    (portion,) = portions(flow)
    flow.release(portion)
    assert alive() is None
    assert flow.taken == 15
    with pytest.raises(DataError, match="rows 0-10 are gone"):
        flow.open(0).read(["x"], 0, 10)


def test_the_producer_waits_for_room() -> None:
    flow = a_flow(buffer=800)
    assert flow.wait_for_room()
    flow.push({"x": np.zeros(100)}, "batch 0")
    entered: list[bool] = []
    thread = threading.Thread(target=lambda: entered.append(flow.wait_for_room()))
    thread.start()
    thread.join(0.05)
    assert not entered
    (portion,) = portions(flow)
    thread.join(0.05)
    assert not entered  # taken is not done
    flow.release(portion)
    thread.join(120)
    assert entered == [True]
    flow.push({"x": np.zeros(100)}, "batch 1")
    thread = threading.Thread(target=lambda: entered.append(flow.wait_for_room()))
    thread.start()
    flow.end()
    thread.join(120)
    assert entered == [True, False]
    assert not flow.push({"x": np.zeros(100)}, "batch 2")
    assert flow.taken == 200


def test_a_flow_without_batches_and_a_stream_outside_of_a_run() -> None:
    with pytest.raises(DataError, match="no batch has come"):
        a_flow().open(0)
    with pytest.raises(UsageError, match="only while a run takes them"):
        wr.data.stream([{"x": np.zeros(1)}]).open(0)
    gone = pickle.loads(pickle.dumps(a_flow()))
    assert gone.inputs[0].label == "stream"
    with pytest.raises(DataError):
        gone.open(0)


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (3, {}, "cannot stream from 3"),
        ({"x": np.zeros(1)}, {}, "a mapping of arrays is no stream"),
        ([], {"batch": 0}, "batch="),
        ([], {"columns": "x"}, "columns= is a list"),
        ([], {"buffer": 0}, "buffer="),
        ([], {"until_idle": "1 s"}, "until_idle= is for directories"),
        ("/no/such/directory", {}, "is no directory"),
        ("tcp://127.0.0.1", {}, "tcp://localhost:PORT"),
        ("tcp://example.org:80", {}, "not on this machine"),
        ("tcp://0.0.0.0:80", {}, "not on this machine"),
    ],
)
def test_what_cannot_be_streamed(source: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        wr.data.stream(source, **options)


# --- directories ----------------------------------------------------------------------------------


def write(path: Path, values: Any, **options: Any) -> None:
    pq.write_table(pa.table({"x": np.asarray(values, "f8")}), path, **options)


def numbers(tap: Any) -> Iterator[tuple[str, list[float]]]:
    for where, batch in tap.batches():
        yield where.rpartition("/")[2], np.asarray(batch["x"]).tolist()


def test_a_directory_gives_what_is_complete_until_it_is_told(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", [2, 3])
    write(tmp_path / "a.parquet", [0, 1])
    write(tmp_path / ".hidden.parquet", [9])
    write(tmp_path / "c.parquet.part", [4])
    (tmp_path / "notes.txt").write_text("not data")
    tap = directory_tap(tmp_path, "", None, None)
    found = numbers(tap)
    assert [next(found), next(found)] == [("a.parquet", [0, 1]), ("b.parquet", [2, 3])]
    (tmp_path / "c.parquet.part").rename(tmp_path / "c.parquet")
    with uproot.recreate(tmp_path / "0.root") as file:
        file.mktree("Events", {"x": "f8"}).extend({"x": np.array([5.0])})
    (tmp_path / sources.END).touch()
    assert dict(found) == {"0.root": [5.0], "c.parquet": [4.0]}


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "whole", np.arange(1000), row_group_size=100)
    content = (tmp_path / "whole").read_bytes()
    growing = tmp_path / "a.parquet"
    growing.write_bytes(content[:1000])
    write(tmp_path / "b.parquet", [7])
    found = numbers(directory_tap(tmp_path, "*.parquet", None, None))
    assert next(found) == ("b.parquet", [7])
    growing.write_bytes(content[:2000])
    (tmp_path / sources.END).touch()
    timer = threading.Timer(0.3, growing.write_bytes, [content])
    timer.start()
    assert list(found) == [("a.parquet", list(range(1000)))]
    timer.join()


def test_a_file_that_stays_unreadable_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PATIENCE_S", 0.2)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match=r"a\.parquet cannot be read, and has not changed"):
        list(numbers(directory_tap(tmp_path, "", None, 0.0)))


def test_a_file_that_was_taken_away_again_is_not_waited_for(tmp_path: Path) -> None:
    bad = tmp_path / "a.parquet"
    bad.write_bytes(b"PAR1")
    write(tmp_path / "b.parquet", [1])
    found = numbers(directory_tap(tmp_path, "", None, 0.0))
    assert next(found) == ("b.parquet", [1])
    bad.unlink()
    assert list(found) == []


def test_a_look_at_files_that_are_done_makes_nothing_for_each(tmp_path: Path) -> None:
    tap = DirectoryWatch(tmp_path, "", None, None)
    for number in range(200):
        (tmp_path / f"{number}.parquet").touch()
        tap._done.add(f"{number}.parquet")
    for name in ("z.parquet", "a.parquet"):
        (tmp_path / name).touch()
    called = [0]

    def count(*_: Any) -> None:
        called[0] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        new = tap._new_files()
    finally:
        sys.setprofile(before)
    assert [path.name for path in new] == ["a.parquet", "z.parquet"]
    assert called[0] < 200


def test_an_idle_directory_and_a_stopped_one(tmp_path: Path) -> None:
    assert list(numbers(directory_tap(tmp_path, "", None, 0.0))) == []
    tap = directory_tap(tmp_path, "", None, None)
    thread = threading.Thread(target=lambda: list(tap.batches()))
    thread.start()
    assert tap.stop()
    thread.join(120)
    assert not thread.is_alive()


def test_a_directory_is_read_column_by_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0], "y": [2.0]}), tmp_path / "a.parquet")
    (((_, batch),)) = list(directory_tap(tmp_path, "", ["y"], 0.0).batches())
    assert list(batch) == ["y"]
    with pytest.raises(MissingColumnError):
        list(directory_tap(tmp_path, "", ["z"], 0.0).batches())


# --- sockets --------------------------------------------------------------------------------------


class Sender:
    """Listens on a port of this machine and lets a function write to whoever connects."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._send = send
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        connection, _ = self._server.accept()
        with connection, connection.makefile("wb") as file:
            self._send(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()
        self._server.close()


BATCHES = [pa.record_batch({"x": np.arange(n, dtype="f8")}) for n in (3, 0, 2)]


def send_all(file: Any) -> None:
    with pa.ipc.new_stream(file, BATCHES[0].schema) as writer:
        for batch in BATCHES:
            writer.write_batch(batch)


def test_a_socket_gives_the_batches_that_were_sent() -> None:
    with Sender(send_all) as sender:
        found = list(socket_tap(sender.address).batches())
    assert [batch.to_pydict() for _, batch in found] == [batch.to_pydict() for batch in BATCHES]
    assert found[2][0] == f"batch 2 of stream {sender.address}"


def test_a_sender_that_is_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    tap = socket_tap(f"tcp://127.0.0.1:{port}")
    monkeypatch.setattr(sources, "CONNECT_S", 0.2)
    with pytest.raises(DataError, match="nobody answers"):
        list(tap.batches())


@pytest.mark.parametrize("content", ["garbage", "broken off"])
def test_what_is_no_stream_of_arrow_is_said_to_be_none(content: str) -> None:
    def send(file: Any) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, BATCHES[0].schema) as writer:
            writer.write_batch(pa.record_batch({"x": np.arange(1000, dtype="f8")}))
        whole = sink.getvalue().to_pybytes()
        file.write(b"GET / HTTP/1.1\r\n\r\n" * 9 if content == "garbage" else whole[:2000])

    with Sender(send) as sender, pytest.raises(DataError, match="no stream of Arrow"):
        list(socket_tap(sender.address).batches())


def test_a_silent_socket_is_left_when_told() -> None:
    released = threading.Event()

    def send(file: Any) -> None:
        with pa.ipc.new_stream(file, BATCHES[0].schema) as writer:
            writer.write_batch(BATCHES[0])
            file.flush()
            released.wait(120)

    with Sender(send) as sender:
        tap = socket_tap(sender.address)
        got: list[Any] = []
        first = threading.Event()

        def read() -> None:
            for item in tap.batches():
                got.append(item)
                first.set()

        thread = threading.Thread(target=read)
        thread.start()
        assert first.wait(120)
        assert tap.stop()
        thread.join(120)
        assert not thread.is_alive()
        assert len(got) == 1
        released.set()
