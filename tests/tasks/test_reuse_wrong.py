"""What must never be reused: results of other code, other arguments or other files than the lineage says."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import GlobalsWarning
from windrow.store.fingerprint.walk import Walk
from windrow.tasks.reuse import code
from windrow.tasks.reuse.cache import STEP_S

if TYPE_CHECKING:
    from collections.abc import Callable
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


def test_a_module_that_was_edited_while_the_program_runs(tmp_path: Path, module: ModuleType) -> None:
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
    """What a body changes outside of itself is gone when the call ends: a fresh run gives the same."""
    names = defined("def count(x):\n    SEEN.append(x)\n    return len(SEEN)\n", SEEN=[])
    task = wr.task(names["count"], reuse=True)
    with session(tmp_path, engine="processes", workers=1), pytest.warns(GlobalsWarning, match="'SEEN.append"):
        assert [task(n).result() for n in range(3)] == [1, 1, 1]
    with session(tmp_path):
        assert task(2).result() == 1


@pytest.mark.parametrize("engine", ["inline", "threads"])
def test_what_changes_between_call_and_run(tmp_path: Path, engine: str) -> None:
    """A call means what it meant when it was made; where its code does not any more, that is not kept."""
    gate = threading.Event()

    @wr.task
    def hold() -> None:
        gate.wait(120)

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


class Drawing:
    def __call__(self) -> float:
        return self.draw()

    def draw(self) -> float:
        return random.random()


class Chest:
    def draw(self) -> float:
        return random.random()

    def size(self) -> int:
        return 1


def test_random_numbers_of_nobody(tmp_path: Path, module: ModuleType) -> None:
    """Calls that draw from a state that all share give other numbers each time, unless they say where to begin."""
    vars(module)["noise"] = noise
    numbers = random

    def direct() -> float:
        return random.random()

    def helped() -> Any:
        return noise(3)

    def seeded(seed: int) -> Any:
        np.random.seed(seed)  # noqa: NPY002
        return noise(3)

    def own(seed: int) -> Any:
        return np.random.default_rng(seed).normal()

    def beside() -> int:
        return Chest().size()

    def by_class() -> Any:
        return Drawing().draw()

    def by_module() -> Any:
        return module.noise(3)

    def by_closure() -> Any:
        return numbers.random()

    def unseeded() -> Any:
        return np.random.default_rng().normal()

    with session(tmp_path, reuse=True) as opened:
        for one in (direct, helped, by_class, by_module, by_closure, unseeded, beside):
            assert opened.submit(one) is not opened.submit(one)
            words = "without a seed" if one is unseeded else "global state"
            assert words in opened.reuse_stats.reasons[one.__qualname__]
        drawing = Drawing()
        for thing in (drawing, drawing.draw, partial(drawing.draw)):
            assert opened.submit(thing) is not opened.submit(thing)
        assert opened.submit(seeded, 1) is not opened.submit(seeded, 1)  # of a state that all share
        assert opened.submit(own, 1) is opened.submit(own, 1)
        versioned = wr.task(direct, version="1")
        assert versioned() is versioned()


def test_arguments_that_are_one_thing_are_not_two(tmp_path: Path) -> None:
    """A body that changes one of them changes both, or not."""

    @wr.task(reuse=True)
    def mark(rows: list[list[int]]) -> list[list[int]]:
        rows[0][0] = 1
        return rows

    row = [0]
    with session(tmp_path) as opened:
        assert mark([row, row]).result() == [[1], [1]]
        assert mark([[0], [0]]).result() == [[1], [0]]
        assert mark([row, row]).result() == [[1], [1]]
        assert opened.reuse_stats.missed == 2


def test_a_version_of_another_module(tmp_path: Path) -> None:
    """What cannot be looked into is known by its version, and by where it is from."""
    text = "def load(x):\n    return WORD, bool(os.environ), x\n"
    for _ in range(2):
        with session(tmp_path):
            for name in ("one", "other"):
                names = defined(text, WORD=name, __name__=name, os=os)
                task = wr.task(names["load"], reuse=True, version="1")
                assert task(1).result() == (name, True, 1)


def test_a_module_that_a_task_imports_itself(tmp_path: Path, module: ModuleType) -> None:
    names = defined(f"def f(x):\n    import {module.__name__} as m\n    return m.f(x)\n")
    task = wr.task(names["f"], reuse=True)
    with session(tmp_path) as opened:
        assert task(1).result() == 2
        vars(module)["helper"] = lambda x: x + 10
        assert task(1).result() == 11
        assert opened.reuse_stats.missed == 2


def test_globals_are_looked_at_again_where_something_in_them_changed(tmp_path: Path) -> None:
    """Once for all calls otherwise: looking at a table of all genes takes longer than most tasks."""
    text = """
@contextmanager
def scaled(x):
    yield x * SCALE

@wraps(len)
def counted(x):
    return len(TABLE["lists"][0]) + len(TABLE) + x

def f(x):
    with scaled(x) as y:
        return y, counted(x), TABLE["call"](x)
