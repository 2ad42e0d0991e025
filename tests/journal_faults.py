"""Dies at every step of what a journal does, one after the other, and tells what is found afterwards.

Run as a program with the name of a scenario. It forks a child for each step: the child ends at once, as if killed, before
or after that step; the parent then opens what is left. Forking is safe here, as this program has one thread.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.store.journal.journal import Journal, KnownInput
from windrow.store.rundir import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir")


class Bomb:
    """Ends the process before (even numbers) or after (odd numbers) the n-th step."""

    def __init__(self, number: int) -> None:
        self.left = number

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            try:
                return function(*args, **kwargs)
            finally:
                self.tick()

        return stepped

    def tick(self) -> None:
        if self.left == 0:
            os._exit(99)
        self.left -= 1

    def arm(self) -> None:
        for name in STEPS:
            setattr(os, name, self.around(getattr(os, name)))
        stepped = self.around

        class Connection(sqlite3.Connection):
            execute = stepped(sqlite3.Connection.execute)
            executemany = stepped(sqlite3.Connection.executemany)

        connect = sqlite3.connect
        sqlite3.connect = lambda *args, **kwargs: connect(*args, factory=Connection, **kwargs)  # type: ignore[assignment]


def known(key: str, identity: str = "1") -> KnownInput:
    return KnownInput(key, "tt", key, identity, 100, (50, 100), 10, 20)


def prepare(place: Path) -> None:
    """A run that has a manifest and a result, and a journal with two blobs."""
    with RunDirectory.create(place) as directory:
        directory.write_manifest({"state": "complete"})
        directory.write_result(b"result")
        with Journal.create(place) as journal:
            journal.know([known("a"), known("b")])
            journal.write("a", ["p"], [(0, 10)], [b"a first"])
            journal.write("b", ["p"], [(0, 10)], [b"b first"])


def with_journal(act: Callable[[Journal], object]) -> Callable[[Path], None]:
    def run(place: Path) -> None:
        with Journal.open(place) as journal:
            act(journal)

    return run


def write_over(journal: Journal) -> None:
    old = journal.blobs_of("a")[0].id
    journal.write("a", ["p"], [(0, 20)], [b"a sec", memoryview(b"ond")], [old])


def write_many_over(journal: Journal) -> None:
    numbers = [blob.id for blob in journal.blobs()]
    journal.write("a", ["p", "q"], [(0, 30)], [b"a third"], numbers)


def new_run(place: Path) -> None:
    with RunDirectory.create(place) as directory:
        directory.write_manifest({"state": "running"})
        Journal.create(place).close()


def resumed_run(place: Path) -> None:
    with RunDirectory.resume(place) as directory:
        directory.write_manifest({"state": "running"})
        Journal.open(place).close()


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "write": with_journal(write_over),
    "write many": with_journal(write_many_over),
    "write beside": with_journal(lambda j: j.write("a", ["p"], [(10, 20)], [b"more"])),
    "know": with_journal(lambda j: j.know([known("a", "2"), known("c")])),
    "drop": with_journal(lambda j: j.drop([1, 2])),
    "note": with_journal(lambda j: j.note("k", {"v": 1})),
    "create": lambda place: Journal.create(place).close(),
    "new run": new_run,
    "resumed run": resumed_run,
}


def left(place: Path) -> str:
    """What is found: entries and contents of the journal, and what became of the result. Opening it must succeed."""
    results = [
        str(where.relative_to(place))
        for where in (place, place / "previous")
        if (where / "manifest.json").exists() and (where / "result.pickle").exists()
    ]
    for where in results:
        assert RunDirectory.open(place / where).read_result() == b"result"
    assert results, "the result is lost"
    if not Journal.exists(place):
        RunDirectory.create(place).close()
        return "no journal"
    RunDirectory.resume(place).close()  # whatever happened, the next run can have the directory
    with Journal.open(place) as journal:
        journal.validate()
        blobs = journal.blobs()
        entries = [[b.input, b.products, b.rows, journal.read(b).decode()] for b in blobs]
        identities = {key: one.identity for key, one in journal.inputs().items()}
        return json.dumps([identities, entries, journal.noted("k")])


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    # The steps are the same in memory, and hundreds of them wait for no disk there.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as name:
        prepare(Path(name) / "run")
        yield Path(name) / "run"


def dies(act: Callable[[Path], None], place: Path, number: int) -> bool:
    """Whether the child came to its n-th step."""
    child = os.fork()
    if child == 0:
        try:
            bomb = Bomb(number)
            bomb.arm()
            act(place)
        except BaseException as error:  # noqa: BLE001 - reported as an exit code
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 99), code
    return code == 99


def remove_a_rule(rule: str) -> None:
    """Break the protocol, to see that the check notices it."""
    if rule == "one transaction":
        setattr(Journal, "_writing", lambda _: contextlib.nullcontext())  # noqa: B010


def main(scenario: str, rule: str) -> None:
    remove_a_rule(rule)
    act = SCENARIOS[scenario]
    with prepared() as place:
        states = [left(place)]
    with prepared() as place:
        act(place)
        after = left(place)
    number = 0
    while True:
        with prepared() as place:
            dead = dies(act, place, number)
            state = left(place)
            shutil.rmtree(place)
        if state != states[-1]:
            states.append(state)
        if not dead:
            break
        number += 1
    sys.stdout.write(json.dumps({"steps": number, "states": states, "after": after}))


if __name__ == "__main__":
    main(*sys.argv[1:])
