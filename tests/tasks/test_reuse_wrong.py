"""What must never be reused: results of other code, other arguments or other files than the lineage says."""

from __future__ import annotations

import os
import random
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr

if TYPE_CHECKING:
    from types import ModuleType

OLD = "def f(x):\n    return helper(x)\n\ndef helper(x):\n    return x + 1\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of the user's, which processes import by its name."""
    name = f"module_of_a_user_{os.getpid()}"
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(OLD)
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield __import__(name)
    del sys.modules[name]


def session(tmp_path: Path, **options: Any) -> wr.Session:
    return wr.Session(**{"engine": "inline", "store": tmp_path / "store", **options})


def defined(text: str, **names: Any) -> Any:
    """Define a function as in a script, whose globals go along to processes."""
    known = {"__name__": "program", **names}
    exec(text, known)
    return known


def test_a_function_that_was_sent_before_it_changed(tmp_path: Path) -> None:
    """By a call that is not reused, or under another version: what is run now is what the key says."""
    names = defined("def scaled(x):\n    return x * SCALE\n", SCALE=2)
    reused = wr.task(names["scaled"], reuse=True)
    with session(tmp_path, engine="processes", workers=1) as opened:
        assert wr.task(names["scaled"], reuse=False)(1).result() == 2
        names["SCALE"] = 3
        assert reused(1).result() == 3
        names["SCALE"] = 4
        assert reused(1).result() == 4
        assert reused.options(version="2")(1).result() == 4
        names["SCALE"] = 3
        assert reused.options(version="2")(1).result() == 3
        assert opened.reuse_stats.missed == 4
    with session(tmp_path) as opened:
        for scale in (3, 4):
            names["SCALE"] = scale
            assert reused(1).result() == scale
            assert reused.options(version="2")(1).result() == scale
        assert opened.reuse_stats.found_in_store == 4


