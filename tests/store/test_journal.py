"""The journal of a run: what was written is read, what is wrong is refused whole, and others are kept out."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from searching import examples
from windrow.errors import CorruptFileError, DataError, InternalError, JournalError, MissingFileError, WindrowError
from windrow.store.journal.journal import Journal, KnownInput

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


def pieces(place: Path) -> int:
    """Count the pieces of content in the database."""
    connection = sqlite3.connect(place / "journal.sqlite")
    (count,) = connection.execute("SELECT count(*) FROM pieces").fetchone()
    connection.close()
    return int(count)


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
    assert modes == {"run": 0o700, "journal.sqlite": 0o600}


def test_a_new_journal_replaces_one(place: Path, journal: Journal) -> None:
    journal.write("a", ["p"], [(0, 1)], [b"x"])
    journal.close()
    (place / "journal.sqlite.part").write_text("half")
    with Journal.create(place) as fresh:
        assert fresh.inputs() == {}
        assert fresh.blobs() == []
    assert [file.name for file in place.iterdir()] == ["journal.sqlite"]


def test_no_power_cut_takes_a_commit_back(journal: Journal) -> None:
    assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (3,)


def test_a_large_partial_is_kept_in_pieces(place: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.store.journal.journal.PIECE", 10)
    content = bytes(range(95))
    blob = journal.write("a", ["p"], [(0, 10)], [content[:33], memoryview(content)[33:]])
    assert pieces(place) == 10
    assert journal.read(blob) == content
    journal.drop([blob.id])
    assert pieces(place) == 0


def test_a_dropped_partial_gives_its_room_back(place: Path, journal: Journal) -> None:
    before = (place / "journal.sqlite").stat().st_size
    blob = journal.write("a", ["p"], [(0, 10)], [bytes(1_000_000)])
    assert (place / "journal.sqlite").stat().st_size > 1_000_000
    journal.drop([blob.id])
    assert (place / "journal.sqlite").stat().st_size < before + 50_000


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
    assert pieces(place) == 1 + stays


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("a", ["q"], [(0, 10), (9, 12)]), "given twice"),
        (("a", ["q", "p"], [(9, 12)]), "held twice"),
        (("a", ["p"], [(0, 100)], (99,)), "held twice"),
    ],
)
def test_a_blob_that_would_make_the_journal_wrong_is_refused(journal: Journal, call: Any, words: str) -> None:
    journal.write("a", ["p"], [(0, 10)], [b"x"])
    key, products, rows, *superseded = call
    with pytest.raises(InternalError, match=words):
        journal.write(key, products, rows, [b"y"], *superseded)
    assert len(journal.blobs()) == 1


def test_dropping_twice_is_no_error(place: Path, journal: Journal) -> None:
    blob = journal.write("a", ["p"], [(0, 10)], [b"x"])
    journal.drop([blob.id])
    journal.drop([blob.id, 77])
    assert journal.blobs() == []
    assert pieces(place) == 0


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
        wrong = any(
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
        shutil.copytree(self.place, copy)
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
        assert pieces(self.place) == sum(bool(content) for *_, content in self.blobs.values())
        for key, value in self.notes.items():
            assert self.journal.noted(key) == value


JournalAgainstModel.TestCase.settings = settings(
    max_examples=examples(10), stateful_step_count=15, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
TestJournalAgainstModel = JournalAgainstModel.TestCase


# --- a disk that does not take it -------------------------------------------------------------------


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
        assert pieces(place) == 1


def test_a_journal_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be made"):
        Journal.create(tmp_path / "none")


def test_an_interrupted_write_is_as_if_it_had_not_begun(
    place: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = journal.write("a", ["p"], [(0, 10)], [b"x"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, "_delete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.write("a", ["p"], [(0, 30)], [b"z"], [old.id])
    monkeypatch.undo()
    assert [journal.read(blob) for blob in journal.blobs()] == [b"x"]
    journal.write("a", ["p"], [(0, 30)], [b"z"], [old.id])
    assert pieces(place) == 1


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


@pytest.mark.parametrize("change", ["zeroblob(13)", "NULL", "'first content'", "x'00'"])
def test_a_damaged_partial_refuses_the_whole_journal(tmp_path: Path, change: str) -> None:
    place = tmp_path / "run"
    written(place)
    alter(place, f"UPDATE pieces SET content = {change} WHERE blob = 1")
    with pytest.raises(CorruptFileError, match=r"content of blob 1 has changed.*resume=False"):
        Journal.open(place)


@settings(max_examples=examples(40))
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_changed_or_missing_byte_is_refused_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, where: float, bit: int
) -> None:
    place = tmp_path_factory.mktemp("run") / "run"
    before = written(place)
    file = place / "journal.sqlite"
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
            assert "journal.sqlite" in story
            assert any(todo in story for todo in ("resume=False", "another dir"))


def test_every_word_of_an_entry_is_guarded(tmp_path: Path) -> None:
    """A database does not notice a digit that has changed."""
    place = tmp_path / "run"
    written(place)
    for table, column, value in (
        ("inputs", "key", "z"), ("inputs", "facts", "[]"), ("blobs", "input", "b"),
        ("blobs", "rows", "[[0,20]]"), ("blobs", "bytes", 14), ("blobs", "products", 2),
        ("product_sets", "products", '["p","r"]'), ("notes", "value", '{"chunk":2000}'),
    ):  # fmt: skip
        copy = tmp_path / "copy"
        shutil.copytree(place, copy)
        alter(copy, f"UPDATE {table} SET {column} = ? WHERE rowid = 1", value)
        with pytest.raises(CorruptFileError, match=r"has changed.*resume=False"):
            Journal.open(copy)
        shutil.rmtree(copy)


def alter(place: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(place / "journal.sqlite", isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def test_other_databases_and_other_formats_are_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    written(place)
    for version, words in ((9, "a newer version"), (1, "an earlier version")):
        alter(place, f"PRAGMA user_version = {version}")
        with pytest.raises(DataError, match=rf"journal\.sqlite was made by {words}.*format {version}.*resume=False"):
            Journal.open(place)
    alter(place, "PRAGMA application_id = 1")
    before = (place / "journal.sqlite").read_bytes()
    with pytest.raises(CorruptFileError, match="not a journal that Windrow wrote"):
        Journal.open(place)
    assert (place / "journal.sqlite").read_bytes() == before
    (place / "journal.sqlite").write_bytes(b"hello, this is no database at all")
    with pytest.raises(CorruptFileError, match=r"damaged.*resume=False"):
        Journal.open(place)


def test_no_journal_is_no_journal(tmp_path: Path) -> None:
    assert not Journal.exists(tmp_path)
    with pytest.raises(MissingFileError, match="nothing can be continued"):
        Journal.open(tmp_path)
    written(tmp_path / "run")
    assert Journal.exists(tmp_path / "run")


@pytest.mark.parametrize("which", [".", "journal.sqlite"])
@pytest.mark.parametrize("others", [0o020, 0o002])
def test_what_others_could_have_written_is_not_read(tmp_path: Path, which: str, others: int) -> None:
    place = tmp_path / "run"
    written(place)
    usual = (place / which).stat().st_mode
    (place / which).chmod(usual | others)
    with pytest.raises(DataError, match="chmod go-w"):
        Journal.open(place)
    (place / which).chmod(usual)
    Journal.open(place).close()
