"""What becomes of a PyCOMPSs program when tasks fail: rules, groups, time limits, and what cannot be said."""

from __future__ import annotations

import gc
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
import windrow.compat.pycompss as p
from compss_programs import used
from windrow.compat.pycompss import (
    COLLECTION_IN,
    COLLECTION_OUT,
    FILE_INOUT,
    FILE_OUT,
    INOUT,
    STREAM_IN,
    COMPSsException,
    TaskGroup,
    compss_barrier,
    compss_barrier_group,
    compss_cancel_group,
    compss_ready_value,
    compss_set_wall_clock,
    compss_wait_on,
    constraint,
    on_failure,
    reduction,
    task,
    waiting,
)
from windrow.errors import DependencyError, NotYetError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def session(opened: wr.Session) -> Iterator[wr.Session]:
    with used(opened):
        yield opened


def note(path: Path) -> None:
    with path.open("a") as stream:
        stream.write("x")


@task(returns=1)
def plus(a: int, b: int = 1) -> int:
    return a + b


@pytest.mark.usefixtures("session")
class TestRules:
    def test_a_task_is_tried_again_and_fails_the_program(self, tmp_path: Path) -> None:
        @task(returns=1)
        def broken(path: Path) -> None:
            note(path)
            raise ValueError("broken for good")

        @task(returns=1)
        def works_at_last(path: Path) -> str:
            note(path)
            if len(path.read_text()) < 3:
                raise ValueError("not yet")
            return path.read_text()

        with pytest.raises(ValueError, match="for good"):
            compss_wait_on(broken(tmp_path / "a"))
        assert (tmp_path / "a").read_text() == "xxx"
        assert compss_wait_on(works_at_last(tmp_path / "b")) == "xxx"
        compss_barrier()
        broken(tmp_path / "a")
        with pytest.raises(ValueError, match="for good"):
            compss_barrier()
        compss_barrier()  # it was told

    def test_failures_may_be_ignored(self, tmp_path: Path) -> None:
        @task(w=INOUT, returns=int, on_failure="IGNORE")
        def plain(fails: bool, w: list[int], path: Path) -> int:
            note(path)
            w.append(1)
            if fails:
                raise ValueError("ignored")
            return 5

        @on_failure(management="IGNORE", returns=-1, w=[9])
        @task(w=INOUT, returns=int)
        def with_defaults(fails: bool, w: list[int]) -> int:
            w.append(1)
            if fails:
                raise ValueError("ignored")
            return 5

        w: list[int] = []
        values = [plain(one, w, tmp_path / "n") for one in (False, True, False)]
        assert compss_wait_on(values) == [5, None, 5]
        assert compss_wait_on(w) == [1, 1]  # what the failed one did is undone
        assert (tmp_path / "n").read_text() == "xxx"
        assert compss_wait_on(with_defaults(True, w), with_defaults(False, w)) == [-1, 5]
        assert compss_wait_on(w) == [9, 1]
        compss_barrier()

    def test_successors_may_be_cancelled(self) -> None:
        @task(returns=1, on_failure="CANCEL_SUCCESSORS")
        def broken() -> int:
            raise ValueError("cancels")

        other = broken()
        after = plus(other)
        assert compss_wait_on(plus(1)) == 2
        compss_barrier()  # a program goes on after such failures
        with pytest.raises(DependencyError, match="broken"):
            compss_wait_on(after)
        with pytest.raises(ValueError, match="cancels"):
            compss_wait_on(other)

    def test_a_task_may_take_only_so_long(self) -> None:
        @task(returns=1, time_out=0.1, on_failure="IGNORE")
        def slow(seconds: float) -> str:
            time.sleep(seconds)
            return "done"

        assert compss_wait_on([slow(0.0), slow(0.5)]) == ["done", None]


@pytest.mark.parametrize("engine", ["processes", "threads"])
def test_a_failure_may_end_everything(engine: str) -> None:
    @task(returns=1, on_failure="FAIL")
    def broken() -> int:
        raise ValueError("the end")

    with pytest.raises(ValueError, match="the end"), wr.Session(engine=engine, workers=2):  # noqa: PT012
        broken()
        compss_barrier()


@task(returns=1)
def raises(number: int, bad: int, path: Path) -> int:
    note(path / str(number))
    if number == bad:
        raise COMPSsException(f"{number} found")
    return number


@task(path=FILE_INOUT, things=INOUT)
def add(path: str, things: list[str], text: str, wait: Path | None = None) -> None:
    until = time.monotonic() + 60
    while wait is not None and not wait.exists() and time.monotonic() < until:
        time.sleep(0.01)
    things.append(text)
    with open(path, "a") as stream:  # noqa: PTH123
        stream.write(text)
    if text == "9":
        raise COMPSsException("no 9")


