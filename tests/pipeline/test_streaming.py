"""Runs over streams: the answer of a run over the same rows at rest, in bounded memory, and an end that can be brought about."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hist import Hist
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import windrow as wr
from invariants import validate
from searching import examples
from windrow.core.intervals import Intervals
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.errors import DataError, NotYetError, StepError, UsageError
from windrow.pipeline.run import run as running
from windrow.pipeline.run import stream as streaming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ROWS = 3000


def columns(rows: int = ROWS, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, rows)
    return {
        "x": rng.normal(size=rows),
        "w": rng.exponential(size=rows).astype("f4"),
        "Jet_pt": ak.unflatten(rng.exponential(30, counts.sum()), counts),
    }


def part(data: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: values[start:stop] for name, values in data.items()}


def batches(data: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    rows = len(data["x"])
    for start in range(0, rows, size):
        yield part(data, start, min(start + size, rows))


def an_analysis() -> wr.Pipeline:
    analysis = wr.Pipeline("stream")

    @analysis.cut
    def positive(x: Any) -> Any:
        return x > -0.5

    @analysis.weight
    def generator(w: Any) -> Any:
        return wr.updown(w, w * 1.1, w * 0.9)

    @analysis.column
    def smeared(x: Any, *, rng: Any) -> Any:
        return x + rng("smear").normal()

    @analysis.cut
    def two(Jet_pt: Any) -> Any:
        return ak.num(Jet_pt) >= 2

    analysis.region("A", "positive", "two")
    analysis.region("B", "positive", "!two")

    @analysis.output(regions="*")
    def spectrum(smeared: Any, weight: Any) -> Any:
        return Hist.new.Reg(20, -3, 3).Weight().fill(smeared, weight=weight)

    @analysis.output(regions="*")
    def total(smeared: Any, weight: Any) -> float:
        return float(np.sum(smeared * weight))

    @analysis.output(region=None)
    def pt(Jet_pt: Any) -> float:
        return float(ak.sum(Jet_pt))

    return analysis


def bits(result: wr.Result) -> dict[Any, bytes]:
    """Every output, bit for bit."""
    found = {}
    for dataset, values in result.outputs.items():
        for key, value in values.items():
            view = value.view(flow=True) if isinstance(value, Hist) else np.asarray(value)
            found[dataset, key] = np.ascontiguousarray(view).tobytes()
    return found


def at_rest(data: dict[str, Any], grid: int) -> wr.Result:
    """The same rows as arrays, by the engine that is the reference."""
    return an_analysis().run(wr.data.open(data, grid=grid), engine="inline", order="written")


def same(result: wr.Result, expected: wr.Result, rows: int = ROWS) -> None:
    assert bits(result) == bits(expected)
    for region in ("A", "B"):
        assert str(result.cutflow[region]) == str(expected.cutflow[region])
    assert result.complete
    (entry,) = result.ledger.entries
    assert (entry.start, entry.stop, entry.state) == (0, rows, "done")


pytestmark = pytest.mark.usefixtures("no_thread_stays")


class Watched(Scheduler):
    """A scheduler whose invariants are checked after each batch, and whose books are counted."""

    most = 0

    def on(self, events: Any, now: float) -> Any:
        commands = super().on(events, now)
        validate(self)
        rows = self.feeder
        assert isinstance(rows, RowFeeder)
        Watched.most = max(Watched.most, len(rows.inputs.inputs), len(rows.ledger.books))
        return commands


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    monkeypatch.setattr(running, "Scheduler", Watched)
    monkeypatch.setattr(Watched, "most", 0)
    return Watched


# --- the same answer --------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["inline", "threads"])
@pytest.mark.parametrize("size", [7, 1000])
@pytest.mark.usefixtures("watched")
def test_an_iterator_gives_the_bits_of_arrays(engine: str, size: int) -> None:
    data = columns()
    expected = at_rest(data, 100)
    stream = wr.data.stream(batches(data, size), batch=100)
    result = an_analysis().run(stream, engine=engine, workers=2, order="written")
    same(result, expected)
    assert result.ledger.entries[0].file == "stream"
    assert result["spectrum", "A"].sum().value > 0


@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 120), min_size=1, max_size=12),
    batch=st.integers(1, 90),
    engine=st.sampled_from(["inline", "threads"]),
    buffer=st.sampled_from([1, 2000, 10**8]),
)
def test_however_the_producer_cuts(sizes: list[int], batch: int, engine: str, buffer: int) -> None:
    data = columns(sum(sizes))
    ends = np.cumsum([0, *sizes])
    pieces = [part(data, int(a), int(b)) for a, b in pairwise(ends)]
    expected = at_rest(data, batch)
    stream = wr.data.stream(pieces, batch=batch, buffer=buffer)
    result = an_analysis().run(stream, engine=engine, workers=2)
    assert bits(result) == bits(expected)
    assert result.cutflow["B"].executed[-1].passed == expected.cutflow["B"].executed[-1].passed
    assert result.ledger.done == sum(sizes)
    assert result.complete


def test_without_batch_the_producers_batches_are_the_units() -> None:
    data = columns()
    expected = at_rest(data, 250)
    stream = wr.data.stream(batches(data, 250))
    same(an_analysis().run(stream, workers=2, order="written"), expected)


def test_a_directory_gives_the_bits_of_arrays(tmp_path: Path) -> None:
    data = columns()
    expected = at_rest(data, 100)
    for number, piece in enumerate(batches(data, 700)):
        path = tmp_path / f"{number}.parquet"
        table = pa.table({**piece, "Jet_pt": ak.to_arrow(piece["Jet_pt"], extensionarray=False)})
        pq.write_table(table, path.with_suffix(".part"))
        path.with_suffix(".part").rename(path)
    (tmp_path / "stream.end").touch()
    stream = wr.data.stream(tmp_path / "*.parquet", batch=100)
    same(an_analysis().run(stream, workers=2, order="written"), expected)
    again = an_analysis().run(stream, engine="inline", order="written")
    same(again, expected)  # it can be read again


def test_a_socket_gives_the_bits_of_arrays() -> None:
    data = columns()
    expected = at_rest(data, 100)
    server = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        pieces = [
            pa.record_batch({**one, "Jet_pt": ak.to_arrow(one["Jet_pt"], extensionarray=False)})
            for one in batches(data, 333)
        ]
        connection, _ = server.accept()
        with connection, connection.makefile("wb") as file, pa.ipc.new_stream(file, pieces[0].schema) as writer:
            for piece in pieces:
                writer.write_batch(piece)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        stream = wr.data.stream(address, batch=100)
        same(an_analysis().run(stream, workers=2, order="written"), expected)
    finally:
        thread.join(120)
        server.close()


def test_datasets_metadata_and_optional_columns() -> None:
    analysis = wr.Pipeline("named")

    @analysis.weight(when="is_mc")
    def twice(x: Any) -> Any:
        return np.full(len(x), 2.0)

    @analysis.cut
    def trigger(x: Any, HLT: Any = True) -> Any:
        return HLT & (x >= 0)

    @analysis.output
    def n(weight: Any) -> float:
        return float(weight.sum())

    metadata = {"is_mc": True}
    stream = wr.data.stream([{"x": np.arange(3)}] * 2, dataset="mc", metadata=metadata)
    result = analysis.run(stream)
    assert result["n", "mc"] == 12
    assert any("'HLT': default used for 6 rows" in note for note in result.notes)


# --- memory -----------------------------------------------------------------------------------------


def summing(slowly: Callable[[], Any] = lambda: None) -> wr.Pipeline:
    analysis = wr.Pipeline("sum")

    @analysis.column
    def value(x: Any) -> Any:
        slowly()
        return x

    @analysis.output
    def n(value: Any) -> int:
        return len(value)

    @analysis.output
    def total(value: Any) -> float:
        return float(value.sum())

    return analysis


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_a_fast_producer_waits_and_memory_is_bounded(engine: str) -> None:
    size, count, buffer = 500_000, 100, 2_000_000
    made = 0

    def produce() -> Iterator[dict[str, Any]]:
        nonlocal made
        for _ in range(count):
            made += 1
            yield {"x": np.full(size // 8, 1.0)}

    seen: list[int] = []
    analysis = summing(lambda: seen.append(made))
    stream = wr.data.stream(produce(), buffer=buffer)
    gc.collect()
    tracemalloc.start()
    try:
        result = analysis.run(stream, engine=engine, workers=2, chunk=size // 8)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result["n"] == count * (size // 8)
    assert result.source.most_held <= buffer + size
    assert peak < 12_000_000 < count * size
    # The producer never is far ahead of the rows that are worked on.
    steps = len(seen)
    assert steps >= count
    ahead = [now - done for done, now in enumerate(sorted(seen[:count]))]
    assert max(ahead) <= buffer // size + 4


def test_a_unit_larger_than_the_buffer_is_no_deadlock() -> None:
    stream = wr.data.stream(({"x": np.ones(10)} for _ in range(50)), batch=400, buffer=80)
    assert summing().run(stream, workers=2)["n"] == 500


def wait_until_done(flow: Any) -> None:
    with flow._changed:
        flow._changed.wait_for(lambda: flow.ended or not flow.held)


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_the_books_do_not_grow_with_the_batches(
    engine: str, watched: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []

    def one_by_one() -> Iterator[dict[str, Any]]:
        for _ in range(150):
            yield {"x": np.ones(3)}
            (flow,) = held
            wait_until_done(flow)

    stream = wr.data.stream(one_by_one())
    begin = stream.begin

    def kept(max_rows: int | None) -> Any:
        tap, flow = begin(max_rows)
        held.append(flow)
        return tap, flow

    monkeypatch.setattr(stream, "begin", kept)
    result = summing().run(stream, engine=engine, workers=2)
    assert result["n"] == 450
    assert watched.most <= 2 * streaming.PORTIONS * 2
    assert len(result.reads) == 1


def test_many_tiny_batches_are_handed_over_together() -> None:
    result = summing().run(wr.data.stream([{"x": np.ones(1)}] * 3000), workers=2)
    assert result["total"] == 3000
    assert len(result.ledger.entries) == 1


# --- errors -----------------------------------------------------------------------------------------


def test_a_producer_that_raises_ends_the_run_and_what_was_done_is_there() -> None:
    def produce() -> Iterator[dict[str, Any]]:
        yield {"x": np.ones(5)}
        yield {"x": np.ones(6)}
        raise RuntimeError("the detector is off")

    with pytest.raises(DataError, match=r"after 11 rows of stream.*RuntimeError: the detector") as info:
        summing().run(wr.data.stream(produce(), batch=4), workers=2)
    assert isinstance(info.value.__cause__, RuntimeError)
    result = info.value.facts["result"]
    assert result["n"] == 11
    assert result.ledger.done == 11


def test_a_batch_with_other_columns_ends_the_run() -> None:
    with pytest.raises(DataError, match="'x' and batch 1 of the stream has not") as info:
        summing().run(wr.data.stream([{"x": np.ones(2)}, {"y": np.ones(2)}]))
    assert info.value.facts["result"]["n"] == 2


def test_a_step_that_raises_ends_the_run_and_what_was_done_is_there() -> None:
    analysis = wr.Pipeline("raises")

    @analysis.cut
    def good(x: Any) -> Any:
        if (x < 0).any():
            raise ValueError("negative")
        return x >= 0

    @analysis.output
    def n(x: Any) -> int:
        return len(x)

    go_on = threading.Event()

    def produce() -> Iterator[dict[str, Any]]:
        yield {"x": np.ones(5)}
        go_on.wait(120)
        yield {"x": np.array([1.0, -1.0])}
        yield from ({"x": np.ones(1)} for _ in range(100_000))

    live = analysis.start(wr.data.stream(produce()), workers=1)  # another one may do later rows meanwhile
    while live.rows < 5:
        time.sleep(0.001)
    go_on.set()
    with pytest.raises(StepError, match="negative") as info:
        live.wait()
    assert info.value.facts["result"]["n"] == 5
    assert live.result()["n"] == 5
    rows = [one for number in range(3) for one in ([0.0, 1.0, -1.0], [2.0, 3.0])[number % 2]]
    pieces = [{"x": np.array(rows[start : start + 2])} for start in range(0, len(rows), 2)]
    skipped = analysis.run(wr.data.stream(pieces, batch=3), on_error="skip", workers=2)
    assert skipped["n"] == sum(value >= 0 for value in rows)
    failed = [(e.start, e.stop) for e in skipped.ledger.entries if e.state == "failed"]
    assert failed == [(i, i + 1) for i, value in enumerate(rows) if value < 0]
    assert skipped.ledger.total == len(rows)
    assert skipped.exit_code == 2


def test_no_batch_and_no_rows() -> None:
    result = summing().run(wr.data.stream([]))
    assert result.complete
    assert result.ledger.total == 0
    with pytest.raises(KeyError, match="no batch has come"):
        result["n"]
    result = summing().run(wr.data.stream([{"x": np.zeros(0)}]))
    assert result["n"] == 0


# --- options ----------------------------------------------------------------------------------------


def test_max_rows_ends_the_stream() -> None:
    pulled = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal pulled
        while True:
            pulled += 1
            yield {"x": np.ones(10)}

    result = summing().run(wr.data.stream(endless(), batch=7), max_rows=25, workers=2)
    assert result["n"] == 25
    assert pulled == 3
    assert result.complete
    assert summing().check(wr.data.stream(endless()), rows=30) == ("value",)


def test_what_a_stream_cannot_do(tmp_path: Path) -> None:
    def stream() -> Any:
        return wr.data.stream([{"x": np.ones(1)}])

    with pytest.raises(UsageError, match="those of a stream are gone"):
        summing().run(stream(), resume=True, rundir=tmp_path / "run")
    options: list[dict[str, Any]]
    options = [{"engine": "processes"}, {"memory": "1 GB"}, {"timeout": "1 s"}]
    for option in options:
        with pytest.raises(NotYetError, match="memory of one process"):
            summing().run(stream(), **option)
    saving = summing()
    saving.save(str(tmp_path / "{dataset}.parquet"), columns=["x"])
    with pytest.raises(NotYetError, match="save=False"):
        saving.run(stream())
    assert saving.run(stream(), save=False)["n"] == 1
    with pytest.raises(UsageError, match="only while a run takes them"):
        summing().peek("value", stream())


def test_an_iterator_is_run_once_and_a_list_as_often_as_one_likes() -> None:
    once = wr.data.stream(iter([{"x": np.ones(2)}]))
    assert summing().run(once)["n"] == 2
    with pytest.raises(UsageError, match="was run before"):
        summing().run(once)
    often = wr.data.stream([{"x": np.ones(2)}])
    assert [summing().run(often)["n"] for _ in range(2)] == [2, 2]


def test_a_generator_is_closed_where_it_was_not_read_to_the_end() -> None:
    closed = threading.Event()

    def produce() -> Iterator[dict[str, Any]]:
        try:
            while True:
                yield {"x": np.ones(1)}
        finally:
            closed.set()

    summing().run(wr.data.stream(produce()), max_rows=3)
    assert closed.wait(120)


def test_a_run_directory_keeps_the_result(tmp_path: Path) -> None:
    analysis = summing()
    stream = wr.data.stream([{"x": np.ones(3)}] * 4, metadata={"year": 2018})
    result = analysis.run(stream, rundir=tmp_path / "run", workers=2)
    again = wr.load(tmp_path / "run")
    assert again["total"] == result["total"] == 12
    assert again.ledger == result.ledger
    assert again.datasets["data"]["year"] == 2018
    assert (tmp_path / "run" / "events.jsonl").stat().st_size
    with pytest.raises(DataError):
        again.source.open(0)
    assert "12 of 12 rows" in result.report(tmp_path / "r.html").read_text()


def test_progress_counts_rows_that_are_forgotten() -> None:
    shots: list[Any] = []
    stream = wr.data.stream([{"x": np.ones(3)}] * 40)
    summing().run(stream, progress=shots.append, engine="inline")
    assert (shots[-1].rows_done, shots[-1].rows_total) == (120, 120)
    assert [shot.rows_done for shot in shots] == sorted(shot.rows_done for shot in shots)


# --- signals ----------------------------------------------------------------------------------------

SCRIPT = """
    import json, sys, threading, time
    import numpy as np
    import windrow as wr

    analysis = wr.Pipeline("signals")

    @analysis.column
    def value(x):
        return x

    @analysis.output
    def n(value):
        return len(value)

    def produce():
        for number in range(1000000):
            yield {"x": np.ones(10)}
            if number == 20:
                print("going", flush=True)
                if sys.argv[2] == "blocked":
                    threading.Event().wait()
            time.sleep(0.001)

    stream = wr.data.stream(produce(), batch=7)
    result = analysis.run(stream, engine=sys.argv[1], workers=2, progress=False)
    left = [t.name for t in threading.enumerate() if t.name.startswith("windrow-worker")]
    print(json.dumps({"n": result["n"], "rows": result.ledger.as_dict(), "left": left}), flush=True)
    sys.exit(result.exit_code)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("engine", "number", "producer"),
    [("inline", "SIGINT", "going on"), ("threads", "SIGINT", "blocked"), ("threads", "SIGTERM", "going on")],
)
def test_a_signal_ends_a_stream_with_what_was_taken(engine: str, number: str, producer: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, str(script), engine, producer]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        process.send_signal(getattr(signal, number))
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    told = json.loads(out)
    assert told["n"] == told["rows"]["done"] == told["rows"]["total"]
    assert told["n"] >= 210
    assert told["n"] % 10 == 0
    assert told["rows"]["problems"] == []
    assert told["left"] == []


