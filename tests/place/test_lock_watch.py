"""When threads give way to processes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windrow.core.records import Measurement
from windrow.place.lock_watch import LockWatch


def yes() -> bool:
    return True


def no() -> bool:
    return False


def watched(wall: float, cpu: float, wait: float, tasks: int, workers: int = 2) -> tuple[LockWatch, float]:
    """Tasks of one kind on workers that are always busy."""
    watch = LockWatch(workers)
    now = 0.0
    for number in range(tasks):
        if number % workers == 0:
            now += wall
        watch.add(Measurement(wall, cpu, wait), now)
    return watch, now


def test_threads_that_wait_for_the_lock_give_way() -> None:
    watch, now = watched(wall=0.2, cpu=0.1, wait=0.1, tasks=20)
    why = watch.change(now, lambda: 60.0, no)
    assert "2 threads waited 50% of their time" in why
    assert "60 s" in why


def test_not_near_the_end() -> None:
    watch, now = watched(wall=0.2, cpu=0.1, wait=0.1, tasks=20)
    assert watch.change(now, lambda: 2.0, no) == ""
    assert watch.change(now, lambda: None, no) == ""


def test_threads_that_wait_for_data_stay() -> None:
    """Then nobody computes: the processors are idle."""
    watch, now = watched(wall=0.2, cpu=0.02, wait=0.18, tasks=40)
    assert watch.change(now, lambda: 600.0, no) == ""


def test_waiting_for_data_half_of_the_time_is_told_from_the_lock_by_the_processors_wanted() -> None:
    """Two threads that compute 70 % of their time want 1.4 processors: with the lock held all the time that is one."""
    watch, now = watched(wall=0.2, cpu=0.14, wait=0.06, tasks=40)
    assert watch.change(now, lambda: 600.0, yes) == ""
    assert watch.change(now, lambda: 600.0, no)


def test_threads_that_compute_stay() -> None:
    watch, now = watched(wall=0.2, cpu=0.195, wait=0.005, tasks=40)
    assert watch.change(now, lambda: 600.0, no) == ""


def test_first_tasks_do_not_count() -> None:
    watch, now = watched(wall=2.0, cpu=1.0, wait=1.0, tasks=2)
    assert watch.change(now, lambda: 600.0, no) == ""


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=20),
    st.floats(0, 1e4),
)
def test_any_numbers_have_an_answer(used: list[tuple[float, float, float]], left: float) -> None:
    watch = LockWatch(2)
    for number, (wall, cpu, wait) in enumerate(used):
        watch.add(Measurement(wall, cpu, min(wait, wall)), float(number))
    assert isinstance(watch.change(float(len(used)), lambda: left, no), str)
    assert 0.0 <= watch.share <= 1.0
