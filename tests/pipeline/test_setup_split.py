"""Reading ahead of the workers: the same answers, bytes and errors as when each reads for itself."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from range_server import RangeServer
from windrow.errors import StepError, UsageError
from windrow.pipeline.run.worker import first_steps

if TYPE_CHECKING:
    from pathlib import Path

UNIT, UNITS = 500, 12
ROWS = UNIT * UNITS
SPLITS: list[tuple[int, int] | None] = [None, (0, 3), (1, 2), (2, 1)]


pytestmark = pytest.mark.usefixtures("no_thread_is_left")


def columns(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    alive = np.arange(ROWS) // UNIT % 3 == 0  # of every three units one has rows that pass
    counts = random.integers(0, 4, ROWS)
    pt = ak.unflatten(random.random(counts.sum()), counts)
    return {
        "good": alive & (random.random(ROWS) > 0.2),
        "x": random.random(ROWS),
        "y": random.random(ROWS),
        "late": random.random(ROWS),
        "Muon_pt": pt,
        "Muon_eta": pt * 2 - 1,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split")
    for seed in range(3):
        found = columns(seed)
        table = {
            name: ak.to_arrow(values, extensionarray=False) if isinstance(values, ak.Array) else pa.array(values)
            for name, values in found.items()
        }
        pq.write_table(pa.table(table), path / f"{seed}.parquet", row_group_size=UNIT)
    return path


def source(folder: Path | str) -> Any:
    files = [f"{folder}/{seed}.parquet" for seed in range(3)]
    return wr.data.open({"a": files[:2], "b": files[2:]}, grid=UNIT)


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("split")

    @made.column
    def scaled(x):  # type: ignore[no-untyped-def]
        return 2 * x

    @made.cut
    def in_good(good, scaled):  # type: ignore[no-untyped-def]
        return good & (scaled > 0.1)

    @made.cut
    def muons(Muon):  # type: ignore[no-untyped-def]
        return ak.any(Muon.pt > 0.5, axis=1)

    @made.weight
    def weights(y, *, rng):  # type: ignore[no-untyped-def]
        return y + rng("w").uniform()

    @made.output
    def total(late, weight):  # type: ignore[no-untyped-def]
        return np.array([len(late), np.sum(late * weight), np.sum(late)])

    return made


def run(data: Any, split: tuple[int, int] | None, made: wr.Pipeline | None = None, **more: Any) -> Any:
    options: dict[str, Any] = {"engine": "threads", "workers": 3, "chunk": UNIT, "order": "written"}
    options |= more
    return (made or analysis()).run(data, progress=False, _split=split, **options)


def answers(result: Any) -> Any:
    outputs = {
        (dataset, *key): np.asarray(value).tobytes()
        for dataset, values in result.outputs.items()
        for key, value in values.items()
    }
    return outputs, result.cutflow.as_dict(), result.ledger


class Watched:
    """A source whose readers know who uses them, and what was read."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.inputs, self.datasets = inner.inputs, inner.datasets
        self.read: Counter[tuple[int, str, int, int]] = Counter()
        self.by_setup = 0
        self.open_readers = 0
        self.lock = threading.Lock()
        self.before_read: Any = lambda index, columns, start: None

    def open(self, index: int) -> Any:
        with self.lock:
            self.open_readers += 1
        return _WatchedReader(self, self._inner.open(index), index)


class _WatchedReader:
    def __init__(self, source: Watched, inner: Any, index: int) -> None:
        self._source, self._inner, self._index = source, inner, index
        self._thread = threading.get_ident()
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, columns: Any, start: int, stop: int) -> Any:
        assert threading.get_ident() == self._thread, "a reader belongs to one thread"
        assert not self._closed
        self._source.before_read(self._index, columns, start)
        with self._source.lock:
            self._source.read.update((self._index, name, start, stop) for name in columns)
            self._source.by_setup += threading.current_thread().name.startswith("windrow-reader")
        return self._inner.read(columns, start, stop)

    def close(self) -> None:
        assert threading.get_ident() == self._thread
        assert not self._closed
        self._closed = True
        with self._source.lock:
            self._source.open_readers -= 1
        self._inner.close()


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_gives_the_same_bits_and_reads_the_same_bytes_once(
    folder: Path, split: tuple[int, int] | None
) -> None:
    inline = run(source(folder), None, engine="inline", workers=1)
    watched = Watched(source(folder))
    result = run(watched, split)
    assert answers(result) == answers(inline)
    assert result.bytes_read == inline.bytes_read
    assert max(watched.read.values()) == 1, "something was read twice"
    assert watched.open_readers == 0
    assert bool(watched.by_setup) == (split is not None and split[0] > 0)


def test_late_columns_are_read_by_workers_and_only_where_rows_are_left(folder: Path) -> None:
    watched = Watched(source(folder))
    threads: dict[str, set[str]] = {}

    def note(index: int, names: Any, start: int) -> None:
        who = threading.current_thread().name.rpartition("-")[0]
        for name in names:
            with watched.lock:
                threads.setdefault(name, set()).add(who)

    watched.before_read = note
    run(watched, (1, 2))
    assert threads["good"] == threads["x"] == {"windrow-reader"}
    assert threads["late"] == threads["y"] == {"windrow-worker"}
    read = {(index, start) for index, name, start, _ in watched.read if name == "late"}
    expected = {(seed, unit * UNIT) for seed in range(3) for unit in range(UNITS) if unit % 3 == 0}
    assert read == expected


