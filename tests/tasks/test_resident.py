"""Things that each worker makes once and keeps."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from windrow.errors import UsageError
from windrow.store.fingerprint.api import fingerprint

engines = pytest.mark.parametrize("engine", ["inline", "threads", "processes"])


class Unpicklable:
    """A model that must not travel."""

    def __init__(self, diary: str, factor: int) -> None:
        with Path(diary).open("a") as file:
            file.write(f"{os.getpid()} {threading.get_ident()}\n")
        self.factor = factor

    def __reduce__(self) -> Any:
        raise TypeError("a model never travels")


def load(diary: str, factor: int = 2) -> Unpicklable:
    return Unpicklable(diary, factor)


def multiplying(diary: Path, factor: int = 2) -> Any:
    @wr.task
    def multiply(x: int, *, model: Any = wr.resident(load, str(diary), factor=factor)) -> Any:  # noqa: B008
        return x * model.factor, os.getpid(), threading.get_ident()

    return multiply


@engines
def test_each_worker_makes_it_once(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "loads"
    multiply = multiplying(diary)
    with wr.Session(engine=engine, workers=2) as session:
        assert not diary.exists()  # nothing is made before it is needed
        made = session.gather([multiply(number) for number in range(40)])
    assert [value for value, _, _ in made] == [2 * number for number in range(40)]
    workers = {f"{process} {thread}" for _, process, thread in made}
    loads = diary.read_text().split("\n")[:-1]
    assert sorted(loads) == sorted(workers)


@engines
def test_two_tasks_share_what_they_have_from_one_recipe(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "loads"
    model = wr.resident(load, str(diary))

    @wr.task
    def one(*, model: Any = model) -> int:
        return int(model.factor)

    @wr.task
    def two(*, model: Any = model) -> int:
        return int(model.factor) * 2

    with wr.Session(engine=engine, workers=1) as session:
        assert session.gather([one(), two(), one()]) == [2, 4, 2]
    assert len(diary.read_text().split("\n")) == 2


@engines
def test_the_caller_may_give_another_one(engine: str, tmp_path: Path) -> None:
    diary = tmp_path / "loads"

    @wr.task
    def multiply(x: int, model: Any = wr.resident(load, str(diary))) -> Any:  # noqa: B008
        return x * model

    with wr.Session(engine=engine, workers=1) as session:
        assert session.gather([multiply(3, model=5), multiply(3, 7)]) == [15, 21]
    assert (multiply(3, model=5), multiply(3, 7)) == (15, 21)
    assert not diary.exists()


@engines
def test_loading_that_fails_is_the_tasks_failure_and_tried_again(engine: str, tmp_path: Path) -> None:
    there = tmp_path / "there"

    def late() -> str:
        return there.read_text()

    @wr.task
    def ask(*, model: Any = wr.resident(late)) -> Any:  # noqa: B008
        return model

    with wr.Session(engine=engine, workers=1):
        error = ask().exception(120)
        assert isinstance(error, FileNotFoundError)
        assert any("makes 'model' of task" in note for note in error.__notes__)
        there.write_text("now")
        assert ask().result(120) == "now"
        there.write_text("later")
        assert ask().result(120) == "now"


def test_outside_a_session_a_process_makes_it_once(tmp_path: Path) -> None:
    diary = tmp_path / "loads"
    multiply = multiplying(diary, factor=3)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(multiply(2)[0])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [multiply(2)[0], *found] == [6] * 5
    assert len(diary.read_text().split("\n")) == 2


def test_a_generator_has_it_too(tmp_path: Path) -> None:
    @wr.task
    def several(*, model: Any = wr.resident(load, str(tmp_path / "loads"))) -> Any:  # noqa: B008
        yield model.factor
        yield model.factor + 1

    assert list(several()) == [2, 3]
    with wr.Session(engine="threads", workers=1) as session:
        assert session.gather(several()) == [2, 3]


def test_a_task_inside_a_task_uses_what_the_worker_has(tmp_path: Path) -> None:
    diary = tmp_path / "loads"
    multiply = multiplying(diary)

    @wr.task
    def outer(x: int) -> Any:
        return multiply(multiply(x)[0])[0]

    with wr.Session(engine="processes", workers=1) as session:
        assert session.gather([outer(1)]) == [4]
        assert multiply(5).result(120)[0] == 10
    assert len(diary.read_text().split("\n")) == 2


def test_a_session_that_ends_lets_it_go(tmp_path: Path) -> None:
    diary = tmp_path / "loads"
    multiply = multiplying(diary)
    for _ in range(2):
        with wr.Session(engine="inline") as session:
            session.gather([multiply(1), multiply(2)])
    assert len(diary.read_text().split("\n")) == 3


def test_a_named_file_can_be_what_is_loaded(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{"a": 3}')

    @wr.task
    def look(key: str, *, table: Any = wr.resident(wr.file(table))) -> Any:  # noqa: B008
        return table[key]

    with wr.Session(engine="processes", workers=1):
        assert look("a").result(120) == 3


def test_a_recipe_is_part_of_what_a_function_is() -> None:
    def using(recipe: Any) -> Any:
        def body(x: int, *, model: Any = recipe) -> Any:
            return model(x)

        return body

    first, again = (fingerprint(using(wr.resident(load, "a"))) for _ in range(2))
    assert not first.opaque
    assert first.digest == again.digest
    assert fingerprint(using(wr.resident(load, "b"))).digest != first.digest
    assert fingerprint(using(wr.resident(load, "a", factor=3))).digest != first.digest
    assert fingerprint(using(wr.resident(len, "a"))).digest != first.digest


def test_a_recipe_travels_and_stays_the_same_one(tmp_path: Path) -> None:
    recipe = wr.resident(load, str(tmp_path / "loads"))
    again = pickle.loads(pickle.dumps(recipe))
    assert again.identity.text == recipe.identity.text
    assert repr(again) == "<resident load>"


def test_a_thing_instead_of_a_function_is_refused() -> None:
    with pytest.raises(UsageError, match=r"not wr\.resident\(load\(path\)\)"):
        wr.resident({"a": 1})  # type: ignore[arg-type]
