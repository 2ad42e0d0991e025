"""Tasks as PyCOMPSs has them: what they return, change, release and reduce, on threads and processes."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from compss_programs import used
from windrow.compat.pycompss import (
    COLLECTION_IN,
    COLLECTION_INOUT,
    COLLECTION_OUT,
    DICTIONARY_IN,
    IN,
    IN_DELETE,
    INOUT,
    IO,
    OUT,
    Depth,
    Type,
    compss_barrier,
    compss_delete_object,
    compss_get_number_of_resources,
    compss_ready_value,
    compss_wait_on,
    constraint,
    local,
    reduction,
    task,
)
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def session(opened: wr.Session) -> Iterator[wr.Session]:
    with used(opened):
        yield opened


class Account:
    def __init__(self) -> None:
        self.moves: list[int] = []

    @task()
    def move(self, amount: int) -> None:
        self.moves.append(amount)

    @task(returns=int, target_direction=IN)
    def balance(self) -> int:
        return sum(self.moves)

    @task(returns=1)
    def close(self):
        left = sum(self.moves)
        self.moves.clear()
        return left

    @staticmethod
    @task(returns=int)
    def twice(amount: int) -> int:
        return 2 * amount

    @classmethod
    @task(returns=str)
    def what(cls) -> str:
        return cls.__name__


@task(returns=Account)
def open_account(amount: int) -> Account:
    account = Account()
    account.moves.append(amount)
    return account


@task(returns=1)
def plus(a: Any, b: Any = 1) -> Any:
    return a + b


@pytest.mark.usefixtures("session")
class TestReturns:
    @pytest.mark.parametrize("said", [2, "2", (int, list), [int, list], "PAIR"])
    def test_several(self, said: Any) -> None:
        @task(returns=said)
        def both() -> Any:
            return 1, [2]

        one, two = both()
        assert compss_wait_on(one) == 1
        assert compss_wait_on(two) == [2]

    @pytest.mark.parametrize("said", [1, int, True, "1", "Account"])
    def test_one(self, said: Any) -> None:
        @task(returns=said)
        def single() -> Any:
            return 7

        assert compss_wait_on(single()) == 7

    @pytest.mark.parametrize("said", ["anything", "{{a}}", "value_of(a)"])
    def test_a_text_that_tells_no_number_is_refused(self, said: str) -> None:
        with pytest.raises(UsageError, match=r"returns=.* is a number or the name of a global"):
            task(returns=said)(lambda a: a)(7)

    @pytest.mark.parametrize("said", [0, False, None])
    def test_none(self, said: Any) -> None:
        @task(returns=said)
        def nothing() -> Any:
            return 7

        assert nothing() is None

    def test_what_is_not_said_is_found_out(self) -> None:
        @task()
        def one(a):
            def inner():
                return 1, 2, 3

            if a:
                return inner()
            return None

        @task()
        def two(a):
            if a:
                return a, 1
            return 0, 0

        @task()
        def none(a):
            if a:
                return
            a.append(1)

        @task()
        def hinted(a: int) -> tuple[int, str]:
            return a, str(a)

        assert compss_wait_on(one(1)) == (1, 2, 3)
        assert compss_wait_on(two(5)) == [5, 1]
        assert none([1]) is None
        assert compss_wait_on(hinted(5)) == [5, "5"]

    def test_a_wrong_number_is_the_tasks_failure(self) -> None:
        @task(returns=2, on_failure="CANCEL_SUCCESSORS")
        def three() -> Any:
            return 1, 2, 3

        with pytest.raises(wr.errors.TaskOutputError, match=r"'.*three'.*returns=2.*3 values"):
            compss_wait_on(three()[0])

    def test_structures_and_several_things_are_waited_for(self) -> None:
        x, y = plus(1), plus(2)
        assert compss_wait_on(x, y, 5) == [2, 3, 5]
        assert compss_wait_on([x, {"y": [y], "z": 0}]) == [2, {"y": [3], "z": 0}]
        assert compss_wait_on(plus(x, y), mode="r") == 5


PAIR = 2


@pytest.mark.usefixtures("session")
class TestObjects:
    def test_methods_change_their_object(self) -> None:
        account = Account()
        account.move(5)
        before = account.balance()
        account.move(7)
        left = account.close()
        account.move(1)
        after = compss_wait_on(account)
        assert type(after) is Account
        assert after.moves == [1]
        assert compss_wait_on(before, left) == [5, 12]
        assert account.moves == []  # the program's own is as it was
        assert compss_wait_on(Account.twice(4), Account.what()) == [8, "Account"]

    def test_methods_of_what_a_task_returns(self) -> None:
        account = open_account(3)
        account.move(4)
        assert compss_wait_on(account.balance()) == 7
        assert compss_wait_on(account).moves == [3, 4]

    def test_the_program_may_change_what_it_waited_for(self) -> None:
        x = plus([1], [2])
        y = plus(x, [3])
        x = compss_wait_on(x)
        x.append(10)
        assert compss_wait_on(plus(x, [4]), y) == [[1, 2, 10, 4], [1, 2, 3]]

    def test_the_program_may_change_what_tasks_still_need(self, tmp_path: Path) -> None:
        @task(returns=1)
        def wait_for(path: Path) -> list[int]:
            until = time.monotonic() + 60
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.01)
            return [3]

        @task(returns=1)
        def slowly(a: list[int], b: list[int]) -> list[int]:
            time.sleep(0.05)  # so that other workers help
            return a + b

        x, gate = plus([1], [2]), wait_for(tmp_path / "gate")
        after = [slowly(x, gate) for _ in range(9)]
        x = compss_wait_on(x)
        x.append(10)
        (tmp_path / "gate").touch()
        assert compss_wait_on(after) == [[1, 2, 3]] * 9

    def test_arrays_can_be_written_to(self) -> None:
        @task(a=INOUT)
        def add(a: Any, b: Any) -> None:
            a += b

        a = np.zeros(100_000)
        for _ in range(3):
            add(a, np.ones(100_000))
        a = compss_wait_on(a)
        a[0] = 7
        assert a[:2].tolist() == [7, 3]

    def test_bodies_may_change_what_they_only_read(self) -> None:
        @task(returns=1)
        def count_down(things: list[int], more: Any = ()) -> int:
            total = 0
            while things:
                total += things.pop()
            for one in more:
                one *= 0
            return total

        things, array, mine = plus([1], [2]), plus(np.zeros(5)), [4, 5]
        assert compss_wait_on([count_down(things, [array]) for _ in range(5)]) == [3] * 5
        assert compss_wait_on([count_down(mine) for _ in range(3)]) == [9] * 3
        assert compss_wait_on(things) == [1, 2]
        assert compss_wait_on(array).tolist() == [1] * 5
        assert mine == [4, 5]

    def test_what_is_out_is_new(self) -> None:
        @task(into=OUT)
        def fill(into: dict[str, int]) -> None:
            into["n"] = len(into)

        @task(into=OUT)
        def write(into: Any) -> None:
            into[:] = 3

        things, array = {"old": 1}, np.zeros(2)
        fill(things)
        write(array)  # arrays cannot be made without a shape: the body gets a copy
        assert compss_wait_on(things) == {"n": 0}
        assert compss_wait_on(array).tolist() == [3, 3]

    def test_numbers_have_no_versions(self) -> None:
        @task(n=INOUT, returns=1)
        def up(n: int) -> int:
            n += 1
            return n

        assert compss_wait_on(up(5)) == 6
        assert compss_wait_on(plus(5)) == 6
        assert compss_wait_on(5) == 5

    def test_the_same_thing_twice_is_one_thing(self) -> None:
        @task(a=INOUT, b=INOUT, returns=1)
        def both(a: list[int], b: list[int], c: list[int]) -> list[int]:
            a.append(1)
            b.append(2)
            return list(c)

        things: list[int] = []
        seen = both(things, things, things)
        assert compss_wait_on(things, seen) == [[1, 2], [1, 2]]

    def test_versions_before_are_let_go(self, session: wr.Session) -> None:
        @task(a=INOUT)
        def touch(a: list[int]) -> None:
            a.append(0)

        things: list[int] = []
        known = len(session.versions._latest)
        for _ in range(20):
            touch(things)
        assert len(compss_wait_on(things)) == 20
        assert len(session.versions._latest) == known + 1
        compss_delete_object(things)
        assert len(session.versions._latest) == known
        assert compss_wait_on(things) == []

    def test_what_is_used_up_is_forgotten(self, session: wr.Session) -> None:
        @task(a=INOUT)
        def touch(a: list[int]) -> None:
            a.append(0)

        @task(a=IN_DELETE, returns=1)
        def last(a: list[int]) -> int:
            return len(a)

        known = len(session.versions._latest)
        things: list[int] = []
        touch(things)
        assert compss_wait_on(last(things)) == 1
        assert len(session.versions._latest) == known


def test_what_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    with wr.Session(engine="threads", workers=1):
        assert compss_wait_on(plus([lock], [])) == [lock]


@pytest.mark.parametrize("engine", ["processes", "threads"])
def test_the_program_may_wait_when_the_session_is_closed(engine: str) -> None:
    @task(things=INOUT)
    def append(things: list[int], one: int) -> None:
        things.append(one)

    things: list[int] = []
    with wr.Session(engine=engine, workers=1):
        x = plus(1)
        append(things, x)
        append(things, 3)
    assert compss_wait_on(x, [things]) == [2, [[2, 3]]]


@pytest.mark.usefixtures("session")
class TestCollections:
    def test_elements_have_versions_of_their_own(self) -> None:
        @task(rows={Type: COLLECTION_INOUT, Depth: 2})
        def twice(rows: list[list[Any]]) -> None:
            for row in rows:
                for place in range(len(row)):
                    row[place] = row[place] * 2

        rows = [[np.ones(2), 3], [np.ones(1), 5]]
        array = rows[0][0]
        twice(rows)
        twice(rows)
        assert compss_wait_on(plus(array)).tolist() == [5, 5]
        (a, b), (c, d) = compss_wait_on(rows)
        assert (a.tolist(), b, c.tolist(), d) == ([4, 4], 12, [4], 20)

    def test_places_are_filled(self) -> None:
        @task(rows={Type: COLLECTION_OUT, Depth: 2}, n=IN)
        def fill(rows: list[list[Any]], n: int) -> None:
            for i, row in enumerate(rows):
                for j in range(len(row)):
                    row[j] = [n, i, j]

        rows: list[list[Any]] = [[object(), object()], [None, None]]
        first = rows[0][1]
        fill(rows, 7)
        assert compss_wait_on(plus(first, [0])) == [7, 0, 1, 0]
        assert compss_wait_on(rows) == [[[7, 0, 0], [7, 0, 1]], [[7, 1, 0], [7, 1, 1]]]

    def test_they_may_have_futures(self) -> None:
        @task(things=COLLECTION_IN, named=DICTIONARY_IN, returns=1)
        def total(things: list[int], named: dict[str, int]) -> int:
            return sum(things) + sum(named.values())

        assert compss_wait_on(total([plus(1), 2, plus(3)], {"a": plus(10)})) == 19

    @pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 9, 16])
    @pytest.mark.parametrize("size", ["3", 2])
    def test_reductions(self, count: int, size: Any) -> None:
        @reduction(chunk_size=size)
        @task(returns=1, words=COLLECTION_IN)
        def join(words: list[str], *, most: int) -> str:
            assert len(words) <= most
            return "".join(words)

        words = [str(number) for number in range(count)]
        assert compss_wait_on(join([plus("", one) for one in words], most=int(size))) == "".join(words)


@pytest.mark.usefixtures("session")
class TestBodies:
    def test_tasks_in_tasks_are_plain_functions(self) -> None:
        @task(returns=1)
        def outer(n: int) -> Any:
            inner = plus(n)
            assert inner == n + 1
            assert both_early() == (1, 2)
            return compss_wait_on(inner)

        assert compss_wait_on(outer(4)) == 5

    def test_values_are_released_before_the_end(self, tmp_path: Any) -> None:
        gate = tmp_path / "gate"

        @task(returns=2)
        def early(path: Any) -> None:
            compss_ready_value("first", 0)
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    with path.open() as stream:
                        compss_ready_value(stream.read(), 1)
                    return
                except FileNotFoundError:
                    time.sleep(0.01)

        first, second = early(gate)
        assert compss_wait_on(first) == "first"
        with gate.open("w") as stream:  # it could not have ended before
            stream.write("second")
        assert compss_wait_on(second) in ("second", "")

    def test_what_is_not_released_is_returned(self) -> None:
        @task(returns=3)
        def mixed() -> Any:
            compss_ready_value("b", 1)
            return "a", "c"

        assert compss_wait_on(mixed()) == ["a", "b", "c"]

    @pytest.mark.parametrize("above", [True, False])
    def test_decorators_may_stand_above_or_below(self, above: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CU", "2")
        say = constraint(computing_units="$CU", memory_size=0.5, processor_architecture="x86_64")

        def body(x: int) -> int:
            return x

        made = say(task(returns=1)(body)) if above else task(returns=1)(say(body))
        assert compss_wait_on(made(3)) == 3
        amounts = dict(made._what()[1].needs.amounts)
        assert amounts["cores"] == 2
        assert amounts["memory"] == 500_000_000

    def test_reading_and_writing_needs_no_core(self) -> None:
        @IO()
        @task(returns=1)
        def read(x: int) -> int:
            return x

        assert compss_wait_on(read(3)) == 3
        assert not dict(read._what()[1].needs.amounts).get("cores")

    def test_reading_and_writing_overlaps_with_computing(self, tmp_path: Path) -> None:
        """Four tasks that each wait for the other three, on a session of two workers."""

        def meet(name: str) -> str:
            (tmp_path / name).touch()
            until = time.monotonic() + 60
            while len(list(tmp_path.iterdir())) < 4:
                if time.monotonic() > until:
                    raise TimeoutError(f"{name} was alone")
                time.sleep(0.002)
            return name

        @IO()
        @task(returns=1)
        def read(name: str) -> str:
            return meet(name)

        @task(returns=1)
        def compute(name: str) -> str:
            return meet(name)

        with wr.Session(engine="threads", workers=2):
            met = [read("a"), compute("b"), read("c"), compute("d")]
            assert compss_wait_on(met) == ["a", "b", "c", "d"]

    def test_others(self) -> None:
        @local
        def scale(values: list[int], by: int) -> list[int]:
            return [by * one for one in values]

        assert scale(plus([1], [2]), by=plus(2)) == [3, 6]
        assert compss_get_number_of_resources() == 1
        compss_barrier()


@task(returns=2)
def both_early() -> None:
    compss_ready_value(1, 0)
    compss_ready_value(2, 1)