def test_the_first_steps_end_with_the_first_cut_in_the_order_of_the_plan(folder: Path) -> None:
    from windrow.pipeline.run.workload import PipelineWorkload

    made = analysis()
    data = source(folder)
    workload = PipelineWorkload(made.definition(0), data)
    reader = data.open(0)
    program = workload.program(data.inputs[0], reader.info)
    reader.close()
    names = [step.name for step in first_steps(program, ("scaled", "in_good", "muons", "weights"))]
    assert names == ["scaled", "in_good"]
    moved = first_steps(program, ("weights", "muons", "scaled", "in_good"))
    assert [step.name for step in moved] == ["weights", "muons"]


@pytest.mark.parametrize("split", SPLITS)
def test_an_unreadable_part_of_a_file_is_told_as_if_read_inline(
    folder: Path, tmp_path: Path, split: tuple[int, int] | None
) -> None:
    for seed in range(3):
        content = bytearray((folder / f"{seed}.parquet").read_bytes())
        if seed == 1:  # the stored bytes of a column that the first cut reads, in the fifth unit
            about = pq.ParquetFile(folder / "1.parquet").metadata.row_group(4)
            x = next(about.column(n) for n in range(20) if about.column(n).path_in_schema == "x")
            at = x.dictionary_page_offset or x.data_page_offset
            content[at : at + x.total_compressed_size] = b"\xff" * x.total_compressed_size
        (tmp_path / f"{seed}.parquet").write_bytes(content)
    with pytest.raises(Exception) as inline:
        run(source(tmp_path), None, engine="inline", workers=1)
    with pytest.raises(type(inline.value)) as ahead:
        run(source(tmp_path), split)
    assert str(ahead.value) == str(inline.value)
    assert ahead.value.facts == inline.value.facts  # type: ignore[attr-defined]
    kept = run(source(tmp_path), split, on_error="skip")
    assert answers(kept) == answers(run(source(tmp_path), None, engine="inline", on_error="skip"))


def test_a_read_that_fails_once_is_simply_done_again(folder: Path) -> None:
    watched = Watched(source(folder))
    failed = threading.Event()

    def fail_once(index: int, names: Any, start: int) -> None:
        if (index, start) == (2, 4 * UNIT) and "good" in names and not failed.is_set():
            failed.set()
            raise OSError("the disk was busy")

    watched.before_read = fail_once
    result = run(watched, (1, 2))
    assert failed.is_set()
    assert answers(result) == answers(run(source(folder), None, engine="inline", workers=1))


def test_a_step_that_raises_ends_the_run_with_its_own_error(folder: Path) -> None:
    made = analysis()

    @made.cut
    def broken(late):  # type: ignore[no-untyped-def]
        raise ValueError("no")

    watched = Watched(source(folder))
    with pytest.raises(StepError, match="broken"):
        run(watched, (1, 2), made)
    assert watched.open_readers == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals to threads")
def test_ctrl_c_leaves_no_thread_and_no_open_file(folder: Path) -> None:
    watched = Watched(source(folder))

    once = threading.Event()

    def interrupt(index: int, names: Any, start: int) -> None:
        if (index, start) == (1, 0) and "good" in names and not once.is_set():
            once.set()
            os.kill(os.getpid(), signal.SIGINT)

    watched.before_read = interrupt
    result = run(watched, (2, 1))
    assert result.interrupted
    assert watched.open_readers == 0


def test_one_worker_may_be_read_ahead_of_and_processes_are_not(folder: Path) -> None:
    inline = answers(run(source(folder), None, engine="inline", workers=1))
    assert answers(run(source(folder), (1, 1), workers=1)) == inline
    apart = run(source(folder), (1, 1), engine="processes", workers=2)
    assert answers(apart) == inline
    assert not any(line.startswith("reading:") for line in apart.decisions)


def test_a_split_is_said_and_one_that_cannot_be_is_refused(folder: Path) -> None:
    result = run(source(folder), (1, 2))
    assert "reading: 1 thread set up and 2 processed, as asked for" in result.decisions
    with pytest.raises(UsageError, match="such as"):
        run(source(folder), (1, 0))


@pytest.mark.parametrize("split", [None, (0, 2), (1, 1), (3, 2)])
def test_over_a_slow_link_answers_and_bytes_stay_and_requests_do_not_grow(
    folder: Path, split: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.data.remote.file.TAIL_BYTES", 1_000)
    monkeypatch.setattr("windrow.data.remote.file.HEAD_BYTES", 1_000)
    monkeypatch.setattr("windrow.place.read_ahead_split.SEEN_S", 0.01)
    web = RangeServer(folder, latency_s=0.004)
    try:
        inline = run(source(web.url), (0, 1), workers=1)
        alone = len(web.requests)
        web.requests.clear()
        result = run(source(web.url), split, workers=2)
    finally:
        web.close()
    assert answers(result)[0] == answers(inline)[0]
    # Everybody opens files for himself, which takes a request or two for each of three files.
    assert len(web.requests) <= alone + 2 * 3 * (2 + (split or (4, 2))[0])
    said = [line for line in result.decisions if line.startswith("reading:") and "remote" not in line]
    assert (said == []) == (split == (0, 2))