@pytest.mark.usefixtures("session")
class TestGroups:
    def test_an_exception_ends_the_group_and_is_raised_at_its_end(self, tmp_path: Path) -> None:
        with pytest.raises(COMPSsException, match="2 found"), TaskGroup("g"):  # noqa: PT012
            first = raises(2, 2, tmp_path)
            for number in range(3, 6):
                plus(first, number)
        assert (tmp_path / "2").read_text() == "x"  # it is not tried again
        compss_barrier()  # nothing of it is left
        with TaskGroup("g"):
            value = raises(3, 2, tmp_path)
        assert value.done()
        assert compss_wait_on(value) == 3

    def test_others_go_on(self, tmp_path: Path) -> None:
        with TaskGroup("bad", False):
            raises(1, 1, tmp_path)
        with TaskGroup("good", implicit_barrier=False):
            good = [raises(number, -1, tmp_path) for number in range(2, 6)]
        with pytest.raises(COMPSsException, match="1 found"):
            compss_barrier_group("bad")
        compss_barrier_group("good")
        compss_barrier_group("bad")
        assert compss_wait_on(good) == [2, 3, 4, 5]

    def test_groups_in_groups(self, tmp_path: Path) -> None:
        with pytest.raises(COMPSsException, match="4 found"), TaskGroup("outer"):  # noqa: PT012
            with TaskGroup("inner", False):
                raises(4, 4, tmp_path)
            raises(5, -1, tmp_path)

    def test_other_failures_are_raised_too(self) -> None:
        @task()
        def broken() -> None:
            raise ValueError("in a group")

        with pytest.raises(ValueError, match="in a group"), TaskGroup("g"):
            broken()

    def test_a_group_can_be_cancelled(self, tmp_path: Path) -> None:
        @task(returns=1)
        def wait_for(path: Path) -> bool:
            until = time.monotonic() + 60
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.01)
            return path.exists()

        gate = tmp_path / "gate"
        with TaskGroup("slow", False):
            blocking = wait_for(gate)
            waiting = [plus(blocking), plus(plus(blocking))]
        compss_cancel_group("slow")
        gate.touch()
        compss_barrier_group("slow")
        assert all(one.cancelled() for one in waiting)

    def test_what_was_cancelled_leaves_the_last_good_version(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("0")
        things: list[str] = []
        add(str(path), things, "1")
        with pytest.raises(COMPSsException, match="no 9"), TaskGroup("bad"):  # noqa: PT012
            add(str(path), things, "9")
            add(str(path), things, "x")
        add(str(path), things, "2")
        compss_barrier()
        assert (path.read_text(), compss_wait_on(things)) == ("012", ["1", "2"])
        with TaskGroup("slow", False):
            add(str(path), things, "x", wait=tmp_path / "gate")
            add(str(path), things, "y")
        compss_cancel_group("slow")
        (tmp_path / "gate").touch()
        add(str(path), things, "3")
        compss_barrier()
        assert (path.read_text(), compss_wait_on(things)) == ("0123", ["1", "2", "3"])

    @pytest.mark.parametrize("within", [False, True])
    def test_what_is_called_after_the_failure_is_cancelled_too(
        self, tmp_path: Path, opened: wr.Session, within: bool
    ) -> None:
        path = tmp_path / "file"
        path.write_text("0")
        things: list[str] = []
        add(str(path), things, "1")
        with pytest.raises(COMPSsException, match="no 9"), TaskGroup("bad") as group:  # noqa: PT012
            add(str(path), things, "9")
            with opened.changed:  # until the run has cancelled the group
                assert opened.changed.wait_for(lambda: group in waiting._cancelled, 60)
            if within:
                with TaskGroup("inner", False):
                    late = plus(1)
                    add(str(path), things, "x")
            else:
                late = plus(1)
                add(str(path), things, "x")
            add(str(path), things, "y")
        assert late.cancelled()
        add(str(path), things, "2")
        compss_barrier()
        assert (path.read_text(), compss_wait_on(things)) == ("012", ["1", "2"])

    def test_a_group_goes_on_after_a_barrier_that_raised(self, tmp_path: Path) -> None:
        with TaskGroup("g", False):
            raises(1, 1, tmp_path)
            with pytest.raises(COMPSsException, match="1 found"):
                compss_barrier_group("g")
            with TaskGroup("inner"):
                inner = plus(1)
            assert compss_wait_on([plus(1), inner]) == [2, 2]

    def test_an_unknown_group(self) -> None:
        with pytest.raises(UsageError, match="no TaskGroup 'nowhere'"):
            compss_barrier_group("nowhere")


def test_a_group_that_is_over_keeps_no_session() -> None:
    def use_a_group() -> weakref.ref[wr.Session]:
        with wr.Session(engine="inline") as session, TaskGroup("over"):
            plus(1)
        return weakref.ref(session)

    used_before = use_a_group()
    with wr.Session(engine="inline"):
        plus(1)  # the program's latest session is this one
    gc.collect()
    assert used_before() is None


class TestWhatCannotBeSaid:
    @pytest.mark.parametrize(
        ("options", "story"),
        [
            ({"retunrs": 1}, "'retunrs'; did you mean 'returns'"),
            ({"x": 5}, "x= is a name of pycompss.api.parameter"),
            ({"x": {"sort": 1}}, "no property 'sort'"),
            ({"returns": -1}, "returns= is how many"),
            ({"returns": 1.5}, "returns= is a number, a type"),
            ({"on_failure": "RETRIES"}, "one of RETRY.*'RETRIES'"),
        ],
    )
    def test_mistakes(self, options: dict[str, Any], story: str) -> None:
        with pytest.raises(UsageError, match=story):
            task(**options)(lambda x: x)

    @pytest.mark.parametrize(
        ("options", "story"),
        [
            ({"x": STREAM_IN}, "stream"),
            ({"numba": True}, "compiled"),
            ({"computing_nodes": 2}, "several machines"),
            ({"processes_per_node": 4}, "several machines"),
        ],
    )
    def test_not_yet(self, options: dict[str, Any], story: str) -> None:
        with pytest.raises(NotYetError, match=story):
            task(**options)(lambda x: x)

    def test_what_a_failed_task_cannot_leave(self) -> None:
        with pytest.raises(UsageError, match=r"'y', which is no parameter"):
            on_failure(management="IGNORE", y=1)(task()(lambda x: None))
        for management, kind in (("CANCEL_SUCCESSORS", FILE_OUT), ("IGNORE", COLLECTION_OUT)):
            with pytest.raises(NotYetError, match=r"x= of on_failure"):
                on_failure(management=management, x="a")(task(x=kind)(lambda x: None))

    def test_what_changes_nothing_is_accepted(self) -> None:
        made = task(
            returns=1, is_replicated=True, isDistributed=True, cache_returns=False, tracing_hook=True,
            computing_nodes=1, processes_per_node=1, priority=True, numba=False,
        )(lambda x: x)  # fmt: skip
        with wr.Session(engine="inline"):
            assert compss_wait_on(made(3)) == 3
        assert made._what()[1].priority == 1

    def test_constraints(self) -> None:
        with pytest.raises(NotYetError, match="bandwidth"):
            constraint(storage_bw=100)
        with pytest.raises(NotYetError, match="bandwidth"):
            constraint(storageBW="100")
        with pytest.raises(UsageError, match=r"no 'computing_unit'.*'computingunits'"):
            constraint(computing_unit=1)
        with pytest.raises(UsageError, match=r"computing_units=...\) is a number, got 'many'"):
            task()(constraint(ComputingUnits="many")(lambda: None))
        with pytest.raises(UsageError, match="no WINDROW_NOT_SET"):
            task()(constraint(ComputingUnits="$WINDROW_NOT_SET")(lambda: None))

    @pytest.mark.parametrize(
        "name",
        ["mpi", "multinode", "ompss", "opencl", "container", "compss", "decaf", "mpmd_mpi", "julia",
         "http", "software", "prolog", "epilog", "implement", "data_transformation"],
    )  # fmt: skip
    def test_decorators_that_do_not_exist_yet(self, name: str) -> None:
        with pytest.raises(NotYetError, match=f"^@{name}: .* do not exist yet"):
            getattr(p, name)(runner="mpirun", processes=4)

    def test_more(self) -> None:
        with pytest.raises(NotYetError, match="whole program"):
            compss_set_wall_clock(60)
        with pytest.raises(UsageError, match='"r" or "rw"'):
            compss_wait_on(5, mode="w")
        with pytest.raises(UsageError, match="outside a task"):
            compss_ready_value(1, 0)
        with pytest.raises(UsageError, match="below @classmethod"):
            task()(classmethod(lambda cls: None))
        with pytest.raises(UsageError, match="once"):
            task()(plus)

        def generator() -> Iterator[int]:
            yield 1

        with pytest.raises(UsageError, match=r"generator.*wr.task"):
            task()(generator)

    def test_a_reduction_needs_one_collection(self) -> None:
        made = reduction(chunk_size=2)(task(returns=1, a=COLLECTION_IN, b=COLLECTION_IN)(lambda a, b: 0))
        with wr.Session(engine="inline"), pytest.raises(UsageError, match="needs one COLLECTION_IN"):
            made([1, 2, 3], [1])

    def test_a_wrong_call_is_refused_where_it_is_made(self) -> None:
        with (
            wr.Session(engine="inline") as session,
            used(session),
            pytest.raises(TypeError, match=r"task '.*' was called wrongly: .*'c'"),
        ):
            plus(1, c=3)
