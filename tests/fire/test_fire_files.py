"""Workers and whole programs are killed while tasks write files: every file that is there is complete, at any moment.

All fifty rounds: ``python -m pytest -s -m fire tests/fire/test_fire_files.py``
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from fire.file_program import is_complete, run
from fire.leftovers import Scene, send, server_of, wait_until, workers_of

TESTS = Path(__file__).resolve().parents[1]
#: Of the rounds in the life of one program the last one kills the program itself.
ROUNDS_OF_A_LIFE = 10
#: A program that is not killed goes on for so long: far longer than it lives.
ENDLESS = 100_000


class Life:
    """A program in a process group of its own."""

    def __init__(self, place: Path, scene: Scene) -> None:
        self.scene = scene
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "fire" / "file_program.py"), str(place), str(ENDLESS)],
            start_new_session=True,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        try:
            wait_until(lambda: len(workers_of(self.process.pid)) == 2, "the program has workers")
        except AssertionError:
            self.kill()
            raise

    def kill_a_worker(self, chance: random.Random) -> bool:
        server = server_of(self.process.pid)
        workers = workers_of(self.process.pid)
        return bool(workers) and send(chance.choice(workers), server or 0, signal.SIGKILL)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
        wait_until(lambda: not self.scene.marked(), "all processes of the program are gone")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    mark = f"fire-{uuid.uuid4().hex}"
    monkeypatch.setenv("WINDROW_TREE", mark)
    monkeypatch.setenv("TMPDIR", str(temporary))
    return Scene(mark, temporary)


def known_files(place: Path) -> list[Path]:
    """All files under names that users know, as far as they stay there while one looks."""
    found = []
    for directory, directories, names in os.walk(place):
        directories[:] = [one for one in directories if not one.startswith(".windrow-")]
        found += [Path(directory, name) for name in names]
    return found


def torn_files(place: Path) -> list[str]:
    """Files that are not complete; others may replace them meanwhile."""
    torn = []
    for path in known_files(place):
        with contextlib.suppress(FileNotFoundError):
            if not is_complete(path):
                torn.append(str(path.relative_to(place)))
    return torn


def private(place: Path) -> list[Path]:
    return [path for path in place.rglob(".windrow-*") if path.is_dir()]


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def under_fire(place: Path, scene: Scene, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    place.mkdir()
    workers = programs = looked = left = 0
    while workers + programs < rounds:
        life = Life(place, scene)
        try:
            for _ in range(min(ROUNDS_OF_A_LIFE, rounds - workers - programs) - 1):
                time.sleep(chance.uniform(0.0, 0.25))
                wait_until(lambda life=life: life.kill_a_worker(chance), "there is one")  # type: ignore[misc]
                workers += 1
                assert torn_files(place) == []
                looked += len(known_files(place))
            time.sleep(chance.uniform(0.0, 0.25))
            assert life.process.poll() is None, "the program ended by itself"
        finally:
            life.kill()
        programs += 1
        assert torn_files(place) == []
        left += bool(private(place))
    sys.stdout.write(
        f"\n{workers} workers and {programs} programs killed while files were written; looked at {looked} files, 0 torn; "
        f"{left} times something private was left for the next one\n"
    )
    assert looked > 0
    run(place, 1)
    run(place.with_name("quiet"), 1)
    assert contents(place) == contents(place.with_name("quiet"))
    assert private(place) == []
    assert torn_files(place) == []
    wait_until(lambda: not scene.marked(), "no process is left")


def test_files_are_complete_while_workers_and_programs_are_killed(tmp_path: Path, scene: Scene) -> None:
    under_fire(tmp_path / "place", scene, rounds=5, seed=1)


@pytest.mark.fire
def test_fifty_rounds_of_killing_while_files_are_written(tmp_path: Path, scene: Scene) -> None:
    under_fire(tmp_path / "place", scene, rounds=50, seed=2)


def test_a_torn_file_would_be_found(tmp_path: Path) -> None:
    run(tmp_path, 1)
    assert torn_files(tmp_path) == []
    path = tmp_path / "large" / "1.bin"
    path.write_bytes(path.read_bytes()[:-1])
    (tmp_path / "tree" / "0.bin").write_bytes(b"")
    assert sorted(torn_files(tmp_path)) == ["large/1.bin", "tree/0.bin"]