def test_a_helper_that_was_replaced_in_the_program_alone(
    tmp_path: Path, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process imports the module itself and has the old one; its result must not be taken for one of the new."""
    task = wr.task(module.f, reuse=True)
    with session(tmp_path, engine="processes", workers=1):
        assert task(1).result() == 2  # the same in both
    monkeypatch.setattr(module, "helper", lambda x: x + 10)
    with session(tmp_path, engine="processes", workers=1) as opened:
        future = task(1)
        opened.gather([future, task(2)])
        assert "where it runs" in str(opened.explain(future))
        assert "not kept" in opened.reuse_stats.reasons["f"]
    with session(tmp_path) as opened:
        assert [task(1).result(), task(2).result()] == [11, 12]
        assert opened.reuse_stats.found_in_store == 0
    monkeypatch.undo()
    with session(tmp_path) as opened:
        assert task(1).result() == 2
        assert opened.reuse_stats.found_in_store == 1


def test_a_module_that_was_edited_while_the_program_runs(
    tmp_path: Path, module: ModuleType
) -> None:
    """New processes import what is in the file now; the program has what was there."""
    task = wr.task(module.f, reuse=True)
    assert module.__file__ is not None
    Path(module.__file__).write_text(OLD.replace("x + 1", "x + 100"))
    with session(tmp_path, engine="processes", workers=1):
        task(1).result()
    with session(tmp_path) as opened:
        assert task(1).result() == 2
        assert opened.reuse_stats.missed == 1


def test_tasks_that_change_what_they_hang_on(tmp_path: Path) -> None:
    """What the second call gives depends on the first one: a fresh run would give something else."""
    names = defined("def count(x):\n    SEEN.append(x)\n    return len(SEEN)\n", SEEN=[])
    task = wr.task(names["count"], reuse=True)
    with session(tmp_path, engine="processes", workers=1) as opened:
        assert [task(n).result() for n in range(3)] == [1, 2, 3]
        assert "not kept" in opened.reuse_stats.reasons["count"]
    with session(tmp_path):
        assert task(2).result() == 1


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_what_changes_between_call_and_run(tmp_path: Path, engine: str) -> None:
    """A call means what it meant when it was made; where its code does not any more, that is not kept."""
    gate = threading.Event()

    @wr.task
    def hold() -> None:
        gate.wait(30)

    names = defined("def f(x, y):\n    return (sum(x), y['a'], SCALE)\n", SCALE=2)
    task = wr.task(names["f"], reuse=True)
    numbers, table = [1, 2], {"a": 1}
    with session(tmp_path, engine=engine, workers=1):
        held = hold()
        future = task([numbers, 0][0], table)
        numbers.append(10)
        table["a"] = 5
        names["SCALE"] = 3
        gate.set()
        assert future.result()[:2] == (3, 1)
        held.result()
    names["SCALE"] = 2
    with session(tmp_path):
        assert task([1, 2], {"a": 1}).result() == (3, 1, 2)
        assert task([1, 2, 10], {"a": 5}).result() == (13, 5, 2)


def test_defaults_that_change(tmp_path: Path) -> None:
    def remember(x: int, seen: list[int] = []) -> list[int]:  # noqa: B006
        seen.append(x)
        return list(seen)

    task = wr.task(remember, reuse=True)
    with session(tmp_path):
        assert task(1).result() == [1]
        assert task(1).result() == [1, 1]


def test_functions_that_look_alike(tmp_path: Path) -> None:
    """Made in a loop, bound in part, methods: what they hold counts."""
    with session(tmp_path, reuse=True) as opened:
        made = [opened.submit(lambda x, n=n: x + n, 1) for n in range(3)]
        closures = [opened.submit(times(n), 1) for n in range(3)]
        parts = [opened.submit(partial(divmod, n), 2) for n in (5, 7, 5)]
        methods = [opened.submit(Scaled(n).times, 3) for n in (2, 3, 2)]
        assert [one.result() for one in made] == [1, 2, 3]
        assert [one.result() for one in closures] == [0, 1, 2]
        assert [one.result() for one in parts] == [(2, 1), (3, 1), (2, 1)]
        assert [one.result() for one in methods] == [6, 9, 6]


def noise(count: int) -> Any:
    return np.random.normal(size=count)  # noqa: NPY002


def test_random_numbers_of_nobody(tmp_path: Path) -> None:
    """Calls that draw from a state that all share give other numbers each time, unless they say where to begin."""

    def direct() -> float:
        return random.random()

    def helped() -> Any:
        return noise(3)

    def seeded(seed: int) -> Any:
        np.random.seed(seed)  # noqa: NPY002
        return noise(3)

    def own(seed: int) -> Any:
        return np.random.default_rng(seed).normal()

    with session(tmp_path, reuse=True) as opened:
        for one in (direct, helped):
            assert opened.submit(one) is not opened.submit(one)
            assert "global state" in opened.reuse_stats.reasons[one.__qualname__]
        for two in (seeded, own):
            assert opened.submit(two, 1) is opened.submit(two, 1)
        versioned = wr.task(direct, version="1")
        assert versioned() is versioned()


def test_arguments_that_are_one_thing_stay_one(tmp_path: Path) -> None:
    @wr.task(reuse=True)
    def are_one(things: list[Any]) -> bool:
        return things[0] is things[1]

    thing = [1]
    with session(tmp_path):
        assert are_one([thing, thing]).result()


def times(n: int) -> Any:
    return lambda x: x * n


class Scaled:
    def __init__(self, by: int) -> None:
        self.by = by

    def times(self, x: int) -> int:
        return x * self.by


# -- files that commands write


@wr.command(reuse=True)
def upper(source: wr.InFile, target: wr.OutFile) -> str:
    return "echo upper >> ../runs; tr a-z A-Z < {source} > {target}"


@wr.command(reuse=True)
def lower(source: wr.InFile, target: wr.OutFile) -> str:
    return "echo lower >> ../runs; tr A-Z a-z < {source} > {target}"


@wr.task(reuse=True)
def text(source: wr.InFile) -> str:
    with Path("../runs").open("a") as log:
        log.write("text\n")
    return Path(source).read_text()


@wr.task(reuse=True)
def copy(source: wr.InFile, target: wr.OutFile) -> None:
    with Path("../runs").open("a") as log:
        log.write("copy\n")
    Path(target).write_text(Path(source).read_text())


def runs() -> list[str]:
    log = Path("../runs")
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return sorted(names)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("in").write_text("abc")
    return tmp_path


def test_futures_of_commands_as_files(work: Path) -> None:
    def run(maker: Any = upper) -> str:
        with session(work, engine="threads", workers=2):
            made = maker("in", "made")
            copy(made, "copy")
            return str(text(made).result())

    assert run() == "ABC"
    assert runs() == ["copy", "text", "upper"]
    assert run() == "ABC"
    assert runs() == []
    # What a command wrote was edited: it is written again, and what was made of that is still right.
    Path("made").write_text("edited by hand")
    assert run() == "ABC"
    assert runs() == ["upper"]
    assert Path("copy").read_text() == "ABC"
    # Another command.
    assert run(lower) == "abc"
    assert runs() == ["copy", "lower", "text"]
    # Its input.
    Path("in").write_text("abcd")
    assert run() == "ABCD"
    assert Path("copy").read_text() == "ABCD"
    assert runs() == ["copy", "text", "upper"]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_file_of_a_command_that_is_changed_before_it_is_read(work: Path, engine: str) -> None:
    """What comes of that is not known as what comes of the command."""
    with session(work, engine=engine, workers=1) as opened:
        made = upper("in", "made")
        made.result()
        Path("made").write_text("changed")
        assert text(made).result() == "changed"
        assert "changed since" in opened.reuse_stats.reasons["text"]
    with session(work, engine=engine, workers=1):
        assert text(upper("in", "made")).result() == "ABC"


def test_a_file_of_a_command_that_is_changed_while_its_reader_waits(work: Path) -> None:
    gate = threading.Event()

    @wr.task
    def hold() -> None:
        gate.wait(30)

    @wr.task(reuse=True)
    def later(source: wr.InFile, first: Any) -> str:
        return Path(source).read_text() + str(first)

    @wr.task(reuse=True)
    def one() -> int:
        gate.wait(30)
        return 1

    waits = wr.task(one.declared.function, reuse=True, version="1")
    with session(work, engine="threads", workers=2):
        made = upper("in", "made")
        future = later(made, waits())
        made.result()
        Path("made").write_text("changed")
        gate.set()
        assert future.result() == "changed1"
    with session(work, engine="threads", workers=2):
        assert later(upper("in", "made"), waits()).result() == "ABC1"
