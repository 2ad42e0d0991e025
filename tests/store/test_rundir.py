"""The directory of a run: for its owner alone, whole or not there, and nothing that is not ours is touched."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.errors import CorruptFileError, DataError, MissingFileError, UsageError
from windrow.store.disk import take_lock, write_whole
from windrow.store.rundir import NAMES, RunDirectory, read_result_file

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def filled(path: Path) -> RunDirectory:
    directory = RunDirectory.create(path)
    directory.write_manifest({"state": "complete", "pipeline": "p"})
    directory.write_summary('{"rows": 3}')
    directory.write_result(b"content")
    directory.write_log("{}\n")
    directory.close()
    return directory


def test_everything_is_for_the_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "run"
    before = os.umask(0)
    try:
        filled(place)
    finally:
        os.umask(before)
    assert mode(place) == 0o700
    files = sorted(place.iterdir())
    assert [file.name for file in files] == [
        "events.jsonl", "manifest.json", "result.pickle", "summary.json",
    ]  # fmt: skip
    assert {mode(file) for file in files} == {0o600}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    filled(tmp_path / "run")
    again = RunDirectory.open(tmp_path / "run")
    assert again.read_result() == b"content"
    assert again.read_summary() == {"rows": 3}
    assert again.log.read_text() == "{}\n"
    manifest = again.read_manifest()
    assert (manifest["pipeline"], manifest["state"], manifest["format"]) == ("p", "complete", 2)


def test_a_manifest_grows(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest({"state": "running", "started": "then"})
    directory.write_manifest({"state": "complete", "ended": "now"})
    found = directory.read_manifest()
    assert {key: found[key] for key in ("state", "started", "ended")} == {
        "state": "complete", "started": "then", "ended": "now",
    }  # fmt: skip


def test_a_new_run_clears_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "run"
    filled(place)
    (place / "report.html").write_text("old")
    (place / "notes.txt").write_text("mine")
    (place / "skim").mkdir()
    (place / "result.pickle.part").write_text("half")
    with RunDirectory.create(place):
        assert sorted(file.name for file in place.iterdir()) == [
            ".windrow-lock", "notes.txt", "previous", "skim",
        ]  # fmt: skip
    assert not (place / ".windrow-lock").exists()


# --- an earlier run, another run --------------------------------------------------------------------


def result_of(place: Path) -> bytes:
    return RunDirectory.open(place).read_result()


def test_an_earlier_result_is_set_aside_until_there_is_a_new_one(tmp_path: Path) -> None:
    place = tmp_path / "run"
    filled(place)
    (place / "report.html").write_text("old")
    with RunDirectory.create(place) as directory:
        directory.write_manifest({"state": "running", "started": "then"})
        assert mode(place / "previous") == 0o700
        assert (place / "previous" / "report.html").read_text() == "old"
        with pytest.raises(MissingFileError, match=r"is in .*run/previous"):
            directory.read_result()
        assert result_of(place / "previous") == b"content"
        directory.write_result(b"new")
        directory.write_manifest({"state": "complete"})
        directory.forget_previous()
    assert result_of(place) == b"new"
    assert not (place / "previous").exists()


def ended(place: Path, state: str, content: bytes | None) -> None:
    with RunDirectory.create(place) as directory:
        directory.write_manifest({"state": state})
        if content is not None:
            directory.write_result(content)
            directory.forget_previous()


@settings(max_examples=examples(60))
@given(runs=st.lists(st.sampled_from(["complete", "incomplete", "failed", "running"]), max_size=6))
def test_a_complete_result_is_there_until_another_one_is(
    tmp_path_factory: pytest.TempPathFactory, runs: list[str]
) -> None:
    """The last complete result is never lost, and of the others the last one is there."""
    place = tmp_path_factory.mktemp("runs") / "run"
    for number, state in enumerate(runs):
        ended(place, state, b"%d" % number if state in ("complete", "incomplete") else None)
    there = [where.joinpath("result.pickle").exists() and result_of(where) for where in (place, place / "previous")]
    results = [number for number, state in enumerate(runs) if state in ("complete", "incomplete")]
    complete = [number for number in results if runs[number] == "complete"]
    wanted = {*complete[-1:], *(results[-1:] if runs and results[-1:] == [len(runs) - 1] else ())}
    if results and not complete:
        wanted.add(results[-1])
    assert {b"%d" % number for number in wanted} == set(there) - {False}


def test_a_second_live_run_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "run"
    with RunDirectory.create(place) as first:
        first.write_manifest({"state": "running"})
        first.write_log("mine")
        with pytest.raises(UsageError, match="another run is going on"):
            RunDirectory.create(place)
        assert first.log.read_text() == "mine"
    RunDirectory.create(place).close()


def test_the_lock_of_a_killed_run_is_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys; from windrow.store.rundir import RunDirectory; "
        "d = RunDirectory.create(sys.argv[1]); d.write_manifest({'state': 'running'}); os._exit(9)"
    )
    place = tmp_path / "run"
    done = subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    assert done.returncode == 9
    assert (place / ".windrow-lock").exists()
    RunDirectory.create(place).close()


def test_only_one_of_many_takes_the_lock(tmp_path: Path) -> None:
    """Threads take and release it as fast as they can: never two at a time."""
    inside, most, finished = [0], [0], [0]
    guard = threading.Lock()

    def work() -> None:
        for _ in range(200):
            lock = take_lock(tmp_path)
            if lock is None:
                continue
            with guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            with guard:
                inside[0] -= 1
            lock.release()
        with guard:
            finished[0] += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert finished[0] == 4
    assert most[0] == 1


def test_others_things_called_previous_are_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "run"
    filled(place)
    (place / "previous").write_text("mine")
    with pytest.raises(UsageError, match="previous is a file"):
        RunDirectory.create(place)
    assert (place / "previous").read_text() == "mine"
    assert result_of(place) == b"content"
    (place / "previous").unlink()
    (place / "previous").mkdir()
    (place / "previous" / "summary.json").write_text("theirs")
    with pytest.raises(UsageError, match=r"would replace: summary\.json"):
        RunDirectory.create(place)
    (place / "previous" / "summary.json").rename(place / "previous" / "thesis.txt")
    ended(place, "complete", b"new")
    assert result_of(place) == b"new"
    assert (place / "previous" / "thesis.txt").read_text() == "theirs"


def test_a_directory_with_other_files_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text("x")
    filled(tmp_path)
    assert (tmp_path / "analysis.py").read_text() == "x"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_our_name_that_is_not_ours_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"kind": "something else"}')
    with pytest.raises(UsageError, match=f"would replace: {name}"):
        RunDirectory.create(tmp_path)
    assert (tmp_path / name).read_text() == '{"kind": "something else"}'


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        RunDirectory.create(tmp_path / "run")
    assert (tmp_path / "run").read_text() == "x"


def test_directories_that_are_no_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="no run directory"):
        RunDirectory.open(tmp_path / "none")
    with pytest.raises(DataError, match=r"no manifest\.json"):
        RunDirectory.open(tmp_path)


# --- who may write --------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [0o770, 0o707, 0o777])
def test_an_empty_directory_is_closed_to_others(tmp_path: Path, others: int) -> None:
    place = tmp_path / "run"
    place.mkdir()
    place.chmod(others)
    RunDirectory.create(place).close()
    assert mode(place) & 0o022 == 0


@pytest.mark.parametrize(("others", "empty"), [(0o777, False), (0o1777, True)])
def test_a_shared_directory_is_left_as_it_is(tmp_path: Path, others: int, empty: bool) -> None:
    place = tmp_path / "shared"
    place.mkdir()
    if not empty:
        (place / "theirs").write_text("x")
    place.chmod(others)
    with pytest.raises(UsageError, match="other users"):
        RunDirectory.create(place)
    assert mode(place) == others


@pytest.mark.parametrize("which", ["directory", "file"])
@pytest.mark.parametrize("others", [0o020, 0o002])
def test_a_result_others_could_have_written_is_not_read(tmp_path: Path, which: str, others: int) -> None:
    directory = filled(tmp_path / "run")
    place = directory.path if which == "directory" else directory.path / "result.pickle"
    place.chmod(mode(place) | others)
    with pytest.raises(DataError, match="chmod go-w"):
        directory.read_result()
    place.chmod(mode(place) & ~others)
    assert directory.read_result() == b"content"


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    directory = filled(tmp_path / "run")
    (tmp_path / "mine").mkdir(mode=0o700)
    link = tmp_path / "mine" / "result.pickle"
    link.symlink_to(directory.path / "result.pickle")
    assert read_result_file(link) == b"content"
    directory.path.chmod(0o777)
    with pytest.raises(DataError, match="chmod go-w"):
        read_result_file(link)


def test_another_owner_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = filled(tmp_path / "run")
    owner = directory.path.stat().st_uid
    if owner == 0:
        os.chown(directory.path / "result.pickle", 12345, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(DataError, match="other users"):
        directory.read_result()


# --- whole or not ---------------------------------------------------------------------------------


@settings(max_examples=examples(30))
@given(content=st.binary(max_size=2000), where=st.floats(0, 1, exclude_max=True))
def test_any_changed_or_missing_byte_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, where: float
) -> None:
    directory = RunDirectory.create(tmp_path_factory.mktemp("run"))
    directory.write_manifest({"state": "complete"})
    directory.write_result(content)
    assert directory.read_result() == content
    file = directory.path / "result.pickle"
    good = file.read_bytes()
    at = int(where * len(good))
    for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :], good + b"x"):
        file.write_bytes(bad)
        with pytest.raises(DataError):
            directory.read_result()


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    directory = filled(tmp_path / "run")
    file = directory.path / "result.pickle"
    content = bytearray(file.read_bytes())
    content[16:20] = (7).to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"format 7.*newer Windrow"):
        directory.read_result()


def test_other_files_are_not_results(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x80\x05K\x01.")
    with pytest.raises(CorruptFileError, match="not a result"):
        read_result_file(tmp_path / "x")


@pytest.mark.parametrize(("state", "words"), [("running", "was killed"), ("failed", "failed"), ("odd", "'odd'")])
def test_a_run_without_a_result_says_what_became_of_it(tmp_path: Path, state: str, words: str) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest({"state": state, "started": "2026-01-01T00:00:00+00:00"})
    with pytest.raises(MissingFileError, match=f"{words}.*2026-01-01"):
        directory.read_result()
    with pytest.raises(MissingFileError, match=r"summary\.json"):
        directory.read_summary()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(file, [b"new"])
    assert file.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_a_broken_manifest_is_no_run(tmp_path: Path) -> None:
    directory = filled(tmp_path / "run")
    (directory.path / "manifest.json").write_text(json.dumps([1]))
    with pytest.raises(DataError, match="no manifest"):
        directory.read_manifest()


def test_a_manifest_takes_any_metadata(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    directory.write_manifest({"datasets": {"tt": {(1, 2): [tmp_path, {3: None}]}}})
    assert directory.read_manifest()["datasets"] == {"tt": {"(1, 2)": [str(tmp_path), {"3": None}]}}
