"""Groups that are entered by several threads at once, and inside themselves."""

from __future__ import annotations

import threading

import windrow as wr
from windrow.tasks.groups import current_group


@wr.task
def double(x: int) -> int:
    return 2 * x


def test_several_threads_may_be_in_one_group() -> None:
    both = threading.Barrier(2)
    failed: list[BaseException] = []

    def call(session: wr.Session, group: object) -> None:
        try:
            with group:  # type: ignore[attr-defined]
                both.wait(120)
                assert current_group(session) is group
                both.wait(120)
            assert current_group(session) is None
        except BaseException as error:  # noqa: BLE001 - a thread that fails says so to nobody
            failed.append(error)

    with wr.Session(engine="inline") as session:
        group = session.group("both")
        threads = [threading.Thread(target=call, args=(session, group)) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert failed == []


def test_a_group_inside_itself() -> None:
    with wr.Session(engine="inline") as session:
        with session.group("one") as group:
            with group:
                assert current_group(session) is group
            assert current_group(session) is group
        assert current_group(session) is None
        assert double(1).result() == 2