def test_rows_that_cannot_be_finished_in_time_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PATIENCE_S", 0.05)
    entered, leave = threading.Event(), threading.Event()

    def slowly() -> None:
        if entered.is_set():
            leave.wait(120)
        entered.set()

    analysis = summing(slowly)
    stream = wr.data.stream([{"x": np.ones(5)}] * 40)
    live = analysis.start(stream, engine="threads", workers=1, chunk=5)
    assert entered.wait(120)
    threading.Timer(0.5, leave.set).start()
    result = live.stop()
    assert result.ledger.missing > 0
    assert result["n"] == result.ledger.done
    assert result.ledger.total == live._inbox.pump._flow.taken  # type: ignore[union-attr]
    assert result.exit_code == 2


def test_noting_what_was_read_does_not_look_at_all_that_was_read_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a cut leaves gaps, the list of what was read grows with the stream, and all workers wait for it."""
    _, flow = wr.data.stream([columns(10)]).begin(None)
    workload = streaming.StreamWorkload(an_analysis().definition(0), flow, None, skip=False)
    walks: list[Any] = []
    walk = Intervals.__iter__

    def counted(self: Intervals) -> Any:
        walks.append(self)
        return walk(self)

    monkeypatch.setattr(Intervals, "__iter__", counted)
    for start in (40, 0, 20, 10, 60):
        workload.note_reads(0, [("x", start, start + 10), ("w", start, start + 5)])
    assert not walks
    assert list(workload.facts.reads[0, "x"]) == [(0, 30), (40, 50), (60, 70)]
    assert len(list(workload.facts.reads[0, "w"])) == 5


def test_units_of_a_stream_have_the_rows_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody asks who decides how much to look at."""
    seen: list[float] = []

    class Asked(streaming.StreamWorkload):
        def note_kept(self, partial: Any) -> None:
            seen.append(self.unit_rows("data"))
            super().note_kept(partial)

    monkeypatch.setattr(streaming, "StreamWorkload", Asked)
    an_analysis().run(wr.data.stream(batches(columns(), 100), batch=50), engine="inline")
    assert set(seen) == {50.0}