"""
    table: dict[str, Any] = {"lists": [[]], "call": lambda x: x}
    names = defined(text, TABLE=table, SCALE=2, contextmanager=contextmanager, wraps=wraps)
    task = wr.task(names["f"], reuse=True)
    changes: tuple[Callable[[], Any], ...] = (
        lambda: names.update(SCALE=3),
        lambda: table["lists"][0].append(1),
        lambda: table.update(more=1),
        lambda: table.update(call=lambda x: -x),
        lambda: vars(names["counted"]).update(note=1),
    )
    looked = 0

    def counting(*things: Any, **options: Any) -> Any:
        nonlocal looked
        looked += 1
        return Walk(*things, **options)

    with pytest.MonkeyPatch.context() as patch, session(tmp_path) as opened:
        patch.setattr(code, "Walk", counting)
        assert [task(n).result() for n in range(3)] == [names["f"](n) for n in range(3)]
        assert looked == 2  # once at the call, once in the worker
        for number, change in enumerate(changes, start=2):
            change()
            assert task(1).result() == names["f"](1)
            assert opened.reuse_stats.missed == number + 2


def test_large_arrays_outside_are_not_hashed(tmp_path: Path) -> None:
    names = defined("def f(x):\n    return A[x]\n", A=np.zeros(4_000_000))
    task = wr.task(names["f"], reuse=True)
    with session(tmp_path) as opened:
        assert task(1) is not task(1)
        assert "32 MB" in opened.reuse_stats.reasons["f"]
        versioned, hashed = task.options(version="1"), task.options(reuse="content")
        assert versioned(1) is versioned(1)
        assert hashed(1) is hashed(1)
    with session(tmp_path) as opened:
        assert [hashed(1).result(), versioned(1).result()] == [0, 0]
        assert opened.reuse_stats.found_in_store == 2
        names["A"][1] = 5
        assert hashed(1).result() == 5


def load(table: dict[str, int]) -> int:
    return table["scale"]


def test_what_a_worker_has_of_a_recipe_that_changed(tmp_path: Path) -> None:
    """It is made once, so results are of what the recipe meant then; they must not be taken for those of the new one."""
    table = {"scale": 2}

    @wr.task(reuse=True)
    def scaled(x: int, *, by: Any = wr.resident(load, table)) -> int:  # noqa: B008
        return x * int(by)

    with session(tmp_path, engine="processes", workers=1) as opened:
        assert scaled(10).result() == 20
        table["scale"] = 3
        assert scaled(10).result() == 20
        assert "means something else now" in opened.reuse_stats.reasons[scaled.declared.name]
    with session(tmp_path) as opened:
        assert scaled(10).result() == 30
        table["scale"] = 2
    with session(tmp_path) as opened:
        assert scaled(10).result() == 20
        assert opened.reuse_stats.found_in_store == 1


def test_arguments_that_take_long_to_look_through(tmp_path: Path) -> None:
    with session(tmp_path, reuse=True) as opened:
        assert opened.submit(len, list(range(200_000))).result() == 200_000
        assert "holds more than" in opened.reuse_stats.reasons["len"]
        assert opened.submit(min, ["a" * 60_000] * 300).result() == "a" * 60_000
        assert "bytes" in opened.reuse_stats.reasons["min"]


def test_arguments_that_are_one_thing_stay_one(tmp_path: Path) -> None:
    @wr.task(reuse=True)
    def are_one(things: list[Any]) -> bool:
        return things[0] is things[1]

    @wr.task(reuse=True)
    def is_one(first: list[int], *, second: list[int]) -> bool:
        return first is second

    @wr.task(reuse=True)
    def make(x: int) -> list[int]:
        return [x]

    thing = [1]
    with session(tmp_path):
        assert are_one([thing, thing]).result()
        assert is_one(thing, second=thing).result()
        make(1).result()
    with session(tmp_path) as opened:
        kept = make(1)
        assert are_one([kept, kept]).result()
        assert opened.reuse_stats.found_in_store == 1


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


def test_a_file_that_is_written_again_at_once(work: Path) -> None:
    """Times of files go by steps: a call waits until a file that is written again would have another one."""
    with session(work):
        Path("in").write_text("old")
        future = text("in")
        then = time.time_ns()
        assert then - Path("in").stat().st_mtime_ns >= STEP_S * 1e9
        assert future.result() == "old"


def test_files_that_are_declared_otherwise(work: Path) -> None:
    body = "def f(to):\n    for n in range(2):\n        (Path(to) / f'part-{n}').write_text('x')\n"
    for pattern, missed in (("part-*", 1), ("part-0", 1), ("part-*", 1), ("part-*", 0)):
        names = defined(body, Path=Path)
        names["f"].__annotations__["to"] = wr.OutFiles(pattern)
        with session(work) as opened:
            wr.task(names["f"])("parts").result()
            assert opened.reuse_stats.missed == missed


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
    # What a command wrote was edited: it is written again, and what reads that cannot know that it is the same.
    Path("made").write_text("edited by hand")
    assert run() == "ABC"
    assert runs() == ["copy", "text", "upper"]
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
        gate.wait(120)

    @wr.task(reuse=True)
    def later(source: wr.InFile, first: Any) -> str:
        return Path(source).read_text() + str(first)

    @wr.task(reuse=True)
    def one() -> int:
        gate.wait(120)
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
