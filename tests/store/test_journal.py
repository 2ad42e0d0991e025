"""The journal of a run: what was written is read, what is wrong is refused whole, and others are kept out."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import sqlite3
import stat
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

import windrow.store.journal_file as journal_file
from searching import examples
from windrow.errors import CorruptFileError, DataError, InternalError, JournalError, MissingFileError, WindrowError
from windrow.store.journal import Blob, Journal, KnownInput
from windrow.store.journal_records import check_disjoint, plain, seal
from windrow.store.local_disk import is_on_local_disk

if TYPE_CHECKING:
    from collections.abc import Iterator


def known(key: str = "a", **facts: Any) -> KnownInput:
    usual: dict[str, Any] = {
        "dataset": "tt", "label": "file.root", "identity": "1", "rows": 100, "borders": (50, 100),
        "size": 12345, "mtime_ns": 1_700_000_000_000_000_000,
    }  # fmt: skip
    return KnownInput(key, **{**usual, **facts})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run"


@pytest.fixture
def journal(place: Path) -> Iterator[Journal]:
    with Journal.create(place) as journal:
        journal.know([known("a"), known("b", size=None, mtime_ns=None)])
        yield journal
    Journal.open(place).close()  # whatever a test did, it can be continued


def files(place: Path) -> list[str]:
    return sorted(file.name for file in (place / "blobs").iterdir())


# --- what is written is read ------------------------------------------------------------------------


def test_what_was_written_is_read_in_another_session(place: Path, journal: Journal) -> None:
    pieces: list[bytes | memoryview] = [b"some ", memoryview(bytearray(b"bytes")), b"", memoryview(b"")]
    blob = journal.write("a", ["p", "q"], [(20, 30), (0, 10), (10, 20)], pieces)
    other = journal.write("b", ["p"], [], [])
    journal.note("options", {"chunk": 3, "names": ["x", None]})
    journal.close()
    with Journal.open(place) as again:
        assert again.inputs() == {"a": known("a"), "b": known("b", size=None, mtime_ns=None)}
        assert again.blobs() == [blob, other]
        assert blob.rows == ((0, 30),)
        assert (blob.products, blob.bytes) == (("p", "q"), 10)
        assert again.read(blob) == b"some bytes"
        assert again.read(other) == b""
        assert again.noted("options") == {"chunk": 3, "names": ["x", None]}
        assert again.noted("nothing") is None
        assert again.write("b", ["q"], [(0, 1)], [b"x"]).id > other.id


def test_everything_is_for_the_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "run").mkdir(mode=0o700)
        with Journal.create(tmp_path / "run") as journal:
            journal.know([known()])
            journal.write("a", ["p"], [(0, 1)], [b"x"])
            found = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in found}
    finally:
        os.umask(before)
    directories = {"run": 0o700, "blobs": 0o700}
    assert {name: modes.pop(name) for name in directories} == directories
    assert set(modes) >= {"journal.sqlite", "00000001.blob"}
    assert set(modes.values()) == {0o600}


def test_a_new_journal_replaces_one_and_nothing_else(place: Path, journal: Journal) -> None:
    journal.write("a", ["p"], [(0, 1)], [b"x"])
    journal.close()
    (place / "blobs" / "notes.txt").write_text("mine")
    (place / "blobs" / "00000007.blob.part").write_text("half")
    with Journal.create(place) as fresh:
        assert fresh.inputs() == {}
        assert fresh.blobs() == []
    assert files(place) == ["notes.txt"]


def test_a_log_of_an_old_journal_is_not_read_into_a_new_one(place: Path, journal: Journal) -> None:
    journal.write("a", ["p"], [(0, 1)], [b"x"])
    if not (place / "journal.sqlite-wal").exists():
        pytest.skip("not a local disk: there is no log")
    log = (place / "journal.sqlite-wal").read_bytes()
    journal.close()
    (place / "journal.sqlite-wal").write_bytes(log)
    with Journal.create(place) as fresh:
        assert fresh.inputs() == {}
        fresh.validate()


def test_a_reader_sees_a_live_run_and_changes_nothing(place: Path, journal: Journal) -> None:
    journal.write("a", ["p"], [(0, 10)], [b"x"])
    (place / "blobs" / "00000009.blob.part").write_bytes(b"being written")
    with Journal.open(place, read_only=True) as reader:
        assert [blob.rows for blob in reader.blobs()] == [((0, 10),)]
        journal.write("a", ["p"], [(0, 20)], [b"y"], [1])
        assert [blob.rows for blob in reader.blobs()] == [((0, 20),)]
        with pytest.raises(InternalError, match="to be read"):
            reader.note("k", 1)
    assert "00000009.blob.part" in files(place)
    journal.write("a", ["q"], [(0, 20)], [b"y"])


def test_without_shared_memory_the_old_way_is_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "is_on_local_disk", lambda _: False)
    with Journal.create(place) as journal:
        journal.know([known()])
        journal.write("a", ["p"], [(0, 1)], [b"x"])
        assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert not (place / "journal.sqlite-wal").exists()
    monkeypatch.undo()
    with Journal.open(place) as again:
        assert [again.read(blob) for blob in again.blobs()] == [b"x"]


@pytest.mark.parametrize(
    ("kinds", "local"),
    [
        ([("/", "ext4")], True),
        ([("/", "ext4"), ("/data", "nfs4")], False),
        ([("/", "nfs"), ("/data", "xfs")], True),
        ([("/", "ext4"), ("/data", "xfs"), ("/data", "fuse.sshfs")], False),
        ([("/", "ext4"), ("/dat", "nfs4")], True),
        ([("/", "lustre")], False),
        ([], False),
    ],
)
def test_a_local_disk_is_one_that_is_known_to_be(
    monkeypatch: pytest.MonkeyPatch, kinds: list[tuple[str, str]], local: bool
) -> None:
    mounts = [SimpleNamespace(mountpoint=where, fstype=kind) for where, kind in kinds]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: mounts)  # noqa: A006
    assert is_on_local_disk(Path("/data/run")) is local


# --- inputs and blobs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "stays"),
    [
        ({}, True),
        ({"mtime_ns": 5, "size": None, "label": "moved.root"}, True),
        ({"identity": "2"}, False),
        ({"rows": 90}, False),
        ({"borders": (100,)}, False),
        ({"dataset": "zz"}, False),
    ],
)
def test_an_input_with_other_rows_loses_its_blobs(
    place: Path, journal: Journal, facts: dict[str, Any], stays: bool
) -> None:
    journal.write("a", ["p"], [(0, 10)], [b"x"])
    kept = journal.write("b", ["p"], [(0, 10)], [b"y"])
    journal.know([known("a", **facts), known("c")])
    assert journal.inputs()["a"] == known("a", **facts)
    assert set(journal.inputs()) == {"a", "b", "c"}
    assert [blob.input for blob in journal.blobs()] == (["a", "b"] if stays else ["b"])
    assert journal.read(kept) == b"y"
    assert len(files(place)) == 1 + stays


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("z", ["p"], [(0, 1)]), "must be known"),
        (("a", [], [(0, 1)]), "named once"),
        (("a", ["p", "p"], [(0, 1)]), "named once"),
        (("a", ["q"], [(0, 101)]), "outside"),
        (("a", ["q"], [(-1, 3)]), "outside"),
        (("a", ["q"], [(5, 3)]), "outside"),
        (("a", ["q"], [(0, 10), (9, 12)]), "given twice"),
        (("a", ["q", "p"], [(9, 12)]), "held twice"),
        (("a", ["q"], [(0, 1)], (99,)), "not there"),
    ],
)
def test_a_blob_that_would_make_the_journal_wrong_is_refused(
    place: Path, journal: Journal, call: Any, words: str
) -> None:
    journal.write("a", ["p"], [(0, 10)], [b"x"])
    key, products, rows, *superseded = call
    with pytest.raises(InternalError, match=words):
        journal.write(key, products, rows, [b"y"], *superseded)
    assert len(journal.blobs()) == len(files(place)) == 1


def test_dropping_twice_is_no_error(place: Path, journal: Journal) -> None:
    blob = journal.write("a", ["p"], [(0, 10)], [b"x"])
    journal.drop([blob.id])
    journal.drop([blob.id, 77])
    assert journal.blobs() == []
    assert files(place) == []


BLOBS = st.builds(
    lambda key, products, rows: (key, frozenset(products), frozenset(rows)),
    st.sampled_from("ab"),
    st.sets(st.sampled_from("pqr"), min_size=1),
    st.sets(st.integers(0, 12)),
)


@given(st.lists(BLOBS, max_size=5))
def test_blobs_are_disjoint_if_no_row_of_a_product_is_held_twice(wanted: list[Any]) -> None:
    blobs = [
        Blob(n, key, tuple(sorted(products)), tuple((r, r + 1) for r in sorted(rows)), 0, "")
        for n, (key, products, rows) in enumerate(wanted)
    ]
    held = [(key, p, r) for key, products, rows in wanted for p in products for r in rows]
    if len(held) == len(set(held)):
        check_disjoint(blobs)
    else:
        with pytest.raises(InternalError, match="held twice"):
            check_disjoint(blobs)


# --- against a model --------------------------------------------------------------------------------

ROW_SETS = st.lists(st.integers(0, 20), min_size=1, max_size=6).map(sorted)


class JournalAgainstModel(RuleBasedStateMachine):
    """Any sequence of calls, ends and kills: the journal says what a dictionary says."""

    written = Bundle("written")

    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.place = self.home / "run"
        self.place.mkdir(mode=0o700)
        self.journal = Journal.create(self.place)
        self.inputs: dict[str, KnownInput] = {}
        self.blobs: dict[int, tuple[str, tuple[str, ...], frozenset[int], bytes]] = {}
        self.notes: dict[str, Any] = {}

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.journal.close()
            shutil.rmtree(self.home)

    @rule(key=st.sampled_from("ab"), identity=st.sampled_from("12"), mtime=st.none() | st.integers(0))
    def know(self, key: str, identity: str, mtime: int | None) -> None:
        mtime = None if mtime is None else min(mtime, 2**62)
        if key in self.inputs and self.inputs[key].identity != identity:
            self.blobs = {n: blob for n, blob in self.blobs.items() if blob[0] != key}
        self.inputs[key] = known(key, identity=identity, rows=20, borders=(20,), mtime_ns=mtime)
        self.journal.know([self.inputs[key]])

    @rule(
        target=written,
        key=st.sampled_from("ab"),
        products=st.lists(st.sampled_from("pqr"), min_size=1, max_size=3, unique=True),
        cuts=ROW_SETS,
        superseded=st.lists(consumes(written), max_size=2, unique=True),
        content=st.lists(st.binary(max_size=30), max_size=3),
    )
    def write(self, key: str, products: list[str], cuts: list[int], superseded: list[int], content: Any) -> Any:
        ranges = list(zip(cuts[::2], cuts[1::2], strict=False))
        rows = frozenset(row for start, stop in ranges for row in range(start, stop))
        superseded = [n for n in superseded if n in self.blobs]
        wrong = key not in self.inputs or any(
            n not in superseded and k == key and set(p) & set(products) and r & rows
            for n, (k, p, r, _) in self.blobs.items()
        )
        if wrong:
            with pytest.raises(InternalError):
                self.journal.write(key, products, ranges, content, superseded)
            return multiple(*superseded)
        blob = self.journal.write(key, products, ranges, content, superseded)
        assert blob.id not in self.blobs
        for number in superseded:
            del self.blobs[number]
        self.blobs[blob.id] = (key, tuple(products), rows, b"".join(content))
        return blob.id

    @rule(numbers=st.lists(consumes(written), max_size=2))
    def drop(self, numbers: list[int]) -> None:
        self.journal.drop(numbers)
        for number in numbers:
            self.blobs.pop(number, None)

    @rule(key=st.text(max_size=3), value=st.recursive(st.none() | st.integers() | st.text(), st.lists))
    def note(self, key: str, value: Any) -> None:
        try:
            key.encode()
        except UnicodeEncodeError:
            with pytest.raises(JournalError):
                self.journal.note(key, value)
            return
        self.journal.note(key, value)
        self.notes[key] = value

    @rule()
    def end_and_continue(self) -> None:
        self.journal.close()
        self.journal = Journal.open(self.place)

    @rule()
    def be_killed_and_continue(self) -> None:
        """What is on the disk at this moment, without an end."""
        copy = self.home / "copy"
        shutil.copytree(self.place, copy, ignore=shutil.ignore_patterns("*-shm"))
        (copy / "blobs" / "00009999.blob").write_bytes(b"half")
        (copy / "blobs" / "00009999.blob.part").write_bytes(b"half")
        self.journal.close()
        shutil.rmtree(self.place)
        copy.rename(self.place)
        self.journal = Journal.open(self.place)

    @invariant()
    def says_what_the_model_says(self) -> None:
        if not hasattr(self, "home"):
            return
        self.journal.validate()
        assert self.journal.inputs() == self.inputs
        found = {
            blob.id: (
                blob.input,
                blob.products,
                frozenset(row for start, stop in blob.rows for row in range(start, stop)),
                self.journal.read(blob),
            )
            for blob in self.journal.blobs()
        }
        assert found == self.blobs
        assert files(self.place) == [f"{number:08d}.blob" for number in sorted(self.blobs)]
        for key, value in self.notes.items():
            assert self.journal.noted(key) == value


JournalAgainstModel.TestCase.settings = settings(
    max_examples=examples(20), stateful_step_count=20, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
TestJournalAgainstModel = JournalAgainstModel.TestCase


# --- a disk that does not take it -------------------------------------------------------------------


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_is_a_journal_error_and_harms_nothing(
    place: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    old = journal.write("a", ["p"], [(0, 10)], [b"x"])

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(JournalError, match=r"journal\.sqlite: .*No space left"):
        journal.write("a", ["p"], [(0, 20)], [b"y"], [old.id])
    monkeypatch.undo()
    assert journal.blobs() == [old]
    assert files(place) == ["00000001.blob"]
    new = journal.write("a", ["p"], [(0, 20)], [b"y"], [old.id])
    assert [journal.read(blob) for blob in journal.blobs()] == [b"y"]
    assert new.id == 3


def test_a_database_that_cannot_grow_is_a_journal_error(place: Path, journal: Journal) -> None:
    old = journal.write("a", ["p"], [(0, 10)], [b"x"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(JournalError, match="cannot be written down"):
            journal.write("a", ["p"], [(0, 20)], [b"y"], [old.id])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.blobs() == [old]
    assert journal.read(old) == b"x"
    journal.write("a", ["p"], [(0, 20)], [b"y"], [old.id])
    journal.close()
    with Journal.open(place) as again:
        assert [again.read(blob) for blob in again.blobs()] == [b"y"]
        assert len(files(place)) == 1  # the one of the failed commit is gone too


def test_a_journal_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be made"):
        Journal.create(tmp_path / "none")


def test_an_interrupted_write_is_as_if_it_had_not_begun_or_had_ended(
    place: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes right after the commit, before anybody here knows of it."""
    old = journal.write("a", ["p"], [(0, 10)], [b"x"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("windrow.store.journal.remove_blobs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.write("a", ["p"], [(0, 20)], [b"y"], [old.id])
    monkeypatch.undo()
    assert [journal.read(blob) for blob in journal.blobs()] == [b"y"]
    monkeypatch.setattr(Journal, "_delete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.write("a", ["p"], [(0, 30)], [b"z"], [2])
    monkeypatch.undo()
    assert [journal.read(blob) for blob in journal.blobs()] == [b"y"]
    journal.close()
    Journal.open(place).close()
    assert files(place) == ["00000002.blob"]


# --- refused whole ----------------------------------------------------------------------------------


def written(place: Path) -> list[Any]:
    place.mkdir(mode=0o700)
    with Journal.create(place) as journal:
        journal.know([known("a"), known("b")])
        journal.write("a", ["p", "q"], [(0, 10)], [b"first content"])
        journal.write("b", ["p"], [(0, 10), (20, 30)], [b"second content"])
        journal.note("options", {"chunk": 1000})
        return said(journal)


def said(journal: Journal) -> list[Any]:
    blobs = journal.blobs()
    contents = [journal.read(blob) for blob in blobs]
    return [journal.inputs(), blobs, contents, journal.noted("options")]


@pytest.mark.parametrize("change", ["cut", "flip", "grow", "remove", "swap"])
def test_a_damaged_blob_refuses_the_whole_journal(tmp_path: Path, change: str) -> None:
    place = tmp_path / "run"
    written(place)
    file, other = place / "blobs" / "00000001.blob", place / "blobs" / "00000002.blob"
    good = file.read_bytes()
    if change == "remove":
        file.unlink()
    elif change == "swap":
        file.write_bytes(other.read_bytes())
    else:
        bad = {"cut": good[:-1], "flip": good[:-1] + b"\x00", "grow": good + b"x"}[change]
        file.write_bytes(bad)
    with pytest.raises(CorruptFileError, match=r"00000001\.blob.*resume=False"):
        Journal.open(place)
    assert other.exists()
    file.write_bytes(good)
    Journal.open(place).close()


@pytest.mark.parametrize("which", ["00000001.blob", "journal.sqlite"])
@settings(max_examples=examples(40))
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_changed_or_missing_byte_is_refused_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, which: str, where: float, bit: int
) -> None:
    place = tmp_path_factory.mktemp("run") / "run"
    before = written(place)
    file = next(place.rglob(which))
    good = file.read_bytes()
    at = int(where * len(good))
    for bad in (good[:at], good[:at] + bytes([good[at] ^ (1 << bit)]) + good[at + 1 :]):
        file.write_bytes(bad)
        try:
            with Journal.open(place) as journal:
                assert said(journal) == before
            story = ""
        except WindrowError as error:
            story = str(error)
        if story:
            assert which in story
            assert any(todo in story for todo in ("resume=False", "newer Windrow", "another dir", "not a part"))
        else:
            assert which == "journal.sqlite"


def test_every_word_of_an_entry_is_guarded(tmp_path: Path) -> None:
    """A database does not notice a digit that has changed."""
    place = tmp_path / "run"
    written(place)
    for table, column, value in (
        ("inputs", "identity", "2"), ("inputs", "rows", 1000), ("inputs", "borders", "[100]"),
        ("blobs", "rows", "[[0,20]]"), ("blobs", "bytes", 14), ("blobs", "products", 2),
        ("product_sets", "products", '["p","r"]'), ("notes", "value", '{"chunk":2000}'),
    ):  # fmt: skip
        copy = tmp_path / "copy"
        shutil.copytree(place, copy)
        change(copy, f"UPDATE {table} SET {column} = ? WHERE rowid = 1", value)
        with pytest.raises(CorruptFileError, match=r"has changed.*resume=False"):
            Journal.open(copy)
        shutil.rmtree(copy)


def change(place: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(place / "journal.sqlite", isolation_level=None)
    connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    ("key", "products", "rows", "words"),
    [
        ("a", 1, [[5, 15]], "held twice"),
        ("a", 2, [[5, 15]], "held twice"),
        ("a", 1, [[90, 101]], "outside"),
        ("a", 1, [[40, 50], [30, 40]], "not in order"),
        ("z", 1, [[40, 50]], "unknown input"),
        ("a", 9, [[40, 50]], "unknown input"),
    ],
)
def test_entries_that_contradict_each_other_are_refused(
    tmp_path: Path, key: str, products: int, rows: Any, words: str
) -> None:
    place = tmp_path / "run"
    (_, blobs, _, _) = written(place)
    shutil.copy(place / "blobs" / "00000001.blob", place / "blobs" / "00000003.blob")
    length, digest, names = blobs[0].bytes, blobs[0].digest, {1: ["p", "q"], 2: ["p"]}
    sealed = seal(3, key, plain(names.get(products)), plain(rows), length, digest)
    entry = (3, key, products, plain(rows), length, digest, sealed)
    change(place, "INSERT INTO blobs VALUES (?, ?, ?, ?, ?, ?, ?)", *entry)
    with pytest.raises(CorruptFileError, match=f"{words}.*resume=False"):
        Journal.open(place)


def test_other_databases_and_newer_formats_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    written(place)
    change(place, "PRAGMA user_version = 9")
    for read_only in (True, False):
        with pytest.raises(DataError, match=r"journal\.sqlite has format 9.*newer Windrow"):
            Journal.open(place, read_only=read_only)
    change(place, "PRAGMA application_id = 1")
    before = (place / "journal.sqlite").read_bytes()
    for read_only in (True, False):
        with pytest.raises(CorruptFileError, match="not a journal that Windrow wrote"):
            Journal.open(place, read_only=read_only)
    assert (place / "journal.sqlite").read_bytes() == before
    (place / "journal.sqlite").write_bytes(b"hello")
    with pytest.raises(CorruptFileError, match="no database"):
        Journal.open(place)


def test_no_journal_is_no_journal(tmp_path: Path) -> None:
    assert not Journal.exists(tmp_path)
    with pytest.raises(MissingFileError, match="nothing can be continued"):
        Journal.open(tmp_path)
    written(tmp_path / "run")
    assert Journal.exists(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "blobs")
    with pytest.raises(CorruptFileError, match=r"blobs is missing.*resume=False"):
        Journal.open(tmp_path / "run")


@pytest.mark.parametrize("which", [".", "journal.sqlite", "blobs", "blobs/00000001.blob"])
@pytest.mark.parametrize("others", [0o020, 0o002])
def test_what_others_could_have_written_is_not_read(tmp_path: Path, which: str, others: int) -> None:
    place = tmp_path / "run"
    written(place)
    usual = (place / which).stat().st_mode
    (place / which).chmod(usual | others)
    with pytest.raises(DataError, match="chmod go-w"):
        Journal.open(place)
    (place / which).chmod(usual)
    with Journal.open(place) as journal:
        (place / which).chmod(usual | others)
        if which.startswith("blobs"):
            with pytest.raises(DataError, match="chmod go-w"):
                journal.read(journal.blobs()[0])
        (place / which).chmod(usual)
