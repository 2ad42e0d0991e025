"""Continuing in a run directory: its journal is taken over or removed, and never anybody else's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from windrow.errors import DataError, UsageError
from windrow.store.journal.journal import Journal, KnownInput
from windrow.store.rundir import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path


def ran(place: Path, state: str, result: bytes | None = b"old", *, journal: bool = True) -> None:
    with RunDirectory.create(place) as directory:
        directory.write_manifest({"state": state, "error": "of old"})
        directory.write_log("old\n")
        if journal:
            with Journal.create(place) as made:
                made.know([KnownInput("a", "tt", "f", "1", 10, (10,), None, None)])
                made.write("a", ["p"], [(0, 5)], [b"half of it"])
        if result is not None:
            directory.write_result(result)


@pytest.mark.parametrize("state", ["running", "failed", "incomplete", "complete"])
def test_a_resumed_run_has_the_journal_and_no_more(tmp_path: Path, state: str) -> None:
    place = tmp_path / "run"
    result = b"old" if state in ("incomplete", "complete") else None
    ran(place, state, result)
    with RunDirectory.resume(place) as directory:
        assert directory.read_manifest() == {
            "kind": "windrow run", "format": 2, "state": "running",
        }  # fmt: skip
        assert not directory.log.exists()
        assert not (place / "result.pickle").exists()
        if result:
            assert RunDirectory.open(place / "previous").read_result() == result
            assert RunDirectory.open(place / "previous").read_manifest()["error"] == "of old"
        with Journal.open(place) as journal:
            assert [journal.read(blob) for blob in journal.blobs()] == [b"half of it"]
        directory.write_result(b"new")
        directory.write_manifest({"state": "complete"})
        directory.forget_previous()
    assert not (place / "previous").exists()
    assert Journal.exists(place)
    assert RunDirectory.open(place).read_result() == b"new"


def test_a_run_is_resumed_again_and_again(tmp_path: Path) -> None:
    place = tmp_path / "run"
    ran(place, "complete")
    for _ in range(3):
        with RunDirectory.resume(place) as directory:
            directory.write_manifest({"state": "running"})
        assert RunDirectory.open(place / "previous").read_result() == b"old"
        Journal.open(place).close()


def test_a_new_run_removes_the_journal(tmp_path: Path) -> None:
    place = tmp_path / "run"
    ran(place, "complete")
    with RunDirectory.create(place):
        assert not Journal.exists(place)
        assert not (place / "previous" / "journal.sqlite").exists()


def test_nothing_is_removed_before_the_lock_is_taken(tmp_path: Path) -> None:
    place = tmp_path / "run"
    ran(place, "running", None)
    with RunDirectory.resume(place):
        for take in (RunDirectory.create, RunDirectory.resume):
            with pytest.raises(UsageError, match="another run is going on"):
                take(place)
        with Journal.open(place) as journal:
            assert len(journal.blobs()) == 1


def test_where_no_run_has_been_a_new_one_starts(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "analysis.py").write_text("x")
    for place in (tmp_path / "none", tmp_path / "mine"):
        with RunDirectory.resume(place) as directory:
            directory.write_manifest({"state": "running"})
        assert not Journal.exists(place)


def test_a_run_killed_before_its_journal_starts_again(tmp_path: Path) -> None:
    ran(tmp_path / "run", "running", None, journal=False)
    with RunDirectory.resume(tmp_path / "run") as directory:
        assert not directory.log.exists()


def test_a_run_that_ended_without_a_journal_cannot_be_continued(tmp_path: Path) -> None:
    place = tmp_path / "run"
    ran(place, "complete", journal=False)
    with pytest.raises(UsageError, match=r"nothing to continue.*resume=False"):
        RunDirectory.resume(place)
    assert RunDirectory.open(place).read_result() == b"old"
    RunDirectory.create(place).close()  # nor is it locked


@pytest.mark.parametrize("name", ["journal.sqlite", "journal.sqlite-journal"])
def test_things_of_our_name_that_are_not_ours_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("mine")
    for take in (RunDirectory.create, RunDirectory.resume):
        with pytest.raises(UsageError, match=f"would replace: {name}"):
            take(tmp_path)
    assert (tmp_path / name / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize(("version", "whose"), [(1, "an earlier"), (None, "an earlier"), (9, "a newer")])
def test_a_directory_of_another_version_is_refused_and_left_alone(
    tmp_path: Path, version: int | None, whose: str
) -> None:
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    (place / "manifest.json").write_text(json.dumps({"kind": "windrow run", "format": version, "state": "complete"}))
    (place / "journal.sqlite").write_bytes(b"of that version")
    (place / "blobs").mkdir()
    for take in (RunDirectory.create, RunDirectory.resume, RunDirectory.open):
        with pytest.raises(DataError, match=f"made by {whose} version of Windrow.*name another directory"):
            take(place)
    assert sorted(entry.name for entry in place.iterdir()) == ["blobs", "journal.sqlite", "manifest.json"]
